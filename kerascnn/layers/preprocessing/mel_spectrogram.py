"""Sounds as images: loudness by time and pitch."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import ops
from kerascnn.layers.layer import Layer

Array = np.ndarray[Any, Any]


class MelSpectrogram(Layer):
    """The spectrum of short pieces of a sound, on the mel scale of pitches.

    Args:
        fft_length: Length of the transform of a piece.
        sequence_stride: Samples from one piece to the next.
        sequence_length: Samples of a piece; by default `fft_length`.
        window: "hann", "hamming", a vector of `sequence_length`, or None.
        sampling_rate: Samples of the sound in a second.
        num_mel_bins: Number of pitches.
        min_freq: Lowest frequency, in hertz.
        max_freq: Highest frequency; by default half of the sampling rate.
        power_to_db: Whether the result is in decibels.
        top_db: How far below the loudest element of the batch the others may be, in decibels.
        mag_exp: 1 for the spectrum's magnitudes, 2 for its power.
        min_power: The least power.
        ref_power: The power that is 0 decibels.

    Input: (samples,) or (batch, samples). Output: (num_mel_bins, time) or (batch, num_mel_bins,
    time).

    Raises:
        ValueError: for pieces that are longer than the transform.

    Source: the mel scale as in S. Young and others, "The HTK Book": 1127 * ln(1 + f / 700).

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.MelSpectrogram(
    ...     fft_length=64, sequence_stride=32, num_mel_bins=8, sampling_rate=800
    ... )
    >>> layer(keras.ops.ones((2, 320))).shape
    (2, 8, 11)
    """

    def __init__(
        self,
        fft_length: int = 2048,
        sequence_stride: int = 512,
        sequence_length: int | None = None,
        window: Any = "hann",
        sampling_rate: int = 16000,
        num_mel_bins: int = 128,
        min_freq: float = 20.0,
        max_freq: float | None = None,
        power_to_db: bool = True,
        top_db: float = 80.0,
        mag_exp: float = 2.0,
        min_power: float = 1e-10,
        ref_power: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.fft_length = fft_length
        self.sequence_stride = sequence_stride
        self.sequence_length = sequence_length or fft_length
        if self.fft_length < self.sequence_length:
            raise ValueError(
                "`fft_length` must be `sequence_length` or more. Received: sequence_length="
                f"{self.sequence_length}, fft_length={self.fft_length}"
            )
        self.window = window
        self.sampling_rate = sampling_rate
        self.num_mel_bins = num_mel_bins
        self.min_freq = min_freq
        self.max_freq = max_freq or int(sampling_rate / 2)
        self.power_to_db = power_to_db
        self.top_db = top_db
        self.mag_exp = mag_exp
        self.min_power = min_power
        self.ref_power = ref_power

    def call(self, inputs: Any) -> Any:
        dtype = "float64" if self.compute_dtype == "float64" else "float32"
        real, imaginary = ops.stft(
            ops.cast(inputs, dtype),
            self.sequence_length,
            self.sequence_stride,
            self.fft_length,
            self.window,
        )
        power = ops.power(ops.sqrt(ops.square(real) + ops.square(imaginary)), self.mag_exp)
        pitches = self.linear_to_mel_weight_matrix(
            self.num_mel_bins,
            self.fft_length // 2 + 1,
            self.sampling_rate,
            self.min_freq,
            self.max_freq,
        )
        result = ops.matmul(power, pitches.astype(dtype))
        if self.power_to_db:
            result = self._in_decibels(result)
        return ops.cast(ops.swapaxes(result, -1, -2), self.compute_dtype)

    def _in_decibels(self, power: Any) -> Any:
        reference = max(abs(self.ref_power), self.min_power)
        level = 10.0 * ops.log10(ops.maximum(power, self.min_power))
        level = level - 10.0 * float(np.log10(reference))
        return ops.maximum(level, ops.max(level) - self.top_db)

    def linear_to_mel_weight_matrix(
        self,
        num_mel_bins: int = 20,
        num_spectrogram_bins: int = 129,
        sampling_rate: float = 8000,
        lower_edge_hertz: float = 125.0,
        upper_edge_hertz: float = 3800.0,
        dtype: str = "float32",
    ) -> Array:
        """The share of each frequency in each pitch: triangles of height 1 that overlap by half on
        the mel scale, of shape (num_spectrogram_bins, num_mel_bins). The frequency 0 has none.
        """
        frequencies = np.linspace(0.0, sampling_rate / 2.0, num_spectrogram_bins)[1:]
        places = _mel(frequencies)[:, None]
        edges = np.linspace(_mel(lower_edge_hertz), _mel(upper_edge_hertz), num_mel_bins + 2)
        low, center, high = edges[:-2], edges[1:-1], edges[2:]
        rising, falling = (places - low) / (center - low), (high - places) / (high - center)
        triangles = np.maximum(0.0, np.minimum(rising, falling))
        return np.pad(triangles, [[1, 0], [0, 0]]).astype(dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        samples = input_shape[-1]
        half = 2 * (self.fft_length // 2)
        pieces = None
        if samples is not None:
            pieces = (samples + half - self.fft_length) // self.sequence_stride + 1
        return (*input_shape[:-1], self.num_mel_bins, pieces)

    def get_config(self) -> dict[str, Any]:
        names = (
            "fft_length sequence_stride sequence_length window sampling_rate num_mel_bins min_freq "
            "max_freq power_to_db top_db mag_exp ref_power min_power"
        )
        return {**super().get_config(), **{name: getattr(self, name) for name in names.split()}}


def _mel(hertz: Any) -> Any:
    return 1127.0 * np.log(1.0 + np.asarray(hertz) / 700.0)
