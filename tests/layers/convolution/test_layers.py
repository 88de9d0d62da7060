"""Convolution layers give what Keras' layers give."""

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn
from kerascnn import layers
from kerascnn.layers.defaults import defaults

from ..comparing import keras, relative_error
from ..parity import FEW, check_description, check_signature, check_values

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

NAMES = [f"Conv{r}D" for r in (1, 2, 3)] + [f"Conv{r}DTranspose" for r in (1, 2, 3)]
NAMES += [f"{kind}Conv{r}D" for kind in ("Depthwise", "Separable") for r in (1, 2)]


def rank_of(name):
    return next(int(c) for c in name if c.isdigit())


@st.composite
def configurations(draw, name):
    """Draws arguments that are valid together, and the shape of an input."""
    rank = rank_of(name)

    def sizes(low, high):
        return draw(st.one_of(st.integers(low, high), st.tuples(*[st.integers(low, high)] * rank)))

    def each(value):
        return (value,) * rank if isinstance(value, int) else value

    arguments = {"kernel_size": sizes(1, 3), "padding": draw(st.sampled_from(["valid", "same"]))}
    if name == "Conv1D":
        arguments["padding"] = draw(st.sampled_from(["valid", "same", "causal"]))
    if draw(st.booleans()):
        arguments["strides"] = sizes(1, 3)
    else:
        arguments["dilation_rate"] = sizes(1, 2)
    groups = 1
    if "Depthwise" not in name:
        if "Transpose" not in name and "Separable" not in name:
            groups = arguments["groups"] = draw(st.sampled_from([1, 2, 3]))
        arguments["filters"] = groups * draw(st.integers(1, 3))
    if "Depthwise" in name or "Separable" in name:
        arguments["depth_multiplier"] = draw(st.integers(1, 2))
    if "Transpose" in name and draw(st.booleans()):
        steps = each(arguments.get("strides", 1))
        arguments["output_padding"] = tuple(draw(st.integers(0, s - 1)) for s in steps)
    arguments["use_bias"] = draw(st.booleans())
    arguments["activation"] = draw(st.sampled_from([None, "relu", "tanh"]))
    arguments["data_format"] = draw(st.sampled_from(["channels_last", "channels_first"]))
    channels = groups * draw(st.integers(1, 3))
    spatial = [draw(st.integers(5, 8)) for _ in range(rank)]
    first = arguments["data_format"] == "channels_first"
    shape = (2, channels, *spatial) if first else (2, *spatial, channels)
    return arguments, shape


@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_keras(name, device):
    @FEW
    @given(
        configuration=configurations(name),
        dtype=st.sampled_from(["float32", "float64"]),
        seed=st.integers(0, 2**16),
    )
    def check(configuration, dtype, seed):
        check_values(name, *configuration, dtype, seed, device)

    check()


