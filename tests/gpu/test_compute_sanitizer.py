"""NVIDIA's compute-sanitizer must find nothing in steps of all kinds."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

STEPS = pathlib.Path(__file__).with_name("sanitized_steps.py")
TOOLKIT = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")
SANITIZER = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=TOOLKIT)
# Those of this library by their namespace, and generated ones (kRegionFunction in region_source.h).
OWN_KERNELS = ["--kernel-name", "kns=kerascnn", "--kernel-name", "kns=region_kernel"]


@pytest.mark.parametrize(
    ("tool", "options", "arguments", "last"),
    [
        ("memcheck", [], [], "mixed_bfloat16 timed"),
        # This tool does not see what 16-bit kernels of cuDNN and cuBLASLt write in bulk, and heeds
        # what is reported of them (initcheck.h) in float32 alone. test_poisoned_memory.py runs all.
        ("initcheck", ["--nvtx", "yes"], ["--short", "--no-halves"], "float32 timed"),
        # It reports kernels of cuDNN and cuBLASLt, which copy in bulk: own kernels are looked at.
        ("racecheck", OWN_KERNELS, ["--short", "--by-rules"], "float32 by rules"),
        ("synccheck", [], [], "mixed_bfloat16 timed"),
    ],
)
def test_steps_of_all_kinds(cuda_device, tmp_path, tool, options, arguments, last):
    if SANITIZER is None:
        pytest.skip("compute-sanitizer is not installed")
    # The tools support neither loops in graphs nor choices. A folder of its own makes sure that no
    # kernel choice of an earlier run replaces the trials.
    without = {"KERASCNN_CUDA_LOOPS": "0", "KERASCNN_CUDA_BODIES": "0"}
    environment = {**without, "KERASCNN_HOME": str(tmp_path)}
    result = subprocess.run(
        [
            *[SANITIZER, "--tool", tool, *options, "--error-exitcode", "9", "--print-limit", "3"],
            *[sys.executable, str(STEPS), *arguments],
        ],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=560,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert last in result.stdout
    assert " SUMMARY: 0 " in result.stdout, result.stdout[-2000:]
