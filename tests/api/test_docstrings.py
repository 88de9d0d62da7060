"""The examples in the docstrings of the whole package have to run and print what they say."""

import doctest
import importlib
import json
import pkgutil
import struct
from pathlib import Path

import numpy as np
import pytest

import kerascnn

# What C++ compiled: the libraries (one more with CUDA) are no modules, and _core has no examples.
COMPILED = ("kerascnn._core", "kerascnn.libkerascnn")
MODULES = [
    "kerascnn",
    *(
        info.name
        for info in pkgutil.walk_packages(kerascnn.__path__, "kerascnn.")
        if not info.name.startswith(COMPILED)
    ),
]
# Examples that draw or train with a package that kerascnn itself does not need.
NEEDED = {
    "kerascnn.visualization": ("matplotlib", "PIL"),
    "kerascnn.wrappers": ("sklearn",),
    "kerascnn.utils.image": ("PIL",),
    "kerascnn.utils.model_visualization": ("PIL",),
    "kerascnn.callbacks.tensorboard": ("tensorboard",),
    "kerascnn.distribution.ray_train": ("ray",),
}


def sparse_file(path, header, size):
    """A file of zeros behind a header, which takes no room on the disk."""
    path.write_bytes(header)
    with path.open("r+b") as file:
        file.truncate(len(header) + size)


@pytest.fixture(scope="module")
def data_sets(tmp_path_factory):
    """Black images in the files of the published data sets, by the variable that names them."""
    folders = {}
    for name in ("MNIST", "FASHION_MNIST"):
        folders[name] = tmp_path_factory.mktemp(name)
        for part, count in (("train", 60000), ("t10k", 10000)):
            labels = folders[name] / f"{part}-labels-idx1-ubyte"
            images = folders[name] / f"{part}-images-idx3-ubyte"
            sparse_file(labels, struct.pack(">II", 0x801, count), count)
            sparse_file(images, struct.pack(">IIII", 0x803, count, 28, 28), count * 28 * 28)
    batches = {f"data_batch_{part}": 10000 for part in range(1, 6)} | {"test_batch": 10000}
    for name, files, before in (
        ("CIFAR10", batches, 1),
        ("CIFAR100", {"train": 50000, "test": 10000}, 2),
    ):
        folders[name] = tmp_path_factory.mktemp(name)
        for file, count in files.items():
            sparse_file(folders[name] / f"{file}.bin", b"", count * (before + 3 * 32 * 32))
    return folders


@pytest.fixture
def surroundings(request, monkeypatch, tmp_path):
    """Examples write into an empty folder; those of data sets read the files of `data_sets`.

    The example of ImageNet's classes reads a list of few real names.
    """
    monkeypatch.chdir(tmp_path)
    name = request.node.callspec.params["name"]
    if name == "kerascnn.applications.imagenet_utils":
        index = {i: [f"n{i:08}", f"class {i}"] for i in range(1000)}
        index[207] = ["n02099601", "golden_retriever"]
        (tmp_path / "models").mkdir()
        (tmp_path / "models" / "imagenet_class_index.json").write_text(json.dumps(index))
        monkeypatch.setenv("KERASCNN_HOME", str(tmp_path))
        utils = kerascnn.applications.imagenet_utils
        monkeypatch.setattr(utils, "CLASS_INDEX", utils.CLASS_INDEX._replace(file_hash=None))
    if name.startswith("kerascnn.datasets."):
        for name, folder in request.getfixturevalue("data_sets").items():
            monkeypatch.setenv(f"KERASCNN_{name}", str(folder))


@pytest.mark.filterwarnings("ignore:The loss became NaN")
@pytest.mark.parametrize("name", MODULES)
def test_examples(name, surroundings):
    for prefix, packages in NEEDED.items():
        if name.startswith(prefix):
            for package in packages:
                pytest.importorskip(package)
    with kerascnn.device("cpu"):
        module = importlib.import_module(name)
        results = doctest.testmod(module, extraglobs={"keras": kerascnn, "np": np})
    assert results.failed == 0


def test_there_are_as_many_modules_as_files():
    """A package without `__init__` would be left out of the examples."""
    folder = Path(kerascnn.__path__[0])
    found = {
        path.relative_to(folder).with_suffix("").as_posix().removesuffix("/__init__")
        for path in folder.rglob("*.py")
    }
    names = {name.removeprefix("kerascnn.").replace(".", "/") for name in MODULES}
    assert found - names <= {"__init__"}
