"""Times single ops on one core of a CPU, and PyTorch's, in turns in one process.

    OMP_NUM_THREADS=1 python tests/benchmarks/cpu_ops.py [--only softmax,cast] [--output FILE]

Each figure is the least CPU time of many calls, in microseconds. Images are in PyTorch's
channels-last layout.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import machine
from torch.nn import functional

import kerascnn as keras
from kerascnn import _core, ops

Call = Callable[[], Any]
Row = tuple[str, Call, Call]


def drawn(*shape: int) -> tuple[Any, torch.Tensor]:
    """The same numbers for both libraries."""
    numbers = np.random.default_rng(0).standard_normal(shape).astype("float32")
    return ops.convert_to_tensor(numbers), torch.from_numpy(numbers)


def reductions() -> list[Row]:
    upsampled, theirs_upsampled = drawn(16, 64, 2, 64, 2, 16)
    pixels, theirs_pixels = drawn(16, 128, 128, 3)
    return [
        (
            "sum over pairs of rows and columns, 16 x 128 x 128 x 16",
            lambda: ops.sum(upsampled, (2, 4)),
            lambda: theirs_upsampled.sum((2, 4)),
        ),
        (
            "mean of 3 channels, 16 x 128 x 128",
            lambda: ops.mean(pixels, -1),
            lambda: theirs_pixels.mean(-1),
        ),
        (
            "maximum of 3 channels, 16 x 128 x 128",
            lambda: ops.max(pixels, -1),
            lambda: theirs_pixels.amax(-1),
        ),
    ]


def softmaxes() -> list[Row]:
    rows: list[Row] = []
    for classes in (3, 10, 64):
        x, theirs = drawn(65536, classes)
        rows += [
            (
                f"softmax of {classes} classes, 65,536 rows",
                lambda x=x: ops.softmax(x),
                lambda x=theirs: torch.softmax(x, -1),
            ),
            (
                f"log-softmax of {classes} classes, 65,536 rows",
                lambda x=x: ops.log_softmax(x),
                lambda x=theirs: torch.log_softmax(x, -1),
            ),
        ]
    return rows


def sorts() -> list[Row]:
    x, theirs = drawn(4096, 256)
    return [
        ("sort 4,096 rows of 256", lambda: ops.sort(x, -1), lambda: torch.sort(theirs, -1)[0]),
        ("top_k, 5 of 256", lambda: ops.top_k(x, 5)[0], lambda: torch.topk(theirs, 5)[0]),
    ]


def casts() -> list[Row]:
    x, theirs = drawn(1 << 20)
    kinds = {"bfloat16": torch.bfloat16, "int32": torch.int32, "uint8": torch.uint8}
    return [
        (
            f"cast 2^20 float32 to {name}",
            lambda name=name: ops.cast(x, name),
            lambda kind=kind: theirs.to(kind),
        )
        for name, kind in kinds.items()
    ]


def functions() -> list[Row]:
    x, theirs = drawn(1 << 20)
    y, their_y = ops.roll(x, 1), torch.roll(theirs, 1)
    inside, their_inside = ops.tanh(x), torch.tanh(theirs)
    rows: list[Row] = [
        (f"{name} of 2^20", lambda f=ours: f(x), lambda f=other: f(theirs))
        for name, ours, other in (
            ("sin", ops.sin, torch.sin),
            ("cos", ops.cos, torch.cos),
            ("tan", ops.tan, torch.tan),
            ("arctan", ops.arctan, torch.atan),
            ("sinh", ops.sinh, torch.sinh),
            ("cosh", ops.cosh, torch.cosh),
            ("arcsinh", ops.arcsinh, torch.asinh),
            ("exp", ops.exp, torch.exp),
            ("tanh", ops.tanh, torch.tanh),
        )
    ]
    rows += [
        (f"{name} of 2^20", lambda f=ours: f(inside), lambda f=other: f(their_inside))
        for name, ours, other in (
            ("arcsin", ops.arcsin, torch.asin),
            ("arctanh", ops.arctanh, torch.atanh),
            ("erfinv", ops.erfinv, torch.erfinv),
        )
    ]
    for name, ours, other in (
        ("arctan2", ops.arctan2, torch.atan2),
        ("mod", ops.mod, torch.remainder),
        ("floor_divide", ops.floor_divide, torch.floor_divide),
    ):
        rows.append((f"{name} of 2^20", lambda f=ours: f(x, y), lambda f=other: f(theirs, their_y)))
    rows.append(
        ("mod of 2^20 by 0.3", lambda: ops.mod(x, 0.3), lambda: torch.remainder(theirs, 0.3))
    )
    return rows


def running_sums() -> list[Row]:
    x, theirs = drawn(32, 128, 256)
    return [
        (
            f"cumsum over axis {axis} of 32 x 128 x 256",
            lambda axis=axis: ops.cumsum(x, axis),
            lambda axis=axis: torch.cumsum(theirs, axis),
        )
        for axis in (1, -1)
    ]


def random_numbers() -> list[Row]:
    return [
        (
            "random.uniform, 2^20",
            lambda: keras.random.uniform((1 << 20,)),
            lambda: torch.rand(1 << 20),
        ),
        (
            "random.normal, 2^20",
            lambda: keras.random.normal((1 << 20,)),
            lambda: torch.randn(1 << 20),
        ),
    ]


def convolutions() -> list[Row]:
    rows: list[Row] = []
    for filters, channels, size, window, images in (
        (3, 16, 128, 3, 16),
        (1, 16, 128, 3, 16),
        (3, 64, 32, 5, 32),
        (5, 64, 64, 3, 16),
    ):
        x, theirs = drawn(images, size, size, channels)
        kernel, their_kernel = drawn(window, window, channels, filters)
        gradient, their_gradient = drawn(images, size, size, filters)
        theirs, their_kernel, their_gradient = (
            tensor.permute(axes).contiguous(memory_format=torch.channels_last)
            for tensor, axes in (
                (theirs, (0, 3, 1, 2)),
                (their_kernel, (3, 2, 0, 1)),
                (their_gradient, (0, 3, 1, 2)),
            )
        )
        half = window // 2
        attributes = {
            "strides": [1, 1],
            "dilations": [1, 1],
            "padding": [half] * 4,
            "groups": 1,
            "kernel_shape": [window, window, channels, filters],
        }
        name = f"{window} x {window}, {channels} to {filters}, {images} x {size} x {size}"

        def ours(x=x, kernel=kernel):
            return ops.conv(x, kernel, padding="same")

        def theirs_forward(x=theirs, kernel=their_kernel, half=half):
            return functional.conv2d(x, kernel, padding=half)

        def our_gradient(x=x, gradient=gradient, attributes=attributes):
            return _core.apply("conv2d_wgrad", [x, gradient], attributes)[0]

        def theirs_backward(x=theirs, kernel=their_kernel, gradient=their_gradient, half=half):
            return torch.nn.grad.conv2d_weight(x, kernel.shape, gradient, padding=half)

        rows += [
            (f"convolution {name}", ours, theirs_forward),
            (f"gradient of its kernel {name}", our_gradient, theirs_backward),
        ]
    return rows


def resizing() -> list[Row]:
    rows: list[Row] = []
    for images, size, channels, new in (
        (16, 32, 64, 64),
        (8, 64, 32, 128),
        (8, 224, 3, 160),
        (8, 64, 1, 128),
    ):
        x, theirs = drawn(images, size, size, channels)
        gradient, their_gradient = drawn(images, new, new, channels)
        theirs, their_gradient = (y.permute(0, 3, 1, 2) for y in (theirs, their_gradient))

        def ours(x=x, new=new):
            return ops.image.resize(x, (new, new))

        def theirs_forward(x=theirs, new=new):
            return functional.interpolate(x, (new, new), mode="bilinear")

        def our_gradient(x=x, gradient=gradient, ours=ours):
            with keras.GradientTape() as tape:
                tape.watch(x)
                y = ours()
            return tape.gradient(y, x, output_gradients=gradient)

        def theirs_backward(x=theirs, gradient=their_gradient, forward=theirs_forward):
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                return torch.autograd.grad(forward(x), x, gradient)

        name = f"bilinear {images} x {size} x {size} x {channels} to {new} x {new}"
        rows += [
            (name, ours, theirs_forward),
            (f"{name}, and its gradient", our_gradient, theirs_backward),
        ]
    return rows


GROUPS = {
    "reductions": reductions,
    "softmax": softmaxes,
    "sort": sorts,
    "cast": casts,
    "functions": functions,
    "cumsum": running_sums,
    "random": random_numbers,
    "convolution": convolutions,
    "resizing": resizing,
}


def least(calls: list[Call], rounds: int) -> list[float]:
    """The least microseconds of each, called in turns; the first round warms up."""
    best = [float("inf")] * len(calls)
    for turn in range(rounds + 1):
        for i, call in enumerate(calls):
            start = time.process_time()
            call()
            if turn > 0:
                best[i] = min(best[i], 1e6 * (time.process_time() - start))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help=f"groups, separated by commas: {', '.join(GROUPS)}")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--output", type=Path, help="a JSON file")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(GROUPS)
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        parser.error(f"unknown groups {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    torch.set_num_threads(1)
    found = []
    print(f"{'':64} {'kerascnn':>9} {'PyTorch':>9} {'ratio':>6}")
    with keras.device("cpu"), torch.no_grad():
        for group in names:
            for name, ours, theirs in GROUPS[group]():
                # Tensors at once are computed when somebody asks for their numbers.
                here, there = least([lambda ours=ours: ours().numpy(), theirs], arguments.rounds)
                found.append({"op": name, "kerascnn_us": here, "pytorch_us": there})
                print(f"{name:64} {here:9.0f} {there:9.0f} {here / there:6.2f}", flush=True)
    if arguments.output:
        libraries = {"kerascnn": keras.__version__, "torch": torch.__version__}
        about = {"machine": machine("cpu"), "versions": libraries, "threads": 1}
        arguments.output.write_text(json.dumps({**about, "ops": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
