"""Shows the kernels of one step: the time of each, the least time that it could take, and the gap.

    python tests/benchmarks/profile_step.py --net C [--device cuda:0] [--output FILE]
    python tests/benchmarks/profile_step.py --net C@1000 --step predict

Each kernel is run by itself many times (on a GPU as a graph that repeats it on the device), after
the kernels before it have made its inputs. The whole step is run as `fit`, `evaluate` or `predict`
runs it. A kernel's floor is the largest of

    its bytes, inputs and outputs once, over the measured bandwidth of memory, or of the cache if
    they
      are few;
    its multiplications and additions over the rate that a large product of matrices reaches here;
    the time of a kernel that does nothing, in a chain of such kernels.

"way" in the last column says which one it is: memory, compute or launch. The floor of the step is
that of the longest path through kernels that wait for one another. The path goes over many steps,
each of which begins before the one before has ended. It is not the floor of the network, which
fewer kernels could compute. Floors count every product of a convolution, including those with the
zeros in the gradient of pooling.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import report
from keras_nets import build
from nets import CLASSES, IMAGE_SIZE, Case

import kerascnn as keras
from kerascnn import _core
from kerascnn.profiler.machine import seconds_per_run, time_of_op
from kerascnn.training.steps import CompiledStep

# Each pair has a number of float32 elements that exceed the caches, and one that fits into one.
_SIZES = {"cuda": (1 << 26, 1 << 20), "cpu": (1 << 24, 1 << 16)}
_PRODUCT_SIZE = {"cuda": 4096, "cpu": 1024}
_PRODUCTS = ("matmul", "dense")
_BUDGET = 0.2  # each measurement of what the device can do takes this many seconds


class Limits(NamedTuple):
    """What the device can do, as measured: seconds, bytes per second, operations per second."""

    launch: float
    memory: float
    cache: float
    cache_bytes: int
    compute: float


class Call(NamedTuple):
    """A kernel call of the step."""

    label: str
    kernel: str
    bytes: int
    operations: int
    seconds: float
    floor: float
    way: str


def measure_limits(device: str) -> Limits:
    kind = device.partition(":")[0]
    random = np.random.default_rng(0)
    # Each run waits for the one before, because it advances the state that it reads.
    launch = time_of_chain(device)
    rates = []
    for elements in _SIZES[kind]:
        x = random.random(elements, np.float32)
        rates.append(3 * x.nbytes / time_of_op("add", [x, x + 1], {}, device, _BUDGET))
    n = _PRODUCT_SIZE[kind]
    square = random.random((n, n), np.float32)
    attributes = {"transpose_a": False, "transpose_b": False}
    compute = 2 * n**3 / time_of_op("matmul", [square, square.copy()], attributes, device, _BUDGET)
    return Limits(launch, rates[0], max(rates), 3 * 4 * _SIZES[kind][1], compute)


def time_of_chain(device: str) -> float:
    """Returns the seconds of a kernel of one thread that waits for the same kernel before it."""
    graph = _core.Graph()
    state = _core.Variable("state", _core.from_numpy(np.zeros(2, np.int64), device))
    (after,) = graph.apply("random_advance", [graph.read(state)], {"amount": 1})
    graph.assign(state, after)
    program = _core.Program.compile(graph, [], device)
    return seconds_per_run(program, [], device, _BUDGET)


def floor_of(call: dict[str, Any], limits: Limits) -> tuple[float, str]:
    moved = call["bytes"]
    bandwidth = limits.cache if moved <= limits.cache_bytes else limits.memory
    is_product = call["op"] in _PRODUCTS or call["op"].startswith("conv2d")
    ways = {
        "launch": limits.launch,
        "memory": moved / bandwidth,
        "compute": call["flop"] / limits.compute if is_product else 0.0,
    }
    way = max(ways, key=lambda name: ways[name])
    return ways[way], way


# The step -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def recorded_runs() -> Iterator[list[tuple[CompiledStep, list, int]]]:
    """Collects (step, inputs, number of steps) of every run of a compiled step."""
    runs: list[tuple[CompiledStep, list, int]] = []
    original = CompiledStep.run

    def run(self: CompiledStep, inputs: list, steps: int, *options: Any) -> None:
        runs.append((self, inputs, steps))
        original(self, inputs, steps, *options)

    CompiledStep.run = run  # type: ignore[method-assign]
    try:
        yield runs
    finally:
        CompiledStep.run = original  # type: ignore[method-assign]


class Step:
    """The step of a net with whole batches, as `fit`, `evaluate` or `predict` runs it."""

    def __init__(self, kind: str, case: Case, samples: int, device: str):
        random = np.random.default_rng(0)
        x = random.integers(0, 256, (samples, IMAGE_SIZE, IMAGE_SIZE, 1), np.uint8)
        y = random.integers(0, CLASSES, samples, np.int32)
        self.device = device
        self.model = build(keras, case, scaled=True)
        run, arrays = getattr(self.model, kind), (x,) if kind == "predict" else (x, y)
        with recorded_runs() as runs:
            run(*arrays, batch_size=case.batch_size, verbose=0)
        step, self.inputs, _ = max(runs, key=lambda run: run[2])
        self.program = step.program
        self.steps = samples // case.batch_size

    def rewind(self) -> None:
        """Makes the next run take the epoch's first batch."""
        self.model._state.step.write(0)

    def seconds(self) -> float:
        """Returns the seconds of a step in the middle of an epoch."""
        times = []
        for _ in range(4):
            self.rewind()
            _core.synchronize(self.device)
            start = time.perf_counter()
            self.program.run(self.inputs, self.steps)
            _core.synchronize(self.device)
            times.append((time.perf_counter() - start) / self.steps)
        return statistics.median(times[1:])

    def calls(self, limits: Limits, passes: int, repeats: int) -> list[Call]:
        self.rewind()
        rows = self.program.time_instructions(self.inputs, passes + 1, repeats)
        times = [statistics.median(column) for column in zip(*rows[1:], strict=True)]
        return [
            Call(
                call["label"],
                call["kernel"],
                call["bytes"],
                call["flop"],
                seconds,
                *floor_of(call, limits),
            )
            for call, seconds in zip(self.program.describe(), times, strict=True)
        ]

    def longest_way(self, times: list[float]) -> float:
        """Returns the seconds per step on the longest path of calls that wait for each other."""

        def over(steps: int) -> float:
            done: list[float] = []
            for i, waits in enumerate(self.program.dependencies(steps)):
                begin = max((done[before] for before in waits), default=0.0)
                done.append(begin + times[i % len(times)])
            return max(done)

        return (over(8) - over(4)) / 4


