"""The checks of `parity` for layers with any number of inputs, with values of both signs."""

import numpy as np

import kerascnn

from .comparing import keras, make_pair, relative_error, run_here, run_keras
from .parity import TOLERANCE, plain


def draw_inputs(shapes, dtype, rng):
    """Draws different values away from 0, where the slopes of relu and similar functions jump."""
    inputs = []
    for shape in shapes:
        values = rng.permutation(np.linspace(0.05, 1.0, int(np.prod(shape)))).reshape(shape)
        inputs.append((values * rng.choice([-1, 1], shape)).astype(dtype))
    return inputs


def check_layer(name, arguments, shapes, dtype, seed, device, tolerance=None):
    """Checks outputs and gradients against Keras': compiled, eager, in training and outside it."""
    rng = np.random.default_rng(seed)
    inputs = draw_inputs(shapes, dtype, rng)
    many = len(inputs) > 1
    with kerascnn.device(device):
        here, there = make_pair(name, {**arguments, "dtype": dtype}, inputs, rng)
        eager = here(list(inputs) if many else inputs[0]).numpy()
    direction = rng.uniform(0.5, 1.5, eager.shape).astype(dtype)
    training = bool(rng.integers(2))
    expected = run_keras(there, inputs, direction, training)
    actual = run_here(here, inputs, direction, device, training)
    assert eager.dtype == actual[0].dtype == dtype
    allowed = TOLERANCE[dtype] if tolerance is None else tolerance
    if not training:
        assert relative_error(eager, expected[0]) < allowed
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert relative_error(a, e) < allowed, f"result {i} of {name} {arguments}"
    return here, there


def check_description(name, arguments, shapes):
    """Checks the configuration, its round trip, and the shapes of symbolic calls against Keras'."""
    here = getattr(kerascnn.layers, name)(**arguments, name="a_layer")
    there = getattr(keras.layers, name)(**arguments, name="a_layer")
    config = here.get_config()
    assert plain(config) == plain(there.get_config())
    assert plain(type(here).from_config(config).get_config()) == plain(config)
    serialized = kerascnn.layers.serialize(here)
    assert plain(serialized) == plain(keras.layers.serialize(there))
    assert plain(kerascnn.layers.deserialize(serialized).get_config()) == plain(config)
    batches = [(None, *shape[1:]) for shape in shapes]
    many = len(batches) > 1
    expected = tuple(there.compute_output_shape(batches if many else batches[0]))
    assert tuple(here.compute_output_shape(batches if many else batches[0])) == expected
    symbolic = [kerascnn.Input(shape[1:]) for shape in batches]
    assert type(here).from_config(config)(symbolic if many else symbolic[0]).shape == expected
