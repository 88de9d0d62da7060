"""The package `onnx`, which is needed only where such a file is read or written."""

from __future__ import annotations

from typing import Any


def require_onnx() -> Any:
    """Imports and returns the package `onnx`.

    Raises:
        ImportError: where it is not installed, with what to do.
    """
    try:
        import onnx
    except ImportError as error:
        raise ImportError(
            "ONNX files are read and written with the package `onnx`, which is not installed. "
            "Install it: pip install 'kerascnn[onnx]', or pip install onnx."
        ) from error
    return onnx
