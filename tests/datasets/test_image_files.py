"""Folders of IDX files and .npz archives: what is read, and what is refused with which error."""

import gzip
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from kerascnn.datasets import fashion_mnist, mnist
from kerascnn.datasets.image_files import read_idx, read_image_set

from .helpers import check_same, idx_bytes, small_arrays, write_folder, write_npz

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"


def real_mnist():
    # This runs when the module is imported, before a fixture hides the environment.
    repository = Path(__file__).resolve().parents[2]
    named = os.environ.get("KERASCNN_MNIST")
    beside = repository.parent / "shared" / "datasets" / "mnist"
    return Path(named) if named else beside if beside.is_dir() else None


REAL_MNIST = real_mnist()


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("module", [mnist, fashion_mnist])
def test_folder(tmp_path, module, compress):
    arrays = small_arrays()
    folder = write_folder(tmp_path / "data", arrays, compress)
    check_same(module.load_data(folder), arrays)
    check_same(module.load_data(path=str(folder)), arrays)


def test_folder_with_dots_in_the_names_and_mixed_compression(tmp_path):
    arrays = small_arrays()
    folder = write_folder(tmp_path / "data", arrays, compress=False)
    (folder / TRAIN_IMAGES).rename(folder / "train-images.idx3-ubyte")
    labels = folder / TRAIN_LABELS
    (folder / f"{TRAIN_LABELS}.gz").write_bytes(gzip.compress(labels.read_bytes()))
    labels.unlink()
    check_same(mnist.load_data(folder), arrays)


def test_compression_is_told_by_content(tmp_path):
    # Browsers unpack .gz files and keep their names.
    arrays = small_arrays()
    folder = write_folder(tmp_path / "data", arrays, compress=False)
    for file in list(folder.iterdir()):
        file.rename(file.with_name(file.name + ".gz"))
    check_same(mnist.load_data(folder), arrays)


@pytest.mark.parametrize("module", [mnist, fashion_mnist])
def test_npz(tmp_path, monkeypatch, module):
    arrays = small_arrays()
    path = write_npz(tmp_path / "own.npz", arrays)
    check_same(module.load_data(str(path)), arrays)
    monkeypatch.chdir(tmp_path)
    check_same(module.load_data("own.npz"), arrays)
    check_same(module.load_data("./own.npz"), arrays)


def test_npz_with_other_integer_labels_and_memory_order(tmp_path):
    arrays = small_arrays()
    stored = dict(arrays, y_train=arrays["y_train"].astype(np.int64))
    stored["x_train"] = np.asfortranarray(arrays["x_train"])
    check_same(mnist.load_data(write_npz(tmp_path / "own.npz", stored)), arrays)


@pytest.mark.skipif(
    REAL_MNIST is None,
    reason="needs MNIST: set KERASCNN_MNIST, or put it in ../shared/datasets/mnist",
)
def test_real_mnist():
    (x_train, y_train), (x_test, y_test) = mnist.load_data(REAL_MNIST)
    assert (x_train.shape, y_train.shape) == ((60000, 28, 28), (60000,))
    assert (x_test.shape, y_test.shape) == ((10000, 28, 28), (10000,))
    # The published mean and standard deviation of the training pixels are 0.1307 and 0.3081 of 255.
    assert abs(x_train.mean() / 255 - 0.1307) < 5e-5
    assert abs(x_train.std() / 255 - 0.3081) < 5e-5
    assert np.bincount(y_test).tolist() == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009,
    ]  # fmt: skip
    assert y_train[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]


def test_missing_files_are_named(tmp_path):
    folder = write_folder(tmp_path / "data", small_arrays())
    (folder / f"{TRAIN_LABELS}.gz").unlink()
    with pytest.raises(FileNotFoundError) as info:
        mnist.load_data(folder)
    message = str(info.value)
    assert str(folder) in message
    assert f"missing: {TRAIN_LABELS}[.gz];" in message
    assert "t10k-images-idx3-ubyte.gz" in message  # The message lists what the folder does contain.


