"""Image files for the fuzz tests: JPEG, PNG, WebP, GIF and BMP, and mutations of their parts."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from . import mutators

_SIZES = (0, 1, 2, 5, 1000, 10**4, 16383, 65500, 65535)
_MOST_BYTES = 1 << 20  # of segments that are put in
_STARTS = {b"\xff\xd8": "jpg", b"\x89P": "png", b"RI": "webp", b"GI": "gif", b"BM": "bmp"}
# How files are read; the content chooses.
_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"scaled_decoding": True},
    {"exif_rotation": True},
    {"scaled_decoding": True, "exif_rotation": True, "crop_to_aspect_ratio": True},
    {"color_mode": "grayscale"},
    {"color_mode": "rgba", "pad_to_aspect_ratio": True},
    {"dtype": "uint8", "interpolation": "lanczos3", "crop_to_aspect_ratio": True},
)


def seeds(_: Path, __: Random | None) -> list[bytes]:
    """Four files of each format, of other colors and codings."""
    from PIL import Image

    coarse = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    img = Image.fromarray(coarse).resize((40, 33), Image.Resampling.BICUBIC)
    tiny, exif = img.resize((7, 9)), Image.Exif()
    exif[0x0112] = 6
    frames = [img.rotate(90 * i) for i in range(3)]
    wide = Image.fromarray(np.asarray(img.convert("L")).astype("uint16") * 257)
    made: list[tuple[str, Any, dict[str, Any]]] = [
        ("JPEG", img, {"exif": exif}),
        ("JPEG", img, {"progressive": True, "subsampling": 2}),
        ("JPEG", img.convert("CMYK"), {}),
        ("JPEG", tiny.convert("L"), {"restart_marker_blocks": 1}),
        ("PNG", tiny, {}),
        ("PNG", img.convert("P"), {"transparency": 3}),
        ("PNG", wide, {}),
        ("PNG", img.convert("RGBA"), {"save_all": True, "append_images": frames}),
        ("WEBP", img, {}),
        ("WEBP", img.convert("RGBA"), {"lossless": True}),
        ("WEBP", tiny, {"exif": exif}),
        ("WEBP", img, {"save_all": True, "append_images": frames}),
        ("GIF", img, {}),
        ("GIF", tiny.convert("L"), {"transparency": 3}),
        ("GIF", img, {"save_all": True, "append_images": frames}),
        ("GIF", img.convert("1"), {"interlace": 1}),
        ("BMP", tiny, {}),
        ("BMP", img.convert("P"), {}),
        ("BMP", img.convert("1"), {}),
        ("BMP", img.convert("RGBA"), {}),
    ]
    contents = []
    for kind, image, options in made:
        target = io.BytesIO()
        image.save(target, kind, **options)
        contents.append(target.getvalue())
    return contents


def mutate(rng: Random, content: bytes) -> bytes:
    """Changes a part of a file, or its bytes. The file may be a damaged one."""
    kind = _STARTS.get(content[:2])
    change: Any = {"jpg": _in_jpeg, "webp": _in_webp, "gif": _in_gif, "bmp": _in_bmp}.get(kind)
    if kind == "png":
        return mutators.mutate_image(rng, content)
    if change is None or rng.random() < 0.4:
        return mutators.mutate_bytes(rng, content)
    return change(rng, content)


def _in_jpeg(rng: Random, content: bytes) -> bytes:
    """Changes, repeats, cuts or leaves out a segment, or the scan."""
    parts, place = [content[:2]], 2
    while place + 4 <= len(content) and content[place] == 0xFF and content[place + 1] != 0xDA:
        end = place + 2 + int.from_bytes(content[place + 2 : place + 4], "big")
        parts.append(content[place:end])
        place = end
    parts.append(content[place:])
    index = rng.randrange(1, len(parts))
    part = bytearray(parts[index])
    choice = rng.randrange(7)
    whole = [i for i, p in enumerate(parts) if p[:1] == b"\xff" and len(p) >= 10]
    frames = [i for i in whole if 0xC0 <= parts[i][1] <= 0xC2]
    if choice == 0 and frames:
        index = frames[0]
        part = bytearray(parts[index])
        part[5:9] = struct.pack(">HH", rng.choice(_SIZES), rng.choice(_SIZES))
    elif choice == 1 and frames:
        index = frames[0]
        part = bytearray(parts[index])
        part[rng.choice([1, 4, *range(9, len(part))])] = rng.randrange(256)
    elif choice == 2:
        part[4:] = mutators.mutate_bytes(rng, bytes(part[4:]))
    elif choice == 3:
        part[2:4] = struct.pack(">H", rng.choice([0, 1, 2, min(len(part), 65535), 65535]))
    elif choice == 4:
        place, count = rng.randrange(1, len(parts)), rng.choice([1, 2, 200])
        parts.insert(place, bytes(part) * min(count, 1 + _MOST_BYTES // (len(part) or 1)))
    elif choice == 5:
        part = bytearray()
    else:
        part[1:2] = bytes([rng.randrange(256)])
    parts[index] = bytes(part)
    return b"".join(parts)


def _in_webp(rng: Random, content: bytes) -> bytes:
    """Changes a chunk's kind, length or content, or the order of chunks."""
    chunks, place = [], 12
    while place + 8 <= len(content):
        size = int.from_bytes(content[place + 4 : place + 8], "little")
        chunks.append([content[place : place + 4], content[place + 8 : place + 8 + size]])
        place += 8 + size + size % 2
    if not chunks:
        return mutators.mutate_bytes(rng, content)
    index = rng.randrange(len(chunks))
    wild = None
    choice = rng.randrange(5)
    if choice == 0:
        chunks[index][1] = mutators.mutate_bytes(rng, chunks[index][1])
    elif choice == 1:
        kinds = (b"VP8 ", b"VP8L", b"VP8X", b"ANIM", b"ANMF", b"ALPH", b"EXIF", b"ICCP")
        chunks[index][0] = rng.choice(kinds)
    elif choice == 2:
        wild = index, rng.choice([0, 1, 2**24, 2**31 - 1, 2**32 - 9, 2**32 - 1])
    elif choice == 3:
        chunks.insert(rng.randrange(len(chunks) + 1), list(chunks[index]))
    else:
        data = bytearray(chunks[index][1])
        data[: rng.choice([1, 4, 10])] = bytes(rng.randrange(256) for _ in range(6))
        chunks[index][1] = bytes(data)
    body = b"WEBP"
    for number, (kind, data) in enumerate(chunks):
        size = wild[1] if wild is not None and wild[0] == number else len(data)
        body += kind + struct.pack("<I", size) + data + bytes(len(data) % 2)
    said = len(body) if rng.random() < 0.9 else rng.choice([0, 2**31, 2**32 - 2])
    return b"RIFF" + struct.pack("<I", said) + body


