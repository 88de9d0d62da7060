"""Which kernels were chosen by timing them."""

from __future__ import annotations

from typing import Any

from kerascnn import _core


def kernel_choices() -> list[dict[str, Any]]:
    """What timing found for the large convolutions and matrix products that were compiled.

    Returns:
        A row for each call, in the order in which programs asked first: `machine` (device and
        versions), `call` (op, dtypes, shapes, attributes), `kernel` (the one that was chosen),
        `seconds` (a dictionary: of a run of each kernel that took the call) and `is_from_disk`
        (whether an earlier process had found it). Empty on CPUs, and where
        `config.set_autotune(False)` forbids it.

    Example:

    >>> import kerascnn as keras
    >>> [row["kernel"] for row in keras.profiler.kernel_choices()]
    []
    """
    return _core.kernel_choices()
