"""The examples that several processes run, started as their first lines say; with --thorough."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kerascnn as keras

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def run(amount, tmp_path):
    """Returns a function that runs a command of Python and gives what it prints."""
    if amount(True, False):
        pytest.skip("only with --thorough")

    def run(package, *command):
        for name in (package, "mpi4py"):
            if importlib.util.find_spec(name) is None:
                pytest.skip(f"{name} is not installed")
        environment = {
            **os.environ,
            "KERASCNN_HOME": str(tmp_path / "home"),
            "KERASCNN_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, *map(str, command)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def accuracy(text):
    return float(re.search(r"[Tt]est accuracy ([0-9.]+)", text).group(1))


def test_torchrun(run, tmp_path):
    # The digits that are shipped, in the size and the file of MNIST.
    train, test = keras.datasets.digits.load_data()
    arrays = {}
    for part, (x, y) in {"train": train, "test": test}.items():
        large = np.kron(np.minimum(x.astype(int) * 16, 255), np.ones((1, 3, 3), int))
        arrays[f"x_{part}"] = np.pad(large, ((0, 0), (2, 2), (2, 2))).astype("uint8")
        arrays[f"y_{part}"] = y
    np.savez(tmp_path / "digits.npz", **arrays)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    script = [
        EXAMPLES / "distributed_mnist.py",
        "--device",
        "cpu",
        "--data",
        tmp_path / "digits.npz",
    ]
    backup = ["--epochs", 10, "--backup", tmp_path / "state"]
    found = run("torch", *launch, "--max-restarts", 3, *script, *backup)
    assert "2 processes" in found
    assert accuracy(found) > 0.8
    assert not (tmp_path / "state").exists()


def test_ray(run, tmp_path):
    found = run("ray", EXAMPLES / "ray_train.py", "--storage", tmp_path / "runs")
    assert accuracy(found) > 0.8
    path = re.search(r"The model: (.*)", found).group(1)
    model = keras.saving.load_model(path)
    _, (x, y) = keras.datasets.digits.load_data()
    _, again = model.evaluate(x, y, verbose=0)
    assert again == pytest.approx(accuracy(found), abs=1e-3)
