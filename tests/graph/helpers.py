"""Short names for tracing, compiling and running graphs through the compiled core."""

from __future__ import annotations

import numpy as np

from kerascnn import _core

# Tensors are made and programs run on this device. conftest.py sets it for each test.
current_device = "cpu"


def use_device(device: str) -> None:
    global current_device
    current_device = device


def tensor(array, dtype=None) -> _core.Tensor:
    return _core.from_numpy(np.array(array, dtype=dtype), current_device)


def variable(name: str, array, dtype="float32") -> _core.Variable:
    return _core.Variable(name, tensor(array, dtype))


class Tracer:
    """A graph whose ops are methods: ``t.add(a, b)``, ``t.clip(x, min=0.0, max=1.0)``."""

    def __init__(self) -> None:
        self.graph = _core.Graph()

    def input(self, shape, dtype="float32", name="x"):
        return self.graph.input(name, list(shape), dtype)

    def full(self, shape, value, dtype="float32"):
        return self.graph.full(list(shape), dtype, value)

    def all(self, op, *inputs, **attributes):
        return self.graph.apply(op, list(inputs), attributes)

    def __getattr__(self, op):
        return lambda *inputs, **attributes: self.all(op, *inputs, **attributes)[0]

    def sum(self, x):
        return self.reduce_sum(x, axes=[], keepdims=False)

    def matmul2(self, a, b):
        return self.matmul(a, b, transpose_a=False, transpose_b=False)

    def compile(self, *outputs, optimize=True) -> _core.Program:
        return _core.Program.compile(
            self.graph, list(outputs), current_device, optimize=optimize, allow_tf32=False
        )

    def run(self, outputs, inputs, optimize=True, steps=1):
        program = self.compile(*outputs, optimize=optimize)
        program.run([tensor(array) for array in inputs], steps)
        return [output.numpy().copy() for output in program.outputs()]


def memory(name: str) -> int:
    return _core.memory_stats(current_device)[name]


def num_allocations() -> int:
    return memory("num_allocations")
