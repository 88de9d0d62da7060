"""The installed package: what it contains, what it needs, what an import costs."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kerascnn

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = Path(kerascnn.__file__).resolve().parent


def run_python(code, tmp_path, **environment):
    """Runs code in a fresh interpreter, away from the checkout."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    ).stdout


def test_the_installed_package_is_tested_not_the_checkout():
    assert PACKAGE.parent != CHECKOUT


def import_of_sources(tmp_path, *options, **environment):
    """Imports kerascnn where a folder of its sources lies, as in a checkout."""
    (tmp_path / "kerascnn").mkdir()
    shutil.copy(CHECKOUT / "kerascnn" / "__init__.py", tmp_path / "kerascnn")
    return subprocess.run(
        [sys.executable, *options, "-c", "import kerascnn; print(kerascnn.__file__)"],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_the_error_of_a_checkout_names_the_installed_package(tmp_path):
    done = import_of_sources(tmp_path, PYTHONPATH=str(PACKAGE.parent))
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("ImportError: "))
    assert f"{tmp_path / 'kerascnn'} holds kerascnn's sources without the compiled core" in line
    assert f"The installed package is in {PACKAGE}, behind this one." in line
    assert 'python -I -c "import kerascnn"' in line
    assert "circular import" not in done.stderr


def test_the_error_of_a_checkout_names_the_package_that_python_would_take(tmp_path):
    folders = [tmp_path / name for name in ("first", "second", "third")]
    for folder in folders:
        (folder / "kerascnn").mkdir(parents=True)
        (folder / "kerascnn" / "_core.abi3.so").touch()
    done = import_of_sources(tmp_path, PYTHONPATH=os.pathsep.join(map(str, folders)))
    assert f"The installed package is in {folders[0] / 'kerascnn'}," in done.stderr


def test_the_error_of_a_checkout_says_how_to_install(tmp_path):
    # -S leaves out the folder of installed packages.
    done = import_of_sources(tmp_path, "-S", PYTHONPATH="")
    assert f'Install the package: {sys.executable} -m pip install "{tmp_path}".' in done.stderr


def test_isolated_python_passes_over_a_checkout(tmp_path):
    done = import_of_sources(tmp_path, "-I")
    assert "holds kerascnn's sources" not in done.stderr
    # A package that PYTHONPATH names is not seen by -I, and one in a virtual environment is.
    assert done.returncode == 0 or "No module named 'kerascnn'" in done.stderr


def test_version_is_the_same_everywhere():
    from kerascnn import _core

    version = importlib.metadata.version("kerascnn")
    assert kerascnn.__version__ == version
    assert _core.build_info()["version"] == version


IN_CPP = [
    *("include/kerascnn/inference.h", "include/kerascnn/error.h", "include/kerascnn/dtype.h"),
    *("share/cmake/kerascnn/kerascnnConfig.cmake",),
    *("share/cmake/kerascnn/kerascnnConfigVersion.cmake",),
]


@pytest.mark.parametrize("name", ["py.typed", "_core.pyi", "datasets/digits.npz", *IN_CPP])
def test_data_files_are_installed(name):
    assert (PACKAGE / name).is_file()


def test_headers_of_programs_in_cpp_need_none_that_is_not_installed():
    """The public ones include only each other and the standard library."""
    folder = PACKAGE / "include"
    for header in folder.rglob("*.h"):
        text = header.read_text(encoding="utf-8")
        for name in re.findall(r'^#include "(.*)"', text, re.MULTILINE):
            assert (folder / name).is_file(), f"{header.name} includes {name}"


def test_the_command_line_says_where_cmake_finds_the_package(capsys):
    from kerascnn.__main__ import main

    main(["--cmake-dir"])
    assert capsys.readouterr().out.strip() == str(PACKAGE / "share" / "cmake" / "kerascnn")
    main([])
    assert "--cmake-dir" in capsys.readouterr().out


def test_nothing_is_installed_outside_the_package():
    files = importlib.metadata.files("kerascnn")
    tops = {file.parts[0] for file in files}
    assert tops == {"kerascnn", f"kerascnn-{kerascnn.__version__}.dist-info"}


def test_no_gpu_or_framework_package_is_required():
    required = [
        requirement
        for requirement in importlib.metadata.requires("kerascnn")
        if "extra ==" not in requirement
    ]
    names = {re.match(r"[\w.-]+", requirement).group().lower() for requirement in required}
    assert {"numpy", "rich"} <= names
    assert names <= {"numpy", "ml-dtypes", "ml_dtypes", "rich", "h5py", "onednn-cpu-gomp"}


def test_import_does_not_touch_the_driver_or_the_cuda_libraries(tmp_path):
    loaded = run_python(
        "import kerascnn; print(open('/proc/self/maps').read())", tmp_path
    ).splitlines()
    libraries = {Path(line.split()[-1]).name for line in loaded if ".so" in line}
    assert any(name.startswith("libkerascnn.so") for name in libraries)
    unwanted = re.compile(r"libcuda|libcudart|libcudnn|libcublas|libnvrtc|libkerascnn_cuda")
    assert not [name for name in libraries if unwanted.match(name)]


def test_import_brings_no_framework(tmp_path):
    modules = run_python("import sys, kerascnn; print(*sys.modules)", tmp_path).split()
    assert not {"torch", "jax", "tensorflow", "keras", "matplotlib", "h5py"} & set(modules)


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed")
def test_libraries_look_only_where_something_can_be():
    """The package must not depend on a build folder, which may be gone."""
    libraries = sorted(PACKAGE.glob("*.so"))
    assert len(libraries) >= 2
    for library in libraries:
        dynamic = subprocess.run(
            ["readelf", "-d", library], capture_output=True, text=True, check=True
        ).stdout
        assert "libcuda.so" not in dynamic
        paths = re.findall(r"Library runpath: \[(.*)\]", dynamic)
        assert len(paths) == 1 and "$ORIGIN" in paths[0].split(":")
        for path in paths[0].split(":"):
            assert path.startswith("$ORIGIN") or Path(path).is_dir(), f"{library.name}: {path}"
