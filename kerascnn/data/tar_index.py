"""Which samples tar shards hold, and where: read from their headers once, and kept in a file."""

from __future__ import annotations

import glob
import itertools
import json
import os
import re
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kerascnn.data.tar_files import Member, TarError, TarFile, close
from kerascnn.system_errors import naming_file

_FORMAT = "kerascnn index of tar shards, version 1"
_MOST_SHARDS = 1_000_000
# Labels are so short; others are read when they are needed.
_SHORT = 64
_NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)", re.DOTALL)
_BRACES = re.compile(r"\{([^{}]*)\}")


def split_name(name: str) -> tuple[str, str] | None:
    """The sample that a file belongs to and its ending; None where it belongs to none.

    >>> split_name("a.b/0001.seg.PNG"), split_name("a/.hidden"), split_name("README")
    (('a.b/0001', 'seg.png'), None, None)
    """
    match = _NAME.fullmatch(name)
    return None if match is None else (match[1], match[2].lower())


class Place(NamedTuple):
    """Where a file of a sample lies.

    Attributes:
        shard: The path of its archive.
        name: Its name there.
        offset: Where its bytes begin.
        size: How many they are.
        changed: When the archive was changed last, as the index knows it.
    """

    shard: str
    name: str
    offset: int
    size: int
    changed: int

    def __str__(self) -> str:
        return f"{self.shard}: {self.name}"

    def read(self) -> bytes:
        """The bytes.

        Raises:
            ValueError: Where the archive is not the one that the index was made of.
        """
        # A descriptor for each call: there may be more shards than descriptors, and opening a file
        # takes a thousandth of decoding an image.
        descriptor = os.open(self.shard, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            changed = os.fstat(descriptor).st_mtime_ns
            with naming_file(self.shard):
                content = os.pread(descriptor, self.size, self.offset)
                while content and len(content) < self.size:  # Linux gives up to 2 GB at once
                    more = os.pread(
                        descriptor, self.size - len(content), self.offset + len(content)
                    )
                    if not more:
                        break
                    content += more
        finally:
            close(descriptor)
        if changed != self.changed or len(content) < self.size:
            raise ValueError(
                f"{self.shard} was changed after its index was made. Make the data set anew."
            )
        return content


class Shard(NamedTuple):
    """The files in one archive.

    Attributes:
        path: The archive's path.
        size: Its bytes.
        changed: When it was changed last, in nanoseconds.
        members: The files in it.
        short: What files that have labels hold, by their number.
        problem: Why the rest of the archive cannot be read; empty where there is none.
    """

    path: str
    size: int
    changed: int
    members: list[Member]
    short: dict[int, bytes]
    problem: str

    def samples(self) -> dict[str, dict[str, int]]:
        """The samples: the numbers of their files by ending, by the names that these share.

        The ending is all that comes after the first dot, in lower case. Files without one, and
        those whose name begins with a dot, belong to no sample.

        Raises:
            TarError: For two files of one name.
        """
        found: dict[str, dict[str, int]] = {}
        for number, member in enumerate(self.members):
            split = split_name(member.name)
            if split is None:
                continue
            key, ending = split
            files = found.setdefault(key, {})
            if ending in files:
                raise TarError(f"{self.path}: there are two files {member.name!r}.")
            files[ending] = number
        return found

    def place(self, number: int) -> Place:
        """Where a file lies."""
        member = self.members[number]
        return Place(self.path, member.name, member.offset, member.size, self.changed)

    def content(self, number: int) -> bytes:
        """The bytes of a file."""
        content = self.short.get(number)
        return self.place(number).read() if content is None else content


def shard_paths(shards: Any) -> list[str]:
    """The paths that a pattern or a list of patterns stands for.

    `{000..012}` stands for numbers with as many digits, `{a,b}` for alternatives, and `*`, `?` and
    `[...]` for what is there, sorted. A folder stands for its `.tar` files.

    Raises:
        FileNotFoundError: For a pattern that stands for no file, or a file that is not there.
        TypeError: For something else than paths.
        ValueError: For an empty list or more than a million shards.
    """
    patterns = [shards] if isinstance(shards, (str, os.PathLike)) else shards
    if not isinstance(patterns, Sequence) or isinstance(patterns, bytes):
        raise TypeError(
            "`shards` must be a path, a pattern such as 'train-{000..012}.tar', or a list of "
            f"them. Received: {type(shards).__name__}"
        )
    found: list[str] = []
    for pattern in patterns:
        for path in expanded(os.fspath(pattern)):
            found += _existing(path)
            if len(found) > _MOST_SHARDS:
                raise ValueError(f"`shards` stands for more than {_MOST_SHARDS} files: {shards!r}")
    if not found:
        raise ValueError(f"`shards` is empty. Received: {shards!r}")
    return found


def expanded(pattern: str) -> Iterator[str]:
    """The texts that a pattern with braces stands for.

    >>> list(expanded("{train,test}-{08..10}.tar"))[:4]
    ['train-08.tar', 'train-09.tar', 'train-10.tar', 'test-08.tar']
    """
    parts: list[Sequence[str]] = []
    end = 0
    for match in _BRACES.finditer(pattern):
        parts += [[pattern[end : match.start()]], _alternatives(match[1])]
        end = match.end()
    parts.append([pattern[end:]])
    return ("".join(chosen) for chosen in itertools.product(*parts))


def _alternatives(text: str) -> Sequence[str]:
    first, dots, last = text.partition("..")
    if dots and first.isdecimal() and last.isdecimal():
        # As in shells, a leading zero of either makes all numbers as long as the longer one.
        is_padded = any(text.startswith("0") and len(text) > 1 for text in (first, last))
        width = max(len(first), len(last)) if is_padded else 0
        begin, end = int(first), int(last)
        if abs(end - begin) >= _MOST_SHARDS:
            raise ValueError(f"{{{text}}} stands for more than {_MOST_SHARDS} files.")
        step = 1 if begin <= end else -1
        return [f"{number:0{width}}" for number in range(begin, end + step, step)]
    return text.split(",") if "," in text else [f"{{{text}}}"]


def _existing(path: str) -> list[str]:
    if os.path.isdir(path):
        found = sorted(os.path.join(path, n) for n in os.listdir(path) if n.endswith(".tar"))
    elif os.path.exists(path):
        found = [path]
    else:
        found = sorted(glob.glob(path)) if glob.has_magic(path) else []
    if not found:
        raise FileNotFoundError(2, "There is no such tar shard", path)
    return found


class TarIndex:
    """The files in several shards.

    Args:
        shards: See `shard_paths`.
        kept: A file that keeps the index. Shards that are as it knows them are not read again.
        skips: Whether the rest of a damaged shard is left out.

    Attributes:
        shards: What each has.
        skipped: The reasons by path where a part of a shard was left out.

    Raises:
        TarError: For a shard that is damaged or has what is not read.
        ValueError: Where `kept` is another kind of file, or damaged.
    """

    def __init__(
        self, shards: Any, kept: str | os.PathLike[str] | None = None, skips: bool = False
    ):
        paths = shard_paths(shards)
        known = {} if kept is None else _load(Path(kept))
        self.shards = [_looked_up(path, known) for path in paths]
        self.skipped = {shard.path: shard.problem for shard in self.shards if shard.problem}
        for path, problem in self.skipped.items():
            if not skips:
                raise TarError(problem)
            warnings.warn(f"The rest of {path} is left out: {problem}", stacklevel=5)
        if kept is not None and any(shard is not known.get(shard.path) for shard in self.shards):
            _save(Path(kept), self.shards)

    def samples(self) -> Iterator[tuple[Shard, str, dict[str, int]]]:
        """Yields shard, name and files of all samples, in their order."""
        for shard in self.shards:
            for key, files in shard.samples().items():
                yield shard, key, files


def _looked_up(path: str, known: dict[str, Shard]) -> Shard:
    status, shard = os.stat(path), known.get(path)
    if shard is not None and (status.st_size, status.st_mtime_ns) == (shard.size, shard.changed):
        return shard
    members: list[Member] = []
    short: dict[int, bytes] = {}
    with TarFile(path) as file:
        try:
            for member in file.members():
                if member.size <= _SHORT and member.name.lower().endswith(".cls"):
                    short[len(members)] = file.read(member.offset, member.size)
                members.append(member)
        except TarError as error:
            return Shard(path, file.size, file.changed, members, short, str(error))
        return Shard(path, file.size, file.changed, members, short, "")


def _save(path: Path, shards: list[Shard]) -> None:
    entries: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for shard in shards:
        numbers = np.array([m[1:] for m in shard.members], "<i8").reshape(-1, 2)
        short = json.dumps({str(n): text.decode("latin-1") for n, text in shard.short.items()})
        parts = [
            numbers.tobytes(),
            "\0".join(m.name for m in shard.members).encode(),
            short.encode(),
        ]
        blobs += parts
        entries.append(
            {
                "path": shard.path,
                "size": shard.size,
                "changed": shard.changed,
                "problem": shard.problem,
                "parts": [len(part) for part in parts],
            }
        )
    body = b"".join(blobs)
    head = json.dumps({"format": _FORMAT, "crc": zlib.crc32(body), "shards": entries}).encode()
    from kerascnn.saving.atomic import replacing  # its package imports much

    with replacing(path) as part:
        part.write_bytes(head + b"\n" + body)


def _load(path: Path) -> dict[str, Shard]:
    if not path.exists():
        return {}
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        known = json.loads(head)
        if known["format"] != _FORMAT or known["crc"] != zlib.crc32(body):
            raise ValueError("its checksum is wrong")
        return dict(_shards_in(known["shards"], body))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"{path} is no index of tar shards, or damaged ({error}). Remove it, or name another "
            "file: it is made anew."
        ) from error


def _shards_in(entries: Any, body: bytes) -> Iterator[tuple[str, Shard]]:
    offset = 0
    for entry in entries:
        parts = []
        for size in entry["parts"]:
            parts.append(body[offset : offset + size])
            offset += size
        numbers = np.frombuffer(parts[0], "<i8").reshape(-1, 2).tolist()
        names = parts[1].decode().split("\0") if numbers else []
        short = {int(n): text.encode("latin-1") for n, text in json.loads(parts[2]).items()}
        members = [Member(n, *place) for n, place in zip(names, numbers, strict=True)]
        path = str(entry["path"])
        yield (
            path,
            Shard(path, entry["size"], entry["changed"], members, short, str(entry["problem"])),
        )
