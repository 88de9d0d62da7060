"""Measures batches from a generator, hooks for batches, and the host's own time for an epoch.

    python tests/benchmarks/streaming.py [DATA] [--device cuda:0] [--nets A,B,C,D] [--output FILE]

DATA is a folder with MNIST's files. Without it images and labels are random, which no figure here
depends on. For each net, epochs of these kinds take turns in one process, so that a drift of the
machine's speed affects all of them:

- `arrays`: `fit` on the arrays in their order;
- `generator`: the same batches from a generator, as slices of the arrays;
- `floats`: the same from a generator that converts each batch to float32, as many do;
- `hooks`: arrays, with a callback that has hooks for batches and does not read the logs;
- `generator and hooks`: both.

For each kind it shows the median milliseconds of an epoch with the quartiles, the median ratio to
`arrays` over the turns, and the CPU time of the whole process over the time of the epoch
(`time.process_time`). On a GPU the last one is what an epoch costs the host.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import report
from keras_nets import build
from nets import CLASSES, IMAGE_SIZE, Case

import kerascnn as keras

BARS = {"generator": 1.3, "hooks": 1.25}  # the bars for the ratio to arrays


class Hooks(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches = 0

    def on_train_batch_begin(self, batch, logs=None):
        pass

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1


class Clock(keras.callbacks.Callback):
    """Notes the wall and CPU seconds of one epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self._begun = time.perf_counter(), time.process_time()

    def on_epoch_end(self, epoch, logs=None):
        wall, cpu = self._begun
        self.seconds = time.perf_counter() - wall, time.process_time() - cpu


class Source:
    """Yields batches of arrays, anew in each epoch."""

    def __init__(self, x: np.ndarray, y: np.ndarray, size: int, convert: bool):
        self._arguments = x, y, size, convert

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        x, y, size, convert = self._arguments
        for first in range(0, len(x), size):
            batch = x[first : first + size]
            yield (batch.astype("float32") if convert else batch), y[first : first + size]


def load(folder: str | None, samples: int) -> tuple[np.ndarray, np.ndarray]:
    if folder is not None:
        (x, y), _ = keras.datasets.mnist.load_data(folder)
        return x[:samples, ..., None], y[:samples]
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (samples, IMAGE_SIZE, IMAGE_SIZE, 1), dtype=np.uint8)
    return x, rng.integers(0, CLASSES, samples, dtype=np.uint8)


def kinds_of_epochs(
    model: keras.Model, x: np.ndarray, y: np.ndarray, size: int, epochs: int
) -> dict[str, Callable[[], tuple[float, float]]]:
    """Returns functions that fit so many epochs and return the last one's wall and CPU seconds."""

    def fit(*data: Any, hooks: bool = False, **arguments: Any) -> tuple[float, float]:
        clock = Clock()
        callbacks = [clock, Hooks()] if hooks else [clock]
        model.fit(*data, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks, **arguments)
        return clock.seconds

    return {
        "arrays": lambda: fit(x, y, batch_size=size),
        "generator": lambda: fit(Source(x, y, size, convert=False)),
        "floats": lambda: fit(Source(x, y, size, convert=True)),
        "hooks": lambda: fit(x, y, batch_size=size, hooks=True),
        "generator and hooks": lambda: fit(Source(x, y, size, convert=False), hooks=True),
    }


def measure(case: Case, x: np.ndarray, y: np.ndarray, turns: int) -> list[dict]:
    model = build(keras, case, scaled=True)
    # In the first epochs `fit` learns how long a step takes; the third is like the later ones.
    kinds = kinds_of_epochs(model, x, y, case.batch_size, 3)
    for run in kinds.values():
        run()
    seconds: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for _ in range(turns):
        for kind, run in kinds.items():
            seconds[kind].append(run())
    rows = []
    for kind, found in seconds.items():
        ratios = [own[0] / base[0] for own, base in zip(found, seconds["arrays"], strict=True)]
        rows.append(
            {
                "net": str(case),
                "kind": kind,
                "ms": [1e3 * wall for wall, _ in found],
                "cpu_ms": [1e3 * cpu for _, cpu in found],
                "ratio": statistics.median(ratios),
                "host": statistics.median(cpu / wall for wall, cpu in found),
            }
        )
    return rows


def line(row: dict) -> str:
    low, middle, high = (
        statistics.quantiles(row["ms"], n=4) if len(row["ms"]) > 1 else 3 * row["ms"]
    )
    bar = BARS.get(row["kind"])
    said = "" if bar is None else f"  {'at most' if row['ratio'] <= bar else 'MORE THAN'} {bar}"
    return (
        f"{row['net']:6} {row['kind']:20} {middle:9.2f} ms ({low:.2f} to {high:.2f})"
        f"  x {row['ratio']:.2f}  host {row['host']:7.1%}{said}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", help="folder with MNIST's files; default: random images")
    parser.add_argument("--device", help='"cpu", "cuda:0"; default: the first usable GPU, else cpu')
    parser.add_argument("--nets", default="A,B,C,D")
    parser.add_argument("--samples", type=int, default=60_000)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--output", help="file for the results as JSON")
    arguments = parser.parse_args()
    if arguments.device:
        keras.config.set_device(arguments.device)
    x, y = load(arguments.data, arguments.samples)
    rows = []
    for net in arguments.nets.split(","):
        for row in measure(Case.parse(net), x, y, arguments.turns):
            rows.append(row)
            print(line(row), flush=True)
    if arguments.output:
        document = {"machine": report.machine(keras.config.get_device()), "rows": rows}
        with open(arguments.output, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)


if __name__ == "__main__":
    main()