def test_empty_folder(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="the folder has: nothing"):
        mnist.load_data(tmp_path / "empty")


def damaged(tmp_path, data, name=TRAIN_IMAGES):
    folder = write_folder(tmp_path / "data", small_arrays(), compress=False)
    (folder / name).write_bytes(data)
    return folder


GOOD = idx_bytes(small_arrays()["x_train"])
BAD_IDX = {
    "empty": (b"", r"begins with 0x00000803, received an empty file"),
    "wrong_magic": (b"GIF8" + GOOD[4:], r"begins with 0x00000803, received 0x47494638"),
    "labels_in_place_of_images": (
        idx_bytes(small_arrays()["y_train"]),
        r"received 0x00000801, an IDX file with 1 dimensions instead of 3",
    ),
    "other_element_type": (
        b"\0\0\x0d\3" + GOOD[4:],
        r"begins with 0x00000803, received 0x00000d03",
    ),
    "half_a_header": (GOOD[:9], r"an IDX header of 16 bytes, received 9 bytes"),
    "truncated": (GOOD[:-1], r"expected 9408 bytes of data.*received 9407 bytes.*truncated"),
    "trailing_bytes": (GOOD + b"x", r"expected 9408 bytes of data.*received more bytes"),
    "announces_terabytes": (
        GOOD[:4] + b"\xff\xff\xff\xff" + GOOD[8:],
        r"shape \(4294967295, 28, 28\), received 9408 bytes.*truncated",
    ),
    "gzip_truncated": (gzip.compress(GOOD)[:-20], r"a whole gzip file, received a damaged"),
    "gzip_checksum": (
        gzip.compress(GOOD)[:-8] + b"\0\0\0\0" + gzip.compress(GOOD)[-4:],
        r"a whole gzip file, received a damaged",
    ),
    "gzip_data": (
        gzip.compress(GOOD)[:10] + b"\xff" * 40,
        r"a whole gzip file, received a damaged",
    ),
    "gzip_trailing_bytes": (
        gzip.compress(GOOD) + b"garbage",
        r"a whole gzip file, received a damaged",
    ),
    "gzip_trailing_data": (gzip.compress(GOOD + b"x"), r"received more bytes"),
    "no_images": (
        idx_bytes(np.zeros((0, 28, 28), np.uint8)),
        r"at least one image, received none",
    ),
    "other_image_size": (
        idx_bytes(np.zeros((12, 32, 32), np.uint8)),
        r"images of shape \(n, 28, 28\), received shape \(12, 32, 32\)",
    ),
}


@pytest.mark.parametrize("case", BAD_IDX)
def test_bad_idx(tmp_path, case):
    data, words = BAD_IDX[case]
    folder = damaged(tmp_path, data)
    with pytest.raises(ValueError, match=words) as info:
        mnist.load_data(folder)
    assert str(info.value).startswith(str(folder / TRAIN_IMAGES))
    assert "pass path=" in str(info.value)


def test_label_count_and_range(tmp_path):
    folder = damaged(tmp_path, idx_bytes(np.zeros(11, np.uint8)), TRAIN_LABELS)
    words = r"one label for each of the 12 images, received shape \(11,\)"
    with pytest.raises(ValueError, match=words) as info:
        mnist.load_data(folder)
    assert str(folder / TRAIN_LABELS) in str(info.value)

    labels = np.zeros(12, np.uint8)
    labels[7] = 26
    folder = damaged(tmp_path, idx_bytes(labels), TRAIN_LABELS)
    with pytest.raises(ValueError, match="labels from 0 to 9, received 26 at index 7"):
        mnist.load_data(folder)


def test_read_idx_of_every_truncation(tmp_path):
    # A file that was cut anywhere must never be read as if it were complete.
    data = idx_bytes(np.arange(6, dtype=np.uint8))
    path = tmp_path / "labels"
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        with pytest.raises(ValueError, match="labels: expected"):
            read_idx(path, 1)
    path.write_bytes(data)
    assert read_idx(path, 1).tolist() == [0, 1, 2, 3, 4, 5]


