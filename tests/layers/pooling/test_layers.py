"""Pooling layers give what Keras' layers give."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn
from kerascnn import layers

from ..comparing import keras, relative_error, run_here
from ..parity import FEW, check_description, check_signature, check_values

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

RANKS = (1, 2, 3)
WINDOWED = [f"{kind}Pooling{r}D" for kind in ("Max", "Average") for r in RANKS]
GLOBAL = [f"Global{kind}Pooling{r}D" for kind in ("Max", "Average") for r in RANKS]
ADAPTIVE = [f"Adaptive{kind}Pooling{r}D" for kind in ("Max", "Average") for r in RANKS]
NAMES = WINDOWED + GLOBAL + ADAPTIVE


@st.composite
def configurations(draw, name, for_values):
    """Draws arguments that are valid together, and the shape of an input."""
    rank = next(int(c) for c in name if c.isdigit())

    def sizes(low, high):
        return draw(st.one_of(st.integers(low, high), st.tuples(*[st.integers(low, high)] * rank)))

    arguments = {"data_format": draw(st.sampled_from(["channels_last", "channels_first"]))}
    if name in WINDOWED:
        arguments["pool_size"] = sizes(1, 3)
        if draw(st.booleans()):
            arguments["strides"] = sizes(1, 3)
        # PyTorch computes other means at the border: see the test of means below.
        if "Max" in name or not for_values:
            arguments["padding"] = draw(st.sampled_from(["valid", "same"]))
    elif name in GLOBAL:
        arguments["keepdims"] = draw(st.booleans())
    else:
        arguments["output_size"] = sizes(1, 11)
    spatial = [draw(st.integers(4, 9)) for _ in range(rank)]
    channels = draw(st.integers(1, 3))
    first = arguments["data_format"] == "channels_first"
    return arguments, ((2, channels, *spatial) if first else (2, *spatial, channels))


@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_keras(name, device):
    # Keras on PyTorch computes these means in float32 whatever the layer's dtype.
    dtypes = ["float32"] if name.startswith("GlobalAverage") else ["float32", "float64"]

    @FEW
    @given(
        configuration=configurations(name, for_values=True),
        dtype=st.sampled_from(dtypes),
        seed=st.integers(0, 2**16),
    )
    def check(configuration, dtype, seed):
        check_values(name, *configuration, dtype, seed, device)

    check()


@pytest.mark.parametrize("name", NAMES)
def test_descriptions_are_those_of_keras(name):
    @FEW
    @given(configuration=configurations(name, for_values=False))
    def check(configuration):
        check_description(name, *configuration)

    check()
    check_signature(name)


@pytest.mark.parametrize("rank", RANKS)
def test_means_count_only_what_lies_inside(rank, device):
    """Keras does so on TensorFlow and JAX; its PyTorch backend repeats the border instead."""

    @FEW
    @given(
        spatial=st.tuples(*[st.integers(3, 7)] * rank),
        window=st.tuples(*[st.integers(1, 3)] * rank),
        strides=st.tuples(*[st.integers(1, 3)] * rank),
        seed=st.integers(0, 2**16),
    )
    def check(spatial, window, strides, seed):
        x = np.random.default_rng(seed).standard_normal((2, *spatial, 3))
        ends, padding = [], []
        for n, k, s in zip(spatial, window, strides, strict=True):
            outputs = -(-n // s)
            total = max((outputs - 1) * s + k - n, 0)
            padding.append((total // 2, total - total // 2))
            ends.append(outputs)
        padded = np.pad(x, [(0, 0), *padding, (0, 0)], constant_values=np.nan)
        expected = np.empty((2, *ends, 3))
        for place in np.ndindex(*ends):
            box = tuple(
                slice(i * s, i * s + k) for i, k, s in zip(place, window, strides, strict=True)
            )
            region = padded[(slice(None), *box)].reshape(2, -1, 3)
            expected[(slice(None), *place)] = np.nanmean(region, axis=1)
        with kerascnn.device(device):
            layer = getattr(layers, f"AveragePooling{rank}D")
            actual = layer(window, strides, "same", dtype="float64")(x).numpy()
        assert relative_error(actual, expected) < 1e-12

    check()


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("kind", ["MaxPooling", "AdaptiveMaxPooling"])
def test_the_first_of_equal_maxima_gets_the_gradient(kind, rank, device):
    """The first in reading order gets it, as in PyTorch, though 3D pooling has two steps."""
    x = np.ones((1, *[5] * rank, 1), "float32")
    size = 5 if kind == "MaxPooling" else 2
    layer = getattr(layers, f"{kind}{rank}D")(size)
    outputs = 1 if kind == "MaxPooling" else 2
    direction = np.ones((1, *[outputs] * rank, 1), "float32")
    gradient = run_here(layer, [x], direction, device, False)[1]
    import torch

    t = torch.ones((1, 1, *[5] * rank), requires_grad=True)
    pool = "max_pool" if kind == "MaxPooling" else "adaptive_max_pool"
    getattr(torch.nn.functional, f"{pool}{rank}d")(t, size).sum().backward()
    np.testing.assert_array_equal(gradient.ravel(), t.grad.numpy().ravel())


def test_infinities_stay_in_their_windows(device):
    """Adaptive windows are padded to one length; the padding adds no neighbour's infinity."""
    x = np.array([np.inf, 1, 2, 3, -np.inf], "float32").reshape(1, 5, 1)
    with kerascnn.device(device):
        mean = layers.AdaptiveAveragePooling1D(3)(x).numpy().ravel()
        largest = layers.AdaptiveMaxPooling1D(3)(x).numpy().ravel()
    np.testing.assert_array_equal(mean, [np.inf, 2.0, -np.inf])
    np.testing.assert_array_equal(largest, [np.inf, 3.0, 3.0])


