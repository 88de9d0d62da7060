"""Data that is in a GPU's memory already is used in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import _core, dtypes, interchange
from kerascnn.ops import dispatch


class DeviceArray:
    """A tensor with what data, checks and steps ask of NumPy's arrays.

    Args:
        tensor: the tensor; rows that lie one behind the other are used without a copy.

    Attributes:
        tensor: the same, contiguous.
    """

    def __init__(self, tensor: _core.Tensor):
        self.tensor = tensor.contiguous()
        self.shape: tuple[int, ...] = tuple(tensor.shape)
        self.dtype: np.dtype[Any] = dtypes.numpy_dtype(tensor.dtype)

    @property
    def device(self) -> str:
        return self.tensor.device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return self.tensor.size

    @property
    def nbytes(self) -> int:
        return self.tensor.nbytes

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> DeviceArray:
        start, stop, _ = rows.indices(len(self))
        shape = [max(0, stop - start), *self.shape[1:]]
        row = self.nbytes // len(self) if len(self) else 0
        return DeviceArray(self.tensor.piece(shape, self.tensor.dtype, start * row))

    def astype(self, dtype: Any, copy: bool = True) -> DeviceArray:
        """Casts on the device."""
        name = np.dtype(dtype).name
        if name == self.tensor.dtype and not copy:
            return self
        return DeviceArray(dispatch.run("cast", [self.tensor], {"dtype": name})[0])

    def min(self) -> Any:
        """Returns the least element as a number."""
        return self._reduced("reduce_min")

    def max(self) -> Any:
        """Returns the greatest element as a number."""
        return self._reduced("reduce_max")

    def _reduced(self, op: str) -> Any:
        axes = list(range(self.ndim))
        (result,) = dispatch.run(op, [self.tensor], {"axes": axes, "keepdims": False})
        return result.numpy()[()]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.tensor.__array__(dtype, copy)

    def on(self, device: str) -> DeviceArray | np.ndarray:
        """Returns the array on another device, or on a CPU as NumPy's array."""
        if self.device == device:
            return self
        if device == "cpu":
            return self.tensor.numpy()
        return DeviceArray(self.tensor.to(device))


Array = np.ndarray | DeviceArray


def device_array(value: Any) -> DeviceArray | None:
    """An array of another library, or a tensor, where it lies on a GPU that can be used.

    `None` for everything else, which is read on the host.
    """
    if isinstance(value, (np.ndarray, np.generic)) or not interchange.is_on_gpu(value):
        return None
    if type(value).__module__.partition(".")[0] == "torch":
        value = value.detach()  # as in Keras, only the weights are learned, not the data
    try:
        return DeviceArray(
            value if isinstance(value, _core.Tensor) else interchange.tensor_over(value)
        )
    except (TypeError, BufferError, _core.DeviceError):
        return None  # tensors lack the dtype, or the library has no GPU here


def tensor_of(array: Array, device: str) -> _core.Tensor:
    """Returns the tensor of an array that is on the device, or copies it there."""
    if isinstance(array, DeviceArray):
        return array.tensor
    return _core.from_numpy(array, device)
