"""Data sets of the image files in a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from kerascnn import config
from kerascnn.ops import resampling
from kerascnn.utils import gpu_images, image_utils
from kerascnn.utils.directory import Folder, check_format

# Keras has no ".webp".
ALLOWLIST_FORMATS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")
_COLOR_MODES = ("rgb", "rgba", "grayscale")


def image_dataset_from_directory(
    directory: str | os.PathLike[str],
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    color_mode: str = "rgb",
    batch_size: int | None = 32,
    image_size: int | Sequence[int] = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    interpolation: str = "bilinear",
    follow_links: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    data_format: str | None = None,
    format: str = "tf",
    verbose: bool = True,
    *,
    on_error: str = "raise",
    exif_rotation: bool = False,
    scaled_decoding: bool = False,
    dtype: str = "float32",
    decoder: str = "cpu",
) -> Any:
    """Batches of the image files in a folder, with a subfolder for each class.

    Files are read when their batch is needed, by threads that work ahead of `fit` and do not wait
    for one another. Formats are .jpeg, .jpg, .png, .bmp, .gif (its first picture) and .webp.
    JPEG files in colors are decoded by the core, with the library that Pillow has, the others by
    Pillow. Where Pillow's wheel is of a system that hides the library, simplejpeg (the extra
    `images` has both) takes less time than Pillow.

    Args:
        directory: The folder.
        labels: "inferred" from the subfolders; None for images only; or a list of integers, one for
            each file in the order of their names.
        label_mode: "int" (int32), "categorical" (one-hot, float32), "binary" (float32, for two
            classes), or None for images only.
        class_names: The subfolders to take, in the order of their numbers; by default all in the
            order of their names.
        color_mode: "rgb", "rgba" or "grayscale".
        batch_size: None for single images.
        image_size: The height and width that images are resized to, or a number for both.
        shuffle: Whether each pass has another order.
        seed: Of the shuffling.
        validation_split: The share of the files, at their end, that is kept for validation.
        subset: "training", "validation" or "both", with `validation_split`.
        interpolation: "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian"
            or "mitchellcubic".
        follow_links: Whether to go into folders that are symbolic links.
        crop_to_aspect_ratio: Whether to cut images to the proportions of `image_size` first.
        pad_to_aspect_ratio: Whether to add black borders up to these proportions first.
        data_format: By default the configured one.
        format: "tf" or "grain", without effect.
        verbose: Whether to show how many files were found.
        on_error: What happens at a file that cannot be read as an image: "raise", or "skip" to
            leave it out of its batch, with a warning, and to note it in `skipped_files`.
        exif_rotation: Whether to turn and mirror photographs as their Exif orientation says.
        scaled_decoding: Whether JPEG files may be decoded at an eighth to a half of their size
            where that is still as large as `image_size`. This is much faster for large photographs;
            pixels are averages then, and not exactly those of the whole image.
        dtype: Of the images: "float32", or "uint8" for pixels rounded to whole numbers. Those
            take a quarter of the memory, of a cache and of the way to a GPU; a `Rescaling` layer
            makes floats of them there.
        decoder: "cpu", or "gpu" to decode and resize JPEG files on the GPU that is in use, by
            nvJPEG (the extra `nvjpeg`). Images are tensors there then. Pixels are those of the CPU
            up to 1 where the GPU has engines for JPEG files (A100, H100, H200), and up to 3 on
            others. What nvJPEG would not decode as the CPU does (other formats, progressive and
            damaged files) is decoded by the CPU, so that errors and `skipped_files` are the same.
            It goes with `color_mode="rgb"` and a `batch_size`, without `exif_rotation`,
            `scaled_decoding` and `cache()`.

    Returns:
        A `keras.data.Dataset` (two with `subset="both"`) of images, or pairs of them and
        their labels, with the attributes `class_names`, `file_paths` and `skipped_files` (a
        dictionary from the paths of left out files to the reasons). `fit`, `evaluate` and
        `predict` take it, one can iterate over it, and methods such as `map`, `cache`, `shuffle`
        and `prefetch` make others of it.

    Raises:
        FileNotFoundError: where there is no such folder.
        DeviceError: with `decoder="gpu"`, without a GPU or nvJPEG; says what to install.
        ImportError: without Pillow.
        ValueError: for arguments that do not go together, or a folder without images.

    Example:

    >>> import os
    >>> import kerascnn as keras
    >>> import numpy as np
    >>> for kind, grey in (("day", 255.0), ("night", 0.0)):
    ...     os.makedirs(f"photos/{kind}")
    ...     keras.utils.save_img(f"photos/{kind}/0.png", np.full((6, 6, 3), grey), scale=False)
    >>> photos = keras.utils.image_dataset_from_directory(
    ...     "photos", image_size=(4, 4), shuffle=False, verbose=False
    ... )
    >>> photos.class_names
    ['day', 'night']
    >>> for images, labels in photos:
    ...     images.shape, labels.tolist()
    ((2, 4, 4, 3), [0, 1])
    """
    image_utils.pillow("image_dataset_from_directory")
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
        kind="image",
        formats=ALLOWLIST_FORMATS,
    )
    check_format(format)
    check_on_error(on_error, batch_size)
    reader = checked_reader(
        image_size,
        color_mode,
        interpolation,
        data_format,
        crop_to_aspect_ratio,
        pad_to_aspect_ratio,
        exif_rotation,
        scaled_decoding,
        dtype,
        decoder,
        batch_size,
    )
    return folder.datasets(reader, skips=on_error == "skip")


def check_on_error(on_error: str, batch_size: int | None) -> None:
    """Raises a ValueError for a way to treat broken files that is none, or needs batches."""
    if on_error not in ("raise", "skip"):
        raise ValueError(f'`on_error` must be "raise" or "skip". Received: on_error={on_error!r}')
    if on_error == "skip" and batch_size is None:
        raise ValueError(
            '`on_error="skip"` leaves files out of their batches, and with `batch_size=None` there '
            "are none. Give a `batch_size`; `unbatch()` takes batches apart."
        )


def checked_reader(
    image_size: Any,
    color_mode: str,
    interpolation: str,
    data_format: str | None,
    crop_to_aspect_ratio: bool,
    pad_to_aspect_ratio: bool,
    exif_rotation: bool = False,
    scaled_decoding: bool = False,
    dtype: str = "float32",
    decoder: str = "cpu",
    batch_size: int | None = None,
) -> image_utils.ImageReader:
    """What reads images with these arguments.

    Raises:
        DeviceError: for `decoder="gpu"` without a GPU or nvJPEG.
        ValueError: for an argument that has no such value.
    """
    if dtype not in ("float32", "uint8"):
        raise ValueError(f'`dtype` must be "float32" or "uint8". Received: dtype={dtype!r}')
    if color_mode not in _COLOR_MODES:
        raise ValueError(
            '`color_mode` must be one of {"rgb", "rgba", "grayscale"}. '
            f"Received: color_mode={color_mode}"
        )
    sizes = (image_size, image_size) if isinstance(image_size, int) else image_size
    if not isinstance(sizes, (list, tuple)) or len(sizes) != 2:
        raise ValueError(
            "Invalid `image_size` value. Expected a tuple of 2 integers. "
            f"Received: image_size={image_size}"
        )
    interpolation = interpolation.lower()
    if interpolation not in resampling.FOLDER_METHODS:
        raise ValueError(
            f"Argument `interpolation` should be one of {resampling.FOLDER_METHODS}. "
            f"Received: interpolation={interpolation}"
        )
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ValueError(
            "Only one of `pad_to_aspect_ratio`, `crop_to_aspect_ratio` can be set to `True`."
        )
    gpu = gpu_images.checked_gpu(
        decoder,
        batch_size,
        color_mode=(color_mode, "rgb"),
        exif_rotation=(exif_rotation, False),
        scaled_decoding=(scaled_decoding, False),
    )
    return image_utils.ImageReader(
        (int(sizes[0]), int(sizes[1])),
        color_mode,
        interpolation,
        config.standardize_data_format(data_format),
        crop_to_aspect_ratio,
        pad_to_aspect_ratio,
        exif_rotation,
        scaled_decoding,
        dtype,
        gpu,
    )
