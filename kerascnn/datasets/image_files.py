"""Reading MNIST-like image sets: folders of IDX files and .npz archives.

Both readers check everything that the formats allow to check and return only whole, consistent
data. The IDX format is described on the MNIST page, http://yann.lecun.com/exdb/mnist/.
"""

from __future__ import annotations

import math
import os
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from kerascnn.system_errors import is_of_system

Arrays = tuple[np.ndarray, np.ndarray]

NUM_CLASSES = 10
IMAGE_SHAPE = (28, 28)

_ARRAY_NAMES = ("x_train", "y_train", "x_test", "y_test")
# Publishers name the files differently: "train-images-idx3-ubyte", "train-images.idx3-ubyte".
_IDX_NAMES = {
    "x_train": ("train-images", "idx3-ubyte"),
    "y_train": ("train-labels", "idx1-ubyte"),
    "x_test": ("t10k-images", "idx3-ubyte"),
    "y_test": ("t10k-labels", "idx1-ubyte"),
}
_CHUNK = 1 << 20
# Images hardly shrink to less than a hundredth: such a file was made to fill memory.
_SMALL, _MAX_EXPANSION = 16 << 20, 100
_NPY_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_IDX_UBYTE = 0x08


def read_image_set(path: str | os.PathLike[str]) -> tuple[Arrays, Arrays]:
    """Reads an image set from a folder of four IDX files (plain or gzip) or from an .npz archive.

    Returns:
        `((x_train, y_train), (x_test, y_test))`, uint8, writable and C-contiguous: images of
        shape (n, 28, 28), labels 0 to 9 of shape (n,).

    Raises:
        FileNotFoundError: `path` does not exist, or one of the four files is not in the folder.
        ValueError: a file is damaged or holds something else; the message names the file, what
            was expected and what was found.
    """
    path = Path(path)
    arrays = _read_folder(path) if path.is_dir() else _read_npz(path)
    return (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])


def read_idx(path: str | os.PathLike[str], rank: int) -> np.ndarray:
    """Reads one IDX file of unsigned bytes, plain or gzip (told by content, not by name).

    Args:
        path: the file.
        rank: the number of dimensions that the file must have, 3 for images and 1 for labels.

    Returns:
        A writable, C-contiguous uint8 array of that rank.

    Raises:
        ValueError: the file is no IDX file of that rank, is truncated, damaged, or has bytes
            after its data.
    """
    import gzip
    import zlib

    path = Path(path)
    with open(path, "rb") as raw:
        compressed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream: BufferedIOBase = gzip.GzipFile(fileobj=raw) if compressed else raw
        try:
            return _parse_idx(path, stream, rank, compressed)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            _fail(path, "a whole gzip file", f"a damaged or truncated one ({error})", error)


def _parse_idx(path: Path, stream: BufferedIOBase, rank: int, compressed: bool) -> np.ndarray:
    header_size = 4 + 4 * rank
    header = stream.read(header_size)
    magic = bytes((0, 0, _IDX_UBYTE, rank))
    if header[:4] != magic:
        received = f"0x{header[:4].hex()}" if header else "an empty file"
        hint = ""
        if len(header) >= 4 and header[:3] == magic[:3]:
            hint = f", an IDX file with {header[3]} dimensions instead of {rank}"
        _fail(path, f"an IDX file that begins with 0x{magic.hex()}", received + hint)
    if len(header) < header_size:
        _fail(path, f"an IDX header of {header_size} bytes", f"{len(header)} bytes")
    shape = tuple(int(n) for n in np.frombuffer(header, dtype=">u4", offset=4))
    size = 1
    for extent in shape:  # Python integers: a damaged header must not overflow
        size *= extent

    # The file is read in pieces, so that a damaged header that announces terabytes costs no more
    # than the file.
    data = bytearray()
    while len(data) <= size and (chunk := stream.read(min(_CHUNK, size + 1 - len(data)))):
        data += chunk
    expected = f"{size} bytes of data, as its header announces with shape {shape}"
    stored = path.stat().st_size
    if compressed and size > _SMALL and size > _MAX_EXPANSION * stored:
        _fail(path, expected, f"a file of {stored} bytes")
    if len(data) < size:
        _fail(path, expected, f"{len(data)} bytes: the file is truncated")
    if len(data) > size:
        _fail(path, expected, "more bytes after them")
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


