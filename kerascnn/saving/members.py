"""The files that a saved model consists of: members of a `.keras` archive, or files in a folder.

Nothing leads out of the archive or folder: not a name, not a link. What a member unpacks to is
checked before it is read.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from kerascnn.system_errors import is_of_system, naming_file

_MAX_CONFIG = 256 << 20
_SMALL = 16 << 20
_MAX_EXPANSION = 100
_MAX_MEMBERS = 100_000


class Members(Protocol):
    """The common part of archives and folders."""

    def read(self, name: str) -> bytes:
        """Returns the content of the only member of that name."""
        ...

    def names(self) -> list[str]:
        """Returns all names of files, with "/" between their parts."""
        ...

    def size(self, name: str) -> int:
        """Returns how many bytes the only member of that name has."""
        ...

    def copy(self, name: str, target: Path) -> None:
        """Writes a member to a separate file."""
        ...


@contextlib.contextmanager
def opened(source: Path | io.BytesIO, where: str, kind: str = ".keras file") -> Iterator[Members]:
    """The members of an archive or folder, while the block runs.

    Args:
        source: Where it is, or the content of an archive.
        where: What errors call it.
        kind: What errors say that it should be.

    Raises:
        ValueError: for what is no archive of a model, or is damaged.
    """
    if isinstance(source, Path) and source.is_dir():
        yield _Folder(source)
        return
    with _archive_errors(source, where, kind):
        file = zipfile.ZipFile(source)
    try:
        with _archive_errors(source, where, kind):
            members = _Archive(file, where, source, kind)
        yield members
    finally:
        with _archive_errors(source, where, kind):
            file.close()


@contextlib.contextmanager
def _archive_errors(source: Path | io.BytesIO, where: str, kind: str) -> Iterator[None]:
    try:
        with naming_file(source) if isinstance(source, Path) else contextlib.nullcontext():
            yield
    except MemoryError as error:
        raise MemoryError(f"There is not enough memory to read {where}.") from error
    except OSError as error:
        if is_of_system(error) or (isinstance(source, Path) and not source.is_file()):
            raise
        raise ValueError(f"{where} cannot be read; it is damaged.") from None
    except ValueError:
        raise
    except Exception as error:
        # zipfile looks for the archive's end in a way that takes every error for another file.
        if isinstance(error.__context__, OSError) and is_of_system(error.__context__):
            with naming_file(where):
                raise error.__context__ from None
        raise ValueError(f"{where} is no {kind}, or is damaged or cut off ({error}).") from error


class _Archive:
    def __init__(
        self, file: zipfile.ZipFile, where: str, source: Path | io.BytesIO, kind: str
    ) -> None:
        self._file, self._where, self._source, self._kind = file, where, source, kind
        self._members = file.infolist()
        self._by_name: dict[str, list[zipfile.ZipInfo]] = {}
        for member in self._members:
            self._by_name.setdefault(member.filename.replace("\\", "/"), []).append(member)
        if isinstance(source, Path):
            self._size = source.stat().st_size
        else:
            self._size = source.getbuffer().nbytes
        for member in self._members:
            if not is_inside(member.filename):
                raise ValueError(
                    f"{where} names a file outside of the archive ({member.filename!r}); not "
                    "allowed."
                )

    def names(self) -> list[str]:
        return [m.filename.replace("\\", "/") for m in self._members if not m.is_dir()]

    def _checked(self, name: str) -> zipfile.ZipInfo:
        found = self._by_name.get(name, [])
        if len(found) != 1:
            raise ValueError(
                f"{self._where} has {len(found)} members {name!r}; a {self._kind} has one."
            )
        size, stored = found[0].file_size, found[0].compress_size
        if stored > self._size:  # memory for that would be taken before it is missed
            raise ValueError(
                f"{self._where}: {name} claims {stored} bytes of a file of {self._size}; it is "
                "damaged or cut off."
            )
        if size > _SMALL and size > _MAX_EXPANSION * stored:
            raise ValueError(
                f"{self._where}: {name} claims {size} bytes, but the file stores {stored} for it."
            )
        _check_size(self._where, name, size)
        return found[0]

    def size(self, name: str) -> int:
        return self._checked(name).file_size

    def read(self, name: str) -> bytes:
        with self._errors():
            return self._file.read(self._checked(name))

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return _archive_errors(self._source, self._where, self._kind)

    def copy(self, name: str, target: Path) -> None:
        with (
            self._errors(),
            self._file.open(self._checked(name)) as content,
            open(target, "xb") as file,
        ):
            shutil.copyfileobj(content, file)


class _Folder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        found: list[str] = []
        for folder, folders, files in os.walk(self._folder, followlinks=False):
            for name in folders:
                self._refuse_link(Path(folder) / name)
            found += [(Path(folder) / f).relative_to(self._folder).as_posix() for f in files]
            if len(found) > _MAX_MEMBERS:
                raise ValueError(f"{self._folder} has more files than any model.")
        return found

    def _checked(self, name: str) -> Path:
        path = self._folder
        for part in name.split("/"):
            path = path / part
            self._refuse_link(path)
        if not path.is_file():
            raise ValueError(f"{self._folder} has no file {name!r}; the folder of a model has one.")
        _check_size(str(self._folder), name, path.stat().st_size)
        return path

    @staticmethod
    def _refuse_link(path: Path) -> None:
        if path.is_symlink():
            raise ValueError(f"{path} is a link; not allowed in the folder of a model.")

    def size(self, name: str) -> int:
        return self._checked(name).stat().st_size

    def read(self, name: str) -> bytes:
        path = self._checked(name)
        with naming_file(path):
            return path.read_bytes()

    def copy(self, name: str, target: Path) -> None:
        with open(self._checked(name), "rb") as content, open(target, "xb") as file:
            shutil.copyfileobj(content, file)


def _check_size(where: str, name: str, size: int) -> None:
    if name.endswith(".json") and "/" not in name and size > _MAX_CONFIG:
        raise ValueError(f"{where}: {name} has {size} bytes, more than any model's.")


def is_inside(name: str) -> bool:
    """Tells whether a relative name stays below its folder, on every operating system."""
    parts = name.replace("\\", "/").split("/")
    return ".." not in parts and parts[0] != "" and ":" not in parts[0] and "\0" not in name