@pytest.mark.parametrize("name", NAMES)
def test_mixed_precision(name, device, rng):
    """bfloat16 keeps 8 bits."""
    rank = next(int(c) for c in name if c.isdigit())
    arguments = {} if name in GLOBAL else {"output_size" if name in ADAPTIVE else "pool_size": 2}
    x = rng.uniform(0.5, 1.5, (2, *[5] * rank, 3)).astype("float32")
    with kerascnn.device(device):
        y = getattr(layers, name)(**arguments, dtype="mixed_bfloat16")(x)
        wide = getattr(layers, name)(**arguments)(x).numpy()
        assert y.dtype == "bfloat16"
        assert relative_error(kerascnn.ops.cast(y, "float32").numpy(), wide) < 1e-2


BAD = [
    ("MaxPooling1D", {"pool_size": 0}, ValueError, "pool_size"),
    ("MaxPooling3D", {"pool_size": (2, 2)}, ValueError, "pool_size"),
    ("AveragePooling1D", {"pool_size": "two"}, ValueError, "pool_size"),
    ("AveragePooling3D", {"pool_size": 2, "strides": -1}, ValueError, "strides"),
    ("MaxPooling1D", {"data_format": "last"}, ValueError, "data_format"),
    ("MaxPooling1D", {"pool": 2}, ValueError, "pool"),
    ("GlobalMaxPooling3D", {"data_format": "last"}, ValueError, "data_format"),
    ("AdaptiveMaxPooling1D", {"output_size": (2, 3)}, ValueError, "output_size"),
    ("AdaptiveMaxPooling2D", {"output_size": (2, 3, 4)}, TypeError, "output_size"),
    ("AdaptiveAveragePooling3D", {"output_size": 2.5}, TypeError, "output_size"),
    ("AdaptiveAveragePooling1D", {"output_size": None}, TypeError, "output_size"),
    ("AdaptiveAveragePooling2D", {"output_size": 2, "data_format": "last"}, ValueError, "format"),
]


@pytest.mark.parametrize(("name", "arguments", "error", "text"), BAD)
def test_arguments_that_keras_refuses(name, arguments, error, text):
    with pytest.raises(error):
        getattr(keras.layers, name)(**arguments)
    with pytest.raises(error, match=text):
        getattr(layers, name)(**arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "shape"),
    [
        ("MaxPooling1D", {"pool_size": 5}, (2, 4, 3)),
        ("MaxPooling3D", {"pool_size": 5}, (2, 6, 4, 6, 3)),
        ("AveragePooling1D", {"pool_size": 2}, (2, 4, 4, 3)),
        ("GlobalMaxPooling2D", {}, (2, 4, 3)),
        ("AdaptiveMaxPooling3D", {"output_size": 2}, (2, 3)),
    ],
)
def test_inputs_that_keras_refuses(name, arguments, shape):
    x = np.zeros(shape, "float32")
    with pytest.raises(Exception):  # noqa: B017 (PyTorch's own errors among them)
        getattr(keras.layers, name)(**arguments)(x)
    with pytest.raises(ValueError, match="the_layer"):
        getattr(layers, name)(**arguments, name="the_layer")(x)


def test_the_other_names_are_those_of_keras():
    same = [n for n in layers.__all__ if "Pool" in n or "Conv" in n]
    for name in same:
        assert getattr(layers, name).__name__ == getattr(keras.layers, name).__name__
    missing = {n for n in dir(keras.layers) if "Pool" in n or "Conv" in n} - set(same)
    assert not missing
