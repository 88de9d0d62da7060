"""Layers of several inputs give what Keras' layers give."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn
from kerascnn import layers

from ..comparing import keras, relative_error
from ..parity import FEW, check_signature
from ..several import check_description, check_layer, draw_inputs

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

BROADCASTING = ["Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"]
NAMES = [*BROADCASTING, "Concatenate", "Dot"]
# Keras on PyTorch computes these in float32 whatever the layer's dtype.
NARROW = ["Maximum", "Minimum", "Dot"]


@st.composite
def configurations(draw, name):
    """Draws arguments and the shapes of some inputs."""
    sizes = st.integers(1, 4)
    if name == "Dot":
        normalize = draw(st.booleans())
        # A vector of one element always has length 1 after normalization, so its gradient is only
        # rounding.
        shared = draw(st.integers(3, 5) if normalize else sizes)
        ranks = [draw(st.integers(2, 4)) for _ in range(2)]
        shapes = [[2, *(draw(sizes) for _ in range(rank - 1))] for rank in ranks]
        axes = [draw(st.integers(1, rank - 1)) for rank in ranks]
        for shape, axis in zip(shapes, axes, strict=True):
            shape[axis] = shared
        arguments = {"axes": tuple(axes), "normalize": normalize}
        return arguments, [tuple(shape) for shape in shapes]
    count = 2 if name == "Subtract" else draw(st.integers(2, 4))
    rank = draw(st.integers(1, 3))
    shape = [2, *(draw(sizes) for _ in range(rank))]
    if name == "Concatenate":
        axis = draw(st.integers(1, rank))
        shapes = [(*shape[:axis], draw(sizes), *shape[axis + 1 :]) for _ in range(count)]
        return {"axis": draw(st.sampled_from([axis, axis - rank - 1]))}, shapes
    shapes = []
    for _ in range(count):
        fewer = draw(st.integers(0, rank - 1))
        kept = [n if draw(st.booleans()) else 1 for n in shape[1 + fewer :]]
        shapes.append((2, *kept))
    return {}, shapes


@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_keras(name, device):
    @FEW
    @given(
        configuration=configurations(name),
        dtype=st.sampled_from(["float32"] if name in NARROW else ["float32", "float64"]),
        seed=st.integers(0, 2**16),
    )
    def check(configuration, dtype, seed):
        # With nearly parallel vectors, two terms of the gradient of a normalized vector almost
        # cancel.
        tolerance = 2e-3 if configuration[0].get("normalize") else None
        check_layer(name, *configuration, dtype, seed, device, tolerance)

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
def test_functions_do_what_their_layers_do(name, device, rng):
    function = {"Dot": "dot"}.get(name, name.lower())
    arguments = {"axes": 1} if name == "Dot" else {}
    inputs = draw_inputs([(3, 4), (3, 4)], "float32", rng)
    with kerascnn.device(device):
        actual = getattr(layers, function)(inputs, **arguments).numpy()
    expected = getattr(keras.layers, function)(inputs, **arguments)
    assert relative_error(actual, keras.ops.convert_to_numpy(expected)) < 1e-6
    symbolic = getattr(layers, function)([kerascnn.Input((4,)), kerascnn.Input((4,))], **arguments)
    assert symbolic.shape == (None, *actual.shape[1:])


@pytest.mark.parametrize(
    "make",
    [
        lambda m: m.Subtract()([np.ones((2, 3))] * 3),
        lambda m: m.Add()([np.ones((2, 3)), np.ones((2, 4))]),
        lambda m: m.Add()([np.ones((2, 3)), np.ones((3, 3))]),
        lambda m: m.Add()(np.ones((2, 3))),
        lambda m: m.Concatenate()([np.ones((2, 3)), np.ones((2, 3, 1))]),
        lambda m: m.Concatenate(axis=1)([np.ones((2, 3, 2)), np.ones((2, 3, 1))]),
        lambda m: m.Dot("1"),
        lambda m: m.Dot((1, 2, 3)),
        lambda m: m.Dot((1.0, 2)),
        lambda m: m.Dot(1)([np.ones((2, 3)), np.ones((2, 4))]),
        lambda m: m.Dot(0)([np.ones((2, 3)), np.ones((2, 3))]),
        lambda m: m.Dot(1)([np.ones((2, 3))] * 3),
    ],
)
def test_what_keras_refuses_is_refused_with_the_same_class(make):
    with pytest.raises((ValueError, TypeError)) as theirs:
        make(keras.layers)
    with pytest.raises(theirs.type):
        make(layers)
