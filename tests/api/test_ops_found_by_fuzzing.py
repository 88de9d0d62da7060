"""Calls that failed once in tests/fuzzing, and what they are now."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import ops


@pytest.mark.parametrize("repeats", [2**62, 2**61, [2**61, 2**61, 2**61, 2**61]])
def test_repeats_whose_sum_overflows(repeats):
    """NumPy's own `repeat` ends the process."""
    with pytest.raises(ValueError, match="repeat: an axis has up to"):
        ops.repeat(np.zeros((4, 0), "float32"), repeats, axis=0)


@pytest.mark.parametrize("call", [lambda: ops.arange(0, "x"), lambda: ops.linspace("x", 1, 3)])
def test_limits_that_are_no_numbers(call):
    with pytest.raises(TypeError, match="Expected a number, an array or a tensor"):
        call()


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_meshgrid_in_a_configuration(indexing):
    """Its tensors are arguments without names."""
    inputs = [keras.Input(batch_shape=(n,)) for n in (3, 2)]
    model = keras.Model(inputs, ops.meshgrid(*inputs, indexing=indexing))
    again = keras.Model.from_config(model.get_config())
    data = [np.arange(3.0), np.arange(2.0)]
    for ours, expected in zip(again(data), np.meshgrid(*data, indexing=indexing), strict=True):
        np.testing.assert_array_equal(ours.numpy(), expected)


@pytest.mark.parametrize("size", [float("inf"), float("nan"), 1.5])
def test_sizes_that_are_no_whole_numbers(size):
    with pytest.raises(ValueError, match="A size is None or an integer"):
        keras.Input((size,))


def test_configurations_that_are_nested_too_deeply():
    config = 0
    for _ in range(5000):
        config = [config]
    with pytest.raises(ValueError, match="nested deeper"):
        keras.saving.deserialize_keras_object({"a": config})
    with pytest.raises(ValueError, match="nested deeper"):
        keras.models.model_from_json("[" * 100_000)
