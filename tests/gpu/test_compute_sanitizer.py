"""NVIDIA's compute-sanitizer finds nothing in steps of all kinds."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

STEPS = pathlib.Path(__file__).with_name("sanitized_steps.py")
TOOLKIT = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")
SANITIZER = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=TOOLKIT)


@pytest.mark.parametrize(
    ("tool", "options", "arguments", "last"),
    [
        ("memcheck", [], [], "mixed_bfloat16 timed"),
        # cuDNN's and cuBLASLt's results are marked as written through NVTX, which the tool heeds
        # for products in float32, and does not for those of recurrent layers in bfloat16: there
        # memory filled with NaN beforehand (KERASCNN_POISON_MEMORY=1) gives the same loss.
        ("initcheck", ["--nvtx", "yes"], ["--short", "--no-halves"], "float32 timed"),
        ("racecheck", [], ["--short", "--by-rules"], "float32 by rules"),
        ("synccheck", [], [], "mixed_bfloat16 timed"),
    ],
)
def test_steps_of_all_kinds(cuda_device, tmp_path, tool, options, arguments, last):
    if SANITIZER is None:
        pytest.skip("compute-sanitizer is not installed")
    # The tools know neither loops in graphs nor choices; kernel choices of other runs would leave
    # trials out.
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
