"""Models that other libraries wrote as ONNX files."""

from __future__ import annotations

import os
from typing import Any


def from_onnx(filepath: str | os.PathLike[str]) -> Any:
    """A model of what an ONNX file computes, whose weights can be trained.

    Nodes with weights become layers: convolutions, `Dense`, normalizations, embeddings, `LSTM` and
    `GRU`. Inputs and outputs have the axes that they have in the file, so images have their
    channels first; inside they are last, with transposes at the edges. Constants are folded. The
    ops that are read are listed in the documentation; weights in files beside the model are read
    where they lie in its folder.

    The file is not trusted: nothing of it is run, nothing outside of its folder is read, and sizes
    are compared with the file before memory is taken. It needs the package `onnx`.

    Args:
        filepath: Of the file, of opset 13 to 23.

    Returns:
        A functional `Model`, not compiled.

    Raises:
        ValueError: for a damaged file, and for ops that are not known, naming them.
        ImportError: without the package `onnx`.

    Example:

    >>> import os, tempfile
    >>> import kerascnn as keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.onnx")
    >>> model.export(path)
    >>> keras.models.from_onnx(path).count_params()
    3
    """
    from kerascnn.onnx_files import reading

    return reading.read(filepath)
