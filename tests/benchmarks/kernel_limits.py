"""Finds where our own kernels of convolutions stop being faster than cuDNN's on a GPU.

    python tests/benchmarks/kernel_limits.py [--filter TEXT] [--output FILE]

For many convolutions (with bias and relu, also with 2 x 2 max pooling) and their gradients, in
float32 with TF32, it times the candidates of `config.set_autotune(True)`. It prints the time of the
best own kernel over that of cuDNN's heuristics, or over that of convolution and pooling one after
another. The rules of core/backend/cuda/convolution/conv2d.cpp and fusions/conv_pooling.cpp come
from this.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import report

import kerascnn as keras
from kerascnn import _core

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.ops import fusions

CHANNELS = [(1, 32), (3, 32), (3, 64), (16, 16), (16, 32), (32, 32), (32, 64), (48, 48)]
CHANNELS += [(64, 64), (64, 128), (128, 128)]
IMAGES = [(32, 16), (128, 32)]  # pairs of a number of images and their size
OTHERS = (
    "cuDNN with an epilogue by its heuristics",
    "cuDNN by its heuristics",
    "convolution and pooling one after another",
)


class Convolution(NamedTuple):
    batch: int
    size: int
    channels: int
    filters: int
    kernel: int
    pooled: bool

    def __str__(self) -> str:
        window = f"{self.kernel} x {self.kernel}"
        end = ", pooled" if self.pooled else ""
        return (
            f"{self.channels} to {self.filters}, {window}, {self.batch} images of {self.size}{end}"
        )

    @property
    def products(self) -> int:
        pixels = self.batch * self.size**2
        return pixels * self.kernel**2 * self.channels * self.filters

    def calls(self) -> Iterator[tuple[str, list[tuple[list[int], str]], dict[str, Any]]]:
        """Yields ops or fusions with inputs and attributes: forward and the two gradients."""
        x = [self.batch, self.size, self.size, self.channels]
        w = [self.kernel, self.kernel, self.channels, self.filters]
        pad = [self.kernel // 2] * 4
        geometry = {"strides": [1, 1], "padding": pad, "dilations": [1, 1], "groups": 1}
        relu = {"activation": "relu", "activation_alpha": 0.0}
        images, kernel, bias = (x, "float32"), (w, "float32"), ([self.filters], "float32")
        if not self.pooled:
            y = ([*x[:3], self.filters], "float32")
            yield "conv2d", [images, kernel, bias], {**geometry, **relu}
            yield "conv2d_dgrad", [y, kernel], {**geometry, "input_shape": x}
            yield "conv2d_wgrad", [images, y], {**geometry, "kernel_shape": w}
            return
        pooling = {"window": [2, 2], "pool_strides": [2, 2], "pool_padding": [0] * 4}
        geometry = {**geometry, **relu, **pooling}
        shape = [self.batch, self.size // 2, self.size // 2, self.filters]
        y, index = (shape, "float32"), (shape, "uint8")
        yield "conv2d_max_pool2d", [images, kernel, bias], geometry
        yield "conv2d_max_pool2d_dgrad", [y, y, index, kernel], {**geometry, "input_shape": x}
        yield "conv2d_max_pool2d_wgrad", [images, y, y, index], {**geometry, "kernel_shape": w}


def convolutions() -> Iterator[Convolution]:
    for pooled in (False, True):
        for kernel in (3,) if pooled else (1, 3, 5):
            for channels, filters in CHANNELS:
                for batch, size in IMAGES:
                    yield Convolution(batch, size, channels, filters, kernel, pooled)


def times(convolution: Convolution, device: str) -> dict[str, dict[str, float]]:
    """Returns the microseconds of each candidate, by op; none where no candidate is timed."""
    result = {}
    for op, inputs, attributes in convolution.calls():
        before = keras.profiler.kernel_choices()
        graph = _core.Graph()
        values = [graph.input(f"input{i}", *spec) for i, spec in enumerate(inputs)]
        if convolution.pooled:
            arrays = [np.empty(*spec) for spec in inputs]
            outputs = fusions.TRACE[op](fusions.Nodes(graph), arrays, *values, **attributes)
        else:
            outputs = graph.apply(op, values, attributes)
        # Only the passes make fusions.
        optimize = convolution.pooled
        _core.Program.compile(graph, outputs, device, optimize=optimize, autotune=True)
        for row in keras.profiler.kernel_choices()[len(before) :]:
            call = row["call"]
            if call.startswith(f"{op}(") or (call.startswith("fused(") and f"fusion={op};" in call):
                result[op] = {name: 1e6 * seconds for name, seconds in row["seconds"].items()}
    return result


def ratio(candidates: dict[str, float]) -> float | None:
    own = [us for name, us in candidates.items() if name.startswith("kerascnn")]
    others = [candidates[name] for name in OTHERS if name in candidates]
    return min(own) / others[0] if own and others else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--filter", default="", help="a part of the convolutions' names")
    parser.add_argument("--output", help="file for the results as JSON")
    arguments = parser.parse_args()
    keras.config.set_device(arguments.device)
    device = keras.config.get_device()
    chosen = [c for c in convolutions() if arguments.filter in str(c)]
    if not chosen:
        parser.error(f"no convolution has {arguments.filter!r} in its name")
    print(f"{'':50} {'products':>10} {'forward':>8} {'data':>8} {'kernel':>8}")
    rows = []
    for convolution in chosen:
        found = times(convolution, device)
        rows.append({"convolution": str(convolution), "us": found})
        ratios = [ratio(found.get(op, {})) for op, _, _ in convolution.calls()]
        cells = "".join(f" {'-' if r is None else format(r, '.2f'):>8}" for r in ratios)
        print(f"{convolution!s:50} {convolution.products:10.1e}{cells}", flush=True)
    if arguments.output:
        document = {"machine": report.machine(device), "rows": rows}
        with open(arguments.output, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)


if __name__ == "__main__":
    main()
