"""Reading CIFAR-10 and CIFAR-100: folders of batch files, and .tar.gz archives with them.

The published files come in two forms, which https://www.cs.toronto.edu/~kriz/cifar.html describes:
pickles for Python, and plain bytes. A pickle can name functions to call; the reader here lets
nothing through but NumPy arrays, lists, strings and numbers, so that a file cannot run code.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np

from kerascnn import config
from kerascnn.datasets.image_files import Arrays
from kerascnn.system_errors import is_of_system

Array = np.ndarray[Any, Any]

_PIXELS = 3 * 32 * 32
# No published file is larger than this, and a larger file is not read.
_LARGEST = 1 << 28


class Layout(NamedTuple):
    """What the files of a data set are called, and what they hold.

    Attributes:
        train: The training files, without the ending .bin of plain bytes.
        test: The same for the test files.
        label_key: Where a pickle has its labels.
        num_classes: The labels are below it.
        label_bytes: How many bytes come before the pixels of an image, in a file of plain bytes.
        label_byte: Which of them is the label.
    """

    train: tuple[str, ...]
    test: tuple[str, ...]
    label_key: bytes
    num_classes: int
    label_bytes: int
    label_byte: int


def read_cifar(path: str | os.PathLike[str], layout: Layout) -> tuple[Arrays, Arrays]:
    """Reads CIFAR from a folder of batch files (or one that has this folder), or from a .tar.gz.

    Returns:
        `((x_train, y_train), (x_test, y_test))`, uint8 and writable: images (n, 32, 32, 3), or
        (n, 3, 32, 32) where "channels_first" is configured, and labels (n, 1).

    Raises:
        FileNotFoundError: `path` does not exist, or a file is not in it.
        ValueError: a file is damaged or holds something else; the message names it.
    """
    path = Path(path)
    parts: dict[str, Arrays] = {}
    for name, where, data in _files(path, layout):
        stem = name.removesuffix(".bin")
        read = _read_bytes if name.endswith(".bin") else _read_pickle
        parts[stem] = read(where, data, layout)
    missing = [stem for stem in (*layout.train, *layout.test) if stem not in parts]
    if missing:
        raise FileNotFoundError(
            f"{path}: expected the CIFAR files {', '.join((*layout.train, *layout.test))} "
            f"(pickles, or plain bytes with the ending .bin); missing: {', '.join(missing)}. Put "
            "them there, or pass path= the folder or .tar.gz file that has them."
        )
    train, test = (
        [np.concatenate([parts[stem][i] for stem in stems]) for i in (0, 1)]
        for stems in (layout.train, layout.test)
    )
    return (_images(train[0]), train[1][:, None]), (_images(test[0]), test[1][:, None])


def _images(pixels: Array) -> Array:
    images = pixels.reshape(-1, 3, 32, 32)
    if config.image_data_format() == "channels_last":
        images = images.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images)


def _files(path: Path, layout: Layout) -> Iterator[tuple[str, str, bytes]]:
    """Yields each wanted file that exists: its name, its place for messages, and its content."""
    wanted = [f"{stem}{end}" for stem in (*layout.train, *layout.test) for end in ("", ".bin")]
    if not path.is_dir():
        yield from _archived(path, wanted)
        return
    folders = [path, *sorted(entry for entry in path.iterdir() if entry.is_dir())]
    for folder in folders:
        found = [folder / name for name in wanted if (folder / name).is_file()]
        for file in found:
            if file.stat().st_size > _LARGEST:
                _fail(str(file), f"at most {_LARGEST} bytes", f"{file.stat().st_size}")
            yield file.name, str(file), file.read_bytes()
        if found:
            return


def _archived(path: Path, wanted: list[str]) -> Iterator[tuple[str, str, bytes]]:
    import zlib

    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name not in wanted or not member.isfile():
                    continue
                where = f"{path}, {member.name}"
                if member.size > _LARGEST:
                    _fail(where, f"at most {_LARGEST} bytes", f"{member.size}")
                stream = archive.extractfile(member)
                assert stream is not None  # it is a file
                yield name, where, stream.read()
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        if is_of_system(error):
            raise
        _fail(str(path), "a folder of CIFAR files or a .tar.gz archive", f"{error}", error)


def _read_bytes(where: str, data: bytes, layout: Layout) -> Arrays:
    row = layout.label_bytes + _PIXELS
    if not data or len(data) % row:
        _fail(where, f"images of {row} bytes each", f"{len(data)} bytes in all")
    rows = np.frombuffer(data, np.uint8).reshape(-1, row)
    return _checked(where, rows[:, layout.label_bytes :], rows[:, layout.label_byte], layout)


def _read_pickle(where: str, data: bytes, layout: Layout) -> Arrays:
    try:
        content = _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
    # A damaged pickle can raise nearly any exception.
    except Exception as error:
        _fail(where, "a pickle of arrays", f"a damaged or foreign one ({error})", error)
    keys = (b"data", layout.label_key)
    if not isinstance(content, dict) or any(key not in content for key in keys):
        found = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
        _fail(where, f"a dictionary with {keys[0]!r} and {keys[1]!r}", f"{found}")
    pixels, labels = (
        value.array if isinstance(value, _SavedArray) else value
        for value in (content[b"data"], content[layout.label_key])
    )
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim < 2:
        _fail(where, "uint8 pixels, a row for each image", f"{type(pixels).__name__}")
    if pixels[0:1].size != _PIXELS:
        _fail(where, f"{_PIXELS} numbers for each image", f"shape {pixels.shape}")
    try:
        numbers = np.asarray(labels)
    except ValueError as error:
        _fail(where, "integer labels", f"{error}", error)
    if numbers.dtype.kind not in "iu":
        _fail(where, "integer labels", f"dtype {numbers.dtype}")
    return _checked(where, pixels.reshape(-1, _PIXELS), numbers, layout)


def _checked(where: str, pixels: Array, labels: Array, layout: Layout) -> Arrays:
    if labels.shape != (len(pixels),):
        expected = f"one label for each of the {len(pixels)} images"
        _fail(where, expected, f"shape {labels.shape}")
    wrong = np.flatnonzero((labels < 0) | (labels >= layout.num_classes))
    if wrong.size:
        received = f"{labels[wrong[0]]} at index {wrong[0]}"
        _fail(where, f"labels from 0 to {layout.num_classes - 1}", received)
    return pixels, labels.astype(np.uint8)


# This stands for the class of arrays, which a pickle names but must not call.
_ARRAY = object()


class _SavedDtype:
    """A dtype in a pickle. NumPy's own dtype takes flags and sizes from the file unchecked."""

    def __init__(self, code: Any, *_: Any):
        text = code.decode("latin1") if isinstance(code, bytes) else code
        if not isinstance(text, str) or not re.fullmatch("[biuf][1248]", text):
            raise pickle.UnpicklingError(f"it has numbers of type {code!r}")
        self.dtype = np.dtype(f"<{text}")

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode("latin1") if isinstance(state[1], bytes) else state[1]
        if order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"it has numbers in the byte order {order!r}")
        if order == ">":
            self.dtype = self.dtype.newbyteorder(">")


