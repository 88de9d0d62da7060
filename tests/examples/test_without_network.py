"""The README's first command without MNIST trains on the digits that ship with the package."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mnist_cnn.py"

# This program runs the example in a process that cannot open connections, whatever the network.
NO_NETWORK = """
import runpy, socket, sys

def refuse(*args, **kwargs):
    raise OSError("no network in this test")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
script = sys.argv[1]
sys.argv = sys.argv[1:]
sys.path.insert(0, script.rpartition("/")[0])
runpy.run_path(script, run_name="__main__")
"""


def run_example(home: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "KERASCNN_HOME": str(home / "kerascnn"),
        "KERAS_HOME": str(home / "keras"),
        "KERAS_MAX_EPOCHS": "2",
        **variables,
    }
    if "KERASCNN_MNIST" not in variables:
        environment.pop("KERASCNN_MNIST", None)
    return subprocess.run(
        [sys.executable, "-c", NO_NETWORK, str(EXAMPLE), "--device", "cpu", *options],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


def check_trained(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert "shipped 8x8 digits" in done.stdout
    assert re.search(r"Test accuracy 0\.\d+ after 2 epochs", done.stdout)


def test_every_download_fails(tmp_path):
    done = run_example(tmp_path)
    check_trained(done)
    assert "MNIST is not in the cache" in done.stdout


def test_the_cached_copy_is_damaged(tmp_path):
    cached = tmp_path / "kerascnn" / "datasets" / "mnist.npz"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"no archive")
    done = run_example(tmp_path)
    check_trained(done)
    assert "the copy there is damaged" in done.stdout


def test_the_cache_cannot_be_made(tmp_path):
    (tmp_path / "kerascnn").write_text("a file where the folder should be")
    check_trained(run_example(tmp_path))


@pytest.mark.parametrize("by_variable", [False, True])
def test_a_copy_that_was_named_is_not_replaced(tmp_path, by_variable):
    """A user who names a path wants MNIST, so the program ends where the path is wrong."""
    absent = str(tmp_path / "absent")
    if by_variable:
        done = run_example(tmp_path, KERASCNN_MNIST=absent)
    else:
        done = run_example(tmp_path, "--data", absent)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and absent in done.stderr
