"""Folders of files, with a subfolder for each class, as data sets."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerascnn.data import elements
from kerascnn.data.ahead import default_workers
from kerascnn.data.indexed import FileSamples, IndexedDataset
from kerascnn.utils import io_utils


class Folder:
    """The arguments that all `*_dataset_from_directory` have in common, checked.

    Args:
        directory: The folder.
        labels: "inferred", None, or a list of integers.
        label_mode: "int", "categorical", "binary" or None.
        class_names: The subfolders to take, or None for all.
        batch_size: None for single samples.
        shuffle: Whether each pass has another order.
        seed: Of the shuffling.
        validation_split: The share of the files that is kept for validation.
        subset: "training", "validation" or "both".
        follow_links: Whether to go into folders that are symbolic links.
        verbose: Whether to show how many files were found.
        kind: What the files are called in messages.
        formats: The ends of their names.

    Raises:
        ValueError: for arguments that do not go together.
    """

    def __init__(
        self,
        directory: Any,
        labels: Any,
        label_mode: str | None,
        class_names: Sequence[str] | None,
        batch_size: int | None,
        shuffle: bool,
        seed: int | None,
        validation_split: float | None,
        subset: str | None,
        follow_links: bool,
        verbose: bool,
        *,
        kind: str,
        formats: tuple[str, ...],
    ):
        self._kind, self._formats = kind, formats
        self._label_mode = _checked_labels(labels, label_mode, class_names, kind)
        self._labels = None if self._label_mode is None else labels
        _check_split(validation_split, subset, shuffle, seed)
        self._directory = os.fspath(directory)
        self._class_names = class_names
        self._batch_size, self._shuffle, self._seed = batch_size, shuffle, seed
        self._validation_split, self._subset = validation_split, subset
        self._follow_links, self._verbose = follow_links, verbose

    def datasets(
        self,
        read: Callable[[str], Any],
        stack: Callable[[list[Any]], Any] = elements.stacked,
        workers: int | None = None,
        skips: bool = False,
    ) -> Any:
        """The data set of the files, or a list of two with `subset="both"`.

        Args:
            read: Makes an array of a path.
            stack: Makes a batch of such arrays.
            workers: Threads that read ahead; by default one for each core.
            skips: Whether files that `read` raises a ValueError for are left out of their batches.

        Raises:
            ValueError: for a folder without such files, or other than two classes where these are
                to be binary labels.
        """
        seed = self._seed
        if seed is None:
            seed = int(np.random.randint(10**6))  # noqa: NPY002 (what set_random_seed fixes)
        paths, numbers, names = index_directory(
            self._directory,
            self._labels,
            self._class_names,
            self._shuffle,
            seed,
            self._follow_links,
            self._verbose,
            self._formats,
        )
        both = self._subset == "both"
        made = []
        for part in ("training", "validation") if both else (self._subset,):
            chosen, own = _part(paths, numbers, self._validation_split, part)
            if not chosen:
                what = f"{part} {self._kind}s" if both else f"{self._kind}s"
                places = (
                    " With labels='inferred' each class has a folder of its own there; labels=None "
                    "takes files that lie in no such folder."
                    if self._labels == "inferred" and not paths
                    else ""
                )
                raise ValueError(
                    f"No {what} found in directory {self._directory}. Allowed formats: "
                    f"{self._formats}.{places}"
                )
            coded = encoded_labels(own, self._label_mode, names)
            dataset = IndexedDataset(
                FileSamples(chosen, coded, read, stack, skips),
                self._batch_size,
                self._shuffle and not (both and part == "validation"),
                seed,
                default_workers() if workers is None else workers,
            )
            dataset.file_paths, dataset.class_names = chosen, names
            made.append(dataset)
        return made if both else made[0]


def check_format(format: str) -> None:
    """Raises a ValueError for a format that Keras does not have."""
    if format not in ("tf", "grain"):
        raise ValueError(f'`format` should be either "tf" or "grain". Received: format={format}')


class _OneHot:
    """Rows with one 1, made when they are needed: all of them could be more than the images."""

    def __init__(self, numbers: np.ndarray, num_classes: int):
        self._numbers, self._num_classes = numbers, num_classes

    def __getitem__(self, index: Any) -> np.ndarray:
        numbers = self._numbers[index]
        rows = np.zeros((*np.shape(numbers), self._num_classes), "float32")
        np.put_along_axis(rows, np.asarray(numbers)[..., None], 1.0, -1)
        return rows


def encoded_labels(labels: Any, label_mode: str | None, names: Sequence[str] | None) -> Any:
    """The labels of all samples as data sets give them, by number; None without any.

    Args:
        labels: The numbers of their classes.
        label_mode: "int", "categorical", "binary" or None.
        names: The names of the classes.

    Raises:
        ValueError: where binary labels are asked for and the classes are not two.
    """
    if label_mode is None:
        return None
    numbers = np.asarray(labels)
    if label_mode == "binary":
        if len(names or ()) != 2:
            raise ValueError(
                'When passing `label_mode="binary"`, there must be exactly 2 class_names. '
                f"Received: class_names={names}"
            )
        return numbers.astype("float32")[:, None]
    if label_mode == "categorical":
        return _OneHot(numbers, len(names or ()))
    return numbers.astype("int32")


def _checked_labels(
    labels: Any, label_mode: str | None, class_names: Sequence[str] | None, kind: str
) -> str | None:
    if not isinstance(labels, (list, tuple)) and labels not in ("inferred", None):
        raise ValueError(
            "`labels` argument should be a list/tuple of integer labels, of the same size as the "
            f"number of {kind} files in the target directory. To infer them from the names of the "
            f'subdirectories, pass `labels="inferred"`; for {kind}s only, pass `labels=None`. '
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
    """Returns the files and labels of one side of the split."""
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
    formats: tuple[str, ...],
) -> tuple[list[str], Any, list[str] | None]:
    """The files below a folder, their labels (or None) and the classes' names (or None).

    With the same seed the order is that of Keras.

    Raises:
        FileNotFoundError: where there is no such folder.
        NotADirectoryError: for a file.
        ValueError: for labels or names of classes that are not those of the folder.
    """
    _check_is_folder(directory)
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
        groups = [_files_below(directory, name, follow_links, formats) for name in names]
        paths = [path for group in groups for path in group]
        labels = np.repeat(np.arange(len(names), dtype="int32"), [len(g) for g in groups])
    else:
        if class_names is not None:
            raise ValueError(
                "When `labels=None` (no labels), argument `class_names` cannot be specified."
            )
        paths, names = _files_below(directory, "", follow_links, formats), None
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
                np.random.RandomState(seed).shuffle(items)  # this gives Keras' order
    return paths, labels, names


def _check_is_folder(directory: str) -> None:
    if os.path.isdir(directory):
        return
    where = "" if os.path.isabs(directory) else f", in the working folder {os.getcwd()}"
    if os.path.exists(directory):
        raise NotADirectoryError(
            f"`directory` must be a folder with a subfolder of files for each class. Received a "
            f"file: directory={directory!r}{where}"
        )
    parent = os.path.dirname(os.path.abspath(directory))
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    raise FileNotFoundError(
        f"There is no folder directory={directory!r}{where}. What there is of that path is "
        f"{parent!r}: check the spelling, or pass an absolute path."
    )


def _files_below(
    directory: str, name: str, follow_links: bool, formats: tuple[str, ...]
) -> list[str]:
    """Returns the files below a subfolder, folder by folder, sorted by name."""
    top = os.path.join(directory, name)
    walk = sorted(os.walk(top, followlinks=follow_links), key=lambda found: found[0])
    return [
        os.path.join(directory, name, os.path.relpath(os.path.join(root, file), top))
        for root, _, files in walk
        for file in sorted(files)
        if file.lower().endswith(formats)
    ]
