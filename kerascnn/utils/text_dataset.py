"""Data sets of the text files in a folder."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

from kerascnn.utils.directory import Folder, check_format


def text_dataset_from_directory(
    directory: str | os.PathLike[str],
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    batch_size: int | None = 32,
    max_length: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    format: str = "tf",
    verbose: bool = True,
) -> Any:
    """Batches of the `.txt` files in a folder, with a subfolder for each class.

    Args:
        directory: The folder.
        labels: See `image_dataset_from_directory`, as for all arguments that are not listed here.
        label_mode: "int" (int32), "categorical", "binary" (both float32) or None for texts only.
        class_names: The subfolders to take.
        batch_size: None for single texts.
        max_length: How many characters of a text are kept; None for all.
        shuffle: Whether each pass has another order.
        seed: Of the shuffling.
        validation_split: The share of the files that is kept for validation.
        subset: "training", "validation" or "both".
        follow_links: Whether to go into folders that are symbolic links.
        format: "tf" or "grain", without effect.
        verbose: Whether to show how many files were found.

    Returns:
        A `keras.data.Dataset` (two with `subset="both"`) of arrays of strings, shape
        `(batch_size,)`, or pairs of them and their labels. `map` a `TextVectorization` layer over
        it to get numbers.

    Raises:
        FileNotFoundError: where there is no such folder.
        ValueError: for arguments that do not go together, a folder without texts, or a file that
            is not UTF-8.

    Example:

    >>> import kerascnn as keras
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name, text in (("bad", "so dull"), ("good", "what fun")):
    ...     (folder / name).mkdir()
    ...     _ = (folder / name / "1.txt").write_text(text)
    >>> dataset = keras.utils.text_dataset_from_directory(folder, shuffle=False, verbose=False)
    >>> texts, labels = next(iter(dataset))
    >>> texts.tolist(), labels.tolist(), dataset.class_names
    (['so dull', 'what fun'], [0, 1], ['bad', 'good'])
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
        kind="text",
        formats=(".txt",),
    )
    check_format(format)
    return folder.datasets(functools.partial(_read, max_length=max_length))


def _read(path: str, max_length: int | None) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read(-1 if max_length is None else max_length)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} cannot be read as UTF-8 text: {error}") from error
