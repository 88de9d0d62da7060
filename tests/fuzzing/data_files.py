"""Files of data sets and sounds for the fuzz tests: good ones, mutations, and readers."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import wave
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from . import mutators

# Data sets ----------------------------------------------------------------------------------------

_IDX = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


def _arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for split, count in (("train", 3), ("test", 2)):
        found[f"x_{split}"] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        found[f"y_{split}"] = rng.integers(0, 10, count, dtype=np.uint8)
    return found


def npz_seeds(_: Path, __: Random | None) -> list[bytes]:
    contents = []
    for save in (np.savez, np.savez_compressed):
        target = io.BytesIO()
        save(target, **_arrays())
        contents.append(target.getvalue())
    return contents


def read_npz(path: Path) -> Any:
    import kerascnn as keras

    return keras.datasets.mnist.load_data(path)


def _idx(array: Any) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def idx_seeds(_: Path, __: Random | None) -> list[bytes]:
    images = _idx(_arrays()["x_train"])
    return [images, gzip.compress(images)]


def read_idx(path: Path) -> Any:
    """Reads the file as the training images beside three good files."""
    import kerascnn as keras

    folder = path.with_name("idx")
    if not folder.exists():
        folder.mkdir()
        for key, name in _IDX.items():
            (folder / name).write_bytes(_idx(_arrays()[key]))
    path.replace(folder / _IDX["x_train"])
    return keras.datasets.mnist.load_data(folder)


def _batch(count: int = 2) -> dict[bytes, Any]:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3072), dtype=np.uint8)
    return {b"data": pixels, b"labels": list(range(count))}


def cifar_seeds(_: Path, __: Random | None) -> list[bytes]:
    batch = _batch()
    labels = np.array(batch[b"labels"], np.uint8)[:, None]
    rows = np.concatenate([labels, batch[b"data"]], 1)
    return [pickle.dumps(batch, 2), pickle.dumps(batch, 4), rows.tobytes()]


def mutate_cifar(rng: Random, content: bytes) -> bytes:
    if content[:1] == b"\x80":
        return mutators.mutate_pickle(rng, content)
    return mutators.mutate_bytes(rng, content)


def read_cifar(path: Path) -> Any:
    import kerascnn as keras

    folder = path.with_name("cifar")
    if not folder.exists():
        folder.mkdir()
        for stem in (*(f"data_batch_{i}" for i in range(2, 6)), "test_batch"):
            (folder / stem).write_bytes(pickle.dumps(_batch(), 2))
    first = path.read_bytes()[:1]
    for name in ("data_batch_1", "data_batch_1.bin"):
        (folder / name).unlink(missing_ok=True)
    path.replace(folder / ("data_batch_1" if first == b"\x80" else "data_batch_1.bin"))
    return keras.datasets.cifar10.load_data(folder)


def archive_seeds(_: Path, __: Random | None) -> list[bytes]:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for stem in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
            data = pickle.dumps(_batch(1), 2)
            entry = tarfile.TarInfo(f"cifar/{stem}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return [stream.getvalue()]


def mutate_archive(rng: Random, content: bytes) -> bytes:
    """Changes a header of the archive with a correct check sum, or bytes."""
    if rng.random() < 0.2:
        return mutators.mutate_bytes(rng, content)
    raw = bytearray(gzip.decompress(content))
    size = len(raw)
    place = rng.choice([p for p in range(0, size, 512) if raw[p : p + 6] == b"cifar/"])
    choice = rng.randrange(6)
    if choice == 0:
        number = rng.choice([0, 1, 512, 10**6, 2**30, 8**11 - 1])
        raw[place + 124 : place + 136] = b"%011o\0" % number
    elif choice == 1:
        raw[place + 124 : place + 136] = b"\x80" + b"\xff" * 11
    elif choice == 2:
        raw[place + 156] = rng.choice(b"012345678gxLKS\0")
    elif choice == 3:
        name = rng.choice([b"../data_batch_1", b"/data_batch_1", b"cifar/test_batch"])
        raw[place : place + 100] = name.ljust(100, b"\0")
    elif choice == 4:
        raw[place + 157 : place + 257] = mutators.CANARY.encode().ljust(100, b"\0")
        raw[place + 156] = rng.choice(b"12")
    else:
        raw = bytearray(mutators.mutate_bytes(rng, bytes(raw)))
    header = raw[place : place + 512]
    if len(header) == 512 and choice < 5:
        header[148:156] = b" " * 8
        raw[place + 148 : place + 156] = b"%06o\0 " % sum(header)
    if rng.random() < 0.05:
        raw += bytes(1 << 26)
    return gzip.compress(bytes(raw), 1)


def read_archive(path: Path) -> Any:
    import kerascnn as keras

    return keras.datasets.cifar10.load_data(path)


# Sounds -------------------------------------------------------------------------------------------


def sound_seeds(_: Path, __: Random | None) -> list[bytes]:
    contents = []
    for width in (1, 2, 3, 4):
        target = io.BytesIO()
        with wave.open(target, "wb") as file:
            file.setparams((2, width, 8000, 0, "NONE", ""))
            file.writeframes(bytes(range(24)) * width)
        contents.append(target.getvalue())
    return contents


def read_sound(path: Path) -> Any:
    import kerascnn as keras

    folder = path.with_name("sounds") / "class"
    folder.mkdir(parents=True, exist_ok=True)
    path.replace(folder / "x.wav")
    data = keras.utils.audio_dataset_from_directory(
        folder.parent, batch_size=1, sampling_rate=8000, verbose=False
    )
    return [np.asarray(x) for x, _ in data]
