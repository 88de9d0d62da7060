"""A wrong command line of an example ends in one line that says what to do, not in a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(
    "example",
    ["custom_training_loop", "lenet", "mnist_cnn", "mnist_speedrun", "simple_cnn", "two_conv_cnn"],
)
@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("--device", "tpu", "tpu"),
        ("--device", "cuda:63", "cuda:63"),
        ("--data", "absent/folder", "absent/folder does not exist"),
        ("--data", ".", "IDX"),
    ],
)
def test_one_line_and_exit_status_two(example, option, value, part, tmp_path):
    device = [] if option == "--device" else ["--device", "cpu"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{example}.py"), *device, option, value],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert option in done.stderr and part in done.stderr
