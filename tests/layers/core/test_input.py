"""Input, InputLayer and InputSpec equal Keras'."""

import pytest

import kerascnn

from ..comparing import keras
from ..parity import check_signature, plain

pytestmark = pytest.mark.filterwarnings("ignore:.*input_shape.*")

GOOD = [
    {"shape": (4, 3)},
    {"shape": (None, 3), "batch_size": 5, "dtype": "int32"},
    {"batch_shape": (None, 4), "optional": True},
    {"batch_shape": (2, 4), "dtype": "float64"},
    {"shape": ()},
    {"input_shape": (4,)},
    {"batch_input_shape": (2, 4)},
]
BAD = [
    {},
    {"shape": (4,), "batch_shape": (2, 4)},
    {"batch_size": 3, "batch_shape": (3, 4)},
    {"shape": (-1,)},
    {"shape": 4},
    {"input_tensor": "x"},
]


@pytest.mark.parametrize("arguments", GOOD, ids=str)
def test_input_layers_are_those_of_keras(arguments):
    here = kerascnn.layers.InputLayer(**arguments, name="x")
    there = keras.layers.InputLayer(**arguments, name="x")
    assert plain(here.get_config()) == plain(there.get_config())
    assert here.batch_shape == tuple(there.batch_shape)
    assert here.dtype == there.dtype
    assert here.output.shape == tuple(there.output.shape)
    again = kerascnn.layers.deserialize(keras.layers.serialize(there))
    assert plain(again.get_config()) == plain(here.get_config())


@pytest.mark.parametrize("arguments", BAD, ids=str)
def test_arguments_that_keras_refuses(arguments):
    for module in (kerascnn, keras):
        with pytest.raises((ValueError, TypeError)):
            module.layers.InputLayer(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 3},
        {"shape": (5,)},
        {"shape": (4, 1)},
        {"batch_shape": (3, 4)},
        {"dtype": "int32"},
    ],
    ids=str,
)
def test_an_input_tensor_that_is_something_else(arguments):
    for module in (kerascnn, keras):
        tensor = module.KerasTensor((2, 4), "float32")
        with pytest.raises(ValueError):
            module.layers.InputLayer(input_tensor=tensor, **arguments)
        layer = module.layers.InputLayer(
            input_tensor=tensor, shape=(4,), batch_size=2, dtype="float32"
        )
        assert tuple(layer.batch_shape) == (2, 4)


def test_signatures():
    check_signature("InputLayer")
    check_signature("InputSpec")


@pytest.mark.parametrize(
    "arguments",
    [
        {"ndim": 3, "axes": {-1: 4}},
        {"shape": (None, 4), "dtype": "float32"},
        {"min_ndim": 2, "max_ndim": 4, "optional": True},
        {"shape": (2, 1), "allow_last_axis_squeeze": True},
    ],
    ids=str,
)
def test_input_specs_are_those_of_keras(arguments):
    here, there = kerascnn.InputSpec(**arguments), keras.InputSpec(**arguments)
    assert here.get_config() == there.get_config()
    assert repr(here) == repr(there)
    assert kerascnn.InputSpec.from_config(here.get_config()).get_config() == here.get_config()


@pytest.mark.parametrize(
    "arguments", [{"axes": 3}, {"axes": {"a": 1}}, {"ndim": 2, "axes": {2: 1}}], ids=str
)
def test_input_specs_that_keras_refuses(arguments):
    with pytest.raises((ValueError, TypeError)) as theirs:
        keras.InputSpec(**arguments)
    with pytest.raises(theirs.type):
        kerascnn.InputSpec(**arguments)
