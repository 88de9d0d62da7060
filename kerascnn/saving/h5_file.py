"""Arrays by path in HDF5 files: written as Keras lays them out, read without trusting the file.

A group `<path>/vars` for each object holds its arrays under "0", "1", ... and its name as an
attribute. A file that is read is listed first: its names, shapes and dtypes. Links out of the tree
or to other files, virtual and external arrays, filters that are no part of HDF5, and arrays that
claim more than is stored are refused, before memory is taken for any of them.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from kerascnn.system_errors import below_hdf5, is_of_system, naming_file

_MAX_OBJECTS = 1_000_000
_MAX_DEPTH = 64
# These are gzip, shuffle and checksums. For other filters, HDF5 would look for plug-ins on this
# machine.
_FILTERS = frozenset({1, 2, 3})
# Compression hardly shrinks weights, so an array far larger than its file is damaged or hostile.
# All arrays together may be a hundred times as large as what is stored, or 16 MB.
_MAX_EXPANSION, _SMALL = 1000, 1 << 16
_MAX_TOTAL_EXPANSION, _SMALL_TOTAL = 100, 16 << 20

Path = str
Arrays = Mapping[str, np.ndarray[Any, Any]]


class Group:
    """The arrays of one group in an open file, which are read on demand."""

    def __init__(self, datasets: dict[str, Any], path: str, node: Any = None) -> None:
        self._datasets = datasets
        self._node = node
        self.path = path

    @classmethod
    def joined(cls, parts: Sequence[Group], path: str) -> Group:
        """The arrays of several groups as those of one.

        Raises:
            ValueError: where two of them have the same key.
        """
        datasets: dict[str, Any] = {}
        for part in parts:
            if datasets.keys() & part._datasets.keys():
                raise ValueError(f"{path} is there twice; not allowed.")
            datasets.update(part._datasets)
        return cls(datasets, path)

    def keys(self) -> list[str]:
        return list(self._datasets)

    def __len__(self) -> int:
        return len(self._datasets)

    def __iter__(self) -> Iterator[str]:
        return iter(self._datasets)

    def __contains__(self, key: object) -> bool:
        return key in self._datasets

    def shape(self, key: str) -> tuple[int, ...]:
        """Returns the shape of an array in the file without reading it."""
        return tuple(int(n) for n in self._datasets[key].shape)

    def __getitem__(self, key: str) -> np.ndarray[Any, Any]:
        if key not in self._datasets:
            raise KeyError(f"The file has no array {key!r} in {self.path or 'its root'}.")
        return _read(self._datasets[key], f"{self.path}/{key}")

    def texts(self, name: str) -> list[str] | None:
        """The strings of an attribute of the group, None where it has no such attribute.

        Raises:
            ValueError: for an attribute that holds something else than text.
        """
        if self._node is None:
            return None
        where = f"The attribute {name!r} of {self.path or 'the root'}"
        with _clear_errors(where):
            return _read_texts(self._node, name) if name in self._node.attrs else None


def require_h5py() -> Any:
    """The h5py module.

    Raises:
        ImportError: where it is not installed.
    """
    try:
        return importlib.import_module("h5py")
    except ImportError as error:
        raise ImportError(
            "Files of Keras hold their weights as HDF5, which needs the package h5py: "
            "pip install h5py. Files that end in .safetensors do without."
        ) from error


@contextlib.contextmanager
def created(target: Any) -> Iterator[Any]:
    """A new HDF5 file to write to.

    Args:
        target: A path, or a binary file in memory.

    Raises:
        OSError: where the file can't be written, on a full disk for example.
    """
    h5py = require_h5py()
    is_path = isinstance(target, (str, os.PathLike))
    with open(target, "w+b") if is_path else contextlib.nullcontext(target) as stream:
        sink = _Sink(stream)
        try:
            with h5py.File(sink, "w") as file:
                yield file
        finally:
            sink.check()


class _Sink:
    """A file for the HDF5 library, which can't close what it has open once a write has failed.

    After a failure, of the disk or for want of memory, it takes everything and does nothing, and
    `check` raises what happened.
    """

    def __init__(self, stream: Any):
        self._stream = stream
        self._error: OSError | MemoryError | None = None

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._try(self._stream.seek, offset, whence, instead=offset)

    def tell(self) -> int:
        return self._try(self._stream.tell, instead=0)

    def read(self, size: int = -1) -> bytes:
        return self._try(self._stream.read, size, instead=b"")

    def readinto(self, buffer: Any) -> int:
        return self._try(self._stream.readinto, buffer, instead=memoryview(buffer).nbytes)

    def write(self, content: Any) -> int:
        return self._try(self._stream.write, content, instead=memoryview(content).nbytes)

    def truncate(self, size: int | None = None) -> int:
        return self._try(self._stream.truncate, size, instead=size or 0)

    def flush(self) -> None:
        self._try(self._stream.flush, instead=None)

    def _try(self, call: Callable[..., Any], *arguments: Any, instead: Any) -> Any:
        if self._error is None:
            try:
                return call(*arguments)
            except (OSError, MemoryError) as error:
                self._error = error
        return instead

    def check(self) -> None:
        """Raises the first error, if there was one."""
        self.flush()
        if self._error is not None:
            raise self._error


def write(target: Any, groups: Mapping[Path, tuple[str | None, Arrays]]) -> None:
    """Writes objects' arrays.

    Args:
        target: A path, or a binary file in memory.
        groups: For each object's path its name and its arrays.
    """
    with created(target) as file:
        for path, (name, arrays) in groups.items():
            if name is None and not arrays:
                continue
            group = file.create_group(f"{path}/vars" if path else "vars")
            if name is not None:
                group.attrs["name"] = name
            for key, array in arrays.items():
                array = np.asarray(array)
                dataset = group.create_dataset(str(key), data=array)
                if array.dtype == ml_dtypes.bfloat16:
                    dataset.attrs["dtype"] = "bfloat16"


@contextlib.contextmanager
def opened(source: str | BinaryIO, name: str) -> Iterator[dict[Path, Group]]:
    """The objects' arrays of a file, by path, while the block runs; see `opened_tree`."""
    with opened_tree(source, name) as groups:
        yield {
            path[: -len("vars")].rstrip("/"): group
            for path, group in groups.items()
            if path == "vars" or path.endswith("/vars")
        }


