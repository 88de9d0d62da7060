"""examples/cpp_inference: built by CMake against the installed package, it classifies as Python."""

import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import __main__ as command_line
from kerascnn import layers

from .scripts import ROOT

FOLDER = ROOT / "examples" / "cpp_inference"
# pip puts the programs of CMake's and Ninja's wheels beside Python.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def program(*names):
    """The first of these programs that is installed; where there is none, the test is skipped."""
    for name in names:
        found = shutil.which(name, path=PATH)
        if found:
            return found
    pytest.skip(f"{' or '.join(names)} is not installed")


def run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def classify(tmp_path_factory):
    """The example's program."""
    compiler = os.environ.get("CXX") or program("c++", "g++", "clang++")
    cmake, build = program("cmake"), tmp_path_factory.mktemp("build")
    tool = program("ninja", "make")
    generator = "Ninja" if "ninja" in Path(tool).name else "Unix Makefiles"
    folder = run(sys.executable, "-m", "kerascnn", "--cmake-dir").stdout.strip()
    assert folder == command_line.cmake_dir()
    done = run(
        *(cmake, "-S", FOLDER, "-B", build, "-G", generator, f"-DCMAKE_MAKE_PROGRAM={tool}"),
        *(f"-Dkerascnn_DIR={folder}", f"-DCMAKE_CXX_COMPILER={compiler}"),
        "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror -O1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(cmake, "--build", build)
    assert done.returncode == 0, done.stdout + done.stderr
    return build / "classify"


@pytest.fixture
def files(tmp_path):
    """A model with its file, and images with theirs."""
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.export(tmp_path / "model.safetensors", include_graph=True)
    images = np.random.default_rng(0).integers(0, 256, (70, 28, 28), dtype=np.uint8)
    header = struct.pack(">4I", 2051, *images.shape)
    (tmp_path / "images").write_bytes(header + images.tobytes())
    return model, tmp_path / "model.safetensors", images[..., None], tmp_path / "images"


def check_printed(text, probabilities):
    found = re.findall(r"^image (\d+): class (\d+), probability ([\d.]+)$", text, re.MULTILINE)
    assert [int(i) for i, _, _ in found] == list(range(len(probabilities)))
    assert [int(c) for _, c, _ in found] == probabilities.argmax(-1).tolist()
    shown = [float(p) for _, _, p in found]
    np.testing.assert_allclose(shown, probabilities.max(-1), atol=6e-5)  # four digits


def test_the_example_classifies_as_python(classify, files):
    model, path, images, image_file = files
    done = run(classify, path, image_file)
    assert done.returncode == 0, done.stderr
    check_printed(done.stdout, model.predict(images, verbose=0))


def test_what_is_wrong_is_said(classify, files, tmp_path):
    _, path, _, image_file = files
    for arguments, part in (
        ([], "usage: classify MODEL IMAGES"),
        ([tmp_path / "nothing", image_file], "nothing\" can't be read: No such file"),
        ([image_file, image_file], "is no safetensors file"),
        ([path, path], "this is no file of images"),
        ([path, image_file, "gpu:63"], "device cuda:63 can't be used"),
    ):
        done = run(classify, *arguments)
        assert done.returncode == 1 and part in done.stderr, done.stderr


def test_the_example_classifies_on_a_gpu(classify, files, cuda_device):
    model, path, images, image_file = files
    done = run(classify, path, image_file, "gpu:0")
    assert done.returncode == 0, done.stderr
    check_printed(done.stdout, model.predict(images, verbose=0))


def test_the_example_is_short():
    assert len((FOLDER / "main.cpp").read_text(encoding="utf-8").splitlines()) <= 42
