"""Arrays of other libraries, used where they lie: DLPack and `__cuda_array_interface__`."""

from __future__ import annotations

from typing import Any

from kerascnn import _core
from kerascnn.device import canonical_name

# DLPack uses these numbers for memory that CUDA GPUs can read.
_CUDA_DEVICES = (2, 13)


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Any:
    """A tensor over the memory of another library's array.

    The function of this name in the [array API
    standard](https://data-apis.org/array-api/latest/API_specification/generated/array_api.from_dlpack.html).
    Work that the other library has enqueued on a GPU is waited for there, not on the host.

    Args:
        x: An array with `__dlpack__` and `__dlpack_device__` (NumPy, PyTorch, JAX, CuPy, ...), or a
            DLPack capsule that nobody has used yet. Of any shape and strides.
        device: Where the tensor is to be, by default where `x` is.
        copy: True for memory of its own, False for never a copy, None for one where it is needed:
            on another device, or for elements that are not aligned.

    Returns:
        A tensor of the same shape, dtype and strides; read-only where `x` says that it is.

    Raises:
        AttributeError: for what has no such methods.
        TypeError: for a dtype that tensors don't have.
        BufferError: where the memory can't be shared, or not without a copy that was forbidden.
        ValueError: for a capsule that was used before.

    Example:

    >>> import numpy as np
    >>> import kerascnn as keras
    >>> array = np.array([1.0, 2.0])
    >>> x = keras.from_dlpack(array)
    >>> array[0] = 5.0
    >>> x.tolist()
    [5.0, 2.0]
    """
    target = None if device is None else canonical_name(device)
    return _core.from_dlpack(x, device=target, copy=copy)


def shares_memory(x: Any) -> bool:
    """Tells whether `x` is an array of another library whose memory a tensor can use."""
    return hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__")


def tensor_over(x: Any) -> Any:
    """Returns a tensor over the memory of an array, by the protocol that the array offers."""
    if hasattr(x, "__dlpack__"):
        return _core.from_dlpack(x)
    return _core.from_cuda_array(x)


def is_on_gpu(x: Any) -> bool:
    """Tells whether an array, a tensor or a variable is in the memory of a CUDA GPU."""
    if isinstance(x, _core.Tensor):
        return bool(x.device != "cpu")
    if hasattr(x, "__dlpack_device__"):
        try:
            return x.__dlpack_device__()[0] in _CUDA_DEVICES
        except (BufferError, ValueError, TypeError, RuntimeError, AttributeError):
            # the array is on a device that DLPack does not know and is converted like any other
            return False
    return hasattr(x, "__cuda_array_interface__")