@contextlib.contextmanager
def opened_tree(source: str | BinaryIO, name: str) -> Iterator[dict[Path, Group]]:
    """All groups of a file, by path ("" for the root), while the block runs.

    Args:
        source: A path, or a binary file.
        name: What errors call the file.

    Raises:
        ValueError: for a file that is damaged or holds what it should not.
    """
    h5py = require_h5py()
    with _clear_errors(name):
        file = h5py.File(source, "r")
    try:
        with _clear_errors(name):
            _check_heaps(source, file.id.get_create_plist())
            groups = _list_groups(file, name)
        yield groups
    finally:
        with contextlib.suppress(Exception):
            file.close()


_DAMAGED = "{} is no HDF5 file, or is damaged or cut off ({})."


class DamagedFileError(ValueError, OSError):
    """The file is not what its name says, or incomplete. Keras raises OSError for weights."""


class NoMemoryError(DamagedFileError, MemoryError):
    """There is not as much memory as the file asks for: it is large, or damaged."""


@contextlib.contextmanager
def _clear_errors(name: str) -> Iterator[None]:
    """Converts errors of the HDF5 library: a damaged file is one kind, the system's are its own."""
    try:
        yield
    except MemoryError as error:
        raise NoMemoryError(
            f"{name} asks for more memory than there is. If it should be small, it is damaged."
        ) from error
    except Exception as error:
        failure = below_hdf5(error)
        if failure is not None:
            raise failure from error
        is_told = isinstance(error, ValueError) and str(error).startswith(name)
        if is_told or is_of_system(error):
            raise
        raise DamagedFileError(_DAMAGED.format(name, error)) from error


