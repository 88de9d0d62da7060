"""Parts of a tensor by start and size, and positions among the largest, are those of Keras."""

import warnings

import numpy as np
import pytest

from kerascnn import KerasTensor, ops

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # other packages may warn when they are imported
    keras = pytest.importorskip("keras")

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.mark.parametrize("start", [(0, 0), (1, 2), (4, 0)])
def test_a_size_of_minus_one_takes_the_rest(start, rng):
    x = rng.normal(size=(5, 7)).astype("float32")
    found = ops.convert_to_numpy(ops.slice(x, start, (-1, 3)))
    np.testing.assert_array_equal(found, x[start[0] :, start[1] : start[1] + 3])


@pytest.mark.parametrize("shape", [(3, 3), (None, 3)])
def test_shapes_of_the_rest(shape):
    own = ops.slice(KerasTensor(shape), (1, 1), (-1, -1)).shape
    assert own == keras.ops.slice(keras.KerasTensor(shape), (1, 1), (-1, -1)).shape


def test_sizes_that_cannot_be():
    x = ops.ones((3, 4))
    with pytest.raises(ValueError, match="sizes are 0 or more"):
        ops.slice(x, (0, 0), (-2, 1))
    with pytest.raises(ValueError, match="where the start is a number"):
        ops.slice(x, ops.convert_to_tensor([1, 1]), (-1, -1))


def test_what_is_not_a_number_is_not_among_the_largest():
    targets = np.asarray([1, 0, 2])
    predictions = np.asarray([[0.1, np.nan, 0.5], [0.3, 0.2, 0.5], [0.3, 0.2, 0.1]], "float32")
    for k in (1, 2, 3):
        found = ops.convert_to_numpy(ops.in_top_k(targets, predictions, k))
        expected = keras.ops.in_top_k(
            keras.ops.convert_to_tensor(targets), keras.ops.convert_to_tensor(predictions), k
        )
        np.testing.assert_array_equal(found, keras.ops.convert_to_numpy(expected))
