"""Spectra of short pieces of a signal, by convolutions whose kernels may be trained."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from kerascnn import config, initializers, ops, serialization
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer

_MODES = ("log", "magnitude", "psd", "real", "imag", "angle", "stft")


class STFTSpectrogram(Layer):
    """The short-time Fourier transform of each channel of a signal, as a convolution.

    Its kernels begin as those of the transform; `trainable=False` keeps them so.

    Args:
        mode: What of the transform is returned: "log" or "magnitude", the power spectrum "psd",
            "real", "imag", "angle", or "stft" for real and imaginary part.
        frame_length: Samples of a piece.
        frame_step: Samples from one piece to the next; by default half of `frame_length`.
        fft_length: Length of the transform of a piece; by default the next power of two.
        window: The name of a window ("hann", "hamming", ...), or a vector of `frame_length`.
        periodic: Whether the window goes on with its first sample.
        scaling: "density", "spectrum" or None: what the window is scaled by.
        padding: "valid" or "same".
        expand_dims: Whether frequencies have an axis of their own, as images have.
        data_format: "channels_last" or "channels_first".

    Input: (batch, time, channels). Output: (batch, new_time, channels * frequencies), or with
    `expand_dims` (batch, new_time, frequencies, channels), of fft_length // 2 + 1 frequencies; with
    "channels_first" the channels come first.

    Raises:
        ValueError: for lengths that don't fit and unknown names, and when called on a signal that
            is shorter than a piece, unless `padding` is "same".
        TypeError: when called on other dtypes than float16, float32 and float64.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.STFTSpectrogram(frame_length=16, frame_step=8)
    >>> layer(keras.ops.ones((2, 64, 1))).shape
    (2, 7, 9)
    """

    def __init__(
        self,
        mode: str = "log",
        frame_length: int = 256,
        frame_step: int | None = None,
        fft_length: int | None = None,
        window: Any = "hann",
        periodic: bool = False,
        scaling: str | None = "density",
        padding: str = "valid",
        expand_dims: bool = False,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if frame_step is not None and not 1 <= frame_step <= frame_length:
            raise ValueError(
                "`frame_step` must be from 1 to `frame_length`. Received: "
                f"frame_step={frame_step}, frame_length={frame_length}"
            )
        if fft_length is not None and fft_length < frame_length:
            raise ValueError(
                "`fft_length` must be `frame_length` or more. Received: "
                f"fft_length={fft_length}, frame_length={frame_length}"
            )
        if fft_length is not None and fft_length & (fft_length - 1):
            warnings.warn(
                f"`fft_length` should be a power of two. Received: fft_length={fft_length}",
                stacklevel=2,
            )
        for name, value, known in (
            ("mode", mode, _MODES),
            ("scaling", scaling, ("density", "spectrum", None)),
            ("padding", padding, ("valid", "same")),
        ):
            if value not in known:
                raise ValueError(f"`{name}` must be one of {known}. Received: {name}={value!r}")
        self.mode = mode
        self.frame_length = frame_length
        self.frame_step = frame_step
        self.fft_length = fft_length
        self.window = window
        self.periodic = periodic
        self.scaling = scaling
        self.padding = padding
        self.expand_dims = expand_dims
        self.data_format = data_format or config.image_data_format()
        self._step = frame_step or frame_length // 2
        self._length = fft_length or 2 ** math.ceil(math.log2(frame_length))
        self._initializer("real")  # from here on the names of windows are known to be valid
        self.input_spec = InputSpec(ndim=3)

    def _initializer(self, side: str) -> Any:
        return initializers.STFT(side, self.window, self.scaling, self.periodic)

    def build(self, input_shape: Any) -> None:
        shape = (self.frame_length, 1, self._length // 2 + 1)
        if self.mode != "imag":
            initializer = self._initializer("real")
            self.real_kernel = self.add_weight(shape, initializer, name="real_kernel")
        if self.mode != "real":
            initializer = self._initializer("imag")
            self.imag_kernel = self.add_weight(shape, initializer, name="imag_kernel")

    def compute_output_shape(self, input_shape: Any) -> Any:
        batch, time, channels = input_shape
        if self.data_format == "channels_first":
            time, channels = channels, time
        time = self._pieces(time)
        frequencies = (self._length // 2 + 1) * (2 if self.mode == "stft" else 1)
        if self.expand_dims:
            shape = (batch, channels, time, frequencies)
            return (
                shape
                if self.data_format == "channels_first"
                else (*shape[:1], *shape[2:], channels)
            )
        features = None if channels is None else channels * frequencies
        first = self.data_format == "channels_first"
        return (batch, features, time) if first else (batch, time, features)

    def _pieces(self, samples: int | None) -> int | None:
        """Returns the number of pieces of a signal."""
        if samples is None:
            return None
        if self.padding == "same":
            return math.ceil(samples / self._step)
        if samples < self.frame_length:
            raise ValueError(
                f"{self.name}: a signal of {samples} samples has no piece of frame_length="
                f"{self.frame_length}. Take a shorter `frame_length`, or padding='same'."
            )
        return (samples - self.frame_length) // self._step + 1

    def call(self, inputs: Any) -> Any:
        if inputs.dtype not in ("float16", "float32", "float64"):
            raise TypeError(
                "Invalid input type. Expected float16, float32 or float64. Received: "
                f"dtype={inputs.dtype}"
            )
        real = None if self.mode == "imag" else self._convolve(inputs, self.real_kernel)
        imaginary = None if self.mode == "real" else self._convolve(inputs, self.imag_kernel)
        if self.mode == "real" or self.mode == "imag":
            return self._arranged(imaginary if real is None else real)
        if self.mode == "angle":
            return self._arranged(ops.arctan2(imaginary, real))
        if self.mode == "stft":
            return self._arranged(ops.concatenate([real, imaginary], axis=-1))
        power = ops.square(real) + ops.square(imaginary)
        if self.mode == "psd":
            # These frequencies occur twice, as conjugates of one another.
            inner = np.ones(power.shape[-1], power.dtype)
            inner[1:-1] = 2.0
            return self._arranged(power * inner)
        magnitude = ops.sqrt(ops.maximum(self._arranged(power), config.epsilon()))
        if self.mode == "magnitude":
            return magnitude
        return ops.log(ops.maximum(magnitude, config.epsilon()))

    def _convolve(self, inputs: Any, kernel: Any) -> Any:
        """Applies the kernels and returns (batch, channels, time, frequencies)."""
        if self.data_format == "channels_last":
            inputs = ops.swapaxes(inputs, 1, 2)
        channels, samples = inputs.shape[1:]
        self._pieces(samples)  # raises an error if there is none
        result = ops.conv(
            ops.reshape(inputs, (-1, samples, 1)),
            ops.cast(kernel, inputs.dtype),
            strides=self._step,
            padding=self.padding,
            data_format="channels_last",
        )
        return ops.reshape(result, (-1, channels, *result.shape[1:]))

    def _arranged(self, x: Any) -> Any:
        """Rearranges (batch, channels, time, frequencies) to the layer's output."""
        if self.expand_dims:
            return x if self.data_format == "channels_first" else ops.transpose(x, (0, 2, 3, 1))
        channels, time, frequencies = x.shape[1:]
        x = ops.transpose(x, (0, 2, 1, 3))
        x = ops.reshape(x, (-1, time, channels * frequencies))
        return x if self.data_format == "channels_last" else ops.swapaxes(x, 1, 2)

    def get_config(self) -> dict[str, Any]:
        names = (
            "mode frame_length frame_step fft_length window periodic scaling padding data_format "
            "expand_dims"
        )
        own = {name: getattr(self, name) for name in names.split()}
        if not isinstance(self.window, (str, type(None))):
            own["window"] = serialization.serialize_object(np.asarray(self.window))
        return {**super().get_config(), **own}
