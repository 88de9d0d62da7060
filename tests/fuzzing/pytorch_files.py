"""PyTorch's files for the fuzz tests: good ones, and mutations that know their form."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from torch_files import writing

from . import mutators

_KEYS = ("0", "1", "99", "../0", "data.pkl", "", "é")
# Opcodes and calls that a reader has to refuse, or that make much of little.
_WILD = (
    *(b"cos\nsystem\n(X\x04\0\0\0truetR", b"cbuiltins\neval\n(X\x011tR", b"i__main__\nX\n", b"o"),
    *(b"\x8c\x02os\x8c\x06system\x93", b"ctorch.storage\n_load_from_bytes\n", b"P0\n", b"\x8f"),
    *(b"ctorch.nn.modules.linear\nLinear\n)\x81", b"ctorch\nFloatStorage\n)R", b"ctorch\nSize\n)R"),
    *(b"(", b"t", b"R", b"b", b"Q", b"0", b"2", b"s", b"u", b"e", b"a", b"}", b"]", b")", b"N"),
    *(b"\x85" * 3000, b"]" * 3000, b"(" * 3000, b"}q\x00h\x00h\x00s", b"]q\x00h\x00a"),
    *(b"\x8a\xff" + b"\x7f" * 255, b"\x8a\x08" + b"\xff" * 8, b"J\xff\xff\xff\xff", b"K\x00"),
    *(b"X\xff\xff\xff\x7f", b"\x8d" + b"\xff" * 8, b"\x8e" + b"\xff" * 8, b"\x96" + b"\xff" * 8),
    *(b"r\xff\xff\xff\x7f", b"j\xff\xff\xff\x7f", b"\x94", b"\x95" + b"\xff" * 8, b"\x80\x7f"),
    b"}" * 100_000,
)


def _arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"conv.weight": (4, 3, 3, 3), "conv.bias": (4,), "fc.weight": (3, 4), "fc.bias": (3,)}
    found: dict[str, Any] = {name: rng.normal(size=s).astype("f") for name, s in shapes.items()}
    for dtype in ("float16", "float64", "int64", "uint8", "bool"):
        found[f"other.{dtype}"] = rng.integers(0, 2, (2, 3)).astype(dtype)
    return found


def _views() -> tuple[bytes, dict[str, bytes]]:
    """Tensors that share a storage, in a dictionary beside other values."""
    where = writing.storage("0", "float32", 40)
    tensors = {
        "fc.weight": writing.tensor(where, 0, (3, 4), (4, 1)),
        "fc.bias": writing.tensor(where, 12, (3,), (2,)),
        "more": writing.tensor(where, 20, (4, 5), (1, 4)),
        "same": writing.tensor(where, 3, (9, 2), (0, 1)),
    }
    parts = {"epoch": writing.number(3), "state_dict": writing.state_dict(tensors)}
    return writing.pickled(writing.state_dict(parts)), {"0": np.arange(40, dtype="f").tobytes()}


def seeds(_: Path, __: Random | None) -> list[bytes]:
    pickle, data = writing.whole(_arrays())
    return [
        writing.zipped(pickle, data),
        writing.zipped(pickle, data, order=b"big", method=zipfile.ZIP_DEFLATED),
        writing.zipped(*_views()),
    ]


def old_seeds(_: Path, __: Random | None) -> list[bytes]:
    pickle, data = _views()
    return [writing.old_of(_arrays()), writing.old(pickle, data, {"0": 4})]


def safetensors_seeds(folder: Path, _: Random | None) -> list[bytes]:
    from kerascnn.models import weights_file

    weights_file.write(folder / "seed.safetensors", _arrays())
    return [(folder / "seed.safetensors").read_bytes()]


def mutate(rng: Random, content: bytes) -> bytes:
    """Changes a zip file: its pickle in most cases, its members, or its bytes."""
    kind = rng.randrange(10)
    if kind < 6:
        members = mutators.unzip(content)
        members["archive/data.pkl"] = mutate_tensors(rng, members["archive/data.pkl"])
        method = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
        return mutators.make_zip(list(members.items()), method)
    if kind < 8:
        return mutators.mutate_zip(rng, content)
    if kind == 8:
        members = mutators.unzip(content)
        name = rng.choice(list(members))
        members[name] = rng.choice([b"", b"big", mutators.mutate_bytes(rng, members[name])])
        return mutators.make_zip(list(members.items()))
    return mutators.mutate_bytes(rng, content)


def mutate_old(rng: Random, content: bytes) -> bytes:
    """Changes one of the pickles of an old file, a length behind them, or its bytes."""
    if rng.random() < 0.2:
        return mutators.mutate_bytes(rng, content)
    ends = _pickles_of(content)
    index = rng.choice([0, 1, 2, 3, 3, 3, 3, 3, 3, 4, 5])
    if index == 5:
        number = rng.choice([0, -1, 1, 2**31, 2**40, 2**62, -(2**63)])
        return content[: ends[5]] + struct.pack("<q", number) + content[ends[5] + 8 :]
    part = mutate_tensors(rng, content[ends[index] : ends[index + 1]])
    return content[: ends[index]] + part + content[ends[index + 1] :]


def _pickles_of(content: bytes) -> list[int]:
    """Returns where each of the five pickles begins, and where the last one ends."""
    import pickletools

    stream = io.BytesIO(content)
    places = [0]
    for _ in range(5):
        for _ in pickletools.genops(stream):
            pass
        places.append(stream.tell())
    return places


def mutate_tensors(rng: Random, content: bytes) -> bytes:
    """Changes opcodes of a pickle of tensors: numbers and texts in most cases."""
    import pickletools

    if rng.random() < 0.15:
        return mutators.mutate_bytes(rng, content)
    operations = [(code.name, place) for code, _, place in pickletools.genops(content)]
    ends = [*[place for _, place in operations][1:], len(content)]
    index = rng.randrange(len(operations))
    if rng.random() < 0.7:
        wanted = rng.choice(["BININT", "BININT", "BINUNICODE", "GLOBAL"])
        index = rng.choice([i for i, (n, _) in enumerate(operations) if n == wanted] or [index])
        name, begin = operations[index]
        end = ends[index]
        return content[:begin] + _other(rng, name, content[begin:end]) + content[end:]
    other = rng.randrange(len(operations))
    copied = content[operations[other][1] : ends[other]]
    new = rng.choice([*_WILD, b"", copied, copied * 50])
    begin, end = operations[index][1], ends[index]
    return content[:begin] + new + content[rng.choice([begin, end]) :]


def _other(rng: Random, name: str, old: bytes) -> bytes:
    """Another value of the same kind."""
    if name == "BININT":
        value = struct.unpack("<i", old[1:])[0]
        near = [value + 1, value - 1, 2 * value, -value, value + 4]
        return writing.number(
            rng.choice([*near, *near, 0, 1, 2**31 - 1, 2**31, 2**40, 2**62, 2**63, 2**64, -1])
        )
    if name == "BINUNICODE":
        return writing.text(rng.choice([*_KEYS, *mutators.WILD_TEXTS, "storage"]))
    if name == "GLOBAL":
        storage = rng.choice([*writing.STORAGES.values(), "QInt8Storage", "Size", "float32"])
        return rng.choice([f"ctorch\n{storage}\n".encode(), *_WILD])
    return rng.choice(_WILD)


class _Reader:
    """Reads a file, and loads it into a model, which stays what it was on an error."""

    def __init__(self) -> None:
        self._model: Any = None

    def __call__(self, path: Path) -> None:
        import kerascnn as keras

        if self._model is None:
            self._model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="dense")])
        model = self._model
        before = [v.numpy() for v in model.weights]
        try:
            keras.saving.load_torch_weights(model, path, {"dense": "fc"}, skip_mismatch=True)
        except ValueError:
            for value, variable in zip(before, model.weights, strict=True):
                assert np.array_equal(value, variable.numpy(), equal_nan=True)
            raise
        for array in keras.saving.read_torch_weights(path).values():
            array.ravel()[:10].tolist()
        for value, variable in zip(before, model.weights, strict=True):
            variable.assign(value)


read = _Reader()
