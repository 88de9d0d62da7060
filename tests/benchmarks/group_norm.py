"""Measures group normalization with its gradients on a GPU, beside PyTorch's.

    python tests/benchmarks/group_norm.py [--dtype bfloat16] [--activation silu] [--no-torch]

A row has the microseconds of both passes together: of the fusion's kernels, of the regions that run
in their place where something else reads the statistics, and of PyTorch, channels-last. A dash
stands where the fusion does not take the size. The times of kerascnn are those of a CUDA graph of
many steps, and PyTorch's those between events; the least of several runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np

from kerascnn import _core

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.ops import fusions

DEVICE = "cuda:0"
STEPS = 50
RUNS = 5
SIZES = {
    "64 x 64 x 64 x 128, 8": ((64, 64, 64, 128), 8),
    "64 x 64 x 64 x 128, 32": ((64, 64, 64, 128), 32),
    "128 x 32 x 32 x 256, 32": ((128, 32, 32, 256), 32),
    "128 x 8 x 8 x 1024, 32": ((128, 8, 8, 1024), 32),
    "16 x 128 x 128 x 64, 1": ((16, 128, 128, 64), 1),
    "32 x 112 x 112 x 64, 32": ((32, 112, 112, 64), 32),
    "8 x 16 x 16 x 64, 8": ((8, 16, 16, 64), 8),
}


def compiled(arrays: list[np.ndarray], attributes: dict, *, fused: bool) -> _core.Program | None:
    """Returns the program; with `fused` None where the fusion does not take the call."""
    graph = _core.Graph()
    values = [graph.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(arrays)]
    t = fusions.Nodes(graph)
    outputs = fusions.group_norm_grad(t, arrays, *values, **attributes)
    if not fused:
        statistics = {name: attributes[name] for name in ("groups", "epsilon")}
        outputs.append(fusions.group_statistics(t, values[0], **statistics)[-1])
    program = _core.Program.compile(graph, outputs, DEVICE)
    is_fused = fusions.is_fused(program, "group_norm_grad")
    if is_fused and not fused:
        raise SystemExit("the program has other kernels than it is measured for")
    return program if is_fused == fused else None


def microseconds(program: _core.Program, tensors: list[_core.Tensor]) -> float:
    best = float("inf")
    for turn in range(RUNS + 1):  # the first one warms up
        start = time.perf_counter()
        program.run(tensors, steps=STEPS)
        _core.synchronize(DEVICE)
        if turn > 0:
            best = min(best, (time.perf_counter() - start) / STEPS)
    return 1e6 * best


def microseconds_of_torch(arrays: list[np.ndarray], groups: int, activation: str) -> float:
    import torch

    dtype = getattr(torch, arrays[0].dtype.name)
    x, gamma, beta, gy = (
        torch.from_numpy(each.astype("float32")).to("cuda", dtype) for each in arrays
    )
    x, gy = (each.permute(0, 3, 1, 2) for each in (x, gy))  # channels-last
    for each in (x, gamma, beta):
        each.requires_grad_()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    best = float("inf")
    for turn in range(RUNS + 1):
        start.record()
        for _ in range(STEPS):
            y = torch.nn.functional.group_norm(x, groups, gamma, beta, 1e-3)
            if activation:
                y = getattr(torch.nn.functional, activation)(y)
            torch.autograd.grad(y, (x, gamma, beta), gy)
        end.record()
        torch.cuda.synchronize()
        if turn > 0:
            best = min(best, start.elapsed_time(end) / STEPS)
    return 1e3 * best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--activation", default="", choices=["", "relu", "silu", "gelu"])
    parser.add_argument("--no-torch", action="store_true")
    arguments = parser.parse_args()
    os.environ["KERASCNN_GROUP_NORM_KERNELS"] = "1"
    dtype = ml_dtypes.bfloat16 if arguments.dtype == "bfloat16" else np.dtype(arguments.dtype)
    rng = np.random.default_rng(0)
    print(f"{'shape, groups':26} {'fused':>10} {'regions':>10} {'torch':>10}")
    for name, (shape, groups) in SIZES.items():
        weights = [rng.standard_normal(shape[-1], np.float32) for _ in range(2)]
        x, gy = (rng.standard_normal(shape, np.float32).astype(dtype) for _ in range(2))
        arrays = [x, *weights, gy]
        attributes = {"groups": groups, "epsilon": 1e-3, "activation": arguments.activation}
        tensors = [_core.from_numpy(each, DEVICE) for each in arrays]
        ours = []
        for is_fused in (True, False):
            program = compiled(arrays, attributes, fused=is_fused)
            ours.append(f"{microseconds(program, tensors):7.1f} us" if program else "-")
        theirs = ""
        if not arguments.no_torch:
            theirs = f"{microseconds_of_torch(arrays, groups, arguments.activation):7.1f} us"
        print(f"{name:26} {ours[0]:>10} {ours[1]:>10} {theirs:>10}", flush=True)


if __name__ == "__main__":
    main()
