"""Measures calls that run at once, and PyTorch's in the same process, in turns.

    python tests/benchmarks/eager.py --device cpu

Each line shows the best time per call of kerascnn and of PyTorch, and their ratio. On a GPU calls
are only enqueued. What is measured is the time until the host can go on, and for whole networks
also the time until the device has finished.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time

import numpy as np
import torch

import kerascnn as keras
from kerascnn import _core, ops


def in_turns(ours, theirs, calls, rounds, finish):
    """Returns the seconds per call, the best of several rounds for each."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for place, function in enumerate((ours, theirs)):
            finish()
            start = time.perf_counter()
            for _ in range(calls):
                function()
            finish()
            best[place] = min(best[place], (time.perf_counter() - start) / calls)
    return best


def small_calls(device, torch_device):
    """Returns pairs of functions of 4x4 matrices: name -> (ours, theirs)."""
    ones = np.ones((4, 4), "float32")
    a, b = _core.from_numpy(ones, device), _core.from_numpy(ones, device)
    p, q = (torch.ones(4, 4, device=torch_device) for _ in range(2))
    leaf = torch.ones(4, 4, device=torch_device, requires_grad=True)
    weight = keras.Variable(ones, device_name=device)
    return {
        "add": (lambda: a + b, lambda: p + q),
        "ops.add": (lambda: ops.add(a, b), lambda: torch.add(p, q)),
        "add a number": (lambda: a + 2.0, lambda: p + 2.0),
        "exp": (lambda: ops.exp(a), lambda: torch.exp(p)),
        "matmul": (lambda: a @ b, lambda: p @ q),
        "recorded add": (lambda: weight + b, lambda: leaf + q),
    }


def network(device, torch_device, batch=64):
    """Returns forward and backward passes of three dense layers, written with operators."""
    rng = np.random.default_rng(0)
    sizes = (784, 128, 64, 10)
    x = rng.standard_normal((batch, sizes[0])).astype("float32")
    ours, theirs = [], []
    for rows, columns in itertools.pairwise(sizes):
        for array in (rng.standard_normal((rows, columns)) * 0.05, np.zeros(columns)):
            array = array.astype("float32")
            ours.append(keras.Variable(array, device_name=device))
            theirs.append(torch.tensor(array, device=torch_device, requires_grad=True))
    here, there = _core.from_numpy(x, device), torch.tensor(x, device=torch_device)

    def run_ours():
        w1, b1, w2, b2, w3, b3 = ours
        with keras.GradientTape() as tape:
            h = ops.relu(here @ w1 + b1)
            h = ops.relu(h @ w2 + b2)
            loss = ops.mean(ops.square(h @ w3 + b3))
        return loss, tape.gradient(loss, ours)

    def run_theirs():
        w1, b1, w2, b2, w3, b3 = theirs
        h = torch.relu(there @ w1 + b1)
        h = torch.relu(h @ w2 + b2)
        loss = torch.mean(torch.square(h @ w3 + b3))
        return loss, torch.autograd.grad(loss, theirs)

    for mine, other in zip(run_ours()[1], run_theirs()[1], strict=True):
        np.testing.assert_allclose(mine.numpy(), other.cpu().numpy(), rtol=2e-2, atol=1e-3)
    return run_ours, run_theirs


def own_loop(device, images, batch=64):
    """Times epochs of net C by a custom compiled step and by `fit`, with the data on the device."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (images, 28, 28, 1), np.uint8)
    y = rng.integers(0, 10, images, np.uint8)
    layers = keras.layers

    def build():
        keras.utils.set_random_seed(0)  # the cost of gradients depends on how many of them are 0
        return keras.Sequential(
            [
                keras.Input((28, 28, 1)),
                layers.Rescaling(1 / 255),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(64, 3, padding="same", activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(128, activation="relu"),
                layers.Dense(10),
            ]
        )

    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    fitted, model, optimizer = build(), build(), keras.optimizers.SGD(0.01)
    fitted.compile(keras.optimizers.SGD(0.01), loss_of)
    here = [_core.from_numpy(array, device) for array in (x, y)]

    @keras.jit
    def train_step(images, labels, picked):
        x, y = ops.take(images, picked, axis=0), ops.take(labels, picked, axis=0)
        with keras.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        weights = model.trainable_variables
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    def fit():
        fitted.fit(*here, batch_size=batch, epochs=1, verbose=0)

    def loop():
        order = rng.permutation(images // batch * batch).astype("int32")
        for first in range(0, len(order), batch):
            train_step(*here, order[first : first + batch])
        _core.synchronize(device)

    fit(), loop()
    return loop, fit


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu or gpu")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--images", type=int, help="for the loop of one's own; default 60000, on a CPU 6400"
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON for each row")
    args = parser.parse_args()
    torch.set_num_threads(1)
    keras.config.set_device(args.device)
    device = keras.ops.ones(()).device
    torch_device = "cpu" if device == "cpu" else "cuda"

    def finish():
        _core.synchronize(device)
        if device != "cpu":
            torch.cuda.synchronize()

    def show(name, best):
        if args.json:
            print(json.dumps({"what": name, "ours": best[0], "other": best[1]}))
        else:
            ours, other = (seconds * 1e6 for seconds in best)
            print(f"{name:22} {ours:10.2f} us {other:10.2f} us  ratio {ours / other:.2f}")

    tape = _core.Tape(True, True)  # a `with` block would be timed too
    for name, (ours, theirs) in small_calls(device, torch_device).items():
        if name.startswith("recorded"):
            tape.start()
        show(name, in_turns(ours, theirs, 1000, args.rounds, finish))
        tape.stop()
    ours, theirs = network(device, torch_device)
    show("three layers", in_turns(ours, theirs, 50, args.rounds, finish))
    images = args.images if args.images is not None else 6400 if device == "cpu" else 60000
    if images:
        loop, fit = own_loop(device, images)
        show("own loop over fit", in_turns(loop, fit, 1, 5, finish))


if __name__ == "__main__":
    main()