def replaced(**changes):
    arrays = dict(small_arrays(), **changes)
    return {name: array for name, array in arrays.items() if array is not None}


BAD_ARRAYS = {
    "missing_array": (
        replaced(y_test=None),
        r"the arrays x_train, .*, y_test, received the arrays x_train, y_train, x_test\.",
    ),
    "float_images": (
        replaced(x_train=np.zeros((12, 28, 28), np.float32)),
        r"array x_train: expected uint8 pixels \(0 to 255\), received dtype float32",
    ),
    "flat_images": (
        replaced(x_test=np.zeros((5, 784), np.uint8)),
        r"array x_test: expected images of shape \(n, 28, 28\), received shape \(5, 784\)",
    ),
    "no_images": (
        replaced(x_test=np.zeros((0, 28, 28), np.uint8)),
        r"array x_test: expected at least one image, received none",
    ),
    "label_count": (
        replaced(y_train=np.zeros(13, np.uint8)),
        r"array y_train: expected one label for each of the 12 images, received shape \(13,\)",
    ),
    "float_labels": (
        replaced(y_train=np.zeros(12)),
        r"array y_train: expected integer labels, received dtype float64",
    ),
    "negative_label": (
        replaced(y_test=np.array([1, 2, -1, 3, 4])),
        r"array y_test: expected labels from 0 to 9, received -1 at index 2",
    ),
    "object_array": (
        replaced(y_test=np.array([1, 2, "three", None, 4], dtype=object)),
        "array y_test: expected numbers, received dtype object",
    ),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_npz_arrays(tmp_path, case):
    arrays, words = BAD_ARRAYS[case]
    path = write_npz(tmp_path / "own.npz", arrays)
    with pytest.raises(ValueError, match=words) as info:
        mnist.load_data(path)
    assert str(path) in str(info.value)
    assert "pass path=" in str(info.value)


def npz_bytes(tmp_path):
    return write_npz(tmp_path / "good.npz", small_arrays()).read_bytes()


def test_npz_that_is_none(tmp_path):
    path = tmp_path / "own.npz"
    for data, words in [
        (b"", "received an empty file"),
        (b"<html>not found</html>", "begins with 0x3c68746d"),
        (b"\x93NUMPY plain array", "begins with 0x934e554d"),
    ]:
        path.write_bytes(data)
        with pytest.raises(ValueError, match=words):
            mnist.load_data(path)


def test_npz_truncated_anywhere(tmp_path):
    good = npz_bytes(tmp_path)
    path = tmp_path / "own.npz"
    for cut in [3, 4, 30, len(good) // 2, len(good) - 22, len(good) - 1]:
        path.write_bytes(good[:cut])
        with pytest.raises(ValueError, match=r"own\.npz: expected"):
            mnist.load_data(path)


def test_npz_with_bytes_after_its_end(tmp_path):
    path = tmp_path / "own.npz"
    path.write_bytes(npz_bytes(tmp_path) + b"garbage")
    with pytest.raises(ValueError, match="bytes after its end"):
        mnist.load_data(path)


def test_npz_with_flipped_bits(tmp_path):
    # A flipped byte gives an error, or the correct data where readers ignore the field. It never
    # gives other pixels or labels, nor another kind of exception.
    arrays = small_arrays()
    good = npz_bytes(tmp_path)
    path = tmp_path / "own.npz"
    rng = np.random.default_rng(1)
    refused = 0
    for position in rng.integers(0, len(good), 300):
        data = bytearray(good)
        data[position] ^= 1 << rng.integers(0, 8)
        path.write_bytes(data)
        try:
            loaded = read_image_set(path)
        except ValueError as error:
            assert str(path) in str(error)
            refused += 1
        else:
            check_same(loaded, arrays)
    assert refused > 250


def test_npz_that_is_encrypted_is_refused(tmp_path):
    path = write_npz(tmp_path / "own.npz", small_arrays())
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.start_dir
    data[start + 8] |= 1  # This sets the flag "encrypted" of the first entry in the directory.
    data[6] |= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="encrypted"):
        mnist.load_data(path)
