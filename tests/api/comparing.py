"""Compares a function of kerascnn with Keras': values and gradients, at once and compiled."""

import os
import zlib

import numpy as np
import pytest

import kerascnn
from kerascnn import _core
from kerascnn.tracing import Trace

keras = pytest.importorskip("keras")
torch = pytest.importorskip("torch")

# A few float32 operations of this size round off so much. Tangents and powers near their poles, and
# logarithms of sums, lose some more digits by cancellation.
TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}
GRADIENT_TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def fresh_numbers(name):
    """Returns a generator for the cases of a module, with the seed of this run."""
    return np.random.default_rng([int(os.environ["KERASCNN_TEST_SEED"]), zlib.crc32(name.encode())])


def whole(function, *arrays):
    """Makes a case without gradients: there is none, or it may go to any of equal elements."""
    return function, arrays, False


def smooth(function, *arrays):
    return function, arrays, True


def as_numpy(x):
    return x.detach().cpu().numpy() if hasattr(x, "detach") else np.asarray(x)


def close(actual, wanted, tolerance):
    np.testing.assert_allclose(
        np.asarray(actual).astype("float64"), np.asarray(wanted).astype("float64"), **tolerance
    )


def check(function, arrays, has_gradient, device, tolerance=None, gradient_tolerance=None):
    """Compares `function(ops, *tensors)` of kerascnn with that of Keras."""
    tolerance = tolerance or TOLERANCE
    gradient_tolerance = gradient_tolerance or GRADIENT_TOLERANCE
    tensors = [torch.tensor(x) for x in arrays]
    if has_gradient:
        for t in tensors:
            t.requires_grad_(t.dtype.is_floating_point)
    wanted = function(keras.ops, *tensors)
    wanted_values = as_numpy(wanted)
    with kerascnn.device(device):
        eager = function(kerascnn.ops, *[kerascnn.ops.convert_to_tensor(x) for x in arrays])
        assert tuple(eager.shape) == tuple(wanted.shape)
        close(eager.numpy(), wanted_values, tolerance)
        with Trace(device) as trace:
            values = [
                trace.graph.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(arrays)
            ]
            traced = function(kerascnn.ops, *values)
            outputs = [kerascnn.ops.convert_to_tensor(traced)]
            if has_gradient:
                weights = np.cos(np.arange(wanted_values.size)).reshape(wanted.shape)
                weights = weights.astype(wanted_values.dtype)
                loss = kerascnn.ops.sum(traced * weights)
                gradients = trace.graph.gradients(loss, values)
                outputs += [g for g in gradients if g is not None]
        program = _core.Program.compile(trace.graph, outputs, device, allow_tf32=False)
        program.run([_core.from_numpy(np.ascontiguousarray(x), device) for x in arrays])
        results = [np.array(t.numpy()) for t in program.outputs()]
    # Fused loops may multiply and add with one rounding.
    close(results[0], wanted_values, tolerance)
    if not has_gradient:
        return
    (wanted * torch.tensor(weights)).sum().backward()
    expected = [t.grad for t, g in zip(tensors, gradients, strict=True) if g is not None]
    for t, g in zip(tensors, gradients, strict=True):
        assert g is not None or t.grad is None or not t.grad.any()
    for actual, wanted_gradient in zip(results[1:], expected, strict=True):
        close(actual, as_numpy(wanted_gradient), gradient_tolerance)
