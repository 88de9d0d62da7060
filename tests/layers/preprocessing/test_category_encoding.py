"""CategoryEncoding gives what Keras' layer gives."""

import numpy as np
import pytest

import kerascnn
from kerascnn import layers

from ..comparing import keras
from ..parity import check_signature, plain

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

SHAPES = {
    "one_hot": [(), (3,), (4, 1), (2, 3), (2, 3, 1)],
    "multi_hot": [(), (3,), (4, 1), (2, 3), (2, 3, 4)],
    "count": [(), (3,), (4, 1), (2, 3)],
}


@pytest.mark.parametrize("mode", SHAPES)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_rows_are_those_of_keras(mode, dtype, device, rng):
    there = keras.layers.CategoryEncoding(5, mode, name="a")
    with kerascnn.device(device):
        here = layers.CategoryEncoding(5, mode, name="a")
        for shape in SHAPES[mode]:
            numbers = rng.integers(0, 5, shape).astype(dtype)
            expected = keras.ops.convert_to_numpy(there(numbers))
            actual = here(numbers)
            assert actual.dtype == "float32"
            np.testing.assert_array_equal(actual.numpy(), expected)
            assert here.compute_output_shape(shape) == tuple(there.compute_output_shape(shape))
    assert plain(here.get_config()) == plain(there.get_config())
    copy = layers.deserialize(keras.layers.serialize(there))
    assert plain(copy.get_config()) == plain(there.get_config())


def test_weighted_counts(device, rng):
    numbers = rng.integers(0, 4, (3, 6)).astype("int32")
    weights = rng.uniform(0.5, 2.0, (3, 6)).astype("float32")
    expected = keras.layers.CategoryEncoding(4, "count")(numbers, count_weights=weights)
    with kerascnn.device(device):
        actual = layers.CategoryEncoding(4, "count")(numbers, count_weights=weights)
    # The sums have up to six terms, in another order.
    np.testing.assert_allclose(actual.numpy(), keras.ops.convert_to_numpy(expected), rtol=1e-6)


@pytest.mark.parametrize("mode", SHAPES)
def test_in_models(mode, device, rng):
    numbers = rng.integers(0, 4, (7, 3)).astype("int32")
    results = []
    for module in (kerascnn, keras):
        with kerascnn.device(device):
            inputs = module.Input((3,), dtype="int32")
            model = module.Model(inputs, module.layers.CategoryEncoding(4, mode)(inputs))
            results.append(np.asarray(model.predict(numbers, batch_size=4, verbose=0)))
            results.append(tuple(model.output_shape))
    np.testing.assert_array_equal(results[0], results[2])
    assert results[1] == results[3]


def test_arguments_that_are_refused():
    for module in (kerascnn.layers, keras.layers):
        for arguments in ({}, {"num_tokens": 0}, {"num_tokens": 3, "output_mode": "int"}):
            with pytest.raises(ValueError):
                module.CategoryEncoding(**arguments)
        with pytest.raises(ValueError, match="count_weights"):
            numbers = np.zeros((2, 2), "int32")
            module.CategoryEncoding(3)(numbers, count_weights=np.ones((2, 2), "float32"))
    with pytest.raises(ValueError, match="sparse"):
        layers.CategoryEncoding(3, sparse=True)
    assert layers.CategoryEncoding(3, "binary").output_mode == "multi_hot"
    check_signature("CategoryEncoding")
