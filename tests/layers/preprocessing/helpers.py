"""Compiled calls, and the same values for Keras."""

import numpy as np
from hypothesis import HealthCheck, settings

import kerascnn
from kerascnn import _core, trees
from kerascnn.tracing import Trace

from ..comparing import keras, relative_error

__all__ = [
    "compiled",
    "equal_nearly_everywhere",
    "few",
    "keras",
    "relative_error",
    "to_keras",
    "to_numpy",
]

few = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

# What Keras' calls on arrays return.
to_numpy = keras.ops.convert_to_numpy


def compiled(function, arrays, device, steps=1):
    """What a function of tensors returns when it is a program; nested as it is, in NumPy arrays."""
    with kerascnn.device(device):
        with Trace(device) as trace:
            values = [
                trace.graph.input(f"x{i}", list(a.shape), str(a.dtype))
                for i, a in enumerate(arrays)
            ]
            results = function(*values)
        flat = [x for x in trees.flatten(results) if isinstance(x, _core.Value)]
        program = _core.Program.compile(trace.graph, flat, device, allow_tf32=False)
        program.run([_core.from_numpy(np.ascontiguousarray(a), device) for a in arrays], steps)
        _core.synchronize(device)
        found = iter([np.array(t.numpy()) for t in program.outputs()])
    return trees.map_structure(
        lambda x: next(found) if isinstance(x, _core.Value) else x,
        _in_order(results),
    )


def _in_order(structure):
    """Dictionaries with their keys sorted, as `flatten` goes through them."""
    if isinstance(structure, dict):
        return {key: _in_order(structure[key]) for key in sorted(structure)}
    if isinstance(structure, (list, tuple)):
        return type(structure)(_in_order(item) for item in structure)
    return structure


def to_keras(transformation):
    """A transformation of arrays, as tensors of Keras (fresh ones: Keras changes some in place)."""

    def convert(x):
        if not isinstance(x, np.ndarray):
            return x
        return int(x) if x.shape == () else keras.ops.convert_to_tensor(x.copy())

    return trees.map_structure(convert, transformation)


def equal_nearly_everywhere(actual, expected):
    """Where a pixel is the nearer one of two equally near ones, rounding may decide differently."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert (np.abs(actual - expected) > 1e-3).mean() < 0.02
