"""Where load_data looks, in which order, and what it does when it finds nothing."""

import os

import numpy as np
import pytest

from kerascnn.datasets import fashion_mnist, mnist
from kerascnn.utils.file_utils import RemoteFile

from .helpers import (
    IDX_NAMES,
    check_same,
    files_below,
    idx_bytes,
    sha256,
    small_arrays,
    write_folder,
    write_npz,
)


@pytest.fixture
def published(monkeypatch, server, tmp_path):
    """Serves small stand-ins for the published data sets from the loopback device."""
    arrays = small_arrays(seed=1)
    archive = write_npz(tmp_path / "published.npz", arrays).read_bytes()
    server.content["/mnist.npz"] = archive
    file = RemoteFile("mnist.npz", sha256(archive), len(archive), (f"{server.address}/mnist.npz",))
    monkeypatch.setattr(mnist, "_SOURCE", mnist._SOURCE._replace(files=(file,)))

    files = []
    for key, name in IDX_NAMES.items():
        data = idx_bytes(arrays[key])
        server.content[f"/fashion/{name}.gz"] = data
        urls = (f"{server.address}/gone/{name}.gz", f"{server.address}/fashion/{name}.gz")
        files.append(RemoteFile(f"{name}.gz", sha256(data), len(data), urls))
    fashion = fashion_mnist._SOURCE._replace(files=tuple(files))
    monkeypatch.setattr(fashion_mnist, "_SOURCE", fashion)
    return arrays


def test_known_files():
    (file,) = mnist._SOURCE.files
    assert file.sha256 == "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
    assert [f.name for f in fashion_mnist._SOURCE.files] == [f"{n}.gz" for n in IDX_NAMES.values()]
    for file in (*mnist._SOURCE.files, *fashion_mnist._SOURCE.files):
        assert len(bytes.fromhex(file.sha256)) == 32
        assert all(url.startswith("https://") and url.endswith(file.name) for url in file.urls)


def test_mnist_is_downloaded_once(published, server, no_real_home_or_network):
    check_same(mnist.load_data(), published)
    check_same(mnist.load_data("mnist.npz"), published)
    check_same(mnist.load_data(path="mnist.npz"), published)
    assert server.requests == ["/mnist.npz"]
    assert files_below(no_real_home_or_network) == ["kerascnn/datasets/mnist.npz"]


def test_another_cache_name(published, server, no_real_home_or_network):
    check_same(mnist.load_data("mine.npz"), published)
    assert files_below(no_real_home_or_network) == ["kerascnn/datasets/mine.npz"]


def test_default_cache_is_in_the_home_folder(published, monkeypatch, no_real_home_or_network):
    monkeypatch.delenv("KERASCNN_HOME")
    mnist.load_data()
    assert files_below(no_real_home_or_network) == [".kerascnn/datasets/mnist.npz"]


def test_fashion_mnist_from_its_second_mirror(published, server, no_real_home_or_network):
    check_same(fashion_mnist.load_data(), published)
    # Each of four files is requested twice: the first address answers 404.
    assert len(server.requests) == 8
    check_same(fashion_mnist.load_data("fashion-mnist"), published)
    assert len(server.requests) == 8
    names = [f"kerascnn/datasets/fashion-mnist/{name}.gz" for name in IDX_NAMES.values()]
    assert files_below(no_real_home_or_network) == sorted(names)


def test_fashion_mnist_downloads_only_what_lacks(published, server, no_real_home_or_network):
    fashion_mnist.load_data()
    server.requests.clear()
    name = f"{IDX_NAMES['y_test']}.gz"
    (no_real_home_or_network / "kerascnn/datasets/fashion-mnist" / name).unlink()
    check_same(fashion_mnist.load_data(), published)
    assert server.requests == [f"/gone/{name}", f"/fashion/{name}"]


@pytest.mark.parametrize("damage", ["truncate", "flip"])
def test_damaged_cache_is_replaced(published, server, no_real_home_or_network, damage):
    mnist.load_data()
    cached = no_real_home_or_network / "kerascnn/datasets/mnist.npz"
    good = cached.read_bytes()
    broken = good[:-1] if damage == "truncate" else good[:50] + bytes([good[50] ^ 1]) + good[51:]
    cached.write_bytes(broken)
    check_same(mnist.load_data(), published)
    assert cached.read_bytes() == good
    assert len(server.requests) == 2


def test_damaged_cache_without_network_says_so(published, server, no_real_home_or_network):
    mnist.load_data()
    cached = no_real_home_or_network / "kerascnn/datasets/mnist.npz"
    cached.write_bytes(b"half")
    server.content.clear()
    with pytest.raises(ConnectionError, match="the copy there is damaged"):
        mnist.load_data()
    assert cached.read_bytes() == b"half"  # The file stays, so that the user can look at it.


