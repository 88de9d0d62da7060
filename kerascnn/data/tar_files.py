"""The files in tar archives and where they lie, by headers that are not trusted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

from kerascnn.system_errors import naming_file

BLOCK = 512
# No name needs more; a header may claim any size.
_MOST_TEXT = 1 << 20
_WINDOW = 4096
_FILES, _FOLDER = (b"0", b"\0", b"7"), b"5"
_LONG_NAME, _LONG_LINK, _LABEL = b"L", b"K", b"V"
_PAX, _PAX_OF_ALL = (b"x", b"X"), b"g"
_REFUSED = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a named pipe",
    b"S": "a sparse file",
    b"M": "a part of a file that began in another archive",
    b"D": "a listing of a folder",
}
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class Member(NamedTuple):
    """A file in an archive.

    Attributes:
        name: Its name there.
        offset: Where its bytes begin.
        size: How many they are.
    """

    name: str
    offset: int
    size: int


class TarError(ValueError):
    """An archive that is damaged, or has what is not read; the message names it."""


class TarFile:
    """An archive that is open for reading its headers; a context manager.

    Attributes:
        path: Its path.
        size: Its bytes.
        changed: When it was changed last, in nanoseconds.
    """

    def __init__(self, path: str):
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        status = os.fstat(self._descriptor)
        self.size, self.changed = status.st_size, status.st_mtime_ns
        self._begin, self._window = 0, b""

    def __enter__(self) -> TarFile:
        return self

    def __exit__(self, *_: object) -> None:
        close(self._descriptor)

    def read(self, offset: int, size: int) -> bytes:
        """Returns bytes of the file; fewer at its end."""
        start = offset - self._begin
        if start < 0 or start + size > len(self._window):
            with naming_file(self.path):
                self._window = os.pread(self._descriptor, max(size, _WINDOW), offset)
            self._begin, start = offset, 0
        return self._window[start : start + size]

    def members(self) -> Iterator[Member]:
        """Yields the files in the archive; folders are left out.

        Raises:
            TarError: Where the archive is damaged, after the members before that place, or has
                links, devices or sparse files.
        """
        offset, name, size = 0, "", -1
        self._check_kind()
        while True:
            header = self.read(offset, BLOCK)
            if not header.strip(b"\0") and len(header) == BLOCK:
                return
            kind, own_name, own_size = self._parsed(header, offset)
            data = offset + BLOCK
            if kind in (_LONG_NAME, *_PAX, _PAX_OF_ALL, _LONG_LINK):
                text = self._text(data, own_size)
                if kind == _LONG_NAME:
                    name = _text_of(text.partition(b"\0")[0])
                elif kind != _LONG_LINK:
                    found = self._records(text, data)
                    if kind in _PAX:
                        name = found.get("path", name)
                        size = self._pax_size(found, offset, size)
                offset = data + _in_blocks(own_size)
                continue
            name, size = name or own_name, own_size if size < 0 else size
            is_folder = kind == _FOLDER or (kind == b"\0" and name.endswith("/"))
            if kind in _FILES and not is_folder:
                self._check_data(name, data, size)
                yield Member(name, data, size)
            elif not is_folder and kind != _LABEL:
                what = _REFUSED.get(kind, f"of a kind that is not known, {kind!r}")
                raise TarError(
                    f"{self.path}: {name!r} is {what}. Shards may have files only: write it anew."
                )
            offset = data + (0 if is_folder else _in_blocks(size))
            name, size = "", -1

    def _check_kind(self) -> None:
        begin = self.read(0, BLOCK)
        for mark, kind in _PACKED.items():
            if begin.startswith(mark):
                raise TarError(
                    f"{self.path} is packed by {kind}. Samples are read in any order, which needs "
                    "plain tar files; images and most arrays are packed already. Unpack it once, "
                    "with `gunzip` for example."
                )
        if not begin:
            raise TarError(f"{self.path} is empty: it is no tar archive.")

    def _parsed(self, header: bytes, offset: int) -> tuple[bytes, str, int]:
        """Returns the kind, the name and the size that a header says."""
        if len(header) < BLOCK:
            raise TarError(
                f"{self.path} is truncated: it ends at byte {self.size} without the blocks of "
                "zeros that end an archive."
            )
        total = sum(header) - sum(header[148:156]) + 256
        said = _octal(header[148:156])
        if said != total:
            signed = total - 256 * sum(byte > 127 for byte in header[:148] + header[156:])
            if said != signed:
                what = "is no tar archive" if offset == 0 else f"is damaged at byte {offset}"
                raise TarError(f"{self.path} {what}: the checksum of a header is wrong.")
        name = header[:100].partition(b"\0")[0]
        if header[257:263] == b"ustar\0" and header[345]:
            name = header[345:500].partition(b"\0")[0] + b"/" + name
        size = _number(header[124:136])
        if size is None:
            raise TarError(f"{self.path} is damaged at byte {offset}: {name!r} has no size.")
        return header[156:157], _text_of(name), size

    def _text(self, offset: int, size: int) -> bytes:
        if size > _MOST_TEXT:
            raise TarError(
                f"{self.path} is damaged at byte {offset}: a name takes {size} bytes there."
            )
        self._check_data("a long name", offset, size)
        return self.read(offset, size)

    def _records(self, text: bytes, offset: int) -> dict[str, str]:
        """Returns the records of a pax header, "length key=value" and a newline each."""
        found = {}
        while text.strip(b"\0"):
            digits, _, _ = text[:20].partition(b" ")
            length = int(digits) if digits.isdigit() else 0
            record = text[:length]
            key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
            if length > len(text) or not equals or not record.endswith(b"\n"):
                raise TarError(f"{self.path} is damaged at byte {offset}: a header of pax is.")
            found[_text_of(key)] = _text_of(value)
            text = text[length:]
        if any(key.startswith("GNU.sparse.") for key in found):
            name = found.get("GNU.sparse.name") or found.get("path") or "a file"
            raise TarError(
                f"{self.path}: {name!r} is a sparse file. Shards may have files only: write it "
                "anew, without `--sparse`."
            )
        return found

    def _pax_size(self, found: dict[str, str], offset: int, default: int) -> int:
        text = found.get("size")
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise TarError(f"{self.path} is damaged at byte {offset}: a size is {text[:40]!r}.")
        return int(text)

    def _check_data(self, name: str, offset: int, size: int) -> None:
        if "\0" in name:
            raise TarError(f"{self.path}: the name {name!r} has a zero byte.")
        if offset + size > self.size:
            raise TarError(
                f"{self.path} is truncated: {name!r} needs {size} bytes from byte {offset} on, and "
                f"the file has {self.size}."
            )


def close(descriptor: int) -> None:
    """Closes a file that was only read: what a disk says then changes nothing."""
    with contextlib.suppress(OSError):
        os.close(descriptor)


def _in_blocks(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _octal(field: bytes) -> int | None:
    text = field.partition(b"\0")[0].strip(b" ") or b"0"
    return int(text, 8) if text.isdigit() and not set(text) & set(b"89") else None


def _number(field: bytes) -> int | None:
    """Returns a size, which is in octal digits or, beyond 8 GB, in base 256."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    return _octal(field)


def _text_of(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