@pytest.mark.parametrize("name", NAMES)
def test_descriptions_are_those_of_keras(name):
    @FEW
    @given(configuration=configurations(name))
    def check(configuration):
        check_description(name, *configuration)

    check()
    check_signature(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_is_in_the_configuration(name):
    kernels = ["kernel"]
    if "Depthwise" in name or "Separable" in name:
        kernels = ["depthwise", "pointwise"] if "Separable" in name else ["depthwise"]
    arguments = {"kernel_size": 2, "activity_regularizer": "l1"}
    if "Depthwise" not in name:
        arguments["filters"] = 3
    for part in [*kernels, "bias"]:
        arguments |= {
            f"{part}_initializer": "he_normal" if part != "bias" else "ones",
            f"{part}_regularizer": "l2",
            f"{part}_constraint": "non_neg",
        }
    check_description(name, arguments, (2, *[4] * rank_of(name), 3))
    # The penalties apply to the right weights if both sums are equal.
    here, there = (getattr(m.layers, name)(**arguments) for m in (kerascnn, keras))
    for layer in (here, there):
        layer.build((2, *[4] * rank_of(name), 3))
    values = [np.full(w.shape, 0.5 + i, "float32") for i, w in enumerate(here.weights)]
    here.set_weights(values)
    there.set_weights(values)
    assert [w.name for w in here.weights] == [w.name for w in there.weights]
    ours = sum(loss.numpy().item() for loss in here.losses)
    theirs = sum(keras.ops.convert_to_numpy(loss).item() for loss in there.losses)
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert len(here.losses) == len(values)
    assert [w.constraint is not None for w in here.weights] == [True] * len(values)


@pytest.mark.parametrize("name", NAMES)
def test_mixed_precision(name, device, rng):
    """bfloat16 keeps 8 bits, so that results are off by 1/256; the weights are float32."""
    arguments = {"kernel_size": 3, "padding": "same"}
    if "Depthwise" not in name:
        arguments["filters"] = 4
    x = rng.standard_normal((2, *[5] * rank_of(name), 3)).astype("float32")
    with kerascnn.device(device):
        narrow = getattr(layers, name)(**arguments, dtype="mixed_bfloat16")
        wide = getattr(layers, name)(**arguments)
        y = narrow(x)
        wide.build(x.shape)
        wide.set_weights(narrow.get_weights())
        assert y.dtype == "bfloat16"
        assert {w.dtype for w in narrow.weights} == {"float32"}
        assert relative_error(kerascnn.ops.cast(y, "float32").numpy(), wide(x).numpy()) < 1e-2


BAD = [
    ("Conv1D", {"filters": 0, "kernel_size": 3}, "filters"),
    ("Conv1D", {"filters": 2, "kernel_size": 0}, "kernel_size"),
    ("Conv1D", {"filters": 2, "kernel_size": (3, 3)}, "kernel_size"),
    ("Conv1D", {"filters": 2, "kernel_size": 3, "padding": "full"}, "'causal'.*'full'"),
    ("Conv2D", {"filters": 2, "kernel_size": 3, "padding": "causal"}, "padding"),
    ("Conv3D", {"filters": 2, "kernel_size": 3, "strides": 2, "dilation_rate": 2}, "both"),
    ("Conv3D", {"filters": 3, "kernel_size": 3, "groups": 2}, "multiple of `groups`"),
    ("Conv3D", {"filters": 3, "kernel_size": 3, "groups": 0}, "groups"),
    ("Conv2D", {"filters": 2, "kernel_size": 3, "strides": 0}, "strides"),
    ("Conv2D", {"filters": 2, "kernel_size": 3, "data_format": "last"}, "data_format"),
    ("Conv2D", {"filters": 2, "kernel_size": 3, "dilations": 2}, "dilations"),
    (
        "Conv1DTranspose",
        {"filters": 2, "kernel_size": 3, "strides": 2, "output_padding": 2},
        "less than `strides`",
    ),
    ("Conv2DTranspose", {"filters": 2, "kernel_size": 3, "strides": 2, "dilation_rate": 2}, "both"),
    ("Conv2DTranspose", {"filters": 2, "kernel_size": 3, "output_padding": -1}, "output_padding"),
    ("Conv3DTranspose", {"filters": -2, "kernel_size": 3}, "filters"),
    ("DepthwiseConv1D", {"kernel_size": 3, "depth_multiplier": 0}, "depth_multiplier"),
    ("DepthwiseConv2D", {"kernel_size": (3, 3, 3)}, "kernel_size"),
    ("SeparableConv1D", {"filters": 0, "kernel_size": 3}, "filters"),
    ("SeparableConv2D", {"filters": 2, "kernel_size": 3, "depth_multiplier": -1}, "multiplier"),
    ("SeparableConv2D", {"filters": 2, "kernel_size": 3, "strides": (0, 1)}, "strides"),
]


@pytest.mark.parametrize(("name", "arguments", "text"), BAD)
def test_arguments_that_keras_refuses(name, arguments, text):
    with pytest.raises(ValueError):
        getattr(keras.layers, name)(**arguments)
    with pytest.raises(ValueError, match=text):
        getattr(layers, name)(**arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "shape"),
    [
        ("Conv1D", {"filters": 2, "kernel_size": 5}, (2, 4, 3)),
        ("Conv3D", {"filters": 2, "kernel_size": 3}, (2, 2, 5, 5, 3)),
        ("Conv2D", {"filters": 4, "kernel_size": 3, "groups": 2}, (2, 5, 5, 3)),
        ("Conv1D", {"filters": 2, "kernel_size": 2}, (2, 4, 4, 3)),
        ("Conv3D", {"filters": 2, "kernel_size": 2}, (2, 4, 4, 3)),
        ("Conv1DTranspose", {"filters": 2, "kernel_size": 2}, (2, 4)),
        ("DepthwiseConv2D", {"kernel_size": 5}, (2, 4, 4, 3)),
        ("SeparableConv1D", {"filters": 2, "kernel_size": 5}, (2, 4, 3)),
    ],
)
def test_inputs_that_keras_refuses(name, arguments, shape):
    x = np.zeros(shape, "float32")
    with pytest.raises(Exception):  # noqa: B017 (PyTorch's own errors among them)
        getattr(keras.layers, name)(**arguments)(x)
    with pytest.raises(ValueError, match="the_layer"):
        getattr(layers, name)(**arguments, name="the_layer")(x)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_the_convolution_of_a_subclass(data_format, device, rng):
    """A subclass can transform the kernel; bias and activation are applied afterwards."""

    def standardized(module):
        class Standardized(module.layers.Conv2D):
            def convolution_op(self, inputs, kernel):
                kernel = kernel - module.ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
                return super().convolution_op(inputs, kernel)

        return Standardized(3, 3, activation="relu", data_format=data_format)

    x = rng.standard_normal((2, 6, 6, 6)).astype("float32")
    there = standardized(keras)
    there.build(x.shape)
    weights = [w + 0.5 for w in there.get_weights()]
    there.set_weights(weights)
    expected = keras.ops.convert_to_numpy(there(x))
    with kerascnn.device(device):
        here = standardized(kerascnn)
        here.build(x.shape)
        here.set_weights(weights)
        # A result has 54 products, and the mean of 54 weights is taken from each: a few roundings
        # of 6e-8.
        assert relative_error(here(x).numpy(), expected) < 5e-6


