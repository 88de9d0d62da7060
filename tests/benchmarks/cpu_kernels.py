"""Measures the CPU's kernels and PyTorch's at the reference networks' shapes, in microseconds.

    OMP_NUM_THREADS=2 python tests/benchmarks/cpu_kernels.py [--only conv,pool] [--threads 2]

Each op is compiled into a program of its own and run many times without Python in between. PyTorch
does the same arithmetic with the same numbers, in plain and in channels-last layout, and the better
one counts. The two take turns and the figures are lower quartiles, so that a drift of the machine's
speed or another process affects both. With one thread, CPU time is measured, which is reliable on a
busy machine too.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from kerascnn import _core

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.ops import fusions

#                   net and layer, batch, image, channels, filters, kernel, padding
CONVOLUTIONS = [
    ("A conv 1", 64, 28, 1, 16, 3, 1),
    ("B conv 1", 64, 28, 1, 6, 5, 0),
    ("B conv 2", 64, 12, 6, 16, 5, 0),
    ("C conv 1", 64, 28, 1, 32, 3, 1),
    ("C conv 2", 64, 14, 32, 64, 3, 1),
    ("D conv 1", 128, 28, 1, 32, 3, 0),
    ("D conv 2", 128, 13, 32, 64, 3, 0),
]
#               net and layer, batch, inputs, units
DENSE = [
    ("A dense", 64, 3136, 10),
    ("B dense 1", 64, 256, 120),
    ("C dense 1", 64, 3136, 128),
    ("C dense 2", 64, 128, 10),
    ("D dense", 128, 1600, 10),
]
PARAMETERS = {
    "A": [(3, 3, 1, 16), (3136, 10)],
    "C": [(3, 3, 1, 32), (32,), (3, 3, 32, 64), (64,), (3136, 128), (128,), (128, 10), (10,)],
    "D": [(3, 3, 1, 32), (32,), (3, 3, 32, 64), (64,), (1600, 10), (10,)],
}
LINEAR = {"activation": "linear", "activation_alpha": 0.0}
RELU = {"activation": "relu", "activation_alpha": 0.0}
random = np.random.default_rng(0)


class Case(NamedTuple):
    name: str
    op: str  # the name of an op or of a fusion
    inputs: list[np.ndarray]
    attributes: dict
    peers: list[Callable[[], object]]  # each does the same in PyTorch in another way


def normal(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def compile_op(case: Case) -> Callable[[int], None]:
    """Returns a function that runs the case's op a number of times."""
    graph = _core.Graph()
    values = [
        graph.input(f"input{i}", array.shape, array.dtype.name)
        for i, array in enumerate(case.inputs)
    ]
    if case.op in fusions.TRACE:
        nodes = fusions.Nodes(graph)
        outputs = fusions.TRACE[case.op](nodes, case.inputs, *values, **case.attributes)
    else:
        outputs = graph.apply(case.op, values, case.attributes)
    program = _core.Program.compile(graph, outputs, "cpu")
    tensors = [_core.from_numpy(array, "cpu") for array in case.inputs]
    return lambda steps: program.run(tensors, steps)


def images(array: np.ndarray, channels_last: bool) -> torch.Tensor:
    tensor = torch.from_numpy(array).permute(0, 3, 1, 2)
    return tensor.contiguous(
        memory_format=torch.channels_last if channels_last else torch.contiguous_format
    )


def convolution_cases(only_pooling: bool) -> Iterator[Case]:
    for name, batch, size, channels, filters, kernel, pad in CONVOLUTIONS:
        out = size + 2 * pad - kernel + 1
        x, w, b = (
            normal(batch, size, size, channels),
            normal(kernel, kernel, channels, filters),
            normal(filters),
        )
        gy = normal(batch, out, out, filters)
        geometry = {"strides": [1, 1], "padding": [pad] * 4, "dilations": [1, 1], "groups": 1}
        if only_pooling:
            yield from pooling_cases(name, gy)
            continue
        peers: dict[str, list] = {"forward": [], "wgrad": [], "dgrad": []}
        for last in (False, True):
            tx, tg, tb = images(x, last), images(gy, last), torch.from_numpy(b)
            tw = torch.from_numpy(w).permute(3, 2, 0, 1).contiguous()

            def backward(mask, tx=tx, tw=tw, tg=tg, pad=pad):
                return torch.ops.aten.convolution_backward(
                    tg, tx, tw, None, [1, 1], [pad, pad], [1, 1], False, [0, 0], 1, mask
                )

            peers["forward"].append(
                lambda tx=tx, tw=tw, tb=tb, pad=pad: F.relu_(F.conv2d(tx, tw, tb, 1, pad))
            )
            peers["wgrad"].append(lambda backward=backward: backward([False, True, False]))
            peers["dgrad"].append(lambda backward=backward: backward([True, False, False]))
        yield Case(
            f"{name} forward, bias, relu",
            "conv2d",
            [x, w, b],
            {**geometry, **RELU},
            peers["forward"],
        )
        yield Case(
            f"{name} weight gradient",
            "conv2d_wgrad",
            [x, gy],
            {**geometry, "kernel_shape": list(w.shape)},
            peers["wgrad"],
        )
        if channels > 1:
            yield Case(
                f"{name} data gradient",
                "conv2d_dgrad",
                [gy, w],
                {**geometry, "input_shape": list(x.shape)},
                peers["dgrad"],
            )


