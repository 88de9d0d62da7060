"""Tar shards for the fuzz tests, and mutations that know headers and records."""

from __future__ import annotations

import io
import tarfile
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from . import image_files, mutators

_NUMBERS = (0, 1, 2, 511, 512, 513, 10**6, 2**30, 2**33 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_NAMES = (
    *(b"../0001.png", b"/etc/passwd", b"0001.png", b"0001", b".cls", b"a/", b"", b"x\0y.png"),
    *(b"\xff\xfe.cls", mutators.CANARY.encode(), b"0001.PNG", b"0001.a.b.c.png", b"/" * 99),
)
_KINDS = b"0\0" + b"1234567gxXLKSVMDAQ" + b"\xff"


def seeds(_: Path, __: Random | None) -> list[bytes]:
    """Archives of two samples in each form, with long names and without."""
    png = next(c for c in image_files.seeds(Path(), None) if c[:4] == b"\x89PNG")
    array = io.BytesIO()
    np.save(array, np.arange(6.0).reshape(2, 3))
    files = {
        "png": png,
        "cls": b"1",
        "txt": "Wörter".encode(),
        "json": b'{"label": "a", "more": [1, {}]}',
        "npy": array.getvalue(),
    }
    contents = []
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        for folder in ("", "d/" + "e" * 120 + "/", "ü/" * 3):
            if folder and form == tarfile.USTAR_FORMAT:
                continue
            target = io.BytesIO()
            with tarfile.open(fileobj=target, mode="w", format=form) as archive:
                for key in ("0001", "0002"):
                    for ending, content in files.items():
                        info = tarfile.TarInfo(f"{folder}{key}.{ending}")
                        info.size = len(content)
                        info.mtime = 1.5 if folder else 0
                        archive.addfile(info, io.BytesIO(content))
            end = len(target.getvalue().rstrip(b"\0")) // 512 * 512 + 512
            contents.append(target.getvalue()[: end + 1024])
    return contents


def _headers(content: bytes) -> list[int]:
    """Where headers seem to be."""
    return [p for p in range(0, len(content) - 511, 512) if content[p + 257 : p + 262] == b"ustar"]


def mutate(rng: Random, content: bytes) -> bytes:
    """Changes headers, with correct checksums, or records of pax, contents, or bytes."""
    if rng.random() < 0.15:
        return mutators.mutate_bytes(rng, content)
    raw = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        places = _headers(bytes(raw))
        if not places:
            break
        place = rng.choice(places)
        choice = rng.randrange(9)
        if choice == 0:
            number = rng.choice([*_NUMBERS, len(raw), len(raw) - place])
            octal = b"%011o\0" % (number % 8**11)
            base = (rng.choice([0x80, 0xFF, 0x81]),)
            raw[place + 124 : place + 136] = rng.choice(
                [octal, bytes(base) + (number % 2**88).to_bytes(11, "big")]
            )
        elif choice == 1:
            raw[place + 156] = rng.choice(_KINDS)
        elif choice == 2:
            raw[place : place + 100] = rng.choice(_NAMES).ljust(100, b"\0")[:100]
        elif choice == 3:
            raw[place + 345 : place + 500] = (rng.choice(_NAMES) * 20)[:155].ljust(155, b"\0")
        elif choice == 4:
            field = rng.choice([(100, 108), (124, 136), (136, 148), (257, 265), (329, 337)])
            for at in range(place + field[0], place + field[1]):
                raw[at] = rng.randrange(256)
        elif choice == 5:
            size = len(raw[place + 512 : place + 1024])
            changed = mutators.mutate_bytes(rng, bytes(raw[place + 512 : place + 1024]))
            raw[place + 512 : place + 512 + size] = changed[:size].ljust(size, b"\0")
        elif choice == 6:
            raw[place:place] = _pax(rng)
        elif choice == 7:
            del raw[place : place + 512 * rng.choice([1, 2, 3])]
            continue
        else:
            piece = raw[place : place + 512 * rng.choice([1, 2])]
            raw[place:place] = piece * rng.choice([1, 1, 3, 300])
        _sum(raw, place)
    return bytes(raw)


def _sum(raw: bytearray, place: int) -> None:
    header = raw[place : place + 512]
    if len(header) == 512:
        header[148:156] = b" " * 8
        raw[place + 148 : place + 156] = b"%06o\0 " % sum(header)


def _pax(rng: Random) -> bytes:
    """A header of pax with records that may be wrong."""
    records = b""
    for _ in range(rng.choice([1, 1, 2, 200])):
        key = rng.choice(
            [b"path", b"size", b"GNU.sparse.size", b"linkpath", b"hdrcharset", b"\xff"]
        )
        value = rng.choice([*_NAMES, *(b"%d" % n for n in _NUMBERS), b"-1", b"1e9", b"9" * 30])
        text = b" " + key + b"=" + value + b"\n"
        length = len(text) + 1
        length += len(str(length)) - 1
        said = length if rng.random() < 0.8 else rng.choice([*_NUMBERS, -1])
        records += b"%d" % said + text
    said = len(records) if rng.random() < 0.9 else rng.choice(_NUMBERS) % 8**11
    header = bytearray(512)
    header[:3], header[124:136], header[156:157] = (
        b"pax",
        b"%011o\0" % said,
        rng.choice([b"x", b"g"]),
    )
    header[257:265] = b"ustar\x0000"
    _sum(header, 0)
    return bytes(header) + records.ljust(-(-len(records) // 512) * 512, b"\0")


def read(path: Path) -> Any:
    """Reads all samples, as images with labels or as what they are, or those that can be read."""
    import kerascnn as keras

    choice = zlib.crc32(path.read_bytes()) % 5
    if choice < 2:
        options = [{}, {"on_error": "skip"}][choice]
        data = keras.data.Dataset.from_tar(str(path), index_file=path.with_name("index"), **options)
        path.with_name("index").unlink(missing_ok=True)
        return list(data)
    labels: dict[str, Any] = [
        {},
        {"label_key": "json", "label_field": "label", "on_error": "skip"},
        {"label_key": "txt", "label_mode": "categorical"},
    ][choice - 2]
    data = keras.utils.image_dataset_from_tar(
        str(path), image_size=(8, 8), batch_size=4, verbose=False, **labels
    )
    return list(data)
