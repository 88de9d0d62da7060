"""A GPU is lost in the middle: an error at once, each time; checkpoints stay, and the end comes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE

CHILD = Path(__file__).with_name("lost_device.py")


def run(*arguments):
    environment = os.environ | {"KERASCNN_DEVICE": "cuda:0"}
    return subprocess.run(
        [sys.executable, CHILD, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize("where", ["op", "predict", "fit", "batches"])
def test_a_lost_gpu_is_said_at_once_and_costs_what_was_not_saved(cuda_device, tmp_path, where):
    """A kernel of the user's writes out of bounds, as far away as no memory is."""
    found = run("lose", where, tmp_path)
    assert (found.returncode, found.stdout) == (7, "the end\n"), found.stderr
    again = run("resume", where, tmp_path)
    assert (again.returncode, again.stdout) == (0, "the end\n"), again.stderr


def test_a_lost_gpu_that_nobody_expects_ends_the_process_with_its_error(cuda_device, tmp_path):
    found = run("crash", "fit", tmp_path)
    assert found.returncode == 1, found.stderr
    assert "The GPU is lost to this process" in found.stderr
    assert "DeviceError" in found.stderr.splitlines()[-1]
