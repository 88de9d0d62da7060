"""Every layer gives Keras' output and gradients for the same weights and data."""

import numpy as np
import pytest

import kerascnn

from .comparing import keras, make_pair, relative_error, run_here, run_keras

# Keras converts PyTorch tensors in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

IMAGES = (3, 9, 8, 4)
FIRST = (3, 4, 9, 8)

CASES = [
    ("Conv2D", {"filters": 5, "kernel_size": 3}, [IMAGES]),
    (
        "Conv2D",
        {"filters": 5, "kernel_size": (3, 2), "padding": "same", "activation": "relu"},
        [IMAGES],
    ),
    ("Conv2D", {"filters": 5, "kernel_size": 4, "strides": 2, "padding": "same"}, [IMAGES]),
    ("Conv2D", {"filters": 5, "kernel_size": 3, "strides": (2, 3), "use_bias": False}, [IMAGES]),
    ("Conv2D", {"filters": 5, "kernel_size": 3, "dilation_rate": 2, "padding": "same"}, [IMAGES]),
    ("Conv2D", {"filters": 6, "kernel_size": 3, "groups": 2, "activation": "tanh"}, [IMAGES]),
    ("Conv2D", {"filters": 5, "kernel_size": 3, "data_format": "channels_first"}, [FIRST]),
    (
        "Conv2D",
        {
            "filters": 4,
            "kernel_size": 3,
            "strides": 2,
            "padding": "same",
            "data_format": "channels_first",
        },
        [FIRST],
    ),
    ("MaxPooling2D", {}, [IMAGES]),
    ("MaxPooling2D", {"pool_size": 3, "strides": 2, "padding": "same"}, [IMAGES]),
    ("MaxPooling2D", {"pool_size": (2, 3), "data_format": "channels_first"}, [FIRST]),
    ("AveragePooling2D", {"pool_size": 2}, [IMAGES]),
    ("AveragePooling2D", {"pool_size": (2, 3), "data_format": "channels_first"}, [FIRST]),
    ("GlobalAveragePooling2D", {}, [IMAGES]),
    ("GlobalAveragePooling2D", {"data_format": "channels_first", "keepdims": True}, [FIRST]),
    ("Dense", {"units": 7}, [(4, 6)]),
    ("Dense", {"units": 7, "activation": "softmax"}, [(4, 6)]),
    ("Dense", {"units": 7, "use_bias": False, "activation": "relu"}, [(4, 3, 6)]),
    ("Flatten", {}, [IMAGES]),
    ("Flatten", {"data_format": "channels_first"}, [FIRST]),
    ("Reshape", {"target_shape": (-1, 6)}, [IMAGES]),
    ("Dropout", {"rate": 0.0}, [(4, 6)]),
    ("BatchNormalization", {}, [IMAGES]),
    ("BatchNormalization", {"axis": 1, "epsilon": 1e-2}, [FIRST]),
    ("BatchNormalization", {"center": False}, [(6, 5)]),
    ("BatchNormalization", {"scale": False, "momentum": 0.8}, [(6, 5)]),
    ("Activation", {"activation": "gelu"}, [(4, 6)]),
    ("ReLU", {}, [(4, 6)]),
    ("ReLU", {"max_value": 0.5}, [(4, 6)]),
    ("ReLU", {"max_value": 0.5, "negative_slope": 0.1}, [(4, 6)]),
    ("ReLU", {"negative_slope": 0.3, "threshold": 0.2}, [(4, 6)]),
    ("Softmax", {}, [(4, 6)]),
    ("Softmax", {"axis": 1}, [(4, 6, 3)]),
    ("Rescaling", {"scale": 0.25, "offset": -1.0}, [(4, 6)]),
    ("Add", {}, [(4, 6), (4, 6), (4, 6)]),
    ("Add", {}, [(4, 6, 3), (4, 1, 3)]),
    ("Concatenate", {}, [(4, 6), (4, 2)]),
    ("Concatenate", {"axis": 1}, [(4, 6, 2), (4, 3, 2)]),
]
ACTIVATIONS = [
    "celu",
    "elu",
    "exponential",
    "gelu",
    "hard_sigmoid",
    "hard_silu",
    "hard_tanh",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
    "swish",
    "tanh",
]
IDS = [f"{name}-{','.join(f'{k}={v}' for k, v in args.items())}" for name, args, _ in CASES]


def random_inputs(shapes, dtype, rng):
    """Draws values away from 0, where the slopes of relu and similar functions jump."""
    return [(rng.uniform(0.05, 1.0, s) * rng.choice([-1, 1], s)).astype(dtype) for s in shapes]


