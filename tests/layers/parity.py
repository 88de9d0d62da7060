"""One layer, one configuration: everything that Keras' layer says of it and computes with it."""

import inspect

import numpy as np
from hypothesis import HealthCheck, settings

import kerascnn

from .comparing import keras, make_pair, relative_error, run_here, run_keras

FEW = settings(
    max_examples=15,
    deadline=None,
    database=None,
    # The fixture is the device, the same for every example.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# Sums of up to a thousand products, in another order. Float64 (1e-16 a rounding) leaves no room for
# a wrong formula; float32 (6e-8) shows that nothing is computed in less, with room for terms that
# cancel one another.
TOLERANCE = {"float32": 5e-5, "float64": 1e-12}


def plain(config):
    """Lists for tuples, as after a way through JSON."""
    if isinstance(config, dict):
        return {key: plain(value) for key, value in config.items()}
    return [plain(x) for x in config] if isinstance(config, (list, tuple)) else config


def check_values(name, arguments, shape, dtype, seed, device):
    """Output and gradients are Keras', compiled and eagerly; the output has the promised shape."""
    rng = np.random.default_rng(seed)
    # No two are equal, so that every maximum is one element; all have one sign, as the direction
    # does, so that the terms of a weight's gradient do not cancel one another.
    inputs = rng.permutation(np.linspace(0.05, 1.0, int(np.prod(shape)))).reshape(shape)
    inputs = inputs.astype(dtype)
    with kerascnn.device(device):
        here, there = make_pair(name, {**arguments, "dtype": dtype}, [inputs], rng)
        eager = here(inputs).numpy()
    direction = rng.uniform(0.5, 1.5, eager.shape).astype(dtype)
    training = bool(rng.integers(2))
    expected = run_keras(there, [inputs], direction, training)
    actual = run_here(here, [inputs], direction, device, training)
    assert eager.dtype == actual[0].dtype == dtype
    assert relative_error(eager, expected[0]) < TOLERANCE[dtype]
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert relative_error(a, e) < TOLERANCE[dtype], f"result {i} of {name} {arguments}"


def check_description(name, arguments, shape):
    """Configuration, its way there and back, and the shapes of symbolic calls are Keras'."""
    here = getattr(kerascnn.layers, name)(**arguments, name="a_layer")
    there = getattr(keras.layers, name)(**arguments, name="a_layer")
    config = here.get_config()
    assert plain(config) == plain(there.get_config())
    assert plain(type(here).from_config(config).get_config()) == plain(config)
    serialized = kerascnn.layers.serialize(here)
    assert plain(serialized) == plain(keras.layers.serialize(there))
    assert plain(kerascnn.layers.deserialize(serialized).get_config()) == plain(config)
    # What is not known about the input's size is not known about the output's.
    last = arguments.get("data_format") != "channels_first"
    channels = shape[-1] if last else shape[1]
    free = [None] * (len(shape) - 2)
    for given in ((None, *shape[1:]), (None, *free, channels) if last else (None, channels, *free)):
        expected = tuple(there.compute_output_shape(given))
        assert here.compute_output_shape(given) == expected
        symbolic = kerascnn.Input(given[1:])
        assert type(here).from_config(config)(symbolic).shape == expected


def check_signature(name):
    """The same parameters in the same order, with the same defaults."""

    def parameters(layer):
        signature = inspect.signature(layer.__init__).parameters.values()
        return [(p.name, p.kind, p.default) for p in signature]

    assert parameters(getattr(kerascnn.layers, name)) == parameters(getattr(keras.layers, name))