def test_causal_outputs_see_no_later_steps(device, rng):
    x = rng.standard_normal((1, 12, 2)).astype("float32")
    with kerascnn.device(device):
        layer = layers.Conv1D(3, 4, padding="causal", dilation_rate=2)
        before = layer(x).numpy()
        x[:, 7:] = 0
        after = layer(x).numpy()
    np.testing.assert_array_equal(before[:, :7], after[:, :7])
    assert not np.array_equal(before[:, 7:], after[:, 7:])


def volumes(module):
    y = inputs = module.Input((6, 8, 8, 2))
    y = module.layers.Conv3D(4, 3, padding="same", activation="relu")(y)
    y = module.layers.MaxPooling3D()(y)
    y = module.layers.Conv3D(4, 2, groups=2, activation="tanh")(y)
    y = module.layers.Conv3DTranspose(2, 3, strides=2, padding="same")(y)
    y = module.layers.AveragePooling3D((1, 2, 2))(y)
    return module.Model(inputs, module.layers.GlobalAveragePooling3D()(y))


def sequences(module):
    return module.Sequential(
        [
            module.Input((20, 3)),
            module.layers.Conv1D(6, 3, padding="causal", dilation_rate=2, activation="relu"),
            module.layers.SeparableConv1D(8, 3, padding="same", activation="relu"),
            module.layers.MaxPooling1D(2),
            module.layers.DepthwiseConv1D(3, depth_multiplier=2, strides=2),
            module.layers.Conv1DTranspose(4, 3, strides=3),
            module.layers.AdaptiveAveragePooling1D(5),
            module.layers.AveragePooling1D(2),
            module.layers.GlobalMaxPooling1D(),
            module.layers.Dense(2),
        ]
    )


def images(module):
    return module.Sequential(
        [
            module.Input((12, 12, 3)),
            module.layers.SeparableConv2D(6, 3, activation="relu"),
            module.layers.DepthwiseConv2D(3, strides=2, padding="same"),
            module.layers.Conv2DTranspose(4, 3, strides=2, padding="same", activation="tanh"),
            module.layers.AdaptiveMaxPooling2D((4, 3)),
            module.layers.GlobalMaxPooling2D(),
            module.layers.Dense(2),
        ]
    )


# There are five updates, each of which multiplies earlier rounding by a small factor.
@pytest.mark.parametrize("network", [sequences, images, volumes])
def test_networks_train_as_in_keras(network, device, rng):
    there = network(keras)
    x = rng.standard_normal((20, *there.input_shape[1:])).astype("float32")
    y = rng.standard_normal((20, 2)).astype("float32")
    with kerascnn.device(device):
        here = network(kerascnn)
        here.set_weights(there.get_weights())
        here.compile("sgd", "mse")
        ours = here.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]
        weights = here.get_weights()
    there.compile("sgd", "mse")
    theirs = there.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]
    np.testing.assert_allclose(ours, theirs, rtol=2e-5)
    for a, b in zip(weights, there.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_constructors_for_other_ranks_keep_their_arguments():
    signature = inspect.signature(layers.Conv3D)
    assert signature.parameters["strides"].default == (1, 1, 1)
    assert signature.parameters["padding"].default == "valid"
    assert layers.Conv3D.__init__.__qualname__ == "Conv3D.__init__"
    with pytest.raises(TypeError, match="no defaults of .'stride'."):

        @defaults(stride=(1, 1))
        class Misspelt(layers.Conv1D):
            pass
