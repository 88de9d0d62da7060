"""A folder of image files as a data set."""

from __future__ import annotations

import collections
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerascnn import config
from kerascnn.ops import resampling
from kerascnn.utils import image_utils, io_utils
from kerascnn.utils.py_dataset import PyDataset

if TYPE_CHECKING:
    from concurrent.futures import Future

ALLOWLIST_FORMATS = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
_CHANNELS = {"rgb": 3, "rgba": 4, "grayscale": 1}


class ImageDataset(PyDataset):
    """Batches of image files, read and resized when they are asked for, by several threads.

    `image_dataset_from_directory` makes it.

    Attributes:
        file_paths: The files, in the order of `labels`.
        class_names: The names of the classes; None without labels.
        num_classes: How many there are, 0 without labels.
    """

    def __init__(
        self,
        file_paths: list[str],
        labels: Any,
        class_names: list[str] | None,
        label_mode: str | None,
        batch_size: int | None,
        shuffle: bool,
        seed: int,
        reading: dict[str, Any],
    ) -> None:
        super().__init__(workers=min(8, os.cpu_count() or 1))
        self.file_paths = file_paths
        self.class_names = class_names
        self.num_classes = len(class_names) if class_names else 0
        self.batch_size = batch_size
        self._labels = self._encoded(labels, label_mode)
        self._reading = reading
        self._shuffle = shuffle
        self._rng = np.random.default_rng(seed)
        self._order = np.arange(len(file_paths))

    def _encoded(self, labels: Any, label_mode: str | None) -> np.ndarray | None:
        if label_mode is None:
            return None
        numbers = np.asarray(labels)
        if label_mode == "binary":
            return numbers.astype("float32")[:, None]
        if label_mode == "categorical":
            return np.eye(self.num_classes, dtype="float32")[numbers]
        return numbers.astype("int32")

    def __len__(self) -> int:
        return -(-len(self.file_paths) // (self.batch_size or 1))

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"There are {len(self)} batches. Received: index={index}")
        if self.batch_size is None:
            at = self._order[index]
            image = self._read(at)
            return image if self._labels is None else (image, self._labels[at])
        chosen = self._order[index * self.batch_size : (index + 1) * self.batch_size]
        images = np.stack([self._read(at) for at in chosen])
        return images if self._labels is None else (images, self._labels[chosen])

    def _read(self, at: int) -> np.ndarray:
        return image_utils.read_resized(self.file_paths[at], **self._reading)

    def __iter__(self) -> Iterator[Any]:
        """The batches of one pass, each made ahead by one of the threads; reshuffled before."""
        from concurrent.futures import ThreadPoolExecutor

        self.on_epoch_end()
        with ThreadPoolExecutor(self.workers, thread_name_prefix="ImageDataset") as pool:
            indices = iter(range(len(self)))
            ahead: collections.deque[Future[Any]] = collections.deque(
                pool.submit(self.__getitem__, i) for i in itertools.islice(indices, self.workers)
            )
            try:
                while ahead:
                    batch = ahead.popleft().result()
                    for i in itertools.islice(indices, 1):
                        ahead.append(pool.submit(self.__getitem__, i))
                    yield batch
            finally:
                for waiting in ahead:
                    waiting.cancel()

    def on_epoch_end(self) -> None:
        """Another order for the next pass, where the data set is shuffled."""
        if self._shuffle:
            self._order = self._rng.permutation(len(self.file_paths))


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
) -> Any:
    """Batches of the image files in a folder, with a subfolder for each class.

    Files are read when their batch is needed, by threads that work ahead of `fit`. Formats are
    .jpeg, .jpg, .png, .bmp and .gif (its first picture).

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

    Returns:
        An `ImageDataset` (two with `subset="both"`): a `PyDataset` for `fit`, `evaluate` and
        `predict`, over which one can also iterate. It gives float32 images, or pairs of them and
        their labels.

    Raises:
        ImportError: without Pillow.
        ValueError: for arguments that do not go together, or a folder without images.
    """
    image_utils.pillow("image_dataset_from_directory")
    label_mode = _checked_labels(labels, label_mode, class_names)
    if label_mode is None:
        labels = None
    if format not in ("tf", "grain"):
        raise ValueError(f'`format` should be either "tf" or "grain". Received: format={format}')
    reading = _checked_reading(
        image_size,
        color_mode,
        interpolation,
        data_format,
        crop_to_aspect_ratio,
        pad_to_aspect_ratio,
    )
    _check_split(validation_split, subset, shuffle, seed)
    if seed is None:
        seed = int(np.random.randint(10**6))  # noqa: NPY002 (what set_random_seed fixes)
    paths, numbers, names = index_directory(
        os.fspath(directory), labels, class_names, shuffle, seed, follow_links, verbose
    )
    if label_mode == "binary" and len(names or ()) != 2:
        raise ValueError(
            'When passing `label_mode="binary"`, there must be exactly 2 class_names. '
            f"Received: class_names={names}"
        )
    made = []
    for part in ("training", "validation") if subset == "both" else (subset,):
        chosen, own = _part(paths, numbers, validation_split, part)
        if not chosen:
            kind = f"{part} images" if subset == "both" else "images"
            raise ValueError(
                f"No {kind} found in directory {directory}. Allowed formats: {ALLOWLIST_FORMATS}"
            )
        mixed = shuffle and not (subset == "both" and part == "validation")
        made.append(ImageDataset(chosen, own, names, label_mode, batch_size, mixed, seed, reading))
    return made if subset == "both" else made[0]


