"""Runs compiled calls and converts the values that they drew for Keras."""

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
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# This converts what Keras' layers return to NumPy arrays.
to_numpy = keras.ops.convert_to_numpy


def compiled(function, arrays, device, steps=1):
    """Returns the results of a function that runs as a program, nested as they are, as arrays."""
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
    """Sorts the keys of dictionaries, which is the order that `flatten` uses."""
    if isinstance(structure, dict):
        return {key: _in_order(structure[key]) for key in sorted(structure)}
    if isinstance(structure, (list, tuple)):
        return type(structure)(_in_order(item) for item in structure)
    return structure


def to_keras(transformation):
    """Copies a transformation's arrays to Keras tensors, since Keras changes some in place."""

    def convert(x):
        if not isinstance(x, np.ndarray):
            return x
        return int(x) if x.shape == () else keras.ops.convert_to_tensor(x.copy())

    return trees.map_structure(convert, transformation)


def equal_nearly_everywhere(actual, expected):
    """Checks all but 2% of the pixels: where two are equally near, rounding chooses either one."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert (np.abs(actual - expected) > 1e-3).mean() < 0.02
