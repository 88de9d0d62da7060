"""Mutations of files that know the file's form: JSON, zip, HDF5, safetensors, NumPy's and IDX.

Every function takes a `random.Random` and a good content, and returns another content. Most of
them change one thing that a reader relies on, such as a length, a type, a place, a name or a shape,
and leave the rest correct, so that readers get far before they notice. `mutate_bytes` is for what
no form describes.
"""

from __future__ import annotations

import copy
import gzip
import io
import json
import struct
import warnings
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

# A reader that opens this path has followed a name out of a file.
CANARY = "/tmp/kerascnn-fuzzing-canary"

WILD_NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 64, 255, 256, 1000, 65_535, 65_536, 10**6, 10**7, 10**8, 10**9),
    *(2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64, 10**30),
    *(-2, -(2**31), -(2**63), 0.5, -0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan")),
)
WILD_TEXTS = (
    *(
        "",
        "x",
        "a" * 300,
        "\0",
        "../../etc/passwd",
        CANARY,
        f"file://{CANARY}",
        "é\u202e",
        "__main__",
    ),
    *("float32", "float64", "int8", "bfloat16", "float8_e4m3fn", "object", "mixed_float16"),
    *("relu", "softmax", "same", "valid", "causal", "channels_first", "adam", "mse", "eval", "os"),
)


def wild_value(rng: Random) -> Any:
    kind = rng.randrange(10)
    if kind < 5:
        return rng.choice(WILD_NUMBERS)
    if kind < 7:
        return rng.choice(WILD_TEXTS)
    if kind == 7:
        return rng.choice([None, True, False, [], {}, [[]], [None], {"a": 1}, [1, 2, 3]])
    if kind == 8:
        return [rng.choice(WILD_NUMBERS) for _ in range(rng.randrange(1, 6))]
    return _deep(rng)


def _deep(rng: Random) -> Any:
    value: Any = rng.choice([0, None, "x"])
    for _ in range(rng.choice([3, 50, 500])):
        value = [value] if rng.random() < 0.5 else {"config": value, "class_name": "Sequential"}
    return value


# Bytes --------------------------------------------------------------------------------------------


def mutate_bytes(rng: Random, content: bytes) -> bytes:
    """Cuts, flips, repeats, or puts wild whole numbers where other numbers may have been."""
    changed = bytearray(content)
    if not changed:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(20)))
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        place = rng.randrange(len(changed))
        kind = rng.randrange(7)
        if kind == 0:
            changed[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[place] = rng.choice([0, 1, 127, 128, 255])
        elif kind == 2:
            width = rng.choice([2, 4, 8])
            number = rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, len(changed)])
            order = rng.choice(["little", "big"])
            packed = (number % (1 << 8 * width)).to_bytes(width, order)  # type: ignore[arg-type]
            changed[place : place + width] = packed
        elif kind == 3:
            del changed[place : place + rng.choice([1, 4, 16, 1000])]
        elif kind == 4:
            piece = changed[place : place + rng.choice([1, 8, 64])]
            changed[place:place] = piece * rng.choice([1, 2, 100])
        elif kind == 5:
            del changed[place:]
        else:
            other = rng.randrange(len(changed))
            size = rng.choice([4, 8, 32])
            changed[place : place + size] = changed[other : other + size]
        if not changed:
            break
    return bytes(changed)


