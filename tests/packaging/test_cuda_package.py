"""kerascnn-cuda13, the CUDA backend as a package of its own: found, or refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kerascnn

DEVICES = "from kerascnn import _core; print(*[text for _, _, text in _core.list_devices()])"
PACKAGE = Path(kerascnn.__file__).resolve().parent

pytestmark = pytest.mark.skipif(
    (PACKAGE / "libkerascnn_cuda.so").exists(),
    reason="this build has its CUDA backend beside the core, which goes first",
)


def run_python(code, folder):
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_package(tmp_path, *flags):
    """A package with a library that has none of the functions, or those of `flags`."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path / "kerascnn_cuda13"
    folder.mkdir()
    (folder / "__init__.py").touch()
    source = tmp_path / "library.c"
    source.write_text(
        "#ifdef INTERFACE\n"
        "const char *kerascnn_cuda_interface(void) { return INTERFACE; }\n"
        "const void *kerascnn_cuda_plugin(void) { __builtin_trap(); }\n"
        "#endif\n"
        "int nothing;\n"
    )
    command = [compiler, "-shared", "-fPIC", *flags, source, "-o", folder / "libkerascnn_cuda.so"]
    subprocess.run(command, check=True)
    return folder


def test_without_the_package_the_reason_names_the_extra(tmp_path):
    """Both ways are named: before a release only the sources can be installed."""
    printed = run_python(DEVICES, tmp_path)
    for part in (
        'KERASCNN_CUDA=ON pip install ".[cuda13]" in the folder of its sources',
        'pip install "kerascnn[cuda13]" once it is released',
        "docs/install.md",
    ):
        assert part in printed


@pytest.mark.parametrize("flags", [(), ('-DINTERFACE="0.0.1+other"',)])
def test_a_library_of_another_version_is_refused_and_not_called(tmp_path, flags):
    folder = make_package(tmp_path, *flags)
    printed = run_python(DEVICES, tmp_path)
    assert str(folder / "libkerascnn_cuda.so") in printed
    assert "doesn't fit this kerascnn, which is " + kerascnn.__version__ in printed
    assert ("0.0.1+other" if flags else "another version") in printed


def test_an_import_does_not_load_the_library(tmp_path):
    folder = make_package(tmp_path)
    maps = run_python("import kerascnn; print(open('/proc/self/maps').read())", tmp_path)
    assert "libkerascnn.so" in maps
    assert str(folder) not in maps


def test_show_versions_names_the_package(tmp_path):
    make_package(tmp_path)
    printed = run_python("import kerascnn; kerascnn.show_versions()", tmp_path)
    assert "kerascnn-cuda13 not installed" in printed  # It has no metadata here.
    assert "cuda_missing_reason" not in printed
    assert "The CUDA backend is installed" in printed
    assert "and kerascnn with CUDA" not in printed  # That would bring what is there already.