class _SavedArray:
    """An array in a pickle; its shape and content are set after it was made."""

    def __init__(self, kind: Any, shape: Any, _: Any):
        if kind is not _ARRAY or shape != (0,):
            raise pickle.UnpicklingError(f"an array begins with shape {shape}")
        self.array = np.empty(0)

    def __setstate__(self, state: Any) -> None:
        _, shape, saved, is_fortran, data = state
        if not isinstance(saved, _SavedDtype):
            raise pickle.UnpicklingError(f"an array has the dtype {saved!r}")
        numbers = np.frombuffer(data, saved.dtype)
        self.array = numbers.reshape(shape, order="F" if is_fortran else "C")


class _ArrayUnpickler(pickle._Unpickler):  # in Python: the one in C trusts sizes in the file
    """Knows what pickles of arrays call, and nothing else."""

    def load_bytearray8(self) -> NoReturn:
        # It takes the memory that the file announces before it looks what there is.
        raise pickle.UnpicklingError("it has a bytearray, which arrays are not made of")

    dispatch: ClassVar[Any] = {**pickle._Unpickler.dispatch, pickle.BYTEARRAY8[0]: load_bytearray8}

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            if name == "_reconstruct":
                return _SavedArray
        elif module == "numpy" and name in ("ndarray", "dtype"):
            return _SavedDtype if name == "dtype" else _ARRAY
        elif module == "_codecs" and name == "encode":  # how Python 3 writes bytes for Python 2
            return _latin_bytes
        raise pickle.UnpicklingError(f"it calls {module}.{name}")


def _latin_bytes(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it has bytes in the encoding {encoding}")
    return text.encode("latin1")


def _fail(where: str, expected: str, received: str, cause: BaseException | None = None) -> NoReturn:
    raise ValueError(
        f"{where}: expected {expected}, received {received}. Get the file from its source again, "
        "or pass path= another folder of CIFAR files or .tar.gz archive."
    ) from cause
