"""Compares kernels that are chosen by the clock with those chosen by rules, and with PyTorch.

    python tests/benchmarks/autotune.py [--calls CALLS] [--dtypes DTYPES] [--output FILE]

The layers are those of larger networks than the four of `nets.py`, forward and backward in one
compiled step: kerascnn with `config.set_autotune(False)` and with `True`, PyTorch with
`cudnn.benchmark`. They take turns. Each line shows the best rounds, because a step can be shorter
than the time that the host takes to start it. A call is written
`conv:batch,height,width,channels,filters,kernel` or `product:rows,inputs,columns`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import report
import torch

import kerascnn as keras
from kerascnn import _core, ops

CALLS = [
    "conv:64,56,56,64,64,3",
    "conv:64,28,28,128,256,1",
    "conv:64,28,28,128,128,3",
    "conv:64,14,14,256,256,3",
    "conv:64,14,14,1024,256,1",
    "conv:64,7,7,512,512,3",
    "conv:16,32,32,192,96,5",
    "conv:128,32,32,64,128,3",
    "product:64,25088,4096",
    "product:256,4096,4096",
    "product:512,2048,1000",
]
STEPS = 10  # a round has this many steps
SIDES = ("rules", "timed", "torch")


def parse(text: str) -> tuple[str, tuple[int, ...]]:
    kind, _, sizes = text.partition(":")
    shape = tuple(int(size) for size in sizes.split(",") if size.isdecimal())
    if len(shape) != {"conv": 6, "product": 3}.get(kind) or 0 in shape:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no call: give conv: and six sizes, or product: and three"
        )
    return kind, shape


def operands(kind: str, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    if kind == "conv":
        batch, height, width, channels, filters, size = shape
        shapes = (batch, height, width, channels), (size, size, channels, filters)
    else:
        rows, inputs, columns = shape
        shapes = (rows, inputs), (inputs, columns)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, np.float32) for shape in shapes)
    return x, w / 30


def our_step(kind: str, x: np.ndarray, w: np.ndarray, dtype: str, autotune: bool) -> Callable:
    keras.config.set_autotune(autotune)
    arguments = [ops.cast(ops.convert_to_tensor(array), dtype) for array in (x, w)]

    @keras.jit
    def step(x: Any, w: Any) -> Any:
        with keras.GradientTape() as tape:
            tape.watch([x, w])
            y = ops.conv(x, w, padding="same") if kind == "conv" else ops.matmul(x, w)
            loss = ops.sum(ops.square(ops.cast(y, "float32")))
        return [ops.sum(gradient[0]) for gradient in tape.gradient(loss, [x, w])]

    return lambda: step(*arguments)


def their_step(kind: str, x: np.ndarray, w: np.ndarray, dtype: str, place: str) -> Callable:
    a, b = (torch.tensor(array, device=place, dtype=getattr(torch, dtype)) for array in (x, w))
    if kind == "conv":
        # The layout is channels-last, as that of the arrays.
        a, b = a.permute(0, 3, 1, 2), b.permute(3, 2, 0, 1)
        b = b.contiguous(memory_format=torch.channels_last)
    leaves = [leaf.detach().requires_grad_() for leaf in (a, b)]

    def forward(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if kind == "conv":
            return torch.nn.functional.conv2d(x, w, padding=w.shape[2] // 2)
        return x @ w

    def step() -> None:
        y = forward(*leaves)
        for gradient in torch.autograd.grad(torch.sum(torch.square(y.float())), leaves):
            gradient[0].sum()

    return step


def measure(kind: str, shape: tuple[int, ...], dtype: str, rounds: int) -> dict[str, Any]:
    device = keras.config.get_device()
    place = "cpu" if device == "cpu" else "cuda"
    x, w = operands(kind, shape)
    steps = {
        "rules": our_step(kind, x, w, dtype, False),
        "timed": our_step(kind, x, w, dtype, True),
        "torch": their_step(kind, x, w, dtype, place),
    }

    def wait() -> None:
        _core.synchronize(device)
        if place == "cuda":
            torch.cuda.synchronize()

    row: dict[str, Any] = {"call": f"{kind} {shape}", "dtype": dtype, "first_s": {}}
    row["ms"] = {side: [] for side in SIDES}
    for side, step in steps.items():
        keras.config.set_autotune(side == "timed")  # jit compiles in the first call
        start = time.perf_counter()
        step()
        wait()
        row["first_s"][side] = time.perf_counter() - start
    for _ in range(rounds):
        for side, step in steps.items():
            wait()
            start = time.perf_counter()
            for _ in range(STEPS):
                step()
            wait()
            row["ms"][side].append((time.perf_counter() - start) / STEPS * 1e3)
    return row


def line(row: dict[str, Any]) -> str:
    best = {side: min(row["ms"][side]) for side in SIDES}
    cells = [f"{row['dtype']} {row['call']}".ljust(44)]
    cells += [f"{best[side]:9.3f}" for side in SIDES]
    cells.append(f"{best['timed'] / best['rules']:9.2f}")
    cells.append(f"{best['timed'] / best['torch']:9.2f}")
    cells += [f"{row['first_s'][side]:8.2f}" for side in ("rules", "timed")]
    return "".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--calls", nargs="+", type=parse, default=[parse(text) for text in CALLS])
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", help="file for the results as JSON")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    keras.config.set_device(arguments.device)
    titles = ("rules ms", "timed ms", "torch ms", "t/rules", "t/torch")
    print(" " * 44 + "".join(f"{title:>9}" for title in titles) + "  first s   timed")
    rows = []
    for dtype in arguments.dtypes.split(","):
        for kind, shape in arguments.calls:
            rows.append(measure(kind, shape, dtype, arguments.rounds))
            print(line(rows[-1]), flush=True)
    choices = keras.profiler.kernel_choices()
    for choice in choices:
        gain = next(iter(choice["seconds"].values())) / choice["seconds"][choice["kernel"]]
        print(f"{gain:5.2f} times as fast as by rules: {choice['kernel']}: {choice['call'][:110]}")
    if arguments.output:
        document = {
            "machine": report.machine(keras.config.get_device()),
            "torch": torch.__version__,
            "rows": rows,
            "choices": choices,
        }
        with open(arguments.output, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)


if __name__ == "__main__":
    main()
