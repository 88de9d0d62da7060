"""`ops.conv` and similar ops give what `keras.ops` gives for arguments that layers do not allow."""

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn
from kerascnn import ops

from ..comparing import keras, relative_error
from ..parity import FEW

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

NAMES = ["conv", "depthwise_conv", "separable_conv", "conv_transpose"]
NAMES += ["max_pool", "average_pool", "adaptive_max_pool", "adaptive_average_pool"]


@pytest.mark.parametrize("name", NAMES)
def test_signatures_are_those_of_keras(name):
    def parameters(function):
        return [(p.name, p.default) for p in inspect.signature(function).parameters.values()]

    assert parameters(getattr(ops, name)) == parameters(getattr(keras.ops, name))


@st.composite
def transposed(draw):
    """Draws calls with an output padding of any size; layers require one below the strides."""
    rank = draw(st.integers(1, 3))
    sizes = lambda low, high: [draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    arguments = {
        "strides": sizes(1, 3),
        "padding": draw(st.sampled_from(["valid", "same"])),
        "output_padding": sizes(0, 5),
        "dilation_rate": sizes(1, 2),
        "data_format": "channels_last",
    }
    return (2, *sizes(2, 5), 3), (*sizes(1, 4), 2, 3), arguments


# Only ops take strides together with dilation, and padding beyond a stride.
def test_transposed_convolution_with_any_output_padding(device):
    @FEW
    @given(call=transposed(), seed=st.integers(0, 2**16))
    def check(call, seed):
        shape, kernel_shape, arguments = call
        rng = np.random.default_rng(seed)
        x, kernel = (rng.standard_normal(s) for s in (shape, kernel_shape))
        expected = keras.ops.convert_to_numpy(keras.ops.conv_transpose(x, kernel, **arguments))
        with kerascnn.device(device):
            actual = ops.conv_transpose(x, kernel, **arguments).numpy()
        assert relative_error(actual, expected) < 1e-12

    check()


def test_depthwise_convolution_of_volumes(device, rng):
    """Keras' PyTorch backend has this convolution too, but no layer uses it."""
    x, kernel = rng.standard_normal((2, 5, 6, 4, 3)), rng.standard_normal((2, 3, 2, 3, 2))
    expected = keras.ops.convert_to_numpy(keras.ops.depthwise_conv(x, kernel, (2, 1, 1), "same"))
    with kerascnn.device(device):
        actual = ops.depthwise_conv(x, kernel, (2, 1, 1), "same").numpy()
    assert relative_error(actual, expected) < 1e-12


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("size", [(3, 3), (1, 3), (4, 4), (5, 7), (7, 7)])
@pytest.mark.parametrize("channels", [1, 3, 12, 17, 96])
def test_depthwise_convolution_of_images(channels, size, strides, device, rng):
    """With "same" padding, of which the end may get one more than the beginning."""
    x = rng.standard_normal((2, 12, 15, channels)).astype("float32")
    kernel = rng.standard_normal((*size, channels, 1)).astype("float32")
    wide = [a.astype("float64") for a in (x, kernel)]
    expected = keras.ops.convert_to_numpy(keras.ops.depthwise_conv(*wide, strides, "same"))
    with kerascnn.device(device):
        actual = ops.depthwise_conv(x, kernel, strides, "same").numpy()
    # Sums of up to 49 products lose a few roundings of 6e-8.
    assert actual.dtype == np.float32
    assert relative_error(actual, expected) < 1e-6


def test_integers_are_convolved_as_floats(device):
    with kerascnn.device(device):
        y = ops.conv(np.arange(6).reshape(1, 6, 1), np.ones((2, 1, 1), "float32"))
    assert y.dtype == "float32"
    assert y.numpy().ravel().tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]


def test_symbolic_calls_know_their_shapes():
    x = kerascnn.Input((None, 8, 3))
    y = ops.conv_transpose(x, np.ones((3, 3, 5, 3), "float32"), strides=2, padding="same")
    assert y.shape == (None, None, 16, 5)
    assert ops.adaptive_max_pool(y, (4, 3)).shape == (None, 4, 3, 5)


def zeros(*shape):
    return np.zeros(shape, "float32")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda o: o.conv(zeros(2, 5, 3), zeros(2, 2, 4)), "conv: a kernel of shape"),
        (lambda o: o.conv(zeros(2, 5, 5, 3), zeros(2, 3, 4)), "2 spatial axes"),
        (lambda o: o.conv(zeros(2, 3), zeros(2, 3, 4)), "1 to 3 spatial axes"),
        (lambda o: o.conv(zeros(2, 5, 3), zeros(6, 3, 4)), "larger than the input"),
        (lambda o: o.conv(zeros(2, 4, 5, 5, 3), zeros(5, 3, 3, 3, 4)), "larger than the input"),
        (lambda o: o.conv(zeros(2, 5, 3), zeros(2, 3, 4), strides=(1, 1)), "strides"),
        (lambda o: o.depthwise_conv(zeros(2, 5, 3), zeros(2, 4, 1)), "depthwise_conv: a kernel"),
        (
            lambda o: o.separable_conv(zeros(2, 5, 3), zeros(2, 3, 2), zeros(1, 4, 5)),
            "conv: a kernel of shape",
        ),
        (lambda o: o.conv_transpose(zeros(2, 5, 3), zeros(2, 3, 4)), "conv_transpose: a kernel"),
        (lambda o: o.max_pool(zeros(2, 3), 2), "1 to 3 spatial axes"),
        (lambda o: o.max_pool(zeros(2, 3, 4, 4, 1), 4), "larger than the input"),
        (lambda o: o.average_pool(zeros(2, 5, 3), (2, 2)), "pool_size"),
        (lambda o: o.adaptive_max_pool(zeros(2, 5, 3), (2, 2)), "output_size"),
    ],
)
def test_what_keras_refuses(call, text):
    with pytest.raises(Exception):  # noqa: B017 (PyTorch's own errors among them)
        call(keras.ops)
    with pytest.raises(ValueError, match=text):
        call(ops)


def test_causal_padding_is_for_conv1d_alone():
    """Keras' PyTorch backend silently treats "causal" as "valid"."""
    with pytest.raises(ValueError, match="causal"):
        ops.conv(zeros(2, 5, 3), zeros(2, 3, 4), padding="causal")
    with pytest.raises(ValueError, match="causal"):
        ops.max_pool(zeros(2, 5, 3), 2, padding="causal")
    with pytest.raises(ValueError, match="causal"):
        ops.conv_bias(zeros(2, 5, 5, 3), zeros(2, 2, 3, 4), padding="causal")