def _read_folder(folder: Path) -> dict[str, np.ndarray]:
    paths = {}
    missing = []
    for key, (stem, ending) in _IDX_NAMES.items():
        names = [f"{stem}{sep}{ending}{gz}" for gz in ("", ".gz") for sep in "-."]
        found = next((folder / name for name in names if (folder / name).is_file()), None)
        if found is None:
            missing.append(f"{stem}-{ending}[.gz]")
        else:
            paths[key] = found
    if missing:
        present = sorted(entry.name for entry in folder.iterdir())
        shown = ", ".join(present[:8]) + (", ..." if len(present) > 8 else "")
        raise FileNotFoundError(
            f"{folder}: expected the four IDX files of an MNIST-like data set, plain or .gz; "
            f"missing: {', '.join(missing)}; the folder has: {shown or 'nothing'}. "
            "Put the missing files there, or pass path= the folder or .npz file that has them."
        )
    arrays = {key: read_idx(path, 3 if key[0] == "x" else 1) for key, path in paths.items()}
    for split in ("train", "test"):
        image_key, label_key = f"x_{split}", f"y_{split}"
        _check_images(str(paths[image_key]), arrays[image_key])
        _check_labels(str(paths[label_key]), arrays[label_key], len(arrays[image_key]))
    return arrays


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    _check_zip_ends(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = [name for name in _ARRAY_NAMES if name not in archive.files]
            if missing:
                found = ", ".join(archive.files) or "none"
                _fail(path, f"the arrays {', '.join(_ARRAY_NAMES)}", f"the arrays {found}")
            arrays = {name: _read_member(archive.zip, path, name) for name in _ARRAY_NAMES}
    except (_InvalidFileError, FileNotFoundError):
        raise
    # zipfile, and NumPy for headers, raise nearly any exception for damaged or unusual archives.
    except Exception as error:
        if is_of_system(error):
            raise
        _fail(path, "an .npz archive of numeric arrays", f"a damaged one ({error})", error)
    for split in ("train", "test"):
        images, labels = arrays[f"x_{split}"], arrays[f"y_{split}"]
        _check_images(f"{path}, array x_{split}", images)
        _check_labels(f"{path}, array y_{split}", labels, len(images))
    return {name: np.ascontiguousarray(array, dtype=np.uint8) for name, array in arrays.items()}


def _read_member(archive: Any, path: Path, name: str) -> np.ndarray:
    """Reads an array, after a check that the member has the bytes that its header announces."""
    names = archive.namelist()
    member = archive.getinfo(f"{name}.npy" if f"{name}.npy" in names else name)
    size, stored = member.file_size, member.compress_size
    if size > _SMALL and size > _MAX_EXPANSION * stored:
        _fail(path, f"at most {_MAX_EXPANSION * stored} bytes in {member.filename}", f"{size}")
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in _NPY_HEADERS:
            _fail(f"{path}, array {name}", "the form 1.0 or 2.0 of .npy files", f"{version}")
        shape, is_fortran, dtype = _NPY_HEADERS[version](stream)
        if dtype.kind not in "biuf":
            _fail(f"{path}, array {name}", "numbers", f"dtype {dtype}")
        expected, left = math.prod(shape) * dtype.itemsize, size - stream.tell()
        if min(shape, default=0) < 0 or expected != left:
            received = f"{left} bytes"
            _fail(f"{path}, array {name}", f"{expected} bytes for its shape {shape}", received)
        data = bytearray(stream.read())
    return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")


def _check_zip_ends(path: Path) -> None:
    """Checks the end of a zip file, since readers ignore bytes after the directory."""
    with open(path, "rb") as stream:
        start = stream.read(4)
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - 22))
        end = stream.read()
    if start != b"PK\x03\x04":
        received = f"a file that begins with 0x{start.hex()}" if start else "an empty file"
        _fail(path, "a folder of IDX files or an .npz archive", received)
    if end[:4] != b"PK\x05\x06":
        _fail(
            path,
            "an .npz archive that ends with its directory",
            "a truncated one, or one with bytes after its end",
        )


def _check_images(name: str, images: np.ndarray) -> None:
    if images.dtype != np.uint8:
        _fail(name, "uint8 pixels (0 to 255)", f"dtype {images.dtype}")
    if images.ndim != 3 or images.shape[1:] != IMAGE_SHAPE:
        _fail(name, "images of shape (n, 28, 28)", f"shape {images.shape}")
    if len(images) == 0:
        _fail(name, "at least one image", "none")


def _check_labels(name: str, labels: np.ndarray, num_images: int) -> None:
    if labels.dtype.kind not in "iu":
        _fail(name, "integer labels", f"dtype {labels.dtype}")
    if labels.shape != (num_images,):
        _fail(name, f"one label for each of the {num_images} images", f"shape {labels.shape}")
    wrong = np.flatnonzero((labels < 0) | (labels >= NUM_CLASSES))
    if wrong.size:
        where = f"{labels[wrong[0]]} at index {wrong[0]}"
        _fail(name, f"labels from 0 to {NUM_CLASSES - 1}", where)


class _InvalidFileError(ValueError):
    """Distinguishes this module's own errors from the ValueErrors of the readers that it calls."""


def _fail(
    name: str | Path, expected: str, received: str, cause: BaseException | None = None
) -> NoReturn:
    raise _InvalidFileError(
        f"{name}: expected {expected}, received {received}. Get the file from its source again, "
        "or pass path= another folder of IDX files or .npz archive."
    ) from cause
