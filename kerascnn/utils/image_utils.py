"""Images in files and as arrays. Needs Pillow, which is imported where it is used."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import math
import os
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kerascnn import config
from kerascnn.ops import resampling
from kerascnn.system_errors import is_of_system, naming_file
from kerascnn.utils import gpu_images, jpeg_files

_RESAMPLING = ("nearest", "bilinear", "bicubic", "hamming", "box", "lanczos")
# Even drawings and masks are rarely packed better than this.
_SMALL, _MAX_EXPANSION = 16 << 20, 250
_MODES = {"grayscale": "L", "rgb": "RGB", "rgba": "RGBA"}
_ORIENTATION = 0x0112  # in Exif data
# Grayscale images of more than 8 bits stay unchanged.
_GRAYSCALE_MODES = ("L", "I;16", "I")


def pillow(user: str) -> Any:
    """The module PIL.Image.

    Raises:
        ImportError: where Pillow is not installed; it names `user`, the function that needs it.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            f"Could not import PIL.Image. The use of `{user}` requires Pillow: install it with "
            "`pip install pillow`, or kerascnn with its extra `images`."
        ) from error
    return Image


def img_to_array(img: Any, data_format: str | None = None, dtype: Any = None) -> np.ndarray:
    """A Pillow image as an array (height, width, channels); "channels_first" moves the channels.

    Args:
        img: A Pillow image, or an array of 2 or 3 axes.
        data_format: By default the configured one.
        dtype: By default `floatx`.

    Returns:
        A NumPy array of 3 axes.

    Raises:
        ValueError: for another number of axes.

    Example:

    >>> import numpy as np
    >>> from kerascnn.utils import img_to_array
    >>> img_to_array(np.zeros((4, 6))).shape
    (4, 6, 1)
    """
    data_format = config.standardize_data_format(data_format)
    x = np.asarray(img, dtype=config.floatx() if dtype is None else dtype)
    if x.ndim == 2:
        x = x[:, :, None]
    elif x.ndim != 3:
        raise ValueError(
            f"Unsupported image shape: {x.shape}. An image has the axes height and width, or these "
            "and channels."
        )
    return x.transpose(2, 0, 1) if data_format == "channels_first" else x


def array_to_img(
    x: Any, data_format: str | None = None, scale: bool = True, dtype: Any = None
) -> Any:
    """An array of 1, 3 or 4 channels as a Pillow image.

    Args:
        x: Of 3 axes.
        data_format: By default the configured one.
        scale: Whether the smallest value becomes 0 and the largest 255.
        dtype: What to compute in, by default `floatx`.

    Returns:
        A Pillow image, of mode "L", "RGB" or "RGBA".

    Raises:
        ImportError: without Pillow.
        ValueError: for another number of axes or channels.

    Example:

    >>> import numpy as np
    >>> from kerascnn.utils import array_to_img
    >>> image = array_to_img(np.zeros((4, 6, 3)))
    >>> image.size, image.mode  # Pillow names the width first
    ((6, 4), 'RGB')
    """
    data_format = config.standardize_data_format(data_format)
    image = pillow("array_to_img")
    x = np.asarray(x, dtype=config.floatx() if dtype is None else dtype)
    if x.ndim != 3:
        raise ValueError(
            f"Expected image array to have rank 3 (single image). Got array with shape: {x.shape}"
        )
    if data_format == "channels_first":
        x = x.transpose(1, 2, 0)
    if scale:
        x = x - np.min(x)
        largest = np.max(x)
        if largest != 0:
            x = x / largest
        x = x * 255
    if x.shape[2] not in (1, 3, 4):
        raise ValueError(
            f"Unsupported channel number: {x.shape[2]}. An image has 1, 3 or 4 channels; "
            f"data_format={data_format!r} says which axis they are."
        )
    if x.shape[2] > 1:
        return image.fromarray(np.ascontiguousarray(x.astype("uint8")))
    wide = np.max(x) > 255
    return image.fromarray(np.ascontiguousarray(x[:, :, 0].astype("int32" if wide else "uint8")))


