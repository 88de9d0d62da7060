"""Where `cache()` keeps elements: in memory, or in a file."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import threading
import weakref
import zlib
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from kerascnn import part_files
from kerascnn.data import records
from kerascnn.data.tar_files import close
from kerascnn.system_errors import naming_file

_MAGIC = b"kerascnn elements, form 1\n"
_END = struct.Struct("<QQI12s")  # where the index begins, its bytes, its checksum, and a mark
_END_MARK = b"kerascnn end"
_ALIGNMENT = 64
_ENTRY = np.dtype([("offset", "<i8"), ("form", "<i4"), ("crc", "<u4")])


class Store(Protocol):
    """Keeps elements by their numbers; any thread may call it."""

    def get(self, number: int) -> Any:
        """Returns an element, None where it is not there.

        Raises:
            ValueError: for a sample that could not be read when it was to be kept.
        """

    def put(self, number: int, element: Any) -> None:
        """Keeps an element."""

    def put_error(self, number: int, reason: str) -> None:
        """Keeps that an element could not be made."""


class MemoryStore:
    """Keeps elements as they are."""

    def __init__(self) -> None:
        self._kept: dict[int, Any] = {}

    def get(self, number: int) -> Any:
        """See `Store`."""
        return self._kept.get(number)

    def put(self, number: int, element: Any) -> None:
        """See `Store`."""
        self._kept[number] = element

    def put_error(self, number: int, reason: str) -> None:
        """Keeps nothing: the file is tried again."""


class FileStore:
    """Keeps elements in a file.

    As long as some are missing, they are in a file beside `path`, which is removed when the process
    ends, or by the next one if it is killed. With all of them it becomes `path`, at once. Elements
    lie there one behind the other in the order in which they were made, then an index with a
    checksum for each.

    They are read by calls and not through a map of the file into memory: there, a disk that fails
    or a file that was cut off ends the process.

    Args:
        path: The file.
        count: How many elements there will be; None where `finish` will tell.
        identity: Of the source. A file that was made of another one is refused.

    Raises:
        ValueError: where the file is another kind of file, damaged, or made of another source.
    """

    def __init__(self, path: str | os.PathLike[str], count: int | None, identity: str | None):
        self.path = Path(path).absolute()
        self._count, self._identity = count, identity
        self._lock = threading.Lock()
        self._file: _Part | None = None
        self._read_only = False
        self._process = os.getpid()
        self._reset()
        if self.path.exists():
            self._load()

    def _reset(self) -> None:
        self._entries = np.zeros(1024 if self._count is None else self._count, _ENTRY)
        self._forms: list[str] = []
        self._sizes: list[int] = []
        self._form_numbers: dict[str, int] = {}
        self._errors: dict[int, str] = {}
        self._checked: set[int] = set()
        self._kept, self._end = 0, _aligned(len(_MAGIC))

    @property
    def is_complete(self) -> bool:
        """Tells whether all elements are there."""
        return self._read_only

    def __len__(self) -> int:
        return self._kept

    # Reading ------------------------------------------------------------------------------------

    def get(self, number: int) -> Any:
        """See `Store`.

        Raises:
            OSError: where the file cannot be read; names it.
            ValueError: where an element is damaged, too.
        """
        if number in self._errors:
            raise ValueError(self._errors[number])
        file = self._file
        entry = self._entries[number] if number < len(self._entries) else None
        if file is None or entry is None or entry["offset"] == 0:
            return None
        form = int(entry["form"])
        content = file.read(int(entry["offset"]), self._sizes[form])
        if number not in self._checked:
            if zlib.crc32(content) != entry["crc"]:
                raise ValueError(
                    f"{self.path} is damaged: the checksum of element {number} is wrong. Remove "
                    "the file; it is made anew."
                )
            self._checked.add(number)
        return records.unpacked(self._forms[form], content)

    def _load(self) -> None:
        with naming_file(self.path):
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            file = _Part(descriptor, self.path, self.path)
            try:
                index = self._index_of(file)
                numbers = np.frombuffer(index.pop("entries"), _ENTRY)
                forms = [str(form) for form in index["forms"]]
                sizes = [records.size_of(form) for form in forms]
                errors = {int(number): str(text) for number, text in index["errors"].items()}
                places = numbers[numbers["offset"] > 0]
                ends = places["offset"] + np.array([*sizes, 0])[places["form"]]
                if (ends > index["end"]).any() or (places["form"] < 0).any():
                    raise ValueError("an element lies behind its end")
            except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
                raise ValueError(
                    f"{self.path} has no elements of a data set, or is damaged ({error}). Remove "
                    "it, or name another file."
                ) from error
        is_other = self._count is not None and len(numbers) != self._count
        if is_other or index["identity"] != self._identity:
            raise ValueError(
                f"{self.path} has the elements of another data set, or files have changed since it "
                "was written. Remove it, or name another file."
            )
        self._entries, self._forms, self._sizes, self._errors = numbers, forms, sizes, errors
        self._file, self._read_only, self._kept = file, True, len(numbers)

    def _index_of(self, file: _Part) -> dict[str, Any]:
        size = os.fstat(file.descriptor).st_size
        if bytes(file.read(0, len(_MAGIC))) != _MAGIC:
            raise ValueError("it begins in another way")
        begin, length, crc, mark = _END.unpack(file.read(size - _END.size, _END.size))
        if mark != _END_MARK or begin + length + _END.size != size:
            raise ValueError("its end is missing")
        content = bytes(file.read(begin, length))
        if zlib.crc32(content) != crc:
            raise ValueError("the checksum of its index is wrong")
        head, _, entries = content.partition(b"\n")
        return {**json.loads(head), "entries": entries, "end": begin}

    # Writing ------------------------------------------------------------------------------------

    def put(self, number: int, element: Any) -> None:
        """See `Store`.

        Raises:
            OSError: where the file cannot be written, on a full disk say; names it. Nothing is
                left of it then.
            TypeError: for an element that cannot be kept in a file.
        """
        form, content = records.packed(element)
        with self._lock:
            if not self._takes(number):
                return
            file = self._opened()
            offset, self._end = self._end, self._end + _aligned(len(content))
            number_of_form = self._form_numbers.setdefault(form, len(self._forms))
            if number_of_form == len(self._forms):
                self._sizes.append(len(content))
                self._forms.append(form)
        try:
            with naming_file(self.path):
                file.write(offset, content)
        except BaseException:
            self.drop()
            raise
        with self._lock:
            if self._file is not file or self._is_there(number):
                return  # dropped, or another thread was faster
            self._grow(number)
            # The offset comes last: with it, the element is there for other threads.
            self._entries[number]["form"] = number_of_form
            self._entries[number]["crc"] = zlib.crc32(content)
            self._entries[number]["offset"] = offset
            self._checked.add(number)
            self._count_one()

    def put_error(self, number: int, reason: str) -> None:
        """See `Store`."""
        with self._lock:
            if self._takes(number):
                self._opened()
                self._grow(number)
                self._errors[number] = reason
                self._count_one()

    def finish(self, count: int) -> None:
        """Says how many elements there are, where that was not known."""
        with self._lock:
            if not self._read_only and self._kept == count:
                self._opened()
                self._entries = self._entries[:count]
                self._complete()

    def drop(self) -> None:
        """Forgets what there is of a file that is not complete."""
        with self._lock:
            if not self._read_only:
                file, self._file = self._file, None
                self._reset()
                if file is not None:
                    file.remove()

    def _takes(self, number: int) -> bool:
        # A forked child knows what was there before, and leaves the rest to its parent.
        is_own = self._process == os.getpid()
        return is_own and not self._read_only and not self._is_there(number)

    def _is_there(self, number: int) -> bool:
        is_known = number < len(self._entries)
        return bool(is_known and self._entries[number]["offset"]) or number in self._errors

    def _grow(self, number: int) -> None:
        if number >= len(self._entries):
            self._entries = np.concatenate([self._entries, np.zeros_like(self._entries)])

    def _opened(self) -> _Part:
        if self._file is None:
            with naming_file(self.path):
                self.path.parent.mkdir(parents=True, exist_ok=True)
            part = part_files.beside(self.path)
            with naming_file(self.path, instead=part):
                file = _Part.create(part, self.path)
                try:
                    file.write(0, _MAGIC)
                except BaseException:
                    file.remove()
                    raise
            self._file = file
        return self._file

    def _count_one(self) -> None:
        self._kept += 1
        if self._count is not None and self._kept == self._count:
            self._complete()

    def _complete(self) -> None:
        """Writes the index, and gives the file its name."""
        file = self._opened()
        head = json.dumps(
            {
                "identity": self._identity,
                "forms": self._forms,
                "errors": {str(number): text for number, text in self._errors.items()},
            }
        ).encode()
        index = head + b"\n" + self._entries.tobytes()
        try:
            with naming_file(self.path, instead=file.path):
                end = _END.pack(self._end, len(index), zlib.crc32(index), _END_MARK)
                file.write(self._end, index + end)
                os.fsync(file.descriptor)
                os.replace(file.path, self.path)
        except BaseException:
            self._file = None
            self._reset()
            file.remove()
            raise
        file.keep()
        self._read_only = True


class _Part:
    """An open file that is removed when it is forgotten, unless it was kept.

    Args:
        descriptor: Of the file.
        path: Where it is.
        target: What errors call it.
    """

    def __init__(self, descriptor: int, path: Path, target: Path):
        self.descriptor, self.path, self._target = descriptor, path, target
        self._close = weakref.finalize(self, close, descriptor)
        self._remove: Any = None

    @classmethod
    def create(cls, path: Path, target: Path) -> _Part:
        """Creates a file that will be `target`."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        made = cls(os.open(path, flags, 0o666), path, target)
        made._remove = weakref.finalize(made, _unlink, path, os.getpid())
        return made

    def read(self, offset: int, size: int) -> bytearray:
        """Returns bytes of the file.

        Raises:
            ValueError: where it is shorter.
        """
        content = bytearray(max(size, 0))
        view, done = memoryview(content), 0
        if offset < 0:
            raise ValueError(f"{self._target} is too short")
        while done < size:
            with naming_file(self._target):
                count = os.preadv(self.descriptor, [view[done:]], offset + done)
            if not count:
                raise ValueError(
                    f"{self._target} is truncated: it ends before byte {offset + size}."
                )
            done += count
        return content

    def write(self, offset: int, content: bytes) -> None:
        """Writes bytes at a place of the file."""
        view, done = memoryview(content), 0
        while done < len(content):
            done += os.pwrite(self.descriptor, view[done:], offset + done)

    def keep(self) -> None:
        """Keeps the file, which has another name now."""
        self._remove.detach()

    def remove(self) -> None:
        """Removes it at once. It stays open for threads that read it."""
        self._remove()


def _unlink(path: Path, process: int) -> None:
    if os.getpid() == process:  # a forked child ends without taking the file of its parent along
        with contextlib.suppress(OSError):
            path.unlink()


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
