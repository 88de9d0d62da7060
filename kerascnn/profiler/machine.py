"""Measures what a device can do, with the library's own kernels."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kerascnn import _core, config, dtypes
from kerascnn.device import canonical_name, current
from kerascnn.ops import dispatch

# These are the sizes of float32 arrays, of which three are moved: one size for each level of
# caches, and one for the memory.
_SIZES = {"cuda": (1 << 18, 1 << 20, 1 << 22, 1 << 26), "cpu": (1 << 12, 1 << 16, 1 << 20, 1 << 24)}
_PRODUCT_SIZE = {"cuda": 4096, "cpu": 768}
_BUDGET = 0.05  # seconds for each measurement


@dataclass
class Machine:
    """The measured limits of a device.

    Attributes:
        device: its name, such as "cuda:0".
        bandwidths: bytes per second that adding arrays moves, for so many bytes: what is small
            stays in a cache.

    Example:

    >>> machine = keras.profiler.Machine("cpu", {1000: 8e10, 1000000: 2e10})
    >>> machine.bandwidth(500), machine.bandwidth(1e9)
    (80000000000.0, 20000000000.0)
    """

    device: str
    bandwidths: dict[int, float]
    _compute: dict[tuple[str, bool], float] = field(default_factory=dict, repr=False)

    def compute(self, dtype: str = "float32") -> float:
        """Operations per second of a large product of matrices of a dtype.

        In float32 on a GPU with TF32 where `keras.config.tf32()` allows it.
        """
        if not dtypes.is_float(dtype):
            dtype = "float32"
        key = (dtype, config.tf32())
        if key not in self._compute:
            n = _PRODUCT_SIZE[_kind(self.device)]
            values = np.random.default_rng(0).random((n, n), np.float32)
            square = values.astype(dtypes.numpy_dtype(dtype))
            attributes = {"transpose_a": False, "transpose_b": False}
            seconds = time_of_op("matmul", [square, square.copy()], attributes, self.device)
            self._compute[key] = 2 * n**3 / seconds
        return self._compute[key]

    @property
    def memory_bandwidth(self) -> float:
        """Returns bytes per second for arrays that fit in no cache."""
        return self.bandwidths[max(self.bandwidths)]

    @property
    def cache_bandwidth(self) -> float:
        """Returns bytes per second for arrays that fit in the fastest cache."""
        return max(self.bandwidths.values())

    def bandwidth(self, num_bytes: float) -> float:
        """Bytes per second that a kernel which moves so many could reach.

        That of the caches which hold as much: the best of those measured with no less.
        """
        fitting = [rate for size, rate in self.bandwidths.items() if size >= num_bytes]
        return max(fitting, default=self.memory_bandwidth)


_known: dict[str, Machine] = {}


def measure_machine(device: str | None = None) -> Machine:
    """The limits of a device, measured once in a process; takes a fraction of a second.

    Args:
        device: By default the current device.

    Returns:
        A `Machine`.

    >>> machine = keras.profiler.measure_machine("cpu")
    >>> machine.compute() > 0 and machine.memory_bandwidth > 0
    True
    """
    device = current() if device is None else canonical_name(device)
    if device not in _known:
        rates = {}
        for elements in _SIZES[_kind(device)]:
            x = np.ones(elements, np.float32)
            rates[3 * x.nbytes] = 3 * x.nbytes / time_of_op("add", [x, x + 1], {}, device)
        _known[device] = Machine(device, rates)
    return _known[device]


def time_of_op(
    op: str,
    arrays: list[np.ndarray],
    attributes: dict[str, Any],
    device: str,
    budget: float = _BUDGET,
) -> float:
    """Returns the seconds of an op on these arrays, which are on the device already."""
    graph = _core.Graph()
    values = [graph.input(f"x{i}", list(a.shape), a.dtype.name) for i, a in enumerate(arrays)]
    outputs = dispatch.record(graph, op, values, attributes)
    program = _core.Program.compile(graph, outputs, device, allow_tf32=config.tf32())
    return seconds_per_run(program, [_core.from_numpy(a, device) for a in arrays], device, budget)


def seconds_per_run(
    program: Any, tensors: list[Any], device: str, budget: float = _BUDGET
) -> float:
    """Returns the least time of a step in runs of many steps: what the device can do."""
    steps, elapsed = 1, 0.0
    program.run(tensors, 1)
    _core.synchronize(device)
    while elapsed < budget / 10:
        start = time.perf_counter()
        program.run(tensors, steps)
        _core.synchronize(device)
        elapsed = time.perf_counter() - start
        steps = steps * 4 if elapsed < budget / 10 else steps
    times = []
    for _ in range(5):
        start = time.perf_counter()
        program.run(tensors, steps)
        _core.synchronize(device)
        times.append((time.perf_counter() - start) / steps)
    return min(times)


def _kind(device: str) -> str:
    return device.partition(":")[0]
