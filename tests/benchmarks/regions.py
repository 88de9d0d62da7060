"""Measures the bytes per second of typical regions on a GPU, beside those of a copy on the device.

    python tests/benchmarks/regions.py [--out regions.json] [--megabytes 256]

Each region reads and writes about this much memory in all. The times are those of a CUDA graph of
many steps, the least of several runs. It prints a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np

from kerascnn import _core

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.regions import bodies

STEPS = 20
RUNS = 5


def add_relu(domain, dtype="bfloat16"):
    t = bodies.traced("map", domain)
    t.outputs = [t("relu", t("add", t.input(domain, dtype), t.input(domain, dtype)))]
    return t


def gelu(domain, dtype="bfloat16"):
    t = bodies.traced("map", domain)
    t.outputs = [t("gelu", t.input(domain, dtype), approximate=False)]
    return t


def copy(domain):
    t = bodies.traced("map", domain)
    t.outputs = [t("negative", t.input(domain, "bfloat16"))]
    return t


CASES = {
    "copy": (copy, (1024,)),
    "add_relu": (add_relu, (1024,)),
    "gelu": (gelu, (3072,)),
    "normalized_relu_64": (lambda d: bodies.normalized(d, residual=False), (64,)),
    "normalized_add_relu_256": (bodies.normalized, (256,)),
    "normalized_add_relu_2048": (bodies.normalized, (2048,)),
    "moments_64": (lambda d: bodies.moments(d, "bfloat16"), (64,)),
    "moments_256": (lambda d: bodies.moments(d, "bfloat16"), (256,)),
    "moments_2048": (lambda d: bodies.moments(d, "bfloat16"), (2048,)),
    "batch_norm_gradient_64": (bodies.batch_norm_gradient, (64,)),
    "batch_norm_gradient_256": (bodies.batch_norm_gradient, (256,)),
    "batch_norm_gradient_1024": (bodies.batch_norm_gradient, (1024,)),
    "bias_gradient_384": (lambda d: bodies.column_sums(d, "bfloat16"), (384,)),
    "layer_norm_384": (bodies.layer_norm, (16, 384)),
    "layer_norm_768": (bodies.layer_norm, (16, 768)),
    "layer_norm_gradient_384": (bodies.layer_norm_gradient, (384,)),
    "softmax_1000": (lambda d: bodies.softmax(d, "bfloat16"), (1000,)),
    "softmax_197": (lambda d: bodies.softmax(d, "bfloat16"), (197,)),
    "softmax_16384": (lambda d: bodies.softmax(d, "bfloat16"), (16384,)),
}


def num_bytes(specs):
    sizes = {"bool": 1, "uint8": 1, "int8": 1, "bfloat16": 2, "float16": 2, "float64": 8}
    return sum(int(np.prod(shape)) * sizes.get(dtype, 4) for shape, dtype in specs)


def filled(specs, device):
    """Returns tensors that repeat some random numbers."""
    some = np.random.default_rng(1).standard_normal(1 << 16)
    tensors = []
    for shape, dtype in specs:
        numbers = some.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        tensors.append(_core.from_numpy(np.resize(numbers, shape), device))
    return tensors


def measure(make, last, device, wanted):
    size = wanted // 4 // int(np.prod(last))
    t = make((max(size, 1), *last))
    graph = _core.Graph()
    inputs = [graph.input(f"x{i}", list(shape), dtype) for i, (shape, dtype) in enumerate(t.specs)]
    attributes = {
        "bodies": [t.body()],
        "kind": t.kind,
        "domain": list(t.domain),
        "columns": t.columns,
    }
    outputs = graph.apply("region", inputs, attributes)
    program = _core.Program.compile(graph, outputs, device, optimize=False)
    tensors = filled(t.specs, device)
    program.run(tensors, STEPS)
    _core.synchronize(device)
    best = float("inf")
    for _ in range(RUNS):
        begin = time.perf_counter()
        program.run(tensors, STEPS)
        _core.synchronize(device)
        best = min(best, (time.perf_counter() - begin) / STEPS)
    moved = num_bytes(t.specs) + num_bytes(
        [(output.shape, str(output.dtype)) for output in program.outputs()]
    )
    kernels = program.to_string().split(": ", 1)[-1].split(" -> ")[0]
    return {
        "microseconds": best * 1e6,
        "bytes": moved,
        "GB/s": moved / best / 1e9,
        "kernel": kernels,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="a file for the figures, besides standard output")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--only", help="cases whose names begin so")
    arguments = parser.parse_args()
    device = "cuda:0"
    figures = {}
    for name, (make, last) in CASES.items():
        if arguments.only and not name.startswith(arguments.only):
            continue
        figures[name] = measure(make, last, device, arguments.megabytes << 20)
        print(name, {k: round(v) if isinstance(v, float) else v for k, v in figures[name].items()})
    best = figures.get("copy", {}).get("GB/s")
    if best:
        for each in figures.values():
            each["of_copy"] = each["GB/s"] / best
    text = json.dumps({"device": device, "regions": figures})
    print(text)
    if arguments.out:
        Path(arguments.out).write_text(text + "\n")


if __name__ == "__main__":
    main()
