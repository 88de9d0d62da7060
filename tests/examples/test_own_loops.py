"""The examples with custom training loops and kernels reach the results that they promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("seed", [0, 7])
def test_linear_regression_finds_the_least_squares(seed):
    printed = run("linear_regression", "--device", "cpu", "--seed", seed)
    found, best = (
        [float(number) for number in re.findall(r"-?\d+\.\d{3}", line)]
        for line in printed.splitlines()[-2:]
    )
    assert len(found) == 2
    # After 200 steps the remaining error is far below the three digits that are printed.
    np.testing.assert_allclose(found, best, atol=2e-3)


@pytest.fixture(scope="module")
def bars(tmp_path_factory):
    """Writes images in which the height of a bar is the class."""
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 500), ("test", 100)):
        labels = rng.integers(0, 10, count, np.uint8)
        images = rng.integers(0, 40, (count, 28, 28), np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 4] += 200
        arrays |= {f"x_{part}": images, f"y_{part}": labels}
    path = tmp_path_factory.mktemp("data") / "bars.npz"
    np.savez(path, **arrays)
    return path


def test_custom_training_loop_learns(bars):
    printed = run(
        "custom_training_loop",
        *("--data", bars, "--device", "cpu", "--epochs", 4, "--batch-size", 20),
    )
    losses = [float(x) for x in re.findall(r"loss (\d+\.\d+)", printed)]
    assert len(losses) == 4
    assert losses[-1] < 0.5 * losses[0]
    assert float(re.search(r"Test accuracy (\d\.\d+)", printed)[1]) > 0.5


def test_custom_activation_trains_with_kernels_and_with_the_expression(bars, device):
    printed = run(
        "custom_activation",
        *("--data", bars, "--device", device, "--epochs", 4, "--batch-size", 20),
    )
    differences = [float(x) for x in re.findall(r"differ by (\S+)", printed)]
    assert len(differences) == 2
    assert differences[0] < 1e-14
    # The step is 1e-6 in float64, so the difference is the rounding divided by the step.
    assert differences[1] < 1e-8
    accuracies = [float(x) for x in re.findall(r"test accuracy (\d\.\d+)", printed)]
    assert len(accuracies) == 2
    assert min(accuracies) > 0.5
