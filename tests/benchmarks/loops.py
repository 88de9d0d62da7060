"""Measures a compiled loop: making it ready, and a run of it, with and without its gradient.

    python tests/benchmarks/loops.py --device cpu --steps 10000

Each line is for a recurrence h = tanh(h w + x) over so many steps. It shows the seconds of the
first call, which compiles, and of the best later one, and the memory of the program. With
`--unrolled N` it also shows a loop of N steps that is repeated while it is traced, per step, for
comparison.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import kerascnn as keras
from kerascnn import _core, ops, trees
from kerascnn.tracing import Trace


def recurrence(unroll):
    def loss(w, x, h):
        def step(h, row):
            h = ops.tanh(h @ w + row)
            return h, ops.sum(h)

        last, sums = ops.scan(step, h, x, unroll=unroll)
        return ops.sum(last * last) + ops.sum(sums)

    return loss


def with_gradient(loss):
    def call(*inputs):
        with keras.GradientTape() as tape:
            tape.watch(list(inputs))
            value = loss(*inputs)
        return value, tape.gradient(value, list(inputs))

    return call


def timed(function, arrays, device, rounds):
    """Returns the seconds to make the program ready, the seconds of a run, and its statistics."""
    start = time.perf_counter()
    with Trace(device) as trace:
        values = [trace.graph.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(arrays)]
        results = trees.flatten(function(*values))
    program = _core.Program.compile(trace.graph, results, device)
    ready = time.perf_counter() - start
    inputs = [_core.from_numpy(x, device) for x in arrays]
    best = float("inf")
    for _ in range(rounds + 1):  # the first run makes what a run needs
        start = time.perf_counter()
        program.run(inputs)
        _core.synchronize(device)
        best = min(best, time.perf_counter() - start)
    return ready, best, program.stats()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--units", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--unrolled", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    for steps, unroll in ((options.steps, False), (options.unrolled, True)):
        if not steps:
            continue
        shapes = [(options.units,) * 2, (steps, options.batch, options.units)]
        arrays = [(0.1 * rng.standard_normal(s)).astype("float32") for s in shapes]
        arrays.append(np.zeros(shapes[1][1:], "float32"))
        loss = recurrence(unroll)
        for name, function in (("forward", loss), ("gradient", with_gradient(loss))):
            ready, best, stats = timed(function, arrays, options.device, options.rounds)
            print(
                f"{'unrolled ' if unroll else ''}{name}, {steps} steps: ready in {ready:.3f} s, "
                f"a run takes {best * 1e3:.2f} ms ({best / steps * 1e6:.2f} us a step), "
                f"{stats['num_instructions']} calls, "
                f"arena of {stats['arena_bytes'] / 2**20:.1f} MiB"
            )


if __name__ == "__main__":
    main()
