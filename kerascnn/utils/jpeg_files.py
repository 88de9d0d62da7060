"""JPEG files of data sets, read, decoded and resized by the core without Python's lock."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerascnn import _core
from kerascnn.data.tar_index import Place
from kerascnn.ops import resampling

if TYPE_CHECKING:
    from kerascnn.utils.image_utils import ImageReader

_NO_LIMIT = 2**62


@functools.lru_cache(maxsize=64)
def writer_of(reader: ImageReader) -> JpegWriter | None:
    """What writes the images of a reader, or None where Pillow has to make all of them.

    That is for grayscale and RGBA, for images that are turned, and where Pillow has a libjpeg of
    its own that the core cannot call.
    """
    if reader.color_mode != "rgb" or reader.exif_rotation:
        return None
    from PIL import _imaging

    from kerascnn.utils import image_utils

    limits = (image_utils._SMALL, image_utils._MAX_EXPANSION)
    try:
        core = _core.JpegReader(_imaging.__file__, *reader.size, *limits)
    except ValueError:
        return None
    return JpegWriter(reader, core)


class JpegWriter:
    """Writes images of JPEG files into batches. The decoder is the libjpeg that Pillow has loaded.

    Args:
        reader: Says how images are resized.
        core: Decodes them.

    Attributes:
        shape: Of an image.
        dtype: The same.
    """

    def __init__(self, reader: ImageReader, core: _core.JpegReader):
        self._reader, self._core = reader, core
        self._channels_first = reader.data_format == "channels_first"
        self.shape = (3, *reader.size) if self._channels_first else (*reader.size, 3)
        self.dtype = np.dtype(reader.dtype)

    def write(
        self, files: Sequence[str | Place | bytes], images: np.ndarray[Any, Any]
    ) -> list[bool]:
        """Writes the images of files side by side.

        Args:
            files: Paths, places in archives, or what files hold.
            images: An array of `shape` for each of them.

        Returns:
            For each file whether its image is there. Others are no JPEG files in colors or grey,
            damaged, or cannot be read, and Pillow has the words for that.
        """
        sources = [source_of(file) for file in files]
        written = self._read(sources, images)
        for i, size in enumerate(written):
            if isinstance(size, tuple):
                self._plan(*size)
                (written[i],) = self._read(sources[i : i + 1], images[i : i + 1])
        return [made is True for made in written]

    def _read(self, sources: list[Any], images: np.ndarray[Any, Any]) -> list[Any]:
        return self._core.read(sources, images, self._channels_first, most_pixels())

    def _plan(self, height: int, width: int) -> None:
        """Tells the core how images of a size are resized."""
        reader, denominator = self._reader, 1
        if reader.scaled_decoding:
            needed = reader._needed(height, width)
            while denominator < 8 and all(
                -(-size // (2 * denominator)) >= least
                for size, least in zip((height, width), needed, strict=True)
            ):
                denominator *= 2
        decoded = -(-height // denominator), -(-width // denominator)
        self._core.add_plan((height, width), denominator, *taps_of(reader, *decoded))


def taps_of(reader: ImageReader, height: int, width: int) -> tuple[np.ndarray[Any, Any], ...]:
    """The taps by which a reader resizes images of a size; see `resampling.image_taps`."""
    return resampling.image_taps(
        height,
        width,
        reader.size,
        reader.interpolation,
        reader.crop_to_aspect_ratio,
        reader.pad_to_aspect_ratio,
    )


def most_pixels() -> int:
    """How many pixels Pillow lets an image have."""
    from PIL import Image

    most = Image.MAX_IMAGE_PIXELS
    return _NO_LIMIT if most is None else most


def source_of(file: str | Place | bytes) -> Any:
    """A file as the core reads it."""
    if isinstance(file, Place):
        return os.fsencode(file.shard), file.offset, file.size, file.changed
    return (os.fsencode(file), 0, -1, -1) if isinstance(file, str) else file
