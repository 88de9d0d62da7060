"""CIFAR-10 and CIFAR-100 from folders and archives, in both published forms and damaged."""

import gzip
import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest

import kerascnn
from kerascnn.datasets import cifar, cifar10, cifar100
from kerascnn.utils.file_utils import RemoteFile

from .helpers import files_below, sha256

STEMS = {"cifar10": [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]}
STEMS["cifar100"] = ["train", "test"]
MODULES = {"cifar10": cifar10, "cifar100": cifar100}


def batches(name, seed=0):
    """Returns (pixels, fine labels, coarse labels) for each file; CIFAR-10 has only coarse ones."""
    rng = np.random.default_rng(seed)
    made = {}
    for i, stem in enumerate(STEMS[name]):
        count = 3 + i
        pixels = rng.integers(0, 256, (count, 3072), dtype=np.uint8)
        made[stem] = (
            pixels,
            rng.integers(0, 100, count).tolist(),
            rng.integers(0, 10 if name == "cifar10" else 20, count).tolist(),
        )
    return made


def python_two_pickle(content):
    """Pickles `content` as Python 2 did for the published files: byte strings without a class."""
    out = [b"\x80\x02}("]
    for key, value in content.items():
        out.append(b"U" + bytes([len(key)]) + key)
        if isinstance(value, np.ndarray):
            data = value.tobytes()
            out.append(
                b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
            )
            out.append(b"(K\x01" + b"".join(b"J" + struct.pack("<i", n) for n in value.shape))
            out.append(b"\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff")
            out.append(
                b"J\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<i", len(data)) + data + b"tb"
            )
        else:
            out.append(b"](" + b"".join(b"K" + bytes([n]) for n in value) + b"e")
    return b"".join([*out, b"u."])


def contents(name, form, made=None):
    """Returns the bytes of each file."""
    files = {}
    for stem, (pixels, fine, coarse) in (made or batches(name)).items():
        if form == "bytes":
            labels = [coarse] if name == "cifar10" else [coarse, fine]
            rows = np.concatenate([np.array(labels, np.uint8).T, pixels], 1)
            files[f"{stem}.bin"] = rows.tobytes()
            continue
        labels = {b"labels": coarse}
        if name == "cifar100":
            labels = {b"fine_labels": fine, b"coarse_labels": coarse}
        content = {b"data": pixels, **labels}
        files[stem] = python_two_pickle(content) if form == "py2" else pickle.dumps(content, 2)
    return files


