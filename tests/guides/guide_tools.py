"""What the guides share: choosing the library, initial weights, numbers to compare.

`python tests/guides/guide_sequential.py keras` and `python tests/guides/guide_sequential.py
kerascnn` print the same numbers. Keras runs on PyTorch.
"""

import importlib
import os
import sys

import numpy as np


def start_from(model, seed=0):
    """Gives the kernels of a built model values that depend only on shapes and seed.

    The two libraries draw different numbers from the same seed. Vectors, which are biases and the
    weights of normalizations, keep their initial values.
    """
    rng = np.random.default_rng(seed)
    values = []
    for value in model.get_weights():
        if np.ndim(value) >= 2:
            deviation = np.sqrt(2 / np.prod(value.shape[:-1]))
            value = (deviation * rng.standard_normal(value.shape)).astype("float32")
        values.append(value)
    model.set_weights(values)
    return model


def images(seed, samples, shape, classes):
    """Returns (x, y): noise with a stripe, whose position encodes the class y."""
    rng = np.random.default_rng(seed)
    x = 0.3 * rng.standard_normal((samples, *shape))
    y = rng.integers(0, classes, samples)
    for i, label in enumerate(y):
        x[i, label * shape[0] // classes] += 1.0
    return x.astype("float32"), y.astype("int32")


def from_history(prefix, history):
    """Returns the logs of every epoch, each under its own name."""
    return {
        f"{prefix}: {name} {epoch}": float(value)
        for name, values in history.history.items()
        for epoch, value in enumerate(values)
    }


def from_logs(prefix, logs):
    """Returns the logs of one evaluation."""
    return {f"{prefix}: {name}": float(value) for name, value in logs.items()}


def main(run):
    """Runs a guide with the library that the command line names, and prints its numbers."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    os.environ.setdefault("KERAS_TORCH_DEVICE", "cpu")
    name = sys.argv[1] if len(sys.argv) > 1 else "kerascnn"
    if name not in ("keras", "kerascnn"):
        raise SystemExit(f"usage: {sys.argv[0]} [keras | kerascnn]")
    for key, value in run(importlib.import_module(name)).items():
        print(f"{key}: {np.array2string(np.asarray(value), precision=6, threshold=8)}")