def _in_gif(rng: Random, content: bytes) -> bytes:
    """Changes sizes of the screen or of a picture, a table's size, or a block's length."""
    changed = bytearray(content)
    if len(changed) < 14:
        return mutators.mutate_bytes(rng, content)
    pictures = [i for i in range(13, len(content) - 10) if content[i] == 0x2C]
    place = rng.choice([6, *(i + 5 for i in pictures[:3])])
    choice = rng.randrange(3)
    if choice == 0:
        changed[place : place + 4] = struct.pack("<HH", rng.choice(_SIZES), rng.choice(_SIZES))
    elif choice == 1:
        changed[place + 4] = rng.randrange(256)
    else:
        changed[rng.randrange(13, len(changed))] = rng.choice([0, 0x21, 0x2C, 0x3B, 255])
    return bytes(changed)


def _in_bmp(rng: Random, content: bytes) -> bytes:
    """Changes a field of the headers."""
    place, width = rng.choice(
        [(2, 4), (10, 4), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2), (30, 4), (34, 4), (46, 4)]
    )
    number = rng.choice(
        [*_SIZES, 3, 4, 8, 12, 16, 24, 32, 40, 64, 124, -1, -33, 2**31 - 1, -(2**31)]
    )
    packed = (number % (1 << 8 * width)).to_bytes(width, "little")
    return content[:place] + packed + content[place + width :]


def read(path: Path) -> Any:
    """Reads a file as the only image of a folder."""
    from PIL import Image

    import kerascnn as keras
    from kerascnn import _core

    folder = path.with_name("images") / "class"
    folder.mkdir(parents=True, exist_ok=True)
    content = path.read_bytes()
    for old in folder.iterdir():
        old.unlink()
    size = _core.plain_jpeg(content)  # reads them before a GPU gets them
    if size is not None:
        with Image.open(io.BytesIO(content)) as img:
            assert img.size == (size[1], size[0])
    path.replace(folder / f"x.{_STARTS.get(content[:2], 'png')}")
    options = _OPTIONS[zlib.crc32(content) % len(_OPTIONS)]
    data = keras.utils.image_dataset_from_directory(
        folder.parent, image_size=(8, 8), batch_size=1, verbose=False, **options
    )
    return [np.asarray(x) for x, _ in data]