# JSON ---------------------------------------------------------------------------------------------


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Returns every container with every key or index in it."""
    found: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        part = stack.pop()
        keys = range(len(part)) if isinstance(part, list) else list(part)
        for key in keys:
            found.append((part, key))
            if isinstance(part[key], (list, dict)):
                stack.append(part[key])
    return found


def _copied(value: Any) -> Any:
    """A copy, or None of what has been put into itself more often than can be followed."""
    try:
        return copy.deepcopy(value)
    except RecursionError:
        return None


def mutate_json(rng: Random, value: Any, parts: list[Any] | None = None) -> Any:
    """Changes a few values of a configuration.

    Args:
        rng: Where the choices come from.
        value: Lists and dictionaries.
        parts: Configurations that may be put in place of others.
    """
    value = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 6])):
        places = _places(value)
        if not places:
            return wild_value(rng)
        holder, key = rng.choice(places)
        # half of all changes are of arguments, which are more numbers than anything else
        if rng.random() < 0.5:
            numbers = [p for p in places if type(p[0][p[1]]) in (int, float)]
            holder, key = rng.choice(numbers or places)
        old, kind = holder[key], rng.randrange(12)
        if kind < 4:
            holder[key] = wild_value(rng)
        elif kind == 4 and type(old) is int:
            holder[key] = old * rng.choice([-1, 2, 10, 1000, 10**6]) + rng.choice([0, 1, -1])
        elif kind == 5:
            other, other_key = rng.choice(places)
            holder[key] = _copied(other[other_key])
        elif kind == 6 and isinstance(holder, list):
            holder[key:key] = [_copied(old) for _ in range(rng.choice([1, 2, 10, 100]))]
        elif kind == 7:
            if isinstance(holder, dict):
                del holder[key]
            else:
                holder.pop(key)
        elif kind == 8 and isinstance(holder, dict):
            holder[rng.choice([*WILD_TEXTS, *(str(k) for _, k in places[:50])])] = holder.pop(key)
        elif kind == 9 and isinstance(old, list):
            old.append(wild_value(rng))
        elif parts:
            entries = [
                p for p in places if isinstance(p[0][p[1]], dict) and "class_name" in p[0][p[1]]
            ]
            holder, key = rng.choice(entries or places)
            holder[key] = part = _copied(rng.choice(parts))
            arguments = [k for k, v in part["config"].items() if type(v) in (int, float)]
            if arguments and rng.random() < 0.5:
                part["config"][rng.choice(arguments)] = rng.choice(WILD_NUMBERS)
        else:
            holder[key] = wild_value(rng)
    return value


def dump_json(rng: Random, value: Any) -> bytes:
    try:
        text = json.dumps(value)
    except RecursionError:
        text = "[" * 20_000
    if rng.random() < 0.05:
        text = text.replace("1", rng.choice(["1e999", "-0", "1" * 5000, "0x1", "NaN"]), 1)
    return text.encode("utf-8", "surrogatepass")


# Zip ----------------------------------------------------------------------------------------------

_NAMES = ("../evil", "/evil", "C:/evil", "assets/../../evil", "config.json", "x\0y", "a" * 70_000)


def unzip(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def make_zip(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that are there twice
        for name, content in members:
            archive.writestr(name, content)
    return target.getvalue()


def mutate_zip(rng: Random, content: bytes) -> bytes:
    """Changes which members there are, and what the directory says about them."""
    members = list(unzip(content).items())
    kind = rng.randrange(8)
    method = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    place = rng.randrange(len(members))
    if kind == 0:
        members.append((rng.choice(_NAMES)[:60_000], b"evil"))
    elif kind == 1:
        del members[place]
    elif kind == 2:
        members.append(members[place])
    elif kind == 3:
        bomb = bytes(rng.choice([1 << 10, 1 << 20, 1 << 25]))
        members[place] = (members[place][0], rng.choice([bomb, members[place][1] + bomb]))
        method = zipfile.ZIP_DEFLATED
    elif kind == 4:
        members[place] = (members[place][0], members[rng.randrange(len(members))][1])
    elif kind == 5:
        members += [(f"assets/{n}", b"x") for n in range(rng.choice([1, 100, 2000]))]
    packed = bytearray(make_zip(members, method))
    if kind >= 6:
        # a field of a member's header, of the directory, or of its end
        starts = [b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"]
        found = [i for s in starts for i in _all_places(bytes(packed), s)]
        place = rng.choice(found) + rng.randrange(4, 46)
        width = rng.choice([2, 4])
        number = rng.choice([0, 1, 8, 9, 99, 2**16 - 1, 2**31, 2**32 - 1]) % (1 << 8 * width)
        packed[place : place + width] = number.to_bytes(width, "little")
    return bytes(packed)


def _all_places(content: bytes, wanted: bytes) -> list[int]:
    found, place = [], content.find(wanted)
    while place >= 0:
        found.append(place)
        place = content.find(wanted, place + 1)
    return found


def within_zip(
    rng: Random, content: bytes, name: str, change: Callable[[Random, bytes], bytes]
) -> bytes:
    members = unzip(content)
    members[name] = change(rng, members[name])
    return make_zip(list(members.items()), rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))


# HDF5 ---------------------------------------------------------------------------------------------


def mutate_h5(rng: Random, content: bytes) -> bytes:
    """Changes arrays, groups, attributes and links by way of h5py, and fields by their bytes."""
    if rng.random() < 0.5:
        return mutate_bytes(rng, content)
    import h5py

    target = io.BytesIO(content)
    with h5py.File(target, "a") as file:
        arrays: list[str] = []
        groups: list[str] = []
        file.visititems(lambda n, x: (arrays if isinstance(x, h5py.Dataset) else groups).append(n))
        for _ in range(rng.choice([1, 1, 2, 4])):
            name = rng.choice(arrays or ["x"])
            try:
                _change_h5(rng, h5py, file, name, rng.choice([*groups, "/"]))
            except (ValueError, KeyError, OSError, TypeError, AttributeError, RuntimeError):
                continue  # a change before took away what this one is of
    return target.getvalue()


def _change_h5(rng: Random, h5py: Any, file: Any, name: str, group: str) -> None:
    kind = rng.randrange(12)
    if kind == 0:
        del file[name]
    elif kind == 1:
        old = file[name]
        shape = [rng.choice([0, 1, n, n + 1, n * 2, 10**3]) for n in old.shape] + rng.choice(
            [[], [1]]
        )
        dtype = rng.choice([old.dtype, "float64", "int8", "S5", "V2", "complex64", "float16"])
        small = np.prod(shape, dtype=float) < 1e6
        del file[name]
        if small:
            file.create_dataset(name, data=np.zeros(shape, dtype))
    elif kind == 2:
        old = file[name].shape or (1,)
        del file[name]
        shape = (rng.choice([10**5, 10**7, 2**31, 2**40]), *old[1:])
        chunks = tuple(min(n, 64) or 1 for n in shape)
        packing = rng.choice(["gzip", None])
        file.create_dataset(name, shape, "float32", chunks=chunks, compression=packing)
    elif kind == 3:
        del file[name]
        links = (h5py.SoftLink("/"), h5py.ExternalLink(CANARY, "/x"), h5py.SoftLink(group))
        file[name] = rng.choice(links)
    elif kind == 4:
        file[f"{group}/{rng.choice(['again', '0', 'vars', 'layers'])}"] = file[group]
    elif kind == 5:
        attributes = list(file[group].attrs)
        key = rng.choice([*attributes, "layer_names", "weight_names", "name"])
        value: Any = rng.choice(
            [b"", [b"x"] * 1000, 3, np.zeros((0,), "S1"), np.zeros(3), "x", h5py.Empty("f")]
        )
        if attributes and rng.random() < 0.5:
            value = [b"x", *np.asarray(file[group].attrs[key]).reshape(-1)[:20]]
        file[group].attrs[key] = value
    elif kind == 6:
        file.create_group("/".join(["deep"] * rng.choice([2, 70, 300])))
    elif kind == 7:
        for n in range(rng.choice([1, 50, 500])):
            file.create_group(f"{group}/more{n}")
    elif kind == 8:
        file[name].attrs["dtype"] = rng.choice(["bfloat16", "object", ""])
    elif kind == 9:
        file.move(name, f"{group}/{rng.choice(['0', '1', 'x'])}")
    elif kind == 10:
        del file[name]
        layout = h5py.VirtualLayout((3, 2), "float32")
        layout[:] = h5py.VirtualSource(CANARY, "x", shape=(3, 2))
        file.create_virtual_dataset(name, layout)
    else:
        file.create_dataset(f"{group}/own", (3,), "float32", external=[(CANARY, 0, 12)])


def mutate_h5_config(rng: Random, content: bytes, parts: list[Any]) -> bytes:
    """Changes the configurations that an `.h5` file of a model holds as attributes."""
    import h5py

    target = io.BytesIO(content)
    with h5py.File(target, "a") as file:
        key = rng.choice(["model_config", "training_config"])
        key = key if key in file.attrs else "model_config"
        config = json.loads(file.attrs[key])
        text = dump_json(rng, mutate_json(rng, config, parts))
        # text in an object header is limited to this
        file.attrs[key] = text.decode("utf-8", "replace").replace("\0", "?")[:60_000]
    return target.getvalue()


# safetensors --------------------------------------------------------------------------------------


def mutate_safetensors(
    rng: Random, content: bytes, parts: list[Any] | None = None, key: str | None = None
) -> bytes:
    """Changes the header, its length, or the configuration in it."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, content)
    length = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    if key is not None and rng.random() < 0.6:
        config = json.loads(header["__metadata__"][key])
        header["__metadata__"][key] = dump_json(rng, mutate_json(rng, config, parts)).decode()
    else:
        header = mutate_json(rng, header)
    text = dump_json(rng, header)
    number = len(text)
    if rng.random() < 0.1:
        number = rng.choice([0, 1, number - 1, number + 1, 2**31, 2**63, 2**64 - 1])
    return struct.pack("<Q", number) + text + data


