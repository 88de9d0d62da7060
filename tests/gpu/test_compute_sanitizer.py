"""NVIDIA's compute-sanitizer must find nothing in steps of all kinds."""

import contextlib
import functools
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

STEPS = pathlib.Path(__file__).with_name("sanitized_steps.py")
# Each version takes some of what cuDNN and cuBLASLt do for an error. In 2025.3 initcheck reports
# reads of what cuDNN has written although it is told of that, and racecheck reports kernels that
# copy in bulk. In 2026.4 memcheck reports kernels that cuDNN's library holds twice, and synccheck
# ends those of its attention.
BEFORE_2026 = (0, 0), (2026, 0)
SINCE_2026 = (2026, 4), (10_000, 0)


@pytest.mark.parametrize(
    ("tool", "versions", "options", "arguments", "last"),
    [
        ("memcheck", BEFORE_2026, [], [], "mixed_bfloat16 timed"),
        # This tool does not see what kernels write in bulk, and has to be told (initcheck.h).
        # test_poisoned_memory.py runs what --short leaves out.
        ("initcheck", SINCE_2026, ["--nvtx", "yes"], ["--short"], "float32 timed"),
        ("racecheck", SINCE_2026, [], ["--short", "--by-rules"], "float32 by rules"),
        ("synccheck", BEFORE_2026, [], [], "mixed_bfloat16 timed"),
    ],
)
def test_steps_of_all_kinds(cuda_device, tmp_path, tool, versions, options, arguments, last):
    fitting = [path for path in sanitizers() if versions[0] <= version_of(path) < versions[1]]
    if not fitting:
        which = "2026.4 or newer (pip install --group gpu-test)"
        if versions == BEFORE_2026:
            which = "before 2026, as in the CUDA toolkit 13.0"
        pytest.skip(f"compute-sanitizer {which} is not installed")
    environment = {
        # As users run it. Other tests compute in full float32.
        "KERASCNN_TF32": "1",
        # The tools support neither loops in graphs nor choices.
        "KERASCNN_CUDA_LOOPS": "0",
        "KERASCNN_CUDA_BODIES": "0",
        # No kernel choice of an earlier run replaces the trials.
        "KERASCNN_HOME": str(tmp_path),
    }
    result = subprocess.run(
        [
            *[fitting[0], "--tool", tool, *options, "--print-limit", "20"],
            *[sys.executable, str(STEPS), *arguments],
        ],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=560,
    )
    # The reports come first, each with many lines of who called.
    assert result.returncode == 0, result.stdout[:20_000] + result.stderr[-2000:]
    assert last in result.stdout
    assert " SUMMARY: 0 " in result.stdout, result.stdout[:20_000]


def sanitizers():
    """Returns the paths of each compute-sanitizer that is installed."""
    folders = [pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        package = importlib.metadata.distribution("nvidia-cuda-sanitizer-api")
        folders.append(pathlib.Path(package.locate_file("nvidia/cu13/bin")))
    paths = [shutil.which("compute-sanitizer", path=path) for path in (None, *folders)]
    return [path for path in paths if path]


@functools.cache
def version_of(sanitizer):
    result = subprocess.run([sanitizer, "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"Version (\d+)\.(\d+)", result.stdout)
    return int(version[1]), int(version[2])