def compare(name, arguments, shapes, dtype, device, training, tolerance, rng):
    inputs = random_inputs(shapes, dtype, rng)
    with kerascnn.device(device):
        here, there = make_pair(name, {**arguments, "dtype": dtype}, inputs, rng)
    shape = here.compute_output_shape(
        [x.shape for x in inputs] if len(inputs) > 1 else inputs[0].shape
    )
    direction = rng.standard_normal(shape).astype(dtype)
    expected = run_keras(there, inputs, direction, training)
    actual = run_here(here, inputs, direction, device, training)
    assert actual[0].dtype == expected[0].dtype
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert relative_error(a, e) < tolerance, f"result {i} of {name} {arguments}"
    return here, there


# Both sides compute in float32: the sums have a few hundred terms, each rounded at 6e-8.
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("name", "arguments", "shapes"), CASES, ids=IDS)
def test_layer_matches_keras(name, arguments, shapes, training, device, rng):
    compare(name, arguments, shapes, "float32", device, training, 5e-6, rng)


# Keras on PyTorch computes these in float32 whatever the layer's dtype.
NARROW_IN_KERAS = ("BatchNormalization", "Dense", "GlobalAveragePooling2D")
WIDE = [
    (case, label) for case, label in zip(CASES, IDS, strict=True) if case[0] not in NARROW_IN_KERAS
]


# In float64, rounding is too small to hide a wrong formula.
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("name", "arguments", "shapes"), [case for case, _ in WIDE], ids=[label for _, label in WIDE]
)
def test_layer_matches_keras_in_float64(name, arguments, shapes, training, rng):
    compare(name, arguments, shapes, "float64", "cpu", training, 1e-12, rng)


# gelu's error function and similar ones are approximated to a few units of float32 rounding.
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_matches_keras(name, device, rng):
    compare("Activation", {"activation": name}, [(5, 7)], "float32", device, False, 5e-6, rng)


def test_average_pooling_counts_only_what_lies_inside_the_image(device):
    """Keras does so on TensorFlow and JAX; its PyTorch backend repeats the border instead."""
    images = np.arange(9.0 * 8).reshape(1, 9, 8, 1).astype("float32")
    layer = kerascnn.layers.AveragePooling2D(3, strides=2, padding="same")
    with kerascnn.device(device):
        pooled = layer(images).numpy()[0, :, :, 0]
    # The padding is one column on the right, and one row above and below.
    padded = np.pad(images[0, :, :, 0], ((1, 1), (0, 1)), constant_values=np.nan)
    expected = [
        [np.nanmean(padded[i : i + 3, j : j + 3]) for j in range(0, 8, 2)] for i in range(0, 9, 2)
    ]
    np.testing.assert_allclose(pooled, expected, rtol=1e-6)


def test_batch_normalization_moves_its_averages_as_keras_does(device, rng):
    shapes = [(6, 5, 4, 3)]
    here, there = compare(
        "BatchNormalization", {"momentum": 0.9}, shapes, "float32", device, True, 5e-6, rng
    )
    for own, other in zip(here.weights, there.weights, strict=True):
        error = relative_error(own.numpy(), keras.ops.convert_to_numpy(other))
        assert error < 5e-6, own.path


def test_batch_normalization_that_is_not_trainable_uses_its_averages(device, rng):
    inputs = random_inputs([(6, 3)], "float32", rng)
    with kerascnn.device(device):
        here, there = make_pair("BatchNormalization", {"trainable": False}, inputs, rng)
        actual = here(inputs[0], training=True).numpy()
        before = here.get_weights()
    expected = keras.ops.convert_to_numpy(there(inputs[0], training=True))
    assert relative_error(actual, expected) < 5e-6
    for a, b in zip(before, here.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("name", "arguments", "shapes"), CASES, ids=IDS)
def test_configuration_and_shapes_are_those_of_keras(name, arguments, shapes):
    here = getattr(kerascnn.layers, name)(**arguments, name="a_layer")
    there = getattr(keras.layers, name)(**arguments, name="a_layer")
    assert plain(here.get_config()) == plain(there.get_config())
    again = type(here).from_config(here.get_config())
    assert plain(again.get_config()) == plain(here.get_config())
    serialized = kerascnn.layers.serialize(here)
    assert plain(serialized) == plain(keras.layers.serialize(there))
    assert plain(kerascnn.layers.deserialize(serialized).get_config()) == plain(here.get_config())
    batch = [(None, *s[1:]) for s in shapes]
    given = batch if len(batch) > 1 else batch[0]
    assert here.compute_output_shape(given) == tuple(there.compute_output_shape(given))


def plain(config):
    """Replaces tuples by lists, as JSON does."""
    if isinstance(config, dict):
        return {key: plain(value) for key, value in config.items()}
    if isinstance(config, (list, tuple)):
        return [plain(item) for item in config]
    return config