# NumPy's and IDX ----------------------------------------------------------------------------------


def mutate_npy(rng: Random, content: bytes) -> bytes:
    """Changes the header of an `.npy` file, which is a Python literal."""
    length = struct.unpack("<H", content[8:10])[0]
    header, data = content[10 : 10 + length].decode("latin1"), content[10 + length :]
    number = str(rng.choice([*WILD_NUMBERS, "()", "(1,)*9", "[]"]))
    wild = {
        "shape": ("'shape': (", f"'shape': ({number}, "),
        "dtype": (
            "'descr': '",
            rng.choice(["'descr': '|O", "'descr': 'O', 'x': '", "'descr': '>"]),
        ),
        "order": ("False", "True"),
        "code": ("{", "{'a': __import__('os').system('true'), "),
        "deep": ("{", "{'a': " + "(" * rng.choice([10, 200]) + "1"),
        "kinds": ("|u1", rng.choice(["<i8", "<f4", "<c16", "|V9", "<U3", "|S2", "<M8[ns]", "|b1"])),
    }
    old, new = wild[rng.choice(list(wild))]
    header = header.replace(old, new, 1)
    size = len(header) if rng.random() < 0.9 else rng.choice([0, 1, 60_000])
    return content[:8] + struct.pack("<H", min(size, 65_535)) + header.encode("latin1") + data


