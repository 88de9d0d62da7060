"""TimeDistributed with masks, and around layers that go through sequences themselves."""

import numpy as np
import pytest

import kerascnn
from kerascnn import layers

from ..comparing import keras
from .running import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.mark.parametrize("compiled", [False, True])
def test_masks_go_to_the_layer_step_by_step(compiled, device, rng):
    """Sentences of documents: (documents, sentences, words, features), a mask of words."""
    x = rng.uniform(-1, 1, (2, 3, 5, 4)).astype("float32")
    mask = rng.random((2, 3, 5)) < 0.6
    with kerascnn.device(device):
        here = layers.TimeDistributed(layers.LSTM(6, name="inner"), name="outer")
        here.build(x.shape)
        there = keras.layers.TimeDistributed(keras.layers.LSTM(6, name="inner"), name="outer")
        there.build(x.shape)
        there.set_weights(here.get_weights())
        assert [w.path for w in here.weights] == [w.path for w in there.weights]
        call = kerascnn.jit(lambda x, m: here(x, mask=m)) if compiled else here
        actual = call(x, mask) if compiled else call(x, mask=mask)
    expected = there(x, mask=keras.ops.convert_to_tensor(mask))
    # Five steps of sums of ten products in float32.
    assert_close([actual.numpy()], [expected.detach().numpy()], 2e-6)
    unmasked = here(x).numpy()
    assert np.abs(unmasked - actual.numpy()).max() > 1e-3
    assert here.compute_output_shape((None, None, 5, 4)) == (None, None, 6)
    assert here.compute_mask(x, mask) is mask


def test_a_layer_that_takes_no_mask_is_not_given_one(rng):
    x = rng.random((2, 3, 4)).astype("float32")
    layer = layers.TimeDistributed(layers.Dense(2))
    np.testing.assert_array_equal(layer(x, mask=np.ones((2, 3), bool)).numpy(), layer(x).numpy())


def test_a_mask_of_other_steps_is_an_error(rng):
    layer = layers.TimeDistributed(layers.Dense(2))
    with pytest.raises(ValueError, match="first two sizes of the mask"):
        layer(np.ones((2, 3, 4), "float32"), mask=np.ones((2, 4), bool))
