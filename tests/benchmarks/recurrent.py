"""Measures epochs of recurrent networks, beside PyTorch's loop and Keras on JAX.

    OMP_NUM_THREADS=2 python tests/benchmarks/recurrent.py [--device gpu] [--only lstm_rows]
        [--output FILE]

Each network is one recurrent layer and a dense one, trained with Adam through plain `fit`.
`lstm_rows` and `gru_rows` read images of 28 by 28 row by row, `lstm_long` reads sequences of 512
steps, and `conv_lstm` reads videos; PyTorch has no such layer, so its convolutions are composed. In
`..._bfloat16` the policy is mixed_bfloat16 here and on JAX, and PyTorch uses autocast.

PyTorch's layer (cuDNN's on a GPU) runs in a loop, and on a GPU also in a captured CUDA graph. Keras
runs on JAX in a process of its own. All take turns, and each line shows the best epochs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Network(NamedTuple):
    cell: str
    samples: int
    steps: int
    features: int
    units: int
    batch: int
    policy: str = "float32"
    size: int = 0  # a ConvLSTM2D reads square images of this size

    def shape(self) -> tuple[int, ...]:
        """Returns the shape of a sample."""
        return (self.steps, *[self.size] * (2 if self.size else 0), self.features)


CLASSES = 10
NETWORKS = {
    "lstm_rows": Network("LSTM", 60_000, 28, 28, 128, 64),
    "gru_rows": Network("GRU", 60_000, 28, 28, 128, 64),
    "lstm_long": Network("LSTM", 2_048, 512, 16, 128, 64),
    "gru_long": Network("GRU", 2_048, 512, 16, 128, 64),
    "lstm_512": Network("LSTM", 2_048, 100, 64, 512, 64),
    "gru_512": Network("GRU", 2_048, 100, 64, 512, 64),
    "lstm_rows_bfloat16": Network("LSTM", 60_000, 28, 28, 128, 64, "mixed_bfloat16"),
    "lstm_512_bfloat16": Network("LSTM", 2_048, 100, 64, 512, 64, "mixed_bfloat16"),
    "gru_512_bfloat16": Network("GRU", 2_048, 100, 64, 512, 64, "mixed_bfloat16"),
    "conv_lstm": Network("ConvLSTM2D", 256, 8, 3, 16, 16, size=32),
}
Epoch = Callable[[], None]


def arrays(net: Network) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.random((net.samples, *net.shape()), "float32")
    return x, rng.integers(0, CLASSES, net.samples)


def keras_epoch(keras: Any, net: Network) -> Epoch:
    """Returns an epoch of `fit`, of kerascnn or of Keras."""
    x, y = arrays(net)
    keras.config.set_dtype_policy(net.policy)
    layers = keras.layers
    if net.size:
        recurrent = [layers.ConvLSTM2D(net.units, 3, padding="same"), layers.Flatten()]
    else:
        recurrent = [getattr(layers, net.cell)(net.units)]
    model = keras.Sequential([keras.Input(net.shape()), *recurrent, layers.Dense(CLASSES)])
    keras.config.set_dtype_policy("float32")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss)
    return lambda: model.fit(x, y, batch_size=net.batch, epochs=1, verbose=0)


def torch_module(net: Network) -> Any:
    import torch

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = getattr(torch.nn, net.cell)
            self.recurrent = layer(net.features, net.units, batch_first=True)
            self.dense = torch.nn.Linear(net.units, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.dense(self.recurrent(x)[0][:, -1])

    class VideoClassifier(torch.nn.Module):
        """A ConvLSTM2D. One convolution handles the inputs of all steps, as in kerascnn."""

        def __init__(self) -> None:
            super().__init__()
            self.inputs = torch.nn.Conv2d(net.features, 4 * net.units, 3, padding=1)
            self.states = torch.nn.Conv2d(net.units, 4 * net.units, 3, padding=1, bias=False)
            self.dense = torch.nn.Linear(net.size**2 * net.units, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, steps = x.shape[:2]
            sums = self.inputs(x.flatten(0, 1).permute(0, 3, 1, 2)).unflatten(0, (batch, steps))
            h = c = torch.zeros_like(sums[:, 0, : net.units])
            for t in range(steps):
                i, f, g, o = (sums[:, t] + self.states(h)).chunk(4, 1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
            return self.dense(h.flatten(1))

    return VideoClassifier() if net.size else Classifier()


def torch_epoch(net: Network, device: str, captured: bool) -> Epoch:
    import torch

    place = "cuda" if device == "gpu" else "cpu"
    x, y = (torch.from_numpy(a).to(place) for a in arrays(net))
    module = torch_module(net).to(place)
    optimizer = torch.optim.Adam(module.parameters(), 1e-3, capturable=captured)
    mixed = net.policy == "mixed_bfloat16"

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad()
        # The copies of weights that autocast would keep are useless in a captured graph.
        with torch.autocast(place, torch.bfloat16, enabled=mixed, cache_enabled=not captured):
            loss = torch.nn.functional.cross_entropy(module(images), labels)
        loss.backward()
        optimizer.step()

    run = step
    if captured:
        run = captured_step(step, x[: net.batch].clone(), y[: net.batch].clone())

    def epoch() -> None:
        order = torch.randperm(net.samples, device=place)
        whole = net.samples - net.samples % net.batch
        for first in range(0, whole, net.batch):
            batch = order[first : first + net.batch]
            run(x[batch], y[batch])
        if whole < net.samples:
            step(x[order[whole:]], y[order[whole:]])
        if place == "cuda":
            torch.cuda.synchronize()

    return epoch


def captured_step(step: Any, images: Any, labels: Any) -> Any:
    """Captures the step as one CUDA graph over two tensors, into which batches are copied."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(images, labels)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(images, labels)

    def run(x: Any, y: Any) -> None:
        images.copy_(x)
        labels.copy_(y)
        graph.replay()

    return run