def _checked_reading(
    image_size: Any,
    color_mode: str,
    interpolation: str,
    data_format: str | None,
    crop_to_aspect_ratio: bool,
    pad_to_aspect_ratio: bool,
) -> dict[str, Any]:
    """How each file becomes an array: what `ImageDataset` takes as `reading`."""
    if color_mode not in _CHANNELS:
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
    return {
        "size": (int(sizes[0]), int(sizes[1])),
        "color_mode": color_mode,
        "interpolation": interpolation,
        "data_format": config.standardize_data_format(data_format),
        "crop_to_aspect_ratio": crop_to_aspect_ratio,
        "pad_to_aspect_ratio": pad_to_aspect_ratio,
    }


def _checked_labels(
    labels: Any, label_mode: str | None, class_names: Sequence[str] | None
) -> str | None:
    if not isinstance(labels, (list, tuple)) and labels not in ("inferred", None):
        raise ValueError(
            "`labels` argument should be a list/tuple of integer labels, of the same size as the "
            "number of image files in the target directory. To infer them from the names of the "
            'subdirectories, pass `labels="inferred"`; for images only, pass `labels=None`. '
            f"Received: labels={labels}"
        )
    if isinstance(labels, (list, tuple)) and class_names:
        raise ValueError(
            'You can only pass `class_names` if `labels="inferred"`. Received: '
            f"labels={labels}, and class_names={class_names}"
        )
    if label_mode not in ("int", "categorical", "binary", None):
        raise ValueError(
            '`label_mode` argument must be one of "int", "categorical", "binary", or None. '
            f"Received: label_mode={label_mode}"
        )
    return None if labels is None else label_mode


def _check_split(
    validation_split: float | None, subset: str | None, shuffle: bool, seed: int | None
) -> None:
    if validation_split and not 0 < validation_split < 1:
        raise ValueError(
            f"`validation_split` must be between 0 and 1, received: {validation_split}"
        )
    if bool(validation_split) != bool(subset):
        raise ValueError("If `subset` is set, `validation_split` must be set, and inversely.")
    if subset not in ("training", "validation", "both", None):
        raise ValueError(
            f'`subset` must be either "training", "validation" or "both", received: {subset}'
        )
    if validation_split and shuffle and seed is None:
        raise ValueError(
            "If using `validation_split` and shuffling the data, you must provide a `seed` "
            "argument, to make sure that there is no overlap between the training and validation "
            "subset."
        )


def _part(
    paths: list[str], labels: Any, validation_split: float | None, part: str | None
) -> tuple[list[str], Any]:
    """The files and labels of one side of the split."""
    if not validation_split:
        return paths, labels
    held_out = int(validation_split * len(paths))
    cut = len(paths) - held_out
    if part == "training":
        io_utils.print_msg(f"Using {cut} files for training.")
        return paths[:cut], None if labels is None else labels[:cut]
    io_utils.print_msg(f"Using {held_out} files for validation.")
    return paths[cut:], None if labels is None else labels[cut:]


def index_directory(
    directory: str,
    labels: Any,
    class_names: Sequence[str] | None,
    shuffle: bool,
    seed: int,
    follow_links: bool,
    verbose: bool,
) -> tuple[list[str], Any, list[str] | None]:
    """The image files below a folder, their labels (or None) and the classes' names (or None).

    With the same seed the order is that of Keras.
    """
    names: list[str] | None
    if isinstance(labels, str):
        found = sorted(
            entry.name
            for entry in os.scandir(directory)
            if entry.is_dir() and not entry.name.startswith(".")
        )
        if class_names is not None and not set(class_names) <= set(found):
            raise ValueError(
                "The `class_names` passed did not match the names of the subdirectories of the "
                f"target directory. Expected: {found} (or a subset of it), but received: "
                f"class_names={class_names}"
            )
        names = list(found if class_names is None else class_names)
        groups = [_files_below(directory, name, follow_links) for name in names]
        paths = [path for group in groups for path in group]
        labels = np.repeat(np.arange(len(names), dtype="int32"), [len(g) for g in groups])
    else:
        if class_names is not None:
            raise ValueError(
                "When `labels=None` (no labels), argument `class_names` cannot be specified."
            )
        paths, names = _files_below(directory, "", follow_links), None
        if labels is not None:
            if len(labels) != len(paths):
                raise ValueError(
                    "Expected the lengths of `labels` to match the number of files in the target "
                    f"directory. len(labels) is {len(labels)} while we found {len(paths)} files in "
                    f"directory {directory}."
                )
            names = [str(label) for label in sorted(set(labels))]
            labels = list(labels)
    if verbose:
        classes = "" if names is None else f" belonging to {len(names)} classes"
        io_utils.print_msg(f"Found {len(paths)} files{classes}.")
    if shuffle:
        for items in (paths, labels):
            if items is not None:
                np.random.RandomState(seed).shuffle(items)  # Keras' order
    return paths, labels, names


def _files_below(directory: str, name: str, follow_links: bool) -> list[str]:
    """The image files below a subfolder, folder by folder, in the order of their names."""
    top = os.path.join(directory, name)
    walk = sorted(os.walk(top, followlinks=follow_links), key=lambda found: found[0])
    return [
        os.path.join(directory, name, os.path.relpath(os.path.join(root, file), top))
        for root, _, files in walk
        for file in sorted(files)
        if file.lower().endswith(ALLOWLIST_FORMATS)
    ]