def save_img(
    path: Any,
    x: Any,
    data_format: str | None = None,
    file_format: str | None = None,
    scale: bool = True,
    **kwargs: Any,
) -> None:
    """Writes an array as an image file.

    Args:
        path: A path or a file object.
        x: Of 3 axes, with 1, 3 or 4 channels.
        data_format: By default the configured one.
        file_format: By default that of the path's ending; needed for a file object.
        scale: Whether the smallest value becomes 0 and the largest 255.
        kwargs: More arguments of Pillow's `Image.save`.

    Raises:
        ImportError: without Pillow.

    Example:

    >>> import numpy as np
    >>> from kerascnn import utils
    >>> utils.save_img("black.png", np.zeros((4, 6, 3)))
    >>> utils.load_img("black.png").size
    (6, 4)
    """
    if file_format is None and isinstance(path, (str, os.PathLike)):
        file_format = pathlib.Path(path).suffix[1:].lower()
    if file_format and file_format.lower() == "jpg":
        file_format = "jpeg"
    img = array_to_img(x, data_format=data_format, scale=scale)
    if img.mode == "RGBA" and file_format == "jpeg":
        warnings.warn(
            "The JPEG format does not support RGBA images, converting to RGB.", stacklevel=2
        )
        img = img.convert("RGB")
    img.save(path, format=file_format or None, **kwargs)