def mutate_npz(rng: Random, content: bytes) -> bytes:
    kind = rng.randrange(3)
    if kind == 0:
        return mutate_bytes(rng, content)
    if kind == 1:
        return mutate_zip(rng, content)
    name = rng.choice(list(unzip(content)))
    return within_zip(rng, content, name, rng.choice([mutate_npy, mutate_npy, mutate_bytes]))


def mutate_idx(rng: Random, content: bytes) -> bytes:
    packed = content[:2] == b"\x1f\x8b"
    raw = bytearray(gzip.decompress(content) if packed else content)
    if rng.random() < 0.6:
        place = rng.choice([0, 2, 3, 4, 8, 12])
        width = 4 if place >= 4 else 1
        number = rng.choice([0, 1, 2, 3, 8, 9, 27, 29, 255, 2**16, 2**31, 2**32 - 1])
        raw[place : place + width] = (number % (1 << 8 * width)).to_bytes(width, "big")
    else:
        raw = bytearray(mutate_bytes(rng, bytes(raw)))
    if rng.random() < 0.1:
        raw += bytes(1 << 24)
    if packed:
        packed_again = gzip.compress(bytes(raw), 1)
        return mutate_bytes(rng, packed_again) if rng.random() < 0.2 else packed_again
    return bytes(raw)


