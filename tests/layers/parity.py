"""Compares a layer with Keras' layer: values, gradients, configuration, shapes, signature."""

import inspect

import numpy as np
from hypothesis import HealthCheck, settings

import kerascnn

from .comparing import keras, make_pair, relative_error, run_here, run_keras

FEW = settings(
    max_examples=15,
    deadline=None,
    database=None,
    # The function-scoped fixture is the device, which is the same for every example.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# A result sums up to a thousand products, in another order than Keras'. Float64 (1e-16 a rounding)
# leaves no room for a wrong formula. Float32 (6e-8) shows that nothing is computed in less
# precision, with room for terms that cancel.
TOLERANCE = {"float32": 5e-5, "float64": 1e-12}


def plain(config):
    """Replaces tuples by lists, as JSON does."""
    if isinstance(config, dict):
        return {key: plain(value) for key, value in config.items()}
    return [plain(x) for x in config] if isinstance(config, (list, tuple)) else config


def check_values(name, arguments, shape, dtype, seed, device):
    """Checks output, gradients (compiled and eager) and the promised shape against Keras'."""
    rng = np.random.default_rng(seed)
    # No two values are equal, so that every maximum is one element. All have the same sign, as the
    # direction does, so that the terms of a weight's gradient do not cancel.
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
    """Checks the configuration, its round trip, and the shapes of symbolic calls against Keras'."""
    here = getattr(kerascnn.layers, name)(**arguments, name="a_layer")
    there = getattr(keras.layers, name)(**arguments, name="a_layer")
    config = here.get_config()
    assert plain(config) == plain(there.get_config())
    assert plain(type(here).from_config(config).get_config()) == plain(config)
    serialized = kerascnn.layers.serialize(here)
    assert plain(serialized) == plain(keras.layers.serialize(there))
    assert plain(kerascnn.layers.deserialize(serialized).get_config()) == plain(config)
    # Where a size of the input is unknown, so is that of the output.
    last = arguments.get("data_format") != "channels_first"
    channels = shape[-1] if last else shape[1]
    free = [None] * (len(shape) - 2)
    for given in ((None, *shape[1:]), (None, *free, channels) if last else (None, channels, *free)):
        expected = tuple(there.compute_output_shape(given))
        assert here.compute_output_shape(given) == expected
        symbolic = kerascnn.Input(given[1:])
        assert type(here).from_config(config)(symbolic).shape == expected


def check_signature(name):
    """Checks that the parameters have Keras' names, order and defaults."""

    def parameters(layer):
        signature = inspect.signature(layer.__init__).parameters.values()
        return [(p.name, p.kind, p.default) for p in signature]

    assert parameters(getattr(kerascnn.layers, name)) == parameters(getattr(keras.layers, name))