def load_img(
    path: Any,
    color_mode: str = "rgb",
    target_size: Sequence[int] | None = None,
    interpolation: str = "nearest",
    keep_aspect_ratio: bool = False,
) -> Any:
    """Reads an image file.

    Args:
        path: A path or an `io.BytesIO`.
        color_mode: "rgb", "rgba" or "grayscale".
        target_size: The height and width to resize to, by default its own.
        interpolation: "nearest", "bilinear", "bicubic", "hamming", "box" or "lanczos".
        keep_aspect_ratio: Whether to cut out the largest centered part with the proportions of
            `target_size` first, in place of distorting the image.

    Returns:
        A Pillow image.

    Raises:
        ImportError: without Pillow.
        TypeError: for something else than a path.
        ValueError: for an unknown color mode or interpolation.

    Example:

    >>> import numpy as np
    >>> from kerascnn import utils
    >>> utils.save_img("black.png", np.zeros((4, 6, 3)))
    >>> utils.load_img("black.png", target_size=(8, 8)).size
    (8, 8)
    """
    image = pillow("load_img")
    if isinstance(path, io.BytesIO):
        img = image.open(path)
    elif isinstance(path, (os.PathLike, str, bytes)):
        with open(path, "rb") as stream:
            content = stream.read()
        from PIL import UnidentifiedImageError

        try:
            img = image.open(io.BytesIO(content))
        except UnidentifiedImageError as error:
            raise UnidentifiedImageError(
                f"{os.fsdecode(path)} holds no image that Pillow can read ({len(content)} bytes)."
            ) from error
    else:
        raise TypeError(f"path should be path-like or io.BytesIO, not {type(path)}")
    img = _in_colors(img, color_mode)
    if target_size is None or img.size == (target_size[1], target_size[0]):
        return img
    if interpolation not in _RESAMPLING:
        raise ValueError(
            f"Invalid interpolation method {interpolation} specified. Supported methods are "
            f"{', '.join(_RESAMPLING)}"
        )
    new_size = (target_size[1], target_size[0])
    resample = image.Resampling[interpolation.upper()]
    if not keep_aspect_ratio:
        return img.resize(new_size, resample)
    width, height = img.size
    crop_height = min(height, width * new_size[1] // new_size[0])
    crop_width = min(width, height * new_size[0] // new_size[1])
    top, left = (height - crop_height) // 2, (width - crop_width) // 2
    return img.resize(new_size, resample, box=(left, top, left + crop_width, top + crop_height))


def _in_colors(img: Any, color_mode: str) -> Any:
    if color_mode not in _MODES:
        raise ValueError(
            f'color_mode must be "grayscale", "rgb", or "rgba". Received: color_mode={color_mode!r}'
        )
    kept = _GRAYSCALE_MODES if color_mode == "grayscale" else (_MODES[color_mode],)
    return img if img.mode in kept else img.convert(_MODES[color_mode])


@contextlib.contextmanager
def naming_broken_images(name: Any) -> Iterator[None]:
    """In this block, what decoders raise for bytes that are no image becomes a ValueError.

    Args:
        name: The file, as the message has it.
    """
    image = pillow("image_dataset_from_directory")
    from PIL import UnidentifiedImageError

    try:
        yield
    except (
        *(OSError, SyntaxError, ValueError, image.DecompressionBombError),
        AssertionError,  # Pillow's, for a transparent color without a palette
    ) as error:
        if is_of_system(error):
            raise
        # Its message shows an address in memory.
        unknown = isinstance(error, UnidentifiedImageError)
        reason = "its format is none that Pillow knows" if unknown else str(error) or "damaged"
        raise ValueError(
            f"{name} cannot be read as an image ({reason}). Remove the file, or replace it."
        ) from error


def _rounded(pixels: np.ndarray) -> np.ndarray:
    """The nearest of the 256 numbers to each pixel; uses the memory of `pixels` meanwhile."""
    np.rint(pixels, out=pixels)
    np.clip(pixels, 0, 255, out=pixels)
    return pixels.astype("uint8")


def _check_pixels(width: int, height: int, channels: int, stored: int) -> None:
    """Raises a ValueError for a file that unpacks to far more than images do."""
    unpacked = width * height * channels
    if unpacked > _SMALL and unpacked > _MAX_EXPANSION * stored:
        raise ValueError(f"it claims {width} x {height} pixels, but has {stored} bytes")


def pixels_of(content: bytes, name: Any) -> np.ndarray:
    """The pixels in what an image file holds, in colors and of its own size.

    Args:
        content: The bytes of the file.
        name: What the file is called in errors.

    Returns:
        uint8, of shape (height, width, 3).

    Raises:
        ValueError: for bytes that are no image, or damaged; the message has the name.
    """
    with naming_broken_images(name):
        return ImageReader((1, 1), "rgb", "bilinear", "channels_last")._decode(content)


@dataclasses.dataclass(frozen=True)
class ImageReader:
    """Reads image files as arrays of one size.

    JPEG files in colors are read by the core (`jpeg_files`), with the libjpeg that Pillow has
    loaded. Where it has none that the core can call, simplejpeg decodes them if it is installed,
    which takes two thirds of Pillow's time for the same pixels; all others are Pillow's.

    Attributes:
        size: The height and width of the arrays.
        color_mode: "rgb", "rgba" or "grayscale".
        interpolation: One of `resampling.FOLDER_METHODS`.
        data_format: "channels_last" or "channels_first".
        crop_to_aspect_ratio: Whether to cut images to the proportions of `size` first.
        pad_to_aspect_ratio: Whether to add black borders up to these proportions first.
        exif_rotation: Whether to turn and mirror images as their Exif orientation says.
        scaled_decoding: Whether a JPEG image may be decoded at an eighth to a half of its size,
            where that is still as large as needed.
        dtype: "float32", or "uint8" for pixels that are rounded to whole numbers.
        gpu: The GPU that decodes batches, such as "cuda:0"; None for none.
    """

    size: tuple[int, int]
    color_mode: str
    interpolation: str
    data_format: str
    crop_to_aspect_ratio: bool = False
    pad_to_aspect_ratio: bool = False
    exif_rotation: bool = False
    scaled_decoding: bool = False
    dtype: str = "float32"
    gpu: str | None = dataclasses.field(default=None, repr=False)  # what is cached says the others

    @functools.cached_property
    def gpu_decoder(self) -> gpu_images.GpuDecoder | None:
        """What decodes batches on a GPU, where one does. Its memory there goes with the reader."""
        return None if self.gpu is None else gpu_images.GpuDecoder(self)

    @property
    def writer(self) -> jpeg_files.JpegWriter | None:
        """What writes images into batches without Python's lock, where there is such a thing."""
        return jpeg_files.writer_of(self)

    def __call__(self, path: str) -> np.ndarray:
        """The image of a file.

        Raises:
            ValueError: for a file that is no image, or damaged; the message names it.
        """
        with open(path, "rb") as file, naming_file(path):
            content = file.read()
        return self.image_of(content, path)

    def image_of(self, content: bytes, name: Any) -> np.ndarray:
        """The image in what a file holds.

        Args:
            content: The bytes of the file.
            name: What the file is called in errors.

        Raises:
            ValueError: for bytes that are no image, or damaged; the message has the name.
        """
        writer = self.writer
        if writer is not None:
            image = np.empty(writer.shape, writer.dtype)
            if all(writer.write([content], image[None])):
                return image
        with naming_broken_images(name):
            pixels = self._decode(content)
        resized = resampling.resize_array(
            pixels[:, :, None] if pixels.ndim == 2 else pixels,
            self.size,
            self.interpolation,
            self.crop_to_aspect_ratio,
            self.pad_to_aspect_ratio,
        )
        if self.dtype == "uint8":
            resized = _rounded(resized)
        return resized.transpose(2, 0, 1) if self.data_format == "channels_first" else resized

    def _decode(self, content: bytes) -> np.ndarray:
        is_jpeg = content.startswith(b"\xff\xd8\xff")
        if is_jpeg and self.color_mode == "rgb" and not self.exif_rotation:
            pixels = self._decode_jpeg(content)
            if pixels is not None:
                return pixels
        with pillow("image_dataset_from_directory").open(io.BytesIO(content)) as img:
            channels = max(len(img.getbands()), len(_MODES[self.color_mode]))
            if img.format == "WEBP":  # its decoder has canvases of its own beside the image
                channels += 2
            _check_pixels(img.width, img.height, channels, len(content))
            if is_jpeg and self.scaled_decoding:
                img.draft(None, self._needed_of(img))
            if self.exif_rotation:
                from PIL import ImageOps

                img = ImageOps.exif_transpose(img)
            return np.array(_in_colors(img, self.color_mode))

    def _decode_jpeg(self, content: bytes) -> np.ndarray | None:
        """The pixels, or None where Pillow has to do it or to say what is wrong."""
        simplejpeg = _simplejpeg()
        if simplejpeg is None:
            return None
        try:
            height, width, colors, _ = simplejpeg.decode_jpeg_header(content)
            if colors not in ("YCbCr", "RGB", "Gray"):
                return None
            most = pillow("image_dataset_from_directory").MAX_IMAGE_PIXELS
            if most is not None and width * height > most:
                return None
            _check_pixels(width, height, 3, len(content))
            if not self.scaled_decoding:
                return simplejpeg.decode_jpeg(content)
            height, width = self._needed(height, width)
            return simplejpeg.decode_jpeg(content, min_height=height, min_width=width, min_factor=2)
        except ValueError:
            return None

    def _needed_of(self, img: Any) -> tuple[int, int]:
        """The same of a file, as Pillow has sizes: width first, before the image is turned."""
        if self.exif_rotation and img.getexif().get(_ORIENTATION, 1) > 4:  # turned by 90 degrees
            return self._needed(img.width, img.height)
        height, width = self._needed(img.height, img.width)
        return width, height

    def _needed(self, height: int, width: int) -> tuple[int, int]:
        """How small an image may be decoded so that no part of it is enlarged afterwards."""
        if self.crop_to_aspect_ratio or self.pad_to_aspect_ratio:
            _, _, part_height, part_width = resampling.crop_box(height, width, *self.size)
            share = max(self.size[0] / part_height, self.size[1] / part_width)
            return math.ceil(height * share), math.ceil(width * share)
        return self.size


@functools.cache
def _simplejpeg() -> Any:
    """The module simplejpeg, or None where it is not installed."""
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


def smart_resize(
    x: Any, size: Sequence[int], interpolation: str = "bilinear", data_format: str = "channels_last"
) -> Any:
    """Resizes the largest centered part of images that has the new proportions.

    Args:
        x: One image or a batch, an array or a tensor.
        size: The new height and width.
        interpolation: "bilinear", "nearest", "bicubic", "lanczos3" or "lanczos5".
        data_format: "channels_last" or "channels_first".

    Returns:
        An array where `x` is one, else a tensor.

    Raises:
        ValueError: for another number of axes, or a `size` that is no pair.

    Example:

    >>> import numpy as np
    >>> from kerascnn.preprocessing.image import smart_resize
    >>> smart_resize(np.ones((340, 500, 3), "float32"), (200, 200)).shape
    (200, 200, 3)
    """
    from kerascnn.ops import image as image_ops

    if len(size) != 2:
        raise ValueError(f"Expected `size` to be a tuple of 2 integers, but got: {size}.")
    if len(x.shape) not in (3, 4):
        raise ValueError(
            "Expected an image array with shape `(height, width, channels)`, or `(batch_size, "
            f"height, width, channels)`, but got input with incorrect rank, of shape {x.shape}."
        )
    resized = image_ops.smart_resize(x, size, interpolation, data_format)
    return np.array(resized.numpy()) if isinstance(x, np.ndarray) else resized
