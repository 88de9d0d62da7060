"""Times single ops on the GPU, at the shapes of small convolutional networks on MNIST.

    python tests/gpu/bench_kernels.py [--steps 2000] [--filter softmax] [--full-float32]

Each op is a program of its own that runs many steps per launch. So the time is the device's: that
of the kernels and of the step loop around them, which the first row ("nothing") shows by itself.
GB/s counts every input and output once. Without a GPU the script says so and ends.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kerascnn import _core

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """One call of an op: its inputs as (dtype, shape), and the range of integers."""

    op: str
    inputs: list[tuple[str, Shape]]
    attrs: dict[str, Any] = field(default_factory=dict)
    # Integer inputs are below this.
    limit: int = 10


def image_rows(net: str, batch: int, maps: Shape, features: int) -> Iterator[Row]:
    """Yields what surrounds convolutions and dense layers: activations, loss, random numbers."""
    x = ("float32", (batch, *maps))
    yield Row("relu", [x])
    yield Row("relu_grad", [x, x])
    yield Row("add", [x, ("float32", maps[-1:])])
    yield Row("reduce_sum", [x], {"axes": [0, 1, 2], "keepdims": False})
    window = {"window": [2, 2], "strides": [2, 2], "padding": [0, 0, 0, 0]}
    yield Row("max_pool2d", [x], window)
    channels = ("float32", maps[-1:])
    yield Row("batch_norm", [x, channels, channels], {"epsilon": 1e-3})
    yield Row("batch_norm_grad", [x, x, channels, channels, channels])
    if net == "D":
        yield Row(
            "dropout", [("float32", (batch, features)), ("int64", (2,))], {"rate": 0.5, "stream": 1}
        )


def loss_rows(batch: int) -> Iterator[Row]:
    scores = ("float32", (batch, 10))
    labels = ("int64", (batch,))
    yield Row("softmax", [scores], {"axis": -1})
    yield Row("softmax_grad", [scores, scores], {"axis": -1})
    yield Row("argmax", [scores], {"axis": 1})
    for op in ("sparse_cross_entropy", "sparse_softmax_cross_entropy"):
        yield Row(op, [scores, labels], {"epsilon": 1e-7})
        yield Row(f"{op}_grad", [("float32", (batch,)), scores, labels], {"epsilon": 1e-7})
    yield Row("reduce_mean", [("float32", (batch,))], {"axes": [0], "keepdims": False})


def input_rows(batch: int) -> Iterator[Row]:
    images = ("uint8", (60000, 28, 28, 1))
    attrs = {"batch_size": batch}
    yield Row(
        "take_batch", [images, ("int32", (60000,)), ("int64", ())], attrs, limit=60000 // batch
    )
    labels = ("int64", (60000,))
    yield Row(
        "take_batch", [labels, ("int32", (60000,)), ("int64", ())], attrs, limit=60000 // batch
    )
    yield Row("cast", [("uint8", (batch, 28, 28, 1))], {"dtype": "float32"})
    yield Row("multiply", [("float32", (batch, 28, 28, 1)), ("float32", ())])


def update_rows(shapes: list[Shape]) -> Iterator[Row]:
    parameters = [("float32", shape) for shape in shapes]
    n = len(parameters)
    rate = ("float32", ())
    sgd = {"count": n, "momentum": 0.0, "nesterov": False}
    yield Row("sgd_update", [rate, *parameters, *parameters], sgd)
    sgd = {"count": n, "momentum": 0.9, "nesterov": True}
    yield Row("sgd_update", [rate, *parameters * 3], sgd)
    adam = {"count": n, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}
    yield Row("adam_update", [rate, ("int64", ()), *parameters * 4], adam)


def product_rows() -> Iterator[tuple[str, Row]]:
    """Yields dense layers of nets A to D: forward, and the gradients of input, kernel and bias."""
    layers = [
        ("A", 64, 3136, 10),
        ("B", 64, 256, 120),
        ("B", 64, 120, 10),
        ("C", 64, 3136, 128),
        ("C", 64, 128, 10),
        ("D", 128, 1600, 10),
    ]
    for net, batch, features, units in layers:
        x, w = ("float32", (batch, features)), ("float32", (features, units))
        gy, bias = ("float32", (batch, units)), ("float32", (units,))
        activation = "linear" if units == 10 else "relu"
        yield net, Row("dense", [x, w, bias], {"activation": activation, "activation_alpha": 0.0})
        yield net, Row("matmul", [gy, w], {"transpose_a": False, "transpose_b": True})
        yield net, Row("matmul", [x, gy], {"transpose_a": True, "transpose_b": False})
        yield net, Row("reduce_sum", [gy], {"axes": [0], "keepdims": False})
    # Own kernels end and cuBLASLt begins at one of these sizes.
    for size in (256, 384, 512):
        square = ("float32", (size, size))
        yield "large", Row("matmul", [square] * 2, {"transpose_a": False, "transpose_b": False})


def bandwidth_rows() -> Iterator[Row]:
    """Yields rows that are so large that memory bandwidth is the limit, and not latency."""
    x = ("float32", (64, 128, 128, 32))
    yield Row("add", [x, x])
    yield Row("gelu", [x], {"approximate": False})
    yield Row("add", [x, ("float32", (32,))])
    yield Row("transpose", [x], {"permutation": [0, 3, 1, 2]})
    yield Row("transpose", [x], {"permutation": [0, 2, 1, 3]})
    yield Row("reduce_sum", [x], {"axes": [0, 1, 2], "keepdims": False})
    yield Row("reduce_sum", [x], {"axes": [], "keepdims": False})
    yield Row("softmax", [("float32", (8192, 1000))], {"axis": -1})
    uniform = {
        "shape": [64, 128, 128, 32],
        "dtype": "float32",
        "minval": 0.0,
        "maxval": 1.0,
        "stream": 0,
    }
    yield Row("random_uniform", [("int64", (2,))], uniform)
    channels = ("float32", (32,))
    yield Row("batch_norm", [x, channels, channels], {"epsilon": 1e-3})
    yield from update_rows([(4096, 4096), (4096,)])


def all_rows() -> Iterator[tuple[str, Row]]:
    """Yields each row with the net (A to D of the reference networks) that it comes from."""
    maps = {
        "A": (64, (28, 28, 16), 14 * 14 * 16),
        "B": (64, (24, 24, 6), 256),
        "C": (64, (28, 28, 32), 7 * 7 * 64),
        "D": (128, (26, 26, 32), 5 * 5 * 64),
    }
    parameters: dict[str, list[Shape]] = {
        "A": [(3, 3, 1, 16), (3136, 10)],
        "B": [(5, 5, 1, 6), (6,), (5, 5, 6, 16), (16,), (256, 120), (120,), (120, 10), (10,)],
        "C": [(3, 3, 1, 32), (32,), (3, 3, 32, 64), (64,), (3136, 128), (128,), (128, 10), (10,)],
        "D": [(3, 3, 1, 32), (32,), (3, 3, 32, 64), (64,), (1600, 10), (10,)],
    }
    for net, (batch, shape, features) in maps.items():
        for row in image_rows(net, batch, shape, features):
            yield net, row
        for row in update_rows(parameters[net]):
            yield net, row
    for row in (*input_rows(64), *loss_rows(64)):
        yield "A-C", row
    for row in loss_rows(128):
        yield "D", row
    yield from product_rows()
    for row in bandwidth_rows():
        yield "large", row


def make_input(rng: np.random.Generator, dtype: str, shape: Shape, limit: int) -> np.ndarray:
    if dtype.startswith("float"):
        # Positive numbers also serve as probabilities and variances.
        return rng.uniform(0.1, 1.0, shape).astype(dtype)
    return rng.integers(0, limit, shape).astype(dtype)


def measure(
    row: Row, device: str, steps: int, repeats: int, allow_tf32: bool = True
) -> tuple[float, int]:
    """Returns the microseconds per step, and the bytes that the op reads and writes."""
    rng = np.random.default_rng(0)
    graph = _core.Graph()
    arrays = [make_input(rng, dtype, shape, row.limit) for dtype, shape in row.inputs]
    values = [graph.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(arrays)]
    outputs = graph.apply(row.op, values, row.attrs)
    program = _core.Program.compile(graph, outputs, device, allow_tf32=allow_tf32)
    tensors = [_core.from_numpy(x, device) for x in arrays]
    program.run(tensors, steps=steps)
    _core.synchronize(device)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        program.run(tensors, steps=steps)
        _core.synchronize(device)
        times.append((time.perf_counter() - start) / steps)
    read = [t.nbytes for t in tensors]
    written = [t.nbytes for t in program.outputs()]
    if row.op == "take_batch":  # it reads one batch, not the whole data set
        read = written
    return statistics.median(times) * 1e6, sum(read) + sum(written)


def text_of(row: Row) -> str:
    shapes = [f"{dtype} {list(shape)}" for dtype, shape in row.inputs]
    return ", ".join(shapes[:2]) + (f", ... ({len(shapes)})" if len(shapes) > 2 else "")


def reason_against(device: str) -> str | None:
    for name, usable, description in _core.list_devices():
        if name == device:
            return None if usable else description
    return "no such device"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--full-float32", action="store_true", help="do not allow TF32")
    parser.add_argument("--filter", default="", help="only ops whose name contains this")
    options = parser.parse_args()
    reason = reason_against(options.device)
    if reason is not None:
        print(f"skipped: {options.device} can't be used: {reason}")
        return
    print(f"{'net':6} {'op':34} {'us':>9} {'GB/s':>8}  inputs")
    nothing = Row("random_advance", [("int64", (2,))], {"amount": 1})
    time_us, _ = measure(nothing, options.device, options.steps, options.repeats)
    print(f"{'':6} {'nothing (one thread)':34} {time_us:9.2f} {'':>8}")
    for net, row in all_rows():
        if options.filter not in row.op:
            continue
        # A step of large rows takes up to a millisecond.
        steps = max(1, options.steps // 20) if net == "large" else options.steps
        time_us, moved = measure(
            row, options.device, steps, options.repeats, not options.full_float32
        )
        rate = moved / time_us / 1e3
        print(f"{net:6} {row.op:34} {time_us:9.2f} {rate:8.0f}  {text_of(row)}", flush=True)


if __name__ == "__main__":
    main()