_HEAP = b"GCOL\x01\0\0\0"
_NAMES = b"HEAP\0\0\0\0"
_NO_BLOCK = 1  # ends a list of free blocks
_PIECE = 4 << 20


def _check_heaps(source: str | BinaryIO, properties: Any) -> None:
    """Checks the heaps of texts of any length and of names: HDF5 goes on for ever in damaged ones.

    A heap of texts is 16 bytes with its own size, and then objects: a number (0 for what is free),
    how many use it, and its size, in 16 bytes together, and its content. What is free counts these
    16 bytes. A heap of names is the size of its bytes, where the first free ones are, and where all
    of them begin; free bytes begin with the place of the next ones.

    Source: https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html, III.D and III.E
    """
    for width in properties.get_sizes():
        if width != 8:
            raise ValueError(f"its lengths have {width} bytes; files of Keras have 8")
    with contextlib.ExitStack() as stack:
        stream: Any = source
        if isinstance(source, (str, os.PathLike)):
            stack.enter_context(naming_file(source))
            stream = stack.enter_context(open(source, "rb"))
        for place in _places(stream, _HEAP):
            _check_heap(stream, place)
        begin, left = properties.get_userblock(), stream.seek(0, os.SEEK_END) // 8
        for place in _places(stream, _NAMES):
            left -= _count_free_names(stream, place, begin, left)
        stream.seek(0)


def _places(stream: Any, wanted: bytes) -> Iterator[int]:
    """Yields where some bytes are in a file, which is read in pieces that overlap."""
    begin, rest = 0, b""
    while True:
        stream.seek(begin + len(rest))
        new = stream.read(_PIECE)
        piece = rest + new
        found = piece.find(wanted)
        while found >= 0:
            yield begin + found
            found = piece.find(wanted, found + 1)
        if not new:
            return
        rest = piece[-len(wanted) + 1 :]
        begin += len(piece) - len(rest)