def pooling_cases(name: str, y: np.ndarray) -> Iterator[Case]:
    """Yields what follows a convolution's output y in the forward and the backward pass."""
    window = {"window": [2, 2], "strides": [2, 2], "padding": [0] * 4}
    batch, size, _, filters = y.shape
    gp = normal(batch, size // 2, size // 2, filters)
    index = random.integers(0, 2, gp.shape).astype(np.uint8)
    plain, last = images(y, False), images(y, True)
    _, torch_index = F.max_pool2d(plain, 2, return_indices=True)
    flat_y, flat_g = torch.from_numpy(y), torch.from_numpy(normal(*y.shape))

    def pool_grad(layout: torch.Tensor, gradient: torch.Tensor, where: torch.Tensor):
        return lambda: torch.ops.aten.max_pool2d_with_indices_backward(
            gradient, layout, [2, 2], [2, 2], [0, 0], [1, 1], False, where
        )

    yield Case(
        f"{name} max pooling",
        "max_pool2d",
        [y],
        window,
        [lambda t=t: F.max_pool2d(t, 2, return_indices=True) for t in (plain, last)],
    )
    yield Case(
        f"{name} max pooling gradient",
        "max_pool2d_grad",
        [gp, index],
        {**window, "input_shape": list(y.shape)},
        [
            pool_grad(plain, images(gp, False), torch_index),
            pool_grad(
                last, images(gp, True), torch_index.contiguous(memory_format=torch.channels_last)
            ),
        ],
    )
    yield Case(
        f"{name} relu gradient",
        "relu_grad",
        [flat_g.numpy(), y],
        {},
        [lambda: torch.ops.aten.threshold_backward(flat_g, flat_y, 0)],
    )
    yield Case(
        f"{name} bias gradient",
        "reduce_sum",
        [y],
        {"axes": [0, 1, 2], "keepdims": False},
        [lambda: flat_y.sum((0, 1, 2))],
    )


def joined_cases() -> Iterator[Case]:
    """Yields convolutions with bias, relu and max pooling in one kernel, and their gradients."""
    pooling = {"window": [2, 2], "pool_strides": [2, 2], "pool_padding": [0] * 4}
    for name, batch, size, channels, filters, kernel, pad in CONVOLUTIONS:
        x, b = normal(batch, size, size, channels), normal(filters)
        w = normal(kernel, kernel, channels, filters) / np.float32(kernel * channels**0.5)
        geometry = {"strides": [1, 1], "padding": [pad] * 4, "dilations": [1, 1], "groups": 1}
        attributes = {**geometry, **RELU, **pooling}
        y, index = fusions.call("conv2d_max_pool2d", [x, w, b], attributes, "cpu")
        gy = normal(*y.shape)
        forward: list = []
        backward: dict[str, list] = {"wgrad": [], "dgrad": []}
        for last in (False, True):
            tx, tg, tb = images(x, last), images(gy, last), torch.from_numpy(b)
            tw = torch.from_numpy(w).permute(3, 2, 0, 1).contiguous()

            def convolve(tx=tx, tw=tw, tb=tb, pad=pad):
                return F.relu_(F.conv2d(tx, tw, tb, 1, pad))

            forward.append(lambda f=convolve: F.max_pool2d(f(), 2, return_indices=True))
            wide = convolve()
            where = F.max_pool2d(wide, 2, return_indices=True)[1]

            def gradient(mask, tx=tx, tw=tw, tg=tg, wide=wide, where=where, pad=pad):
                spread = torch.ops.aten.max_pool2d_with_indices_backward(
                    tg, wide, [2, 2], [2, 2], [0, 0], [1, 1], False, where
                )
                spread = torch.ops.aten.threshold_backward(spread, wide, 0)
                return torch.ops.aten.convolution_backward(
                    spread,
                    tx,
                    tw,
                    [tw.shape[0]],
                    [1, 1],
                    [pad, pad],
                    [1, 1],
                    False,
                    [0, 0],
                    1,
                    mask,
                )

            backward["wgrad"].append(lambda f=gradient: f([False, True, True]))
            backward["dgrad"].append(lambda f=gradient: f([True, False, False]))
        yield Case(f"{name} with pooling", "conv2d_max_pool2d", [x, w, b], attributes, forward)
        yield Case(
            f"{name} with pooling, weight and bias gradient",
            "conv2d_max_pool2d_wgrad",
            [x, gy, y, index],
            {**attributes, "kernel_shape": list(w.shape)},
            backward["wgrad"],
        )
        if channels > 1:
            yield Case(
                f"{name} with pooling, data gradient",
                "conv2d_max_pool2d_dgrad",
                [gy, y, index, w],
                {**attributes, "input_shape": list(x.shape)},
                backward["dgrad"],
            )


def dense_cases() -> Iterator[Case]:
    for name, batch, depth, units in DENSE:
        x, w, b, gy = (
            normal(batch, depth),
            normal(depth, units),
            normal(units),
            normal(batch, units),
        )
        tx, tb, tg = (torch.from_numpy(a) for a in (x, b, gy))
        tw = torch.from_numpy(w).T.contiguous()
        yield Case(
            f"{name} forward, bias, relu",
            "dense",
            [x, w, b],
            RELU,
            [lambda tx=tx, tw=tw, tb=tb: F.relu_(F.linear(tx, tw, tb))],
        )
        yield Case(
            f"{name} weight gradient",
            "matmul",
            [x, gy],
            {"transpose_a": True, "transpose_b": False},
            [lambda tx=tx, tg=tg: tg.T @ tx],
        )
        yield Case(
            f"{name} data gradient",
            "matmul",
            [gy, w],
            {"transpose_a": False, "transpose_b": True},
            [lambda tg=tg, tw=tw: tg @ tw],
        )


def other_cases() -> Iterator[Case]:
    for net, shapes in PARAMETERS.items():
        p, g = [normal(*s) for s in shapes], [normal(*s) for s in shapes]
        tp, tg = [torch.from_numpy(a.copy()) for a in p], [torch.from_numpy(a) for a in g]
        moments = [[normal(*s) for s in shapes], [np.abs(normal(*s)) for s in shapes]]
        for tensor, gradient in zip(tp, tg, strict=True):
            tensor.grad = gradient
        adam = torch.optim.Adam(tp, fused=True)
        yield Case(
            f"{net} SGD update",
            "sgd_update",
            [np.float32(0.01).reshape(()), *p, *g],
            {"count": len(p), "momentum": 0.0, "nesterov": False},
            [lambda tp=tp, tg=tg: torch._foreach_add_(tp, tg, alpha=-0.01)],
        )
        yield Case(
            f"{net} Adam update",
            "adam_update",
            [
                np.float32(0.001).reshape(()),
                np.int64(3).reshape(()),
                *p,
                *g,
                *moments[0],
                *moments[1],
            ],
            {"count": len(p), "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7},
            [adam.step],
        )
    x = normal(128, 1600)
    tx = torch.from_numpy(x)
    yield Case(
        "D dropout",
        "dropout",
        [x, np.array([1, 2])],
        {"rate": 0.5, "stream": 0},
        [lambda: torch.native_dropout(tx, 0.5, True)],
    )
    logits, labels = normal(128, 10), random.integers(0, 10, 128).astype(np.int32)
    tl, ty = torch.from_numpy(logits), torch.from_numpy(labels).long()
    yield Case(
        "D softmax cross-entropy",
        "sparse_softmax_cross_entropy",
        [logits, labels],
        {"epsilon": 0.0},
        [lambda: F.cross_entropy(tl, ty, reduction="none")],
    )


def measure(case: Case, clock: Callable[[], float]) -> tuple[float, float]:
    """Returns the lower quartiles in microseconds, of the kernel and of the best peer."""
    run = compile_op(case)
    start = clock()
    run(10)
    steps = max(1, min(200, int(0.02 / max(1e-7, (clock() - start) / 10))))
    own: list[float] = []
    others: list[list[float]] = [[] for _ in case.peers]
    for peer in case.peers:
        peer()
    for _ in range(12):
        start = clock()
        run(steps)
        own.append((clock() - start) / steps)
        for times, peer in zip(others, case.peers, strict=True):
            start = clock()
            for _ in range(steps):
                peer()
            times.append((clock() - start) / steps)
    quartile = [float(np.quantile(times, 0.25)) * 1e6 for times in others]
    return float(np.quantile(own, 0.25)) * 1e6, min(quartile)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="conv,pool,joined,dense,other")
    parser.add_argument("--threads", type=int, default=2, help="also set OMP_NUM_THREADS")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    groups = {
        "conv": lambda: convolution_cases(False),
        "pool": lambda: convolution_cases(True),
        "joined": joined_cases,
        "dense": dense_cases,
        "other": other_cases,
    }
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    print(f"{torch.__version__=} threads={args.threads}")
    print("| op | kerascnn | PyTorch | ratio |\n| --- | --- | --- | --- |")
    for group in args.only.split(","):
        for case in groups[group]():
            own, other = measure(case, clock)
            print(f"| {case.name} | {own:.1f} | {other:.1f} | {own / other:.2f} |", flush=True)


if __name__ == "__main__":
    main()
