"""Padding, cropping, upsampling, permuting and repeating layers give what Keras' layers give."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn
from kerascnn import layers

from ..comparing import keras
from ..parity import FEW, check_signature
from ..several import check_description, check_layer

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

NAMES = [f"{kind}{r}D" for kind in ("ZeroPadding", "Cropping", "UpSampling") for r in (1, 2, 3)]
NAMES += ["Permute", "RepeatVector"]


@st.composite
def configurations(draw, name):
    """Draws arguments and the shape of an input."""
    if name == "Permute":
        rank = draw(st.integers(1, 4))
        sizes = [draw(st.integers(1, 4)) for _ in range(rank)]
        return {"dims": tuple(draw(st.permutations(range(1, rank + 1))))}, (2, *sizes)
    if name == "RepeatVector":
        return {"n": draw(st.integers(1, 4))}, (2, draw(st.integers(1, 4)))
    rank = int(name[-2])
    small = st.integers(0, 2)
    arguments = {}
    if name.startswith("UpSampling"):
        factors = st.integers(1, 3)
        arguments["size"] = draw(
            factors if rank == 1 else st.one_of(factors, st.tuples(*[factors] * rank))
        )
        if rank == 2:
            methods = ["nearest", "bilinear", "bicubic"]
            arguments["interpolation"] = draw(st.sampled_from(methods))
    else:
        pair = st.tuples(small, small)
        each = pair if rank == 1 else st.tuples(*[st.one_of(small, pair)] * rank)
        key = "padding" if name.startswith("Zero") else "cropping"
        arguments[key] = draw(st.one_of(small, each))
    if name not in ("Cropping1D", "UpSampling1D"):
        arguments["data_format"] = draw(st.sampled_from(["channels_last", "channels_first"]))
    sizes = [draw(st.integers(5, 7)) for _ in range(rank)]
    first = arguments.get("data_format") == "channels_first"
    return arguments, (2, 3, *sizes) if first else (2, *sizes, 3)


@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_keras(name, device):
    @FEW
    @given(
        configuration=configurations(name),
        dtype=st.sampled_from(["float32", "float64"]),
        seed=st.integers(0, 2**16),
    )
    def check(configuration, dtype, seed):
        arguments, shape = configuration
        check_layer(name, arguments, [shape], dtype, seed, device)

    check()


@pytest.mark.parametrize("name", NAMES)
def test_descriptions_are_those_of_keras(name):
    @FEW
    @given(configuration=configurations(name))
    def check(configuration):
        arguments, shape = configuration
        check_description(name, arguments, [shape])

    check()
    check_signature(name)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("method", ["lanczos3", "lanczos5"])
def test_interpolations_that_only_other_backends_of_keras_have(method, data_format, device):
    """The windowed sinc in NumPy is the reference: Keras on PyTorch refuses these methods."""
    image = np.random.default_rng(0).standard_normal((2, 7, 6, 3))
    radius = int(method[-1])

    def matrix(n, factor):
        centers = (np.arange(n * factor) + 0.5) / factor - 0.5
        away = centers[:, None] - np.arange(n)[None, :]
        weights = np.where(np.abs(away) < radius, np.sinc(away) * np.sinc(away / radius), 0.0)
        return weights / weights.sum(1, keepdims=True)

    expected = np.einsum("ah,bw,nhwc->nabc", matrix(7, 2), matrix(6, 3), image)
    first = data_format == "channels_first"
    with kerascnn.device(device):
        layer = layers.UpSampling2D((2, 3), data_format, method, dtype="float64")
        actual = layer(image.transpose(0, 3, 1, 2) if first else image).numpy()
    actual = actual.transpose(0, 2, 3, 1) if first else actual
    np.testing.assert_allclose(actual, expected, atol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda m: m.Permute((1, 3)),
        lambda m: m.Permute((0, 1)),
        lambda m: m.RepeatVector(0),
        lambda m: m.RepeatVector(1.5),
        lambda m: m.RepeatVector(True),
        lambda m: m.UpSampling1D(0),
        lambda m: m.UpSampling1D((2, 2)),
        lambda m: m.UpSampling2D((2, 2, 2)),
        lambda m: m.UpSampling2D(0),
        lambda m: m.UpSampling2D(interpolation="cubical")(np.ones((1, 2, 2, 1), "float32")),
        lambda m: m.UpSampling3D((1, 2)),
        lambda m: m.ZeroPadding1D((1, 2, 3)),
        lambda m: m.ZeroPadding1D(-1),
        lambda m: m.ZeroPadding2D(((1, 2), (3,))),
        lambda m: m.ZeroPadding2D("1"),
        lambda m: m.ZeroPadding3D((1, 2)),
        lambda m: m.Cropping1D((1, 2, 3)),
        lambda m: m.Cropping2D(-1),
        lambda m: m.Cropping2D(((1, -2), 1)),
        lambda m: m.Cropping3D((1, 2)),
        lambda m: m.Cropping1D(3)(np.ones((1, 6, 2), "float32")),
        lambda m: m.Cropping2D(2)(np.ones((1, 4, 6, 2), "float32")),
        lambda m: m.Cropping2D(2).compute_output_shape((None, 4, 6, 2)),
        lambda m: m.Cropping3D(2)(np.ones((1, 6, 4, 6, 2), "float32")),
        lambda m: m.ZeroPadding2D(1)(np.ones((1, 6, 2), "float32")),
    ],
)
def test_what_keras_refuses_is_refused_with_the_same_class(make):
    with pytest.raises((ValueError, TypeError)) as theirs:
        make(keras.layers)
    with pytest.raises(theirs.type):
        make(layers)


def test_sizes_that_are_not_known_stay_so():
    x = kerascnn.Input((None, None, 3))
    for layer in (layers.ZeroPadding2D(2), layers.Cropping2D(1), layers.UpSampling2D(2)):
        assert layer(x).shape == (None, None, None, 3)
    assert layers.Permute((3, 1, 2))(x).shape == (None, 3, None, None)