# Images -------------------------------------------------------------------------------------------


def mutate_image(rng: Random, content: bytes) -> bytes:
    """Changes sizes and chunks, with correct check sums in PNG."""
    import zlib

    if content[:4] == b"\x89PNG" and rng.random() < 0.6:
        chunks, place = [], 8
        while place + 8 <= len(content):
            size = struct.unpack(">I", content[place : place + 4])[0]
            chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + size]))
            place += 12 + size
        if not chunks:
            return mutate_bytes(rng, content)
        index = rng.randrange(len(chunks))
        kind, data = chunks[index]
        choice = rng.randrange(4)
        if choice == 0 and chunks[0][0] == b"IHDR":
            index, (kind, data) = 0, chunks[0]
            sizes = [
                rng.choice([0, 1, 5, 1000, 10**4, 10**5, 2**31 - 1, 2**32 - 1]) for _ in (0, 1)
            ]
            data = struct.pack(">II", *sizes) + data[8:]
        elif choice == 1:
            data = mutate_bytes(rng, data)
        elif choice == 2 and kind == b"IDAT":
            data = zlib.compress(bytes(rng.choice([10, 10**5, 10**7])))
        else:
            kind = rng.choice([b"zTXt", b"iTXt", b"iCCP", b"PLTE", b"tRNS", b"acTL", b"fdAT"])
            data = b"x\0\0" + zlib.compress(bytes(rng.choice([10, 10**7])))
        chunks[index] = (kind, data)
        return content[:8] + b"".join(
            struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d))
            for k, d in chunks
        )
    return mutate_bytes(rng, content)


def mutate_wav(rng: Random, content: bytes) -> bytes:
    """Changes a field of the format or a length of a chunk."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, content)
    place, width = rng.choice(
        [(4, 4), (16, 4), (20, 2), (22, 2), (24, 4), (28, 4), (32, 2), (34, 2), (40, 4)]
    )
    number = rng.choice([0, 1, 2, 3, 4, 8, 24, 33, 255, 10**9, 2**31, 2**32 - 1])
    packed = (number % (1 << 8 * width)).to_bytes(width, "little")
    return content[:place] + packed + content[place + width :]


# Pickles ------------------------------------------------------------------------------------------


def mutate_pickle(rng: Random, content: bytes) -> bytes:
    """Changes opcodes with their arguments, beside bytes."""
    import pickletools

    if rng.random() < 0.4:
        return mutate_bytes(rng, content)
    places = [place for _, _, place in pickletools.genops(content) if place is not None]
    index = rng.randrange(len(places))
    begin, end = places[index], [*places, len(content)][index + 1]
    wild = [
        *(b"cos\nsystem\n", b"cbuiltins\neval\n", b"cnumpy\nload\n", b"(", b"t", b"R", b"b", b"0"),
        *(
            b"\x8a\x08" + b"\x7f" * 8,
            b"J\xff\xff\xff\x7f",
            b"I1\n",
            b"N",
            b"}",
            b"2",
            b"\x85",
            b"]",
        ),
        b"\x8c\x02os\x8c\x06system\x93",
        b"B\xff\xff\xff\x7f",
        b"\x8e" + b"\xff" * 7 + b"\x00",
        *(b"r\xff\xff\xff\x7f", b"j\xff\xff\xff\x7f", b"\x96" + b"\xff" * 6 + b"\0\0"),
    ]
    other = rng.randrange(len(places))
    copied = content[places[other] : [*places, len(content)][other + 1]]
    return (
        content[:begin]
        + rng.choice([*wild, b"", copied, copied * 50])
        + content[rng.choice([begin, end]) :]
    )
