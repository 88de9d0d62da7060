"""Data sets of sounds in a folder."""

from __future__ import annotations

import functools
import math
import os
import wave
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn.data import elements
from kerascnn.utils.directory import Folder

ALLOWED_FORMATS = (".wav",)
# The resampling kernel has so many zero crossings on each side, and keeps this share of the band.
_ZEROS, _ROLLOFF = 6, 0.99
# Sounds of other rates are not resampled: of few samples, any number would be made.
_LOWEST_RATE, _HIGHEST_RATE = 1_000, 768_000
# The kernels of so many numbers are made at a time.
_KERNEL_NUMBERS = 1 << 20


def audio_dataset_from_directory(
    directory: str | os.PathLike[str],
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    batch_size: int | None = 32,
    sampling_rate: int | None = None,
    output_sequence_length: int | None = None,
    ragged: bool = False,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    verbose: bool = True,
) -> Any:
    """Batches of the `.wav` files in a folder, with a subfolder for each class.

    Args:
        directory: The folder.
        labels: See `image_dataset_from_directory`, as for all arguments that are not listed here.
        label_mode: "int" (int32), "categorical", "binary" (both float32) or None for sounds only.
        class_names: The subfolders to take.
        batch_size: None for single sounds.
        sampling_rate: Samples per second that sounds are brought to, by interpolation with a
            windowed sinc; None to leave them as they are.
        output_sequence_length: How many samples of a file are kept; shorter ones are filled up
            with 0. By default all of them, where the batch is as long as the longest of them.
        ragged: Only False: arrays are dense.
        shuffle: Whether each pass has another order.
        seed: Of the shuffling.
        validation_split: The share of the files that is kept for validation.
        subset: "training", "validation" or "both".
        follow_links: Whether to go into folders that are symbolic links.
        verbose: Whether to show how many files were found.

    Returns:
        A `keras.data.Dataset` (two with `subset="both"`) of float32 arrays from -1 to 1, shape
        `(batch_size, num_samples, num_channels)`, or pairs of them and their labels.

    Raises:
        FileNotFoundError: where there is no such folder.
        ValueError: for arguments that do not go together, a folder without sounds, or a file that
            does not hold integers of 8, 16, 24 or 32 bits.

    Example:

    >>> import os, wave
    >>> import kerascnn as keras
    >>> os.makedirs("sounds/silence")
    >>> with wave.open("sounds/silence/0.wav", "wb") as file:
    ...     file.setparams((1, 2, 8000, 0, "NONE", None))  # one channel, two bytes per sample
    ...     file.writeframes(bytes(2 * 800))
    >>> for sounds, labels in keras.utils.audio_dataset_from_directory("sounds", verbose=False):
    ...     sounds.shape, labels.tolist()
    ((1, 800, 1), [0])
    """
    folder = Folder(
        directory,
        labels,
        label_mode,
        class_names,
        batch_size,
        shuffle,
        seed,
        validation_split,
        subset,
        follow_links,
        verbose,
        kind="audio",
        formats=ALLOWED_FORMATS,
    )
    if ragged:
        raise ValueError("ragged=True is not available: arrays are dense.")
    if sampling_rate is not None and (not isinstance(sampling_rate, int) or sampling_rate <= 0):
        raise ValueError(
            "`sampling_rate` must be an integer higher than 0. Received: "
            f"sampling_rate={sampling_rate}"
        )
    read = functools.partial(_read, rate=sampling_rate, length=output_sequence_length)
    if output_sequence_length is not None and sampling_rate is None:
        return folder.datasets(read)
    return folder.datasets(read, lambda sounds: elements.padded(sounds, None, None))


def _read(path: str, rate: int | None, length: int | None) -> np.ndarray:
    """Reads a file as float32 (samples, channels)."""
    try:
        with wave.open(path, "rb") as file:
            own_rate, width = file.getframerate(), file.getsampwidth()
            if width > 4:
                raise wave.Error(f"it has samples of {width} bytes; 1 to 4 can be read")
            # lengths in the file may be wrong, and the module believes them
            frames = min(file.getnframes(), os.path.getsize(path) // file.getsampwidth())
            content = file.readframes(frames)
            values = _decoded(content, width).reshape(-1, file.getnchannels())
    except (wave.Error, EOFError, ValueError, RuntimeError) as error:
        # RuntimeError is what the module raises for a chunk that ends behind the file
        reason = str(error) or "a chunk of it ends behind the file"
        raise ValueError(f"{path} cannot be read as a WAV file ({reason}).") from error
    if rate is not None and not _LOWEST_RATE <= own_rate <= _HIGHEST_RATE and own_rate != rate:
        raise ValueError(
            f"{path} has {own_rate} samples a second. Sounds of {_LOWEST_RATE} to {_HIGHEST_RATE} "
            f"are resampled; without sampling_rate={rate} the file is read as it is."
        )
    if length is not None:
        values = values[:length]
        values = np.pad(values, ((0, length - len(values)), (0, 0)))
    return values if rate is None else resampled(values, own_rate, rate)


def _decoded(content: bytes, width: int) -> np.ndarray:
    """Converts samples of some bytes each to numbers from -1 to 1."""
    if width == 1:  # only these are unsigned
        return (np.frombuffer(content, np.uint8).astype("float32") - 128) / 128
    if width == 3:
        wide = np.zeros((len(content) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(content, np.uint8).reshape(-1, 3)
        return (wide.view("<i4")[:, 0] / 2.0**31).astype("float32")
    kind = {2: "<i2", 4: "<i4"}[width]
    return (np.frombuffer(content, kind) / 2.0 ** (8 * width - 1)).astype("float32")


def resampled(values: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
    """Samples at another rate, by a sinc in a Hann window that cuts what either rate can't hold.

    Args:
        values: Of shape (samples, channels).
        rate: How many samples a second has.
        new_rate: How many it shall have.

    Source: Smith, "Digital Audio Resampling Home Page", Stanford University, 2002.
    """
    common = math.gcd(rate, new_rate)
    rate, new_rate = rate // common, new_rate // common
    if rate == new_rate:
        return values
    band = min(rate, new_rate) * _ROLLOFF / rate  # as a share of the old rate
    half = math.ceil(_ZEROS / band)
    count = math.ceil(len(values) * new_rate / rate)
    steps = np.arange(-half, half + 1)

    def kernels(phases: np.ndarray) -> np.ndarray:
        distance = (steps[None, :] - (phases * rate % new_rate)[:, None] / new_rate) * band
        inside = np.abs(distance) < _ZEROS
        window = np.where(inside, np.cos(np.pi * distance / (2 * _ZEROS)) ** 2, 0.0)
        return np.sinc(distance) * window * band

    # After `new_rate` samples, the positions between samples of the source repeat.
    block = max(1, _KERNEL_NUMBERS // len(steps))
    table = kernels(np.arange(new_rate)) if new_rate <= min(block, count) else None
    padded = np.pad(values.astype("float64"), ((half, half + 1), (0, 0)))
    result = np.zeros((count, values.shape[1]))
    for begin in range(0, count, block):
        places = np.arange(begin, min(begin + block, count))
        first, phases = places * rate // new_rate, places % new_rate
        own = kernels(phases) if table is None else table[phases]
        for step in range(len(steps)):
            result[begin : begin + block] += own[:, step, None] * padded[first + step]
    return result.astype("float32")