def archive_of(files, folder="cifar"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, data in {**files, "readme.html": b"hello"}.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def check(loaded, name, which=None):
    made = batches(name)
    train, test = STEMS[name][:-1], STEMS[name][-1:]
    place = 1 if which == "fine" else 2
    for (x, y), stems in zip(loaded, (train, test), strict=True):
        pixels = np.concatenate([made[s][0] for s in stems]).reshape(-1, 3, 32, 32)
        if kerascnn.config.image_data_format() == "channels_last":
            pixels = pixels.transpose(0, 2, 3, 1)
        np.testing.assert_array_equal(x, pixels)
        np.testing.assert_array_equal(y[:, 0], np.concatenate([made[s][place] for s in stems]))
        assert x.dtype == y.dtype == np.uint8
        assert y.shape == (len(x), 1)
        assert x.flags.writeable and y.flags.writeable and x.flags.c_contiguous


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", ["py2", "py3", "bytes"])
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_both_forms(name, form, packed, tmp_path):
    files = contents(name, form)
    if packed:
        path = tmp_path / "own.tar.gz"
        path.write_bytes(archive_of(files))
    else:
        path = write(tmp_path / "data" / "inner", files).parent
    modes = ["fine", "coarse"] if name == "cifar100" else [None]
    for mode in modes:
        arguments = {} if mode is None else {"label_mode": mode}
        check(MODULES[name].load_data(path=path, **arguments), name, mode)
    if not packed:
        check(MODULES[name].load_data(path=str(path / "inner")), name, modes[0])


def test_channels_first(tmp_path):
    path = write(tmp_path / "data", contents("cifar10", "bytes"))
    try:
        kerascnn.config.set_image_data_format("channels_first")
        check(cifar10.load_data(path), "cifar10")
    finally:
        kerascnn.config.set_image_data_format("channels_last")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_keras_reads_the_same(tmp_path):
    """Keras' reader reads a file in the format of Python 2's pickle."""
    keras_cifar = pytest.importorskip("keras.src.datasets.cifar")
    files = contents("cifar10", "py2")
    path = write(tmp_path / "data", files)
    pixels, labels = keras_cifar.load_batch(str(path / "test_batch"))
    _, (x, y) = cifar10.load_data(path)
    np.testing.assert_array_equal(x, pixels.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(y[:, 0], labels)


@pytest.fixture
def published(monkeypatch, server):
    """Serves small stand-ins for the published archives from the loopback device."""
    for name, module in MODULES.items():
        data = archive_of(contents(name, "py2"))
        file = module._SOURCE.files[0].name
        server.content[f"/{file}"] = data
        remote = RemoteFile(file, sha256(data), len(data), (f"{server.address}/{file}",))
        monkeypatch.setattr(module, "_SOURCE", module._SOURCE._replace(files=(remote,)))


def test_known_files():
    for module in MODULES.values():
        (file,) = module._SOURCE.files
        assert len(bytes.fromhex(file.sha256)) == 32
        assert file.name == module._SOURCE.cache_name
        assert all(u.startswith("https://") and u.endswith(file.name) for u in file.urls)


def test_downloaded_once(published, server, no_real_home_or_network):
    for _ in range(2):
        check(cifar10.load_data(), "cifar10")
        check(cifar100.load_data("coarse"), "cifar100", "coarse")
    assert sorted(server.requests) == ["/cifar-10-python.tar.gz", "/cifar-100-python.tar.gz"]
    assert files_below(no_real_home_or_network) == [
        "kerascnn/datasets/cifar-10-python.tar.gz",
        "kerascnn/datasets/cifar-100-python.tar.gz",
    ]


def test_the_file_of_keras_is_used(published, server, no_real_home_or_network):
    keras = no_real_home_or_network / ".keras" / "datasets"
    keras.mkdir(parents=True)
    data = server.content["/cifar-10-python.tar.gz"]
    (keras / "cifar-10-batches-py-target_archive").write_bytes(data)
    check(cifar10.load_data(), "cifar10")
    assert server.requests == []


def test_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("KERASCNN_CIFAR10", str(write(tmp_path / "x", contents("cifar10", "py2"))))
    check(cifar10.load_data(), "cifar10")


def test_without_network(no_real_home_or_network):
    with pytest.raises(ConnectionError) as info:
        cifar100.load_data()
    message = str(info.value)
    assert "CIFAR-100 is not in the cache" in message
    assert "a folder with the batch files or a .tar.gz archive" in message
    assert "KERASCNN_CIFAR100" in message
    assert files_below(no_real_home_or_network) == []


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="`label_mode` must be one of"):
        cifar100.load_data("medium")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        cifar10.load_data(tmp_path / "nothing")
    files = contents("cifar10", "py2")
    del files["data_batch_3"]
    with pytest.raises(FileNotFoundError, match="missing: data_batch_3"):
        cifar10.load_data(write(tmp_path / "data", files))


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("was_run",)


class Large:
    def __reduce__(self):
        return np.ndarray, ((1 << 50,), "u1")


PIXELS = np.zeros((2, 3072), np.uint8)
BAD = {
    "runs_code": ({b"data": Hostile(), b"labels": [0, 1]}, r"it calls \w+\.mkdir"),
    "takes_memory": ({b"data": Large(), b"labels": [0, 1]}, "a damaged or foreign one"),
    "objects": ({b"data": np.array([[None]]), b"labels": [0]}, "numbers of type .O8"),
    "no_labels": ({b"data": PIXELS}, "a dictionary with b'data' and b'labels'"),
    "a_list": ([1, 2], "a dictionary with"),
    "floats": ({b"data": PIXELS.astype("f4"), b"labels": [0, 1]}, "uint8 pixels"),
    "size": ({b"data": PIXELS[:, :99], b"labels": [0, 1]}, "3072 numbers for each image"),
    "count": ({b"data": PIXELS, b"labels": [0]}, "one label for each of the 2 images"),
    "range": ({b"data": PIXELS, b"labels": [0, 10]}, "labels from 0 to 9, received 10 at index 1"),
    "kind": ({b"data": PIXELS, b"labels": [0.0, 1.0]}, "integer labels"),
    "ragged": ({b"data": PIXELS, b"labels": [0, [1]]}, "integer labels"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_pickles(case, tmp_path):
    content, words = BAD[case]
    files = contents("cifar10", "py2")
    files["data_batch_2"] = pickle.dumps(content, 2)
    folder = write(tmp_path / "data", files)
    with pytest.raises(ValueError, match=words) as info:
        cifar10.load_data(folder)
    assert str(folder / "data_batch_2") in str(info.value)
    assert not os.path.exists("was_run")


def test_bad_bytes(tmp_path):
    files = contents("cifar100", "bytes")
    for data, words in ((files["train.bin"][:-1], "images of 3074 bytes"), (b"", "0 bytes in all")):
        folder = write(tmp_path / "data", {**files, "train.bin": data})
        with pytest.raises(ValueError, match=words):
            cifar100.load_data(path=folder)


def test_damaged_pickles_never_end_in_anything_else(tmp_path, rng):
    """Flipped bits and cuts give an error that names the file, or valid labels and pixels."""
    files = contents("cifar10", "py2")
    good = files["test_batch"]
    layout = cifar10._LAYOUT
    path = write(tmp_path / "data", files)
    refused = 0
    for i in range(150):
        data = bytearray(good)
        # Damage in the pixels cannot be seen. Half of the flips are in the frame around them.
        edge = 250 if i % 2 else len(data)
        at = int(rng.integers(0, edge))
        data[at] ^= 1 << int(rng.integers(0, 8))
        if i % 10 == 0:
            del data[at:]
        (path / "test_batch").write_bytes(data)
        try:
            _, (x, y) = cifar.read_cifar(path, layout)
        except ValueError as error:
            assert str(path / "test_batch") in str(error)
            refused += 1
        else:
            assert x.shape[1:] == (32, 32, 3)
            assert (y < 10).all()
    assert refused > 30


def test_damaged_archives(tmp_path):
    path = tmp_path / "own.tar.gz"
    good = archive_of(contents("cifar10", "py2"))
    for data in (b"", b"no archive", good[: len(good) // 2], gzip.compress(b"no archive at all")):
        path.write_bytes(data)
        with pytest.raises((ValueError, FileNotFoundError), match=r"own\.tar\.gz"):
            cifar10.load_data(path)


def test_files_that_announce_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "_LARGEST", 1000)
    files = contents("cifar10", "py2")
    with pytest.raises(ValueError, match="at most 1000 bytes"):
        cifar10.load_data(write(tmp_path / "data", files))
    path = tmp_path / "own.tar.gz"
    path.write_bytes(archive_of(files))
    with pytest.raises(ValueError, match="at most 1000 bytes"):
        cifar10.load_data(path)
