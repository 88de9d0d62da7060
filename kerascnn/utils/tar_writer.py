"""Writes samples as tar shards."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from kerascnn.data.cardinality import check_size
from kerascnn.data.tar_files import BLOCK
from kerascnn.data.tar_index import split_name
from kerascnn.data.tar_samples import IMAGES

_KEY = "__key__"
_NUMBER = re.compile(r"%0?\d*d")


def write_tar_shards(
    samples: Iterable[dict[str, Any]],
    pattern: str | os.PathLike[str],
    samples_per_shard: int = 1000,
) -> list[str]:
    """Writes samples as tar archives in the layout of WebDataset.

    Each archive appears under its name when it is complete. The same samples make the same bytes.

    Args:
        samples: Dictionaries, each with the sample's name under "__key__", and its files by their
            endings: bytes as they are, a `pathlib.Path` for the content of a file, text, whole
            numbers (for "cls"), what JSON can hold (for "json"), arrays (for "npy"), and arrays of
            pixels, uint8 of shape (height, width, channels), for the endings of images.
        pattern: The archives' paths, with a place for their numbers from 0 on: "train-%06d.tar".
        samples_per_shard: How many samples an archive has; the last one may have fewer. Archives of
            0.1 to 1 GB suit most disks and networks.

    Returns:
        The paths of the archives.

    Raises:
        OSError: where an archive cannot be written; names it.
        TypeError: for a value that is none of these.
        ValueError: for a pattern without a place for a number, a sample without a name, two of one
            name in an archive, and names that would not be read again: with a dot in their last
            part, beginning with "/", or with "..".

    Example:

    >>> import kerascnn as keras
    >>> from pathlib import Path
    >>> samples = ({"__key__": f"{i:04}", "txt": f"Sample {i}", "cls": i} for i in range(5))
    >>> keras.utils.write_tar_shards(samples, "words-%02d.tar", samples_per_shard=3)
    ['words-00.tar', 'words-01.tar']
    >>> dataset = keras.data.Dataset.from_tar("words-*.tar")
    >>> [sample["txt"] for sample in dataset.take(2)]
    ['Sample 0', 'Sample 1']
    """
    from kerascnn.saving.atomic import replacing  # its package imports much

    size = check_size("samples_per_shard", samples_per_shard)
    pattern = os.fspath(pattern)
    if len(_NUMBER.findall(pattern)) != 1 or pattern.count("%") != 1:
        raise ValueError(
            "`pattern` must have one place for the number of an archive, such as %06d in "
            f"'train-%06d.tar'. Received: {pattern!r}"
        )
    paths: list[str] = []
    source = iter(samples)
    sample = next(source, None)
    while sample is not None:
        path = pattern % len(paths)
        with replacing(Path(path)) as part, open(part, "wb") as file:
            names: set[str] = set()
            while sample is not None and len(names) < size:
                _write_sample(file, sample, names)
                sample = next(source, None)
            file.write(bytes(2 * BLOCK))  # the end of an archive
        paths.append(path)
    if not paths:
        raise ValueError("There are no samples to write.")
    return paths


def _write_sample(file: BinaryIO, sample: dict[str, Any], names: set[str]) -> None:
    import tarfile  # this import is slow

    key = _checked_key(sample, names)
    names.add(key)
    for name, content in _files_of(sample, key):
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o444
        file.write(info.tobuf(tarfile.PAX_FORMAT))
        file.write(content)
        file.write(bytes(-len(content) % BLOCK))


def _checked_key(sample: Any, names: set[str]) -> str:
    if not isinstance(sample, dict) or not isinstance(sample.get(_KEY), str):
        raise ValueError(
            f'A sample must be a dictionary with its name, a text, under "{_KEY}". Received: '
            f"{sample!r:.200}"
        )
    key = sample[_KEY]
    is_safe = not key.startswith("/") and ".." not in key.split("/")
    if not is_safe or "\0" in key or split_name(f"{key}.x") != (key, "x"):
        raise ValueError(
            "The name of a sample must be a relative path whose last part is not empty and has no "
            f'dot, such as "cats/0001". Received: {key!r}'
        )
    if key in names:
        raise ValueError(f"Two samples of an archive have the name {key!r}.")
    if len(sample) == 1:
        raise ValueError(f"The sample {key!r} has no files.")
    return key


def _files_of(sample: dict[str, Any], key: str) -> Iterator[tuple[str, bytes]]:
    for ending, value in sample.items():
        if ending == _KEY:
            continue
        if not isinstance(ending, str) or split_name(f"{key}.{ending}") != (key, ending):
            raise ValueError(
                f"The endings of files must be texts in lower case without a slash, such as 'jpg'. "
                f"The sample {key!r} has {ending!r}."
            )
        yield f"{key}.{ending}", _bytes_of(key, ending, value)


def _bytes_of(key: str, ending: str, value: Any) -> bytes:
    kind = ending.rpartition(".")[2]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, os.PathLike):
        return Path(value).read_bytes()
    if kind == "json":
        return json.dumps(value).encode()
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and kind != "npy":
        return str(int(value)).encode()
    if isinstance(value, np.ndarray) and (kind in IMAGES or kind == "npy"):
        return _encoded_array(kind, value)
    raise TypeError(
        f"The file .{ending} of the sample {key!r} must be bytes, a path, text, a whole number, "
        "an array (for images and 'npy') or what JSON holds (for 'json'). Received: "
        f"{type(value).__name__}"
    )


def _encoded_array(kind: str, value: np.ndarray) -> bytes:
    stream = io.BytesIO()
    if kind == "npy":
        np.save(stream, value, allow_pickle=False)
    else:
        from kerascnn.utils import image_utils

        if value.dtype != np.uint8 or value.ndim != 3:
            raise TypeError(
                "Pixels must be uint8 of shape (height, width, channels). Received: "
                f"{value.dtype}, shape {value.shape}"
            )
        name = "jpeg" if kind == "jpg" else kind
        image_utils.save_img(stream, value, "channels_last", file_format=name, scale=False)
    return stream.getvalue()
