"""Which kernels were chosen by timing them."""

from __future__ import annotations

from typing import Any

from kerascnn import _core


def kernel_choices() -> list[dict[str, Any]]:
    """Returns what timing found for the large convolutions and matrix products that were compiled.

    Returns:
        A row for each call, in the order in which they were found: `machine` (device and versions),
        `call` (op, dtypes, shapes, attributes), `kernel` (the one that was chosen), `seconds` (a
        dictionary: of a run of each kernel that takes the call and computes the same as the usual
        one) and `is_from_disk` (whether an earlier process had found it). Empty where no program
        was compiled for a GPU since `config.set_autotune(True)`.

    Example:

    >>> import kerascnn as keras
    >>> [row["kernel"] for row in keras.profiler.kernel_choices()]
    []
    """
    return _core.kernel_choices()
