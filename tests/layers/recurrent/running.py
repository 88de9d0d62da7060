"""Runs recurrent layers here and in Keras, with states and masks, for outputs and gradients."""

import numpy as np

import kerascnn
from kerascnn import _core, ops
from kerascnn.tracing import Trace

from ..comparing import keras


def as_list(x):
    return list(x) if isinstance(x, (list, tuple)) else [x]


def arrays(tensors):
    return [
        np.array(x.detach().numpy() if hasattr(x, "detach") else x.numpy())
        for x in as_list(tensors)
    ]


def same_weights(here, there, rng):
    """Checks that both have the same weights by path and shape, and gives them the same values."""
    assert [w.path for w in here.weights] == [w.path for w in there.weights]
    assert [w.shape for w in here.weights] == [tuple(w.shape) for w in there.weights]
    values = [rng.uniform(-0.8, 0.8, w.shape).astype(w.dtype) for w in here.weights]
    here.set_weights(values)
    there.set_weights(values)


def make_pair(name, arguments, shape, rng):
    """Builds the layer and Keras' layer with the same random weights."""
    here = getattr(kerascnn.layers, name)(**arguments, name="a_layer")
    there = getattr(keras.layers, name)(**arguments, name="a_layer")
    here.build(shape)
    there.build(shape)
    same_weights(here, there, rng)
    return here, there


def run_keras(layer, x, states, mask, directions, training=False):
    """Returns the outputs, then the gradients by the input, the states and the weights."""
    import torch

    x = torch.tensor(x, requires_grad=True)
    states = [torch.tensor(s, requires_grad=True) for s in states]
    mask = None if mask is None else torch.tensor(mask)
    outputs = as_list(
        layer(x, initial_state=states or None, mask=mask, training=training),
    )
    for variable in layer.trainable_weights:
        variable.value.grad = None
    sum((o * torch.tensor(d)).sum() for o, d in zip(outputs, directions, strict=True)).backward()
    gradients = [t.grad for t in (x, *states)]
    gradients += [v.value.grad for v in layer.trainable_weights]
    return arrays([*outputs, *gradients])


def run_eagerly(layer, x, states, mask, directions, device="cpu", training=False):
    """Returns what `run_keras` does from calls that run at once, recorded by a tape."""
    with kerascnn.device(device):
        x = ops.convert_to_tensor(x)
        states = [ops.convert_to_tensor(s) for s in states]
        with kerascnn.GradientTape() as tape:
            for tensor in (x, *states):
                tape.watch(tensor)
            outputs = as_list(layer(x, initial_state=states or None, mask=mask, training=training))
            loss = sum(ops.sum(o * d) for o, d in zip(outputs, directions, strict=True))
        gradients = tape.gradient(loss, [x, *states, *layer.trainable_weights])
        return arrays([*outputs, *gradients])


def run_compiled(layer, x, states, mask, directions, device="cpu", training=False):
    """Returns what `run_keras` does from a compiled step."""
    given = [x, *states, *([] if mask is None else [mask])]
    with kerascnn.device(device):
        with Trace(device) as trace:
            inputs = [
                trace.graph.input(f"x{i}", list(a.shape), str(a.dtype)) for i, a in enumerate(given)
            ]
            tensors = inputs[: 1 + len(states)]
            with kerascnn.GradientTape() as tape:
                tape.watch(tensors)
                outputs = as_list(
                    layer(
                        tensors[0],
                        initial_state=tensors[1:] or None,
                        mask=None if mask is None else inputs[-1],
                        training=training,
                    )
                )
                loss = sum(ops.sum(o * d) for o, d in zip(outputs, directions, strict=True))
            gradients = tape.gradient(loss, [*tensors, *layer.trainable_weights])
        program = _core.Program.compile(
            trace.graph, [*outputs, *gradients], device, allow_tf32=False
        )
        program.run([_core.from_numpy(a, device) for a in given])
        _core.synchronize(device)
        return [np.array(t.numpy()) for t in program.outputs()]


def assert_close(actual, expected, tolerance, about=""):
    """Compares each result; its scale is at least 1, since its terms may cancel."""
    assert len(actual) == len(expected)
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert a.shape == e.shape
        scale = max(1.0, float(np.abs(e).max(initial=0.0)))
        error = float(np.abs(np.asarray(a, "float64") - e).max(initial=0.0)) / scale
        assert error < tolerance, f"result {i} of {about}: {error}"