class JaxProcess:
    """Keras on JAX in a process of its own, which trains one epoch for each line that it gets."""

    def __init__(self, name: str, device: str) -> None:
        platform = "cuda" if device == "gpu" else "cpu"
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": platform},
        )

    def __call__(self) -> float:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write("epoch\n")
            stdin.flush()
            answer = stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError("Keras on JAX ended; what it said is above")
        return float(answer)

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def timed(epoch: Epoch) -> float:
    start = time.perf_counter()
    epoch()
    return time.perf_counter() - start


def serve(name: str) -> None:
    """Answers each line with the seconds of an epoch."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    import keras

    epoch = keras_epoch(keras, NETWORKS[name])
    for _ in sys.stdin:
        print(timed(epoch), file=answers, flush=True)


def parties(name: str, device: str, jax: bool) -> dict[str, Callable[[], float]]:
    import kerascnn

    net = NETWORKS[name]
    ours = keras_epoch(kerascnn, net)
    plain = torch_epoch(net, device, captured=False)
    found: dict[str, Callable[[], float]] = {
        "kerascnn": lambda: timed(ours),
        "torch": lambda: timed(plain),
    }
    if device == "gpu":
        try:
            graph = torch_epoch(net, device, captured=True)
            found["torch-cuda-graph"] = lambda: timed(graph)
        except RuntimeError as error:
            print(f"{name}: PyTorch captured no graph: {error}", file=sys.stderr)
    if jax:
        found["keras-jax"] = JaxProcess(name, device)
    return found


def measure(name: str, device: str, rounds: int, jax: bool) -> dict[str, float]:
    """Returns each party's best seconds of an epoch; one that fails is left out and reported."""
    found = parties(name, device, jax)
    best = dict.fromkeys(found, float("inf"))
    try:
        for turn in range(rounds + 1):  # the first turn warms up
            for party, run in list(found.items()):
                try:
                    seconds = run()
                except RuntimeError as error:
                    if party == "kerascnn":
                        raise
                    print(f"{name}: {party} failed: {error}", file=sys.stderr)
                    del found[party], best[party]
                    continue
                if turn > 0:
                    best[party] = min(best[party], seconds)
    finally:
        for run in found.values():
            if isinstance(run, JaxProcess):
                run.close()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--only", help="networks, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-jax", action="store_true", help="leaves Keras on JAX out")
    parser.add_argument("--output", type=Path, help="a file for all numbers")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(arguments.serve)
    names = arguments.only.split(",") if arguments.only else list(NETWORKS)
    unknown = [name for name in names if name not in NETWORKS]
    if unknown:
        parser.error(f"unknown networks {', '.join(unknown)}; there are {', '.join(NETWORKS)}")
    import report

    import kerascnn

    results = {}
    with kerascnn.device(arguments.device):
        for name in names:
            best = measure(name, arguments.device, arguments.rounds, not arguments.no_jax)
            peers = [seconds for party, seconds in best.items() if party != "kerascnn"]
            ratio = best["kerascnn"] / min(peers) if peers else float("nan")
            each = "  ".join(f"{party} {1e3 * seconds:.1f} ms" for party, seconds in best.items())
            print(f"{name:12} {each}  ratio {ratio:.2f}", flush=True)
            results[name] = {"seconds": best, "ratio": ratio, "network": NETWORKS[name]._asdict()}
    if arguments.output:
        machine = report.machine("cuda:0" if arguments.device == "gpu" else "cpu")
        document = {"machine": machine, "networks": results}
        arguments.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
