"""A wrong command line of an example ends in one line that says what to do, not in a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


# What a folder without any data is told to have.
WANTED_FILES = {
    "cifar10_resnet": "the CIFAR files",
    "cifar10_speedrun": "the CIFAR files",
    "custom_training_loop": "IDX",
    "distributed_mnist": "IDX",
    "lenet": "IDX",
    "mnist_cnn": "IDX",
    "mnist_lstm": "IDX",
    "mnist_speedrun": "IDX",
    "simple_cnn": "IDX",
    "two_conv_cnn": "IDX",
}


@pytest.mark.parametrize("example", WANTED_FILES)
@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("--device", "tpu", "tpu"),
        ("--device", "cuda:63", "cuda:63"),
        ("--data", "absent/folder", "absent/folder does not exist"),
        ("--data", ".", None),
    ],
)
def test_one_line_and_exit_status_two(example, option, value, part, tmp_path):
    part = part or WANTED_FILES[example]
    device = [] if option == "--device" else ["--device", "cpu"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{example}.py"), *device, option, value],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert option in done.stderr and part in done.stderr


def test_which_kernels_run(tmp_path):
    """The script prints the names of all three phases and writes its files."""
    done = subprocess.run(
        [
            *(sys.executable, str(EXAMPLES / "which_kernels.py"), "--device", "cpu"),
            *("--batch-size", "4", "--html", "page.html", "--trace", "trace.json"),
            *("--policy", "mixed_bfloat16", "--rows", "rows.json"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    for phase in ("forward", "backward", "update"):
        assert f"\n{phase} calls:\n  " in done.stdout
    assert "step without profiler" in done.stdout
    assert (tmp_path / "page.html").stat().st_size > 0
    assert (tmp_path / "trace.json").stat().st_size > 0
    document = json.loads((tmp_path / "rows.json").read_text())
    assert document["policy"] == "mixed_bfloat16" and document["batch_size"] == 4
    assert {"bfloat16", "float32"} <= {row["dtype"] for row in document["rows"]}
    for option, value in (("--device", "tpu"), ("--policy", "float7")):
        wrong = subprocess.run(
            [sys.executable, str(EXAMPLES / "which_kernels.py"), option, value],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert wrong.returncode == 2 and option in wrong.stderr