def profile(case: Case, args: argparse.Namespace, device: str, limits: Limits) -> dict[str, Any]:
    step = Step(args.step, case, args.samples, device)
    is_gpu = device != "cpu"
    repeats = args.repeats or (500 if is_gpu else 1)
    seconds = step.seconds()
    calls = step.calls(limits, args.passes or (3 if is_gpu else 50), repeats)
    alone, floors = [call.seconds for call in calls], [call.floor for call in calls]
    return {
        "net": str(case),
        "step": args.step,
        "stats": step.program.stats(),
        "step_us": seconds * 1e6,
        # A CPU runs kernels one after another; a GPU runs them side by side unless they have to
        # wait.
        "floor_us": (step.longest_way(floors) if is_gpu else sum(floors)) * 1e6,
        "longest_way_us": step.longest_way(alone) * 1e6,
        "sum_us": sum(alone) * 1e6,
        "least_memory_us": sum(call.bytes for call in calls) / limits.cache * 1e6,
        "least_compute_us": sum(call.operations for call in calls) / limits.compute * 1e6,
        "calls": [call._asdict() for call in calls],
    }


def text(result: dict[str, Any]) -> str:
    lines = [
        f"net {result['net']}, {result['step']}",
        "| # | what | kernel | us | floor | gap | MB | Mop | way |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for i, values in enumerate(result["calls"]):
        call = Call(**values)
        own, floor = call.seconds * 1e6, call.floor * 1e6
        lines.append(
            f"| {i} | {call.label[:60]} | {call.kernel[:50]} | {own:.2f} | {floor:.2f} "
            f"| {own - floor:.2f} | {call.bytes / 1e6:.3f} | {call.operations / 1e6:.2f} "
            f"| {call.way} |"
        )
    stats = result["stats"]
    lines += [
        f"step {result['step_us']:.2f} us, floor {result['floor_us']:.2f} us, "
        f"gap {result['step_us'] - result['floor_us']:.2f} us",
        f"kernels one after another {result['sum_us']:.2f} us, on the longest way "
        f"{result['longest_way_us']:.2f} us; {stats['num_instructions']} kernels, "
        f"{stats['longest_chain']} of them in a row, arena {stats['arena_bytes'] / 2**20:.1f} MiB",
        f"all bytes at once {result['least_memory_us']:.2f} us, all operations "
        f"{result['least_compute_us']:.2f} us",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", default="A,B,C,D", help="A to E, or C@256; several with commas")
    parser.add_argument(
        "--step", choices=("fit", "evaluate", "predict"), default="fit", help="whose; default fit"
    )
    parser.add_argument("--device", help="default: the first usable GPU, else cpu")
    parser.add_argument("--samples", type=int, default=60000, help="of made-up data")
    parser.add_argument("--passes", type=int, help="over the step; default 3 on a GPU, else 50")
    parser.add_argument("--repeats", type=int, help="of a kernel in a pass; default 500 or 1")
    parser.add_argument("--output", type=Path, help="file for everything as JSON")
    args = parser.parse_args()
    try:
        if args.device:
            keras.config.set_device(args.device)
        cases = [Case.parse(name) for name in args.net.split(",")]
    except (ValueError, keras.DeviceError) as error:
        parser.error(" ".join(str(error).split()))
    if any(case.batch_size > args.samples for case in cases):
        parser.error("--samples: fewer than one batch")
    device = keras.config.get_device()
    limits = measure_limits(device)
    print(
        f"{device}: {limits.launch * 1e6:.2f} us a kernel in a chain, {limits.memory / 1e9:.0f} "
        f"GB/s from memory, {limits.cache / 1e9:.0f} from cache, {limits.compute / 1e12:.2f} "
        "Tops/s in products"
    )
    results = []
    for case in cases:
        results.append(profile(case, args, device, limits))
        print("\n" + text(results[-1]), flush=True)
    if args.output:
        document = {"machine": report.machine(device), "limits": limits._asdict()}
        args.output.write_text(json.dumps({**document, "nets": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
