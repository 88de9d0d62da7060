"""Activation functions have Keras' names, signatures, values, gradients and configurations."""

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn
from kerascnn import _core, activations, ops
from kerascnn.tracing import Trace

from ..comparing import keras, relative_error
from ..parity import FEW, plain

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

NAMES = sorted(
    name
    for name in dir(keras.activations)
    if not name.startswith("_") and name not in ("get", "serialize", "deserialize")
)
# These are the arguments besides x; their values are drawn.
ARGUMENTS = {
    "relu": {
        "negative_slope": st.sampled_from([0.0, 0.1]),
        "max_value": st.sampled_from([None, 6.0, 0.7]),
        "threshold": st.sampled_from([0.0, 0.4]),
    },
    "leaky_relu": {"negative_slope": st.sampled_from([0.0, 0.3])},
    "elu": {"alpha": st.sampled_from([0.5, 2.0])},
    "celu": {"alpha": st.sampled_from([0.5, 2.0])},
    "gelu": {"approximate": st.booleans()},
    "softmax": {"axis": st.sampled_from([-1, 0, 1, (0, 2), None])},
    "log_softmax": {"axis": st.sampled_from([-1, 0, 1])},
    "sparsemax": {"axis": st.sampled_from([-1, 0, 1])},
    "glu": {"axis": st.sampled_from([-1, 1])},
    "squareplus": {"b": st.sampled_from([4, 0.5])},
    "hard_shrink": {"threshold": st.sampled_from([0.5, 0.2])},
    "soft_shrink": {"threshold": st.sampled_from([0.5, 0.2])},
    "threshold": {"threshold": st.just(0.3), "default_value": st.sampled_from([0.0, -2.0])},
}


def test_every_name_of_keras_is_there():
    assert set(dir(keras.activations)) <= set(dir(activations))
    assert set(NAMES) <= set(activations.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_are_those_of_keras(name, device):
    import torch

    here, there = getattr(activations, name), getattr(keras.activations, name)
    assert [(p.name, p.default) for p in inspect.signature(here).parameters.values()] == [
        (p.name, p.default) for p in inspect.signature(there).parameters.values()
    ]

    @FEW
    @given(
        arguments=st.fixed_dictionaries(ARGUMENTS.get(name, {})),
        dtype=st.sampled_from(["float32", "float64"]),
        seed=st.integers(0, 2**16),
        scale=st.sampled_from([1.0, 4.0]),
    )
    def check(arguments, dtype, seed, scale):
        rng = np.random.default_rng(seed)
        x = (rng.uniform(-1, 1, (4, 6, 2)) * scale).astype(dtype)
        tensor = torch.tensor(x, requires_grad=True)
        expected = there(tensor, **arguments)
        direction = rng.uniform(0.5, 1.5, tuple(expected.shape)).astype(dtype)
        (expected * torch.tensor(direction)).sum().backward()
        with kerascnn.device(device):
            eager = here(ops.convert_to_tensor(x), **arguments).numpy()
            with Trace(device) as trace:
                value = trace.graph.input("x", list(x.shape), dtype)
                y = here(value, **arguments)
                loss = ops.sum(ops.multiply(y, direction))
                gradients = trace.graph.gradients(loss, [value])
            program = _core.Program.compile(trace.graph, [y, *gradients], device)
            program.run([_core.from_numpy(x, device)])
            compiled, gradient = (np.array(t.numpy()) for t in program.outputs())
        # exp and similar functions are exact to a few units of rounding. gelu's cubic and the sums
        # in sparsemax lose a little more.
        tolerance = 2e-5 if dtype == "float32" else 1e-11
        if name == "hard_sigmoid":
            tolerance = max(tolerance, 1e-7)  # PyTorch's gradient contains 1/6 as float32.
        assert eager.dtype == compiled.dtype == dtype
        assert relative_error(eager, expected.detach().numpy()) < tolerance
        assert relative_error(compiled, expected.detach().numpy()) < tolerance
        assert relative_error(gradient, tensor.grad.numpy()) < tolerance

    check()


@pytest.mark.parametrize("name", NAMES)
def test_names_and_configurations(name):
    here, there = getattr(activations, name), getattr(keras.activations, name)
    assert activations.get(name) is here
    assert activations.deserialize(name) is here
    assert activations.serialize(here) == keras.activations.serialize(there)
    assert activations.deserialize(activations.serialize(here)) is here
    layer = kerascnn.layers.Activation(name)
    assert (
        layer.get_config()["activation"] == keras.layers.Activation(name).get_config()["activation"]
    )


def mine(x):
    """A custom activation."""
    return ops.tanh(x) * 2.0


def test_own_functions_layers_and_none():
    assert activations.get(None) is activations.linear
    assert activations.get(mine) is mine
    config = activations.serialize(mine)
    assert activations.deserialize(config, custom_objects={"mine": mine}) is mine
    layer = kerascnn.layers.LeakyReLU(0.1, name="a")
    config = activations.serialize(layer)
    assert plain(config) == plain(
        keras.activations.serialize(keras.layers.LeakyReLU(0.1, name="a"))
    )
    assert activations.get(config).negative_slope == 0.1
    for module in (activations, keras.activations):
        for wrong in ("rulu", 3):
            with pytest.raises(ValueError):
                module.get(wrong)


def test_large_numbers_stay_finite(device):
    x = np.array([-1e4, -100.0, 100.0, 1e4], "float32")
    for name in NAMES:
        if name == "exponential":
            continue
        arguments = {"threshold": 0.0, "default_value": 0.0} if name == "threshold" else {}
        with kerascnn.device(device):
            y = getattr(activations, name)(ops.convert_to_tensor(x), **arguments).numpy()
        assert np.isfinite(y).all(), name
