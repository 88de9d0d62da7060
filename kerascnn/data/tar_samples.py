"""The samples in tar shards, each a dictionary of what its files hold."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerascnn.data.ahead import default_workers
from kerascnn.data.indexed import FileSamples, IndexedDataset
from kerascnn.data.tar_files import TarError
from kerascnn.data.tar_index import Place, Shard, TarIndex
from kerascnn.system_errors import is_of_system

IMAGES = ("jpg", "jpeg", "png", "webp", "gif", "bmp")
_NPY_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class Places(Sequence[Any]):
    """Where samples lie: a shard and the numbers of some of its files, for each sample.

    Args:
        shards: All shards.
        rows: The number of the shard and those of the files, for each sample.
        keys: The names of the samples.
        make: What an item is made of: a shard, the numbers of files, and the name.
    """

    def __init__(
        self,
        shards: list[Shard],
        rows: np.ndarray[Any, Any],
        keys: list[str],
        make: Callable[[Shard, list[int], str], Any],
    ):
        self._shards, self._rows, self._keys, self._make = shards, rows, keys, make

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"There are {len(self)} samples. Received: index={index}")
        shard, *files = self._rows[index].tolist()
        return self._make(self._shards[shard], files, self._keys[index])

    def changed(self, make: Callable[[Shard, list[int], str], Any]) -> Places:
        """The same samples, of which other items are made."""
        return Places(self._shards, self._rows, self._keys, make)


class SamplePlaces(NamedTuple):
    """Where the files of a sample lie, and its name."""

    key: str
    places: list[Place]

    def __str__(self) -> str:
        return f"{self.places[0].shard}: {self.key}"


def _sample(shard: Shard, files: list[int], key: str) -> SamplePlaces:
    return SamplePlaces(key, [shard.place(number) for number in files])


@dataclasses.dataclass(frozen=True)
class _Decoder:
    """Makes dictionaries of samples; has the endings of their files."""

    endings: tuple[str, ...]

    def __call__(self, sample: SamplePlaces) -> dict[str, Any]:
        found: dict[str, Any] = {"__key__": sample.key}
        for ending, place in zip(self.endings, sample.places, strict=True):
            found[ending] = decoded(ending, place.read(), place)
        return found


def dataset_of(shards: Any, keys: Any, index_file: Any, on_error: str) -> IndexedDataset:
    """What `Dataset.from_tar` returns."""
    if on_error not in ("raise", "skip"):
        raise ValueError(f'`on_error` must be "raise" or "skip". Received: on_error={on_error!r}')
    skips = on_error == "skip"
    index = TarIndex(shards, index_file, skips)
    wanted = _wanted(keys, index)
    rows, names, skipped = chosen_samples(index, [(key,) for key in wanted], skips)

    samples = FileSamples(Places(index.shards, rows, names, _sample), None, _Decoder(wanted))
    samples.skipped = {**index.skipped, **skipped}
    return IndexedDataset(samples, workers=default_workers())


def _wanted(keys: Any, index: TarIndex) -> tuple[str, ...]:
    if keys is None:
        first = next(index.samples(), None)
        return () if first is None else tuple(sorted(first[2]))
    wanted = [keys] if isinstance(keys, str) else list(keys)
    if not wanted or not all(isinstance(key, str) and key for key in wanted):
        raise ValueError(f"`keys` must be endings of files, such as ('jpg', 'cls'): {keys!r}")
    return tuple(key.lstrip(".").lower() for key in wanted)


def chosen_samples(
    index: TarIndex, wanted: Sequence[Sequence[str]], skips: bool
) -> tuple[np.ndarray[Any, Any], list[str], dict[str, str]]:
    """Chooses some files of each sample.

    Args:
        index: Has the samples.
        wanted: The endings of each file; the first one that a sample has is taken.
        skips: Whether samples without such a file are left out.

    Returns:
        For each sample the numbers of its shard and of its files, its name, and the reasons for
        those that are left out.

    Raises:
        ValueError: For a sample that lacks a file, or where there are no samples.
    """
    rows: list[list[int]] = []
    names: list[str] = []
    skipped: dict[str, str] = {}
    for number, shard in enumerate(index.shards):
        for key, files in shard.samples().items():
            found = [next((files[e] for e in endings if e in files), None) for endings in wanted]
            if None not in found:
                rows.append([number, *found])  # type: ignore[list-item]
                names.append(key)
                continue
            lacks = " or .".join(wanted[found.index(None)])
            has = ", ".join(f".{ending}" for ending in files)
            reason = f"{shard.path}: the sample {key!r} has no file .{lacks}, only {has}."
            if not skips:
                raise TarError(f'{reason} Leave such samples out with `on_error="skip"`.')
            skipped[f"{shard.path}: {key}"] = reason
    if not rows:
        paths = index.shards[0].path + (" and others" if len(index.shards) > 1 else "")
        raise ValueError(f"There are no samples in {paths}, or all of them are left out.")
    return np.array(rows, "int64"), names, skipped


def decoded(ending: str, content: bytes, place: Any) -> Any:
    """What a file holds, by its ending; bytes where it is none that is known.

    Raises:
        ValueError: For a content that its ending does not announce; the message names the file.
    """
    kind = ending.rpartition(".")[2]
    if kind in IMAGES:
        from kerascnn.utils import image_utils

        return image_utils.pixels_of(content, place)
    try:
        if kind == "cls":
            text = content.decode().strip()
            return int(text) if is_number(text) else text
        if kind == "txt":
            return content.decode()
        if kind == "json":
            return json.loads(content)
        return _array_of(content) if kind == "npy" else content
    except Exception as error:  # NumPy raises nearly any for the header of an array
        if is_of_system(error):
            raise
        raise ValueError(f"{place} is no .{kind} file, or damaged ({error}).") from error


def is_number(text: str) -> bool:
    """Tells whether a text is a whole number of a usual size.

    >>> is_number("12"), is_number("-1"), is_number("1.0"), is_number("9" * 40)
    (True, True, False, False)
    """
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 19


def _array_of(content: bytes) -> np.ndarray[Any, Any]:
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version not in _NPY_HEADERS:
        raise ValueError(f"its form is {version}")
    shape, is_fortran, dtype = _NPY_HEADERS[version](stream)
    if dtype.kind not in "biuf":
        raise ValueError(f"it has no numbers but {dtype}")
    left = len(content) - stream.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != left:
        raise ValueError(f"the shape {shape} of {dtype} needs other than {left} bytes")
    data = bytearray(stream.read())
    return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")