def test_keras_cache_is_used_when_valid(published, server, monkeypatch, no_real_home_or_network):
    keras = no_real_home_or_network / ".keras" / "datasets"
    keras.mkdir(parents=True)
    (keras / "mnist.npz").write_bytes(server.content["/mnist.npz"])
    check_same(mnist.load_data(), published)
    assert server.requests == []

    (keras / "mnist.npz").write_bytes(b"something else")
    check_same(mnist.load_data(), published)
    assert server.requests == ["/mnist.npz"]


def test_keras_home_variable(published, server, monkeypatch, tmp_path):
    folder = tmp_path / "other" / "datasets"
    folder.mkdir(parents=True)
    (folder / "mnist.npz").write_bytes(server.content["/mnist.npz"])
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "other"))
    check_same(mnist.load_data(), published)
    assert server.requests == []


@pytest.mark.parametrize(
    ("module", "variable"),
    [(mnist, "KERASCNN_MNIST"), (fashion_mnist, "KERASCNN_FASHION_MNIST")],
)
@pytest.mark.parametrize("form", ["folder", "npz"])
def test_environment_variable(published, server, monkeypatch, tmp_path, module, variable, form):
    arrays = small_arrays(seed=2)
    place = tmp_path / "named.npz"
    if form == "folder":
        place = write_folder(tmp_path / "named", arrays)
    else:
        write_npz(place, arrays)
    monkeypatch.setenv(variable, str(place))
    check_same(module.load_data(), arrays)
    # The variable does not override a path that the caller names.
    own = small_arrays(seed=3)
    check_same(module.load_data(write_folder(tmp_path / "own", own)), own)
    assert server.requests == []


def test_environment_variable_that_names_nothing(published, server, monkeypatch):
    monkeypatch.setenv("KERASCNN_MNIST", "nowhere")
    with pytest.raises(FileNotFoundError, match="KERASCNN_MNIST names nowhere, which does not"):
        mnist.load_data()
    assert server.requests == []


@pytest.mark.parametrize("path", ["data", "data/mnist.npz", "./nowhere/", "mnist.zip"])
@pytest.mark.parametrize("module", [mnist, fashion_mnist])
def test_path_that_does_not_exist(published, server, module, path):
    with pytest.raises(FileNotFoundError, match=r"does not exist\. Expected a folder"):
        module.load_data(path)
    assert server.requests == []


def test_absolute_path_that_does_not_exist(published, server, tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        mnist.load_data(tmp_path / "mnist.npz")
    assert server.requests == []
    assert not (tmp_path / "mnist.npz").exists()


@pytest.mark.parametrize(
    ("module", "title", "variable"),
    [
        (mnist, "MNIST", "KERASCNN_MNIST"),
        (fashion_mnist, "Fashion-MNIST", "KERASCNN_FASHION_MNIST"),
    ],
)
def test_offline(no_real_home_or_network, module, title, variable):
    # The fixture makes the real addresses unknown, as on a machine without a network.
    with pytest.raises(ConnectionError) as info:
        module.load_data()
    message = str(info.value)
    assert message.startswith(f"{title} is not in the cache")
    for words in ("Name or service not known", "path=", variable, "KERASCNN_HOME", "digits"):
        assert words in message
    assert files_below(no_real_home_or_network) == []
    assert not (no_real_home_or_network / "kerascnn").exists()


def test_wrong_content_is_refused(published, server, no_real_home_or_network):
    good = server.content["/mnist.npz"]
    server.content["/mnist.npz"] = bytes(len(good))
    with pytest.raises(ValueError, match="expected .* SHA-256") as info:
        mnist.load_data()
    assert sha256(good) in str(info.value)
    assert sha256(bytes(len(good))) in str(info.value)
    assert "path=" in str(info.value)
    assert files_below(no_real_home_or_network) == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_cache_that_cannot_be_written(published, no_real_home_or_network):
    no_real_home_or_network.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match="KERASCNN_HOME"):
            mnist.load_data()
    finally:
        no_real_home_or_network.chmod(0o700)


def test_cache_folder_that_is_a_file(published, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERASCNN_HOME", str(tmp_path / "file"))
    with pytest.raises(OSError, match="KERASCNN_HOME"):
        mnist.load_data()


def test_arrays_are_not_shared(published):
    (first, _), _ = mnist.load_data()
    first[:] = 0
    (second, _), _ = mnist.load_data()
    np.testing.assert_array_equal(second, published["x_train"])
