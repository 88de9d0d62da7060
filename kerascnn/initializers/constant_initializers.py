"""Initializers that do not draw random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import dtypes, serialization
from kerascnn.initializers.initializer import Initializer


class Zeros(Initializer):
    """Zeros.

    Example:

    >>> from kerascnn import initializers
    >>> initializers.Zeros()((2,)).numpy().tolist()
    [0.0, 0.0]
    """

    def draw(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        return np.zeros(shape, dtypes.numpy_dtype(dtype))


class Ones(Initializer):
    """Ones.

    Example:

    >>> from kerascnn import initializers
    >>> initializers.Ones()((2,)).numpy().tolist()
    [1.0, 1.0]
    """

    def draw(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        return np.ones(shape, dtypes.numpy_dtype(dtype))


class Constant(Initializer):
    """One value everywhere.

    Args:
        value: A number, or an array that can be broadcast to the weights' shape.

    Example:

    >>> from kerascnn import initializers
    >>> initializers.Constant(3.0)((2,)).numpy().tolist()
    [3.0, 3.0]
    """

    def __init__(self, value: Any = 0.0) -> None:
        self.value = value

    def draw(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        return np.broadcast_to(np.asarray(self.value), shape).astype(dtypes.numpy_dtype(dtype))

    def get_config(self) -> dict[str, Any]:
        return {"value": serialization.serialize_object(self.value)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Constant:
        return cls(serialization.deserialize_object(config["value"]))


class Identity(Initializer):
    """A matrix with `gain` on its diagonal and zeros elsewhere.

    Args:
        gain: A factor.

    Raises:
        ValueError: in calls, for a shape that is no matrix's.

    Example:

    >>> from kerascnn import initializers
    >>> initializers.Identity(2.0)((2, 3)).numpy().tolist()
    [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]
    """

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def draw(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        if len(shape) != 2:
            raise ValueError(f"Identity is for matrices. Received: shape={tuple(shape)}")
        return (self.gain * np.eye(*shape)).astype(dtypes.numpy_dtype(dtype))

    def get_config(self) -> dict[str, Any]:
        return {"gain": self.gain}


# Each function returns a window of so many points, symmetric or periodic.
_WINDOWS: dict[str, Any] = {
    "bartlett": np.bartlett,
    "blackman": np.blackman,
    "boxcar": np.ones,
    "hamming": np.hamming,
    "hann": np.hanning,
}


class STFT(Initializer):
    """Cosines or sines of a short-time Fourier transform, as a kernel of `Conv1D`.

    Args:
        side: "real" for cosines, "imag" for sines.
        window: "hann", "hamming", "blackman", "bartlett", "boxcar", the values themselves of shape
            (frame_length,), or None.
        scaling: "density" or "spectrum" to scale by the window's root sum of squares or its sum.
        periodic: Whether the window is that of a periodic signal.

    Raises:
        ValueError: for other values of these, or a window of another length than the kernel.

    Shape: (frame_length, input_channels, fft_length // 2 + 1).

    Example:

    >>> from kerascnn import initializers
    >>> kernel = initializers.STFT("real", window=None, scaling=None)((4, 1, 3))
    >>> kernel.numpy()[:, 0, 1].round(4) + 0
    array([ 1.,  0., -1.,  0.], dtype=float32)
    """

    def __init__(
        self,
        side: str = "real",
        window: Any = "hann",
        scaling: str | None = "density",
        periodic: bool = False,
    ) -> None:
        if side not in ("real", "imag"):
            raise ValueError(f"`side` must be 'real' or 'imag'. Received: side={side!r}")
        if isinstance(window, str) and window not in _WINDOWS:
            raise ValueError(
                f"`window` must be one of {', '.join(_WINDOWS)}, an array or None. "
                f"Received: window={window!r}"
            )
        if scaling not in (None, "density", "spectrum"):
            raise ValueError(
                f"`scaling` must be 'density', 'spectrum' or None. Received: scaling={scaling!r}"
            )
        self.side = side
        self.window = window
        self.scaling = scaling
        self.periodic = periodic

    def draw(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        length, _, bins = shape
        time = np.arange(length).reshape(length, 1, 1)
        frequency = np.arange(bins).reshape(1, 1, bins) / ((bins - 1) * 2)
        angle = -2.0 * np.pi * time * frequency
        kernel = np.cos(angle) if self.side == "real" else np.sin(angle)
        if self.window is not None:
            kernel = kernel * self._scaled_window(length).reshape(length, 1, 1)
        return np.broadcast_to(kernel, shape).astype(dtypes.numpy_dtype(dtype))

    def _scaled_window(self, length: int) -> np.ndarray[Any, Any]:
        window = self.window
        if isinstance(window, str):
            window = (
                _WINDOWS[window](length + 1)[:-1] if self.periodic else _WINDOWS[window](length)
            )
        window = np.asarray(window, np.float64)
        if window.shape != (length,):
            raise ValueError(
                f"The window must have shape ({length},), the kernel's first size. "
                f"Received: {window.shape}"
            )
        if self.scaling == "density":
            return window / np.sqrt(np.sum(np.square(window)))
        return window / np.sum(np.abs(window)) if self.scaling == "spectrum" else window

    def get_config(self) -> dict[str, Any]:
        return {
            "side": self.side,
            "window": serialization.serialize_object(self.window),
            "periodic": self.periodic,
            "scaling": self.scaling,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> STFT:
        return cls(**{**config, "window": serialization.deserialize_object(config["window"])})