def _check_heap(stream: Any, place: int) -> None:
    stream.seek(place + 8)
    left = int.from_bytes(stream.read(8), "little") - 16
    while left >= 16:
        head = stream.read(16)
        if len(head) < 16:
            return  # HDF5 notices the end of the file
        number, size = int.from_bytes(head[:2], "little"), int.from_bytes(head[8:], "little")
        step = size if number == 0 else 16 + -(-size // 8) * 8
        if not 16 <= step <= left:
            raise ValueError(f"its heap at byte {place} has an object of {size} bytes")
        stream.seek(step - 16, os.SEEK_CUR)
        left -= step


def _count_free_names(stream: Any, place: int, begin: int, left: int) -> int:
    """Counts the free places of a heap of names, which take 16 bytes each.

    Args:
        stream: The file.
        place: Where the heap's header is.
        begin: Where HDF5's part of the file begins.
        left: How many there can be.

    Raises:
        ValueError: where there are more, or they lead back to one of them.
    """
    stream.seek(place + 8)
    size, free, content = (int.from_bytes(stream.read(8), "little") for _ in range(3))
    seen: set[int] = set()
    while free != _NO_BLOCK and free < size and begin + content + free < 1 << 63:
        if free in seen or len(seen) >= left:
            raise ValueError(f"the free places of its heap at byte {place} go on for ever")
        seen.add(free)
        stream.seek(begin + content + free)
        free = int.from_bytes(stream.read(8), "little")
        if not free:
            break  # HDF5 notices this, as it does the end of the file
    return len(seen)


def _list_groups(file: Any, name: str) -> dict[Path, Group]:
    """Lists all groups by their paths and checks their contents."""
    h5py = require_h5py()
    found: dict[Path, Group] = {}
    seen: set[Any] = set()
    stack: list[tuple[str, Any, int]] = [("", file["/"], 0)]
    declared, stored = 0, 0
    while stack:
        path, group, depth = stack.pop()
        place = h5py.h5o.get_info(group.id)
        key = (place.fileno, getattr(place, "addr", None) or bytes(getattr(place, "token", b"")))
        if key in seen:
            raise ValueError(f"{name}: the group {path!r} is in the file twice; not allowed.")
        seen.add(key)
        if depth > _MAX_DEPTH or len(seen) > _MAX_OBJECTS:
            raise ValueError(f"{name} has more groups, or deeper ones, than any model.")
        datasets: dict[str, Any] = {}
        for child in group:
            inner = f"{path}/{child}" if path else child
            link = group.get(child, getclass=True, getlink=True)
            if link is not h5py.HardLink:
                kind = getattr(link, "__name__", link)
                raise ValueError(f"{name} has a link ({kind}) at {inner!r}; not allowed.")
            item = group[child]
            if isinstance(item, h5py.Group):
                stack.append((inner, item, depth + 1))
            elif isinstance(item, h5py.Dataset):
                more = _check_dataset(item, f"{name}: the array {inner!r}")
                declared, stored = declared + more[0], stored + more[1]
                datasets[child] = item
            else:
                raise ValueError(f"{name} has something at {inner!r} that is no array or group.")
        found[path] = Group(datasets, path, group)
    if declared > max(_SMALL_TOTAL, _MAX_TOTAL_EXPANSION * stored):
        raise ValueError(f"{name} claims {declared} bytes of arrays, but stores {stored} for them.")
    return found


def held_bytes(groups: Mapping[Path, Group]) -> int:
    """Returns how many bytes the arrays of an open file have, unpacked."""
    return sum(
        math.prod(group.shape(key)) * int(group._datasets[key].dtype.itemsize)
        for group in groups.values()
        for key in group
    )


def _check_dataset(dataset: Any, where: str) -> tuple[int, int]:
    """Checks an array. Returns how many bytes it has, and how many of them are stored."""
    if dataset.is_virtual or dataset.external:
        raise ValueError(f"{where} has its data outside of the file; not allowed.")
    if dataset.shape is None or dataset.dtype.kind not in "biufV" or dataset.dtype.hasobject:
        raise ValueError(f"{where} holds no numbers (its dtype is {dataset.dtype}); not allowed.")
    properties = dataset.id.get_create_plist()
    for index in range(properties.get_nfilters()):
        code = properties.get_filter(index)[0]
        if code not in _FILTERS:
            raise ValueError(f"{where} is packed by the filter {code}; not allowed.")
    declared = math.prod(int(n) for n in dataset.shape) * dataset.dtype.itemsize
    stored = int(dataset.id.get_storage_size())
    if declared > _SMALL and declared > _MAX_EXPANSION * stored:
        raise ValueError(f"{where} claims {declared} bytes, but the file stores {stored} for it.")
    return declared, stored


def _read(dataset: Any, where: str) -> np.ndarray[Any, Any]:
    with _clear_errors(f"The array {where}"):
        array = np.asarray(dataset[()])
        if array.dtype.kind == "V":
            if array.dtype.itemsize != 2 or dataset.attrs.get("dtype") != "bfloat16":
                raise ValueError(f"its dtype {array.dtype} is not known")
            array = array.view(ml_dtypes.bfloat16)
    return array


def _read_texts(node: Any, name: str) -> list[str]:
    h5py = require_h5py()
    attribute = node.attrs.get_id(name)
    count = math.prod(attribute.shape)
    if count == 0:
        return []
    is_text = attribute.dtype.kind == "S" or h5py.check_string_dtype(attribute.dtype)
    if not is_text or count > _MAX_OBJECTS:
        raise ValueError(f"it is no text: its dtype is {attribute.dtype}, its size {count}")
    values = np.asarray(node.attrs[name]).reshape(-1).tolist()
    return [v.decode("utf-8") if isinstance(v, bytes) else str(v) for v in values]
