"""Data sets of the images in tar shards."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn.data.ahead import default_workers
from kerascnn.data.indexed import FileSamples, IndexedDataset
from kerascnn.data.tar_files import TarError
from kerascnn.data.tar_index import Place, Shard, TarIndex
from kerascnn.data.tar_samples import IMAGES, Places, chosen_samples, is_number
from kerascnn.utils import image_utils, io_utils
from kerascnn.utils.directory import encoded_labels
from kerascnn.utils.image_dataset import check_on_error, checked_reader

# Numbers of classes beyond this are no classes, and would fill memory as rows with one 1.
_MOST_CLASSES = 1_000_000


@dataclasses.dataclass(frozen=True)
class _PlaceReader:
    """Reads images that lie in archives."""

    reader: image_utils.ImageReader

    @property
    def writer(self) -> Any:
        return self.reader.writer

    @property
    def gpu_decoder(self) -> Any:
        return self.reader.gpu_decoder

    def __call__(self, place: Place) -> np.ndarray:
        return self.reader.image_of(place.read(), place)


def image_dataset_from_tar(
    shards: Any,
    label_key: str | None = "cls",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    color_mode: str = "rgb",
    batch_size: int | None = 32,
    image_size: int | Sequence[int] = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    interpolation: str = "bilinear",
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    data_format: str | None = None,
    verbose: bool = True,
    *,
    label_field: str | None = None,
    image_key: str | None = None,
    index_file: str | os.PathLike[str] | None = None,
    on_error: str = "raise",
    exif_rotation: bool = False,
    scaled_decoding: bool = False,
    dtype: str = "float32",
    decoder: str = "cpu",
) -> Any:
    """Batches of the images in tar archives, as WebDataset lays them out.

    The files of a sample share their name up to the first dot, as `a/0001.jpg` and `a/0001.cls` do.
    The archives' headers are read once; then samples are read wherever they lie, when their batch
    is needed, by threads that work ahead of `fit`. So samples are shuffled as a whole, in the same
    order with any number of threads, and where several processes train, each reads its own alone.

    `utils.write_tar_shards` writes such archives. They have to be plain tar files (`gunzip`
    others), whose members are files: not links, devices or sparse files. Nothing is ever unpacked.

    Args:
        shards: The archives: a path, a folder (its `.tar` files), a pattern with braces or
            wildcards such as `"train-{000000..000012}.tar"`, or a list of them.
        label_key: The ending of the files with the labels: "cls" (a number, or the name of a
            class), "json", or another one; None for images only.
        label_mode: "int" (int32), "categorical" (one-hot, float32), "binary" (float32, for two
            classes), or None for images only.
        class_names: The names of the classes in the order of their numbers. By default the labels
            themselves: in the order of their numbers, or sorted where they are names.
        color_mode: "rgb", "rgba" or "grayscale".
        batch_size: None for single images.
        image_size: The height and width that images are resized to, or a number for both.
        shuffle: Whether each pass has another order.
        seed: Of the shuffling.
        interpolation: As for `image_dataset_from_directory`.
        crop_to_aspect_ratio: Whether to cut images to the proportions of `image_size` first.
        pad_to_aspect_ratio: Whether to add black borders up to these proportions first.
        data_format: By default the configured one.
        verbose: Whether to show how many samples were found.
        label_field: Where the label is in an object of JSON, "label" say, or "object.label" for a
            field in another one.
        image_key: The ending of the images; by default the first of "jpg", "jpeg", "png", "webp",
            "gif" and "bmp" that a sample has.
        index_file: A file to keep the index of the archives in, so that the next data set need not
            read their headers. Archives that have changed are read again.
        on_error: What happens at a sample without an image or a label, or whose image cannot be
            read, and at an archive that is damaged: "raise", or "skip" to leave the sample, or the
            rest of the archive, out, with a warning, and to note it in `skipped_files`.
        exif_rotation: As for `image_dataset_from_directory`.
        scaled_decoding: The same.
        dtype: The same: "float32" or "uint8".
        decoder: The same: "cpu", or "gpu" for JPEG files decoded by nvJPEG.

    Returns:
        A `keras.data.Dataset` as that of `image_dataset_from_directory`, with the attributes
        `class_names`, `file_paths` (archives and names in them) and `skipped_files`.

    Raises:
        DeviceError: with `decoder="gpu"`, without a GPU or nvJPEG; says what to install.
        FileNotFoundError: where an archive is missing, or a pattern stands for none.
        ImportError: without Pillow.
        ValueError: for arguments that do not go together, damaged archives and samples without
            an image or a label.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> samples = [
    ...     {"__key__": f"{i:04}", "png": np.full((6, 6, 3), 60 * i, "uint8"), "cls": i % 2}
    ...     for i in range(4)
    ... ]
    >>> shards = keras.utils.write_tar_shards(samples, "grey-%06d.tar", samples_per_shard=3)
    >>> dataset = keras.utils.image_dataset_from_tar(
    ...     "grey-{000000..000001}.tar", image_size=(4, 4), shuffle=False, verbose=False
    ... )
    >>> for images, labels in dataset:
    ...     images.shape, labels.tolist()
    ((4, 4, 4, 3), [0, 1, 0, 1])
    """
    image_utils.pillow("image_dataset_from_tar")
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
    has_labels = _checked_labels(label_key, label_mode, label_field, class_names)
    skips = on_error == "skip"
    index = TarIndex(shards, index_file, skips)
    wanted = [(image_key.lstrip(".").lower(),) if image_key else IMAGES]
    if has_labels:
        wanted.append((str(label_key).lstrip(".").lower(),))
    rows, names, skipped = chosen_samples(index, wanted, skips)
    labels = None
    if has_labels:
        found = _labels_of(index, rows, label_field, skipped if skips else None)
        kept = np.array([label is not None for label in found])
        rows, names = rows[kept], [n for n, is_kept in zip(names, kept, strict=True) if is_kept]
        numbers, class_names = _numbered([f for f in found if f is not None], class_names)
        labels = encoded_labels(numbers, label_mode, class_names)
    places = Places(index.shards, rows, names, lambda shard, files, _: shard.place(files[0]))
    samples = FileSamples(places, labels, _PlaceReader(reader), skips=skips)
    samples.skipped = {**index.skipped, **skipped}
    if verbose:
        classes = f" belonging to {len(class_names)} classes" if class_names else ""
        count = len(index.shards)
        io_utils.print_msg(f"Found {len(rows)} samples in {count} shards{classes}.")
    if seed is None:
        seed = int(np.random.randint(10**6))  # noqa: NPY002 (what set_random_seed fixes)
    dataset = IndexedDataset(samples, batch_size, shuffle, seed, default_workers())
    dataset.class_names = None if labels is None else list(class_names or ())
    dataset.file_paths = places.changed(lambda shard, files, _: str(shard.place(files[0])))
    return dataset


def _checked_labels(
    label_key: str | None,
    label_mode: str | None,
    label_field: str | None,
    class_names: Sequence[str] | None,
) -> bool:
    if label_mode not in ("int", "categorical", "binary", None):
        raise ValueError(
            '`label_mode` argument must be one of "int", "categorical", "binary", or None. '
            f"Received: label_mode={label_mode}"
        )
    has_labels = label_key is not None and label_mode is not None
    if not has_labels and class_names is not None:
        raise ValueError("`class_names` cannot be given for images only.")
    if (label_key == "json") != (label_field is not None) and has_labels:
        raise ValueError(
            "`label_field` says where the label is in a file of JSON: give it with "
            f'`label_key="json"`, and only then. Received: label_key={label_key!r}, '
            f"label_field={label_field!r}"
        )
    return has_labels


def _labels_of(
    index: TarIndex, rows: np.ndarray, field: str | None, skipped: dict[str, str] | None
) -> list[int | str | None]:
    """The labels as they are in the files; None where one is left out."""
    found: list[int | str | None] = []
    for shard_number, _, number in rows.tolist():
        shard = index.shards[shard_number]
        try:
            found.append(_label_in(shard, number, field))
        except TarError as error:
            if skipped is None:
                raise
            skipped[str(shard.place(number))] = str(error)
            found.append(None)
    if all(label is None for label in found):
        raise ValueError(f"No sample has a label that can be read, in {index.shards[0].path}.")
    return found


def _label_in(shard: Shard, number: int, field: str | None) -> int | str:
    place: Place = shard.place(number)
    try:
        value: Any = shard.content(number).decode().strip()
        if field is not None:
            value = json.loads(value)
            for key in field.split("."):
                value = value[key]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TarError(f"{place} has no label that can be read ({error!r}).") from error
    if isinstance(value, str) and is_number(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, str)) or value == "":
        raise TarError(f"{place} must have a whole number or a name as its label: {value!r:.100}")
    return value


def _numbered(
    labels: list[int | str], class_names: Sequence[str] | None
) -> tuple[np.ndarray, list[str]]:
    """The numbers of the classes, and their names."""
    if all(isinstance(label, int) for label in labels):
        numbers = np.array(labels, "int64")
        most = _MOST_CLASSES if class_names is None else len(class_names)
        if numbers.min() < 0 or numbers.max() >= most:
            raise ValueError(
                f"Labels must be from 0 to {most - 1}. Received: from {numbers.min()} to "
                f"{numbers.max()}"
            )
        names = [str(i) for i in range(numbers.max() + 1)] if class_names is None else class_names
        return numbers, list(names)
    texts = [str(label) for label in labels]
    names = sorted(set(texts)) if class_names is None else list(class_names)
    number_of = {name: number for number, name in enumerate(names)}
    unknown = sorted(set(texts) - set(number_of))
    if unknown:
        raise ValueError(f"`class_names` lacks labels that samples have: {unknown[:5]}")
    return np.array([number_of[text] for text in texts], "int64"), names
