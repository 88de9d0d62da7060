"""Runs a layer and Keras' layer of the same name on the same weights and data."""

import warnings

import numpy as np
import pytest

import kerascnn
from kerascnn import _core, ops
from kerascnn.tracing import Trace

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Other packages may warn on import.
    keras = pytest.importorskip("keras")


def relative_error(actual, expected):
    """Returns the norm of the difference divided by the norm of `expected`."""
    actual, expected = np.asarray(actual, "float64"), np.asarray(expected, "float64")
    assert actual.shape == expected.shape
    scale = np.linalg.norm(expected)
    return float(np.linalg.norm(actual - expected) / (scale if scale else 1.0))


def run_here(layer, inputs, direction, device, training):
    """Returns the output, then the gradients of sum(output * direction) by inputs and weights."""
    many = len(inputs) > 1
    with kerascnn.device(device):
        layer(list(inputs) if many else inputs[0])  # This call builds the weights.
        with Trace(device) as trace:
            values = [
                trace.graph.input(f"x{i}", list(x.shape), str(x.dtype))
                for i, x in enumerate(inputs)
            ]
            with kerascnn.GradientTape() as tape:
                tape.watch(values)
                outputs = layer(values if many else values[0], training=training)
                loss = ops.sum(ops.multiply(outputs, direction))
            gradients = tape.gradient(loss, [*values, *layer.trainable_weights])
        program = _core.Program.compile(
            trace.graph, [outputs, *gradients], device, allow_tf32=False
        )
        program.run([_core.from_numpy(x, device) for x in inputs])
        _core.synchronize(device)
        return [np.array(t.numpy()) for t in program.outputs()]


def run_keras(layer, inputs, direction, training):
    """Returns what `run_here` does, from Keras on its PyTorch backend."""
    import torch

    tensors = [torch.tensor(x, requires_grad=True) for x in inputs]
    outputs = layer(tensors if len(tensors) > 1 else tensors[0], training=training)
    (outputs * torch.tensor(direction)).sum().backward()
    gradients = [x.grad for x in tensors] + [v.value.grad for v in layer.trainable_weights]
    return [t.detach().numpy() for t in [outputs, *gradients]]


def make_pair(name, arguments, inputs, rng):
    """Builds a layer and Keras' layer with the same random weights."""
    here = getattr(kerascnn.layers, name)(**arguments)
    there = getattr(keras.layers, name)(**arguments)
    many = len(inputs) > 1
    shapes = [x.shape for x in inputs]
    there.build(shapes if many else shapes[0])
    here.build(shapes if many else shapes[0])
    assert [w.shape for w in here.weights] == [tuple(w.shape) for w in there.weights]
    values = [rng.uniform(0.2, 1.0, w.shape) * rng.choice([-1, 1], w.shape) for w in here.weights]
    for i, weight in enumerate(here.weights):
        if weight.name == "moving_variance":
            values[i] = np.abs(values[i])
    values = [v.astype(w.dtype) for v, w in zip(values, here.weights, strict=True)]
    here.set_weights(values)
    there.set_weights(values)
    return here, there
