"""Images whose values are spread out: by their extremes, or by how often each of them occurs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import ops
from kerascnn.dtypes import is_float
from kerascnn.layers.preprocessing.base import (
    ImagePreprocessing,
    sorted_value_range,
    to_range,
)

_FULL_RANGE = (0.0, 255.0)
_TONES = 256


class AutoContrast(ImagePreprocessing):
    """Stretches each channel of each image over the whole range of values, in training or not.

    A channel of only one value stays as it is.

    Args:
        value_range: The smallest and the largest value of images.

    Raises:
        ValueError: for a value range that is no pair.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> image = keras.ops.array([[[10.0], [20.0], [30.0]]])
    >>> keras.layers.AutoContrast()(image).numpy().ravel().tolist()
    [0.0, 127.5, 255.0]
    """

    _moves_pixels = False

    def __init__(self, value_range: Sequence[float] = (0, 255), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.value_range = sorted_value_range(value_range)

    def transform_images(
        self, images: Any, transformation: Any = None, training: bool = True
    ) -> Any:
        original = ops.cast(images, self.compute_dtype)
        images = to_range(original, self.value_range, _FULL_RANGE)
        axes = [len(images.shape) + axis for axis in (self.height_axis, self.width_axis)]
        low = ops.min(images, axes, keepdims=True)
        high = ops.max(images, axes, keepdims=True)
        scale = ops.divide(255.0, ops.subtract(high, low))
        offset = ops.multiply(ops.negative(low), scale)
        results = ops.clip(ops.add(ops.multiply(images, scale), offset), 0.0, 255.0)
        results = to_range(results, _FULL_RANGE, self.value_range)
        return ops.where(ops.greater(high, low), results, original)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "value_range": self.value_range}


def histograms(tones: Any, bins: int) -> Any:
    """Returns how often each of `bins` numbers occurs in each row, (rows, n) int32 -> (rows, bins).

    Counts up to 2^24 are exact. A number is taken apart into two digits; a product of both
    digits' one-hot rows counts their pairs, with far less memory than a one-hot row of all bins.
    """
    digit = math.ceil(math.sqrt(bins))
    high = ops.one_hot(ops.floor_divide(tones, digit), digit, dtype="float32")
    low = ops.one_hot(ops.mod(tones, digit), digit, dtype="float32")
    counts = ops.matmul(ops.transpose(high, (0, 2, 1)), low)
    return ops.reshape(counts, (-1, digit * digit))[:, :bins]


def running_sums(counts: Any) -> Any:
    """The sum of each number of a row and those before it, (rows, n), in float64.

    n is taken apart into rows and columns: products with triangles of ones add up each row, and the
    rows before it. Few kernels, and in float64 exact for counts.
    """
    rows, n = counts.shape
    digit = math.ceil(math.sqrt(n))
    counts = ops.cast(counts, "float64")
    if digit * digit > n:
        counts = ops.pad(counts, [[0, 0], [0, digit * digit - n]])
    counts = ops.reshape(counts, (rows, digit, digit))
    sums = ops.matmul(counts, np.triu(np.ones((digit, digit))))
    before = ops.matmul(sums[:, :, -1], np.triu(np.ones((digit, digit)), 1))
    sums = ops.reshape(ops.add(sums, ops.expand_dims(before, -1)), (rows, digit * digit))
    return sums[:, :n] if digit * digit > n else sums


def equalized(images: Any, bins: int, channel_axis: int, groups: int = 1) -> Any:
    """Images (n, ...) with values from 0 to 255, each tone about equally frequent afterwards.

    Tones are counted for each channel over all images of a group; groups of equally many images
    follow each other.
    """
    indices = ops.floor(ops.divide(ops.multiply(ops.cast(images, "float32"), bins - 1), 255.0))
    indices = ops.cast(ops.clip(indices, 0.0, float(bins - 1)), "int32")
    rows = indices if channel_axis == -3 else ops.transpose(indices, (0, 3, 1, 2))
    batch, channels = rows.shape[:2]
    # Counts of each image are added in float64, which is exact for any number of images.
    counts = histograms(ops.reshape(rows, (batch * channels, -1)), bins)
    counts = ops.reshape(counts, (groups, batch // groups, channels, bins))
    counts = ops.sum(ops.cast(counts, "float64"), 1)
    cdf = ops.reshape(running_sums(ops.reshape(counts, (-1, bins))), (groups, channels, bins))
    total = cdf[..., -1:]
    first = ops.min(ops.where(ops.greater(cdf, 0.0), cdf, total), -1, keepdims=True)
    rest = ops.subtract(total, first)
    is_flat = ops.equal(rest, 0.0)  # the channel has a single tone
    above = ops.cast(ops.multiply(ops.subtract(cdf, first), 255.0), "float32")
    table = ops.divide(above, ops.cast(ops.where(is_flat, 1.0, rest), "float32"))
    table = ops.clip(ops.round(table), 0.0, 255.0)
    return _looked_up(images, table, is_flat, channel_axis)


def _looked_up(images: Any, table: Any, is_flat: Any, channel_axis: int) -> Any:
    """Looks up the new value of each pixel in a table (groups, channels, bins)."""
    groups, channels, bins = table.shape
    batch = images.shape[0]
    places = ops.multiply(ops.divide(images, 255.0), float(bins - 1))
    places = ops.cast(ops.clip(places, 0.0, float(bins - 1)), "int32")
    shape = [batch, 1, 1, 1]
    shape[channel_axis] = channels
    group = np.repeat(np.arange(groups), batch // groups)[:, None]
    row = (group * channels + np.arange(channels)).reshape(shape).astype("int32")
    found = ops.take(ops.reshape(table, (-1,)), ops.add(places, row * bins), 0)
    stays = ops.take(ops.reshape(is_flat, (-1,)), ops.convert_to_tensor(row), 0)
    return ops.where(stays, images, ops.cast(found, images.dtype))


class Equalization(ImagePreprocessing):
    """In training, changes values so that each range of them occurs about equally often.

    Tones are counted over all images of a batch, for each channel, as in Keras. Outside of
    training nothing happens.

    Args:
        value_range: The smallest and the largest value of images.
        bins: How many tones are told apart.
        data_format: By default the configured one.

    Raises:
        ValueError: for a value range that is no pair.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.Equalization()
    >>> image = keras.ops.array([[[10.0], [11.0], [11.0], [12.0]]])
    >>> layer(image, training=True).numpy().ravel().tolist()
    [0.0, 170.0, 170.0, 255.0]
    """

    _moves_pixels = False

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        bins: int = 256,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self.bins = bins
        self.value_range = sorted_value_range(value_range)

    def transform_images(
        self, images: Any, transformation: Any = None, training: bool = True, groups: int = 1
    ) -> Any:
        images = ops.cast(images, self.compute_dtype)
        if not training:
            return images
        low, high = (float(x) for x in self.value_range)
        scale, back = 255 / (high - low), (high - low) / 255
        if (low, high) != _FULL_RANGE:
            images = ops.add(ops.multiply(images, scale), -low * scale)
        images = equalized(images, self.bins, self.channel_axis, groups)
        if (low, high) != _FULL_RANGE:
            images = ops.add(ops.multiply(images, back), low)
        return images

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "bins": self.bins, "value_range": self.value_range}


class ContrastLimitedAdaptiveHistogramEqualization(ImagePreprocessing):
    """Equalizes each tile of each image with a limited contrast, in training or not.

    Between the middles of four tiles, the values that each of them gives are interpolated.

    Args:
        value_range: The smallest and the largest value of images.
        clip_limit: How many times the mean count a tone's count may be in a tile; what lies above
            goes to all tones. 0 for no limit.
        tile_grid_size: How many tiles there are along height and width. An image that they don't
            divide is continued by its mirror image while tones are counted.
        data_format: By default the configured one.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape; integers stay integers.

    Source: Zuiderveld, "Contrast Limited Adaptive Histogram Equalization", 1994.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 2))
    >>> layer(keras.ops.ones((2, 8, 8, 3))).shape
    (2, 8, 8, 3)
    """

    _moves_pixels = False

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        clip_limit: float = 4.0,
        tile_grid_size: Sequence[int] = (8, 8),
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self.value_range = value_range
        self.clip_limit = clip_limit
        self.tile_grid_size = tile_grid_size

    def transform_images(
        self, images: Any, transformation: Any = None, training: bool = True
    ) -> Any:
        images = ops.convert_to_tensor(images)
        dtype = images.dtype
        if self.data_format == "channels_first":
            images = ops.transpose(images, (0, 2, 3, 1))
        images = to_range(ops.cast(images, "float32"), self.value_range, _FULL_RANGE)
        tones = ops.cast(ops.clip(images, 0.0, 255.0), "int32")
        tables = self._tables(tones)
        images = to_range(self._interpolated(tones, tables), _FULL_RANGE, self.value_range)
        if self.data_format == "channels_first":
            images = ops.transpose(images, (0, 3, 1, 2))
        return ops.cast(images, dtype)

    def _tables(self, tones: Any) -> Any:
        """Computes the new value of each tone, (n * rows of tiles * columns * channels, 256)."""
        batch, height, width, channels = tones.shape
        rows, columns = self.tile_grid_size
        tile_height, tile_width = -(-height // rows), -(-width // columns)
        for axis, size, whole in (
            (1, height, tile_height * rows),
            (2, width, tile_width * columns),
        ):
            if whole > size:
                mirrored = np.pad(np.arange(size, dtype="int32"), (0, whole - size), "symmetric")
                tones = ops.take(tones, mirrored, axis)
        tiles = ops.reshape(tones, (batch, rows, tile_height, columns, tile_width, channels))
        tiles = ops.transpose(tiles, (0, 1, 3, 5, 2, 4))
        pixels = tile_height * tile_width
        counts = histograms(ops.reshape(tiles, (-1, pixels)), _TONES)
        if self.clip_limit > 0:
            clipped = ops.minimum(counts, self.clip_limit * pixels / _TONES)
            excess = ops.sum(ops.subtract(counts, clipped), -1, keepdims=True)
            counts = ops.add(clipped, ops.divide(excess, float(_TONES)))
        cdf = ops.cast(running_sums(counts), "float32")
        first = cdf[:, :1]  # the count of the lowest tone
        rest = ops.subtract(float(pixels), first)
        rest = ops.where(ops.equal(rest, 0.0), 1.0, rest)
        table = ops.divide(ops.multiply(ops.subtract(cdf, first), 255.0), rest)
        return ops.clip(table, 0.0, 255.0)

    def _interpolated(self, tones: Any, tables: Any) -> Any:
        """Interpolates each pixel's new value from the tables of the four tiles around it."""
        batch, height, width, channels = tones.shape
        rows, columns = self.tile_grid_size
        image = np.arange(batch).reshape(-1, 1, 1, 1) * rows
        channel = np.arange(channels)
        flat = ops.reshape(tables, (-1,))
        result = None
        for row, row_share in _tiles_around(height, rows, (1, -1, 1, 1)):
            for column, column_share in _tiles_around(width, columns, (1, 1, -1, 1)):
                tile = ((image + row) * columns + column) * channels + channel
                place = ops.add(tones, (tile * _TONES).astype("int32"))
                part = ops.multiply(ops.take(flat, place, 0), row_share * column_share)
                result = part if result is None else ops.add(result, part)
        return result

    def _output_dtype(self, dtype: str) -> str:
        return self.compute_dtype if is_float(dtype) else dtype

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "value_range": self.value_range,
            "clip_limit": self.clip_limit,
            "tile_grid_size": self.tile_grid_size,
        }


def _tiles_around(size: int, tiles: int, shape: tuple[int, ...]) -> list[tuple[Any, Any]]:
    """Returns the tile before and after each pixel of an axis, and their shares."""
    length = -(-size // tiles)
    position = (np.arange(size) - length / 2) / length  # in tiles, from the middle of the first one
    before = np.floor(position)
    share = (position - before).astype("float32").reshape(shape)
    places = [np.clip(at, 0, tiles - 1).astype("int64") for at in (before, before + 1)]
    return [(places[0].reshape(shape), 1 - share), (places[1].reshape(shape), share)]
