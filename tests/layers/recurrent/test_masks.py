"""Masks that Embedding and Masking put on sequences reach recurrent layers, as in Keras."""

import numpy as np
import pytest

import kerascnn

from ..comparing import keras

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def words(k):
    x = inputs = k.Input((None,), dtype="int32")
    x = k.layers.Embedding(11, 4, mask_zero=True)(x)
    x = k.layers.Bidirectional(k.layers.LSTM(3, return_sequences=True))(x)
    x = k.layers.TimeDistributed(k.layers.Dense(5))(x)
    x = k.layers.RNN([k.layers.GRUCell(4), k.layers.LSTMCell(3)], return_sequences=True)(x)
    x = k.layers.GRU(4)(x)
    return k.Model(inputs, k.layers.Dense(2)(x))


def numbers(k):
    inputs = k.Input((None, 3))
    layers = [k.layers.Masking(0.0), k.layers.SimpleRNN(4, return_sequences=True)]
    layers += [k.layers.Dropout(0.0), k.layers.LSTM(4), k.layers.Dense(2)]
    return k.Sequential([inputs, *layers])


def states(k):
    """The encoder ends at the last word of a sentence; the decoder has its own words and mask."""
    source, target = k.Input((None,), dtype="int32"), k.Input((None,), dtype="int32")
    embedding = k.layers.Embedding(11, 4, mask_zero=True)
    _, *states = k.layers.LSTM(3, return_state=True)(embedding(source))
    x = k.layers.LSTM(3, return_sequences=True)(embedding(target), initial_state=states)
    return k.Model([source, target], k.layers.Dense(2)(k.layers.GRU(2)(x)))


def sentences(rng, lengths, steps):
    """Returns words, numbered from 1, with zeros behind them."""
    x = rng.integers(1, 11, (len(lengths), steps)).astype("int32")
    return np.where(np.arange(steps) < np.array(lengths)[:, None], x, 0)


@pytest.mark.parametrize("make", [words, numbers, states])
def test_models_of_masked_sequences(make, rng):
    here, there = make(kerascnn), make(keras)
    there.set_weights(here.get_weights())
    x = sentences(rng, [7, 3, 1, 5], 7)
    if make is numbers:
        x = rng.normal(size=(4, 7, 3)).astype("float32") * (x != 0)[..., None]
    if make is states:
        x = [x, sentences(rng, [2, 5, 4, 1], 5)]
    y = rng.normal(size=(4, 2)).astype("float32")
    for model in (here, there):
        model.compile("sgd", "mse")
    a, b = (model.predict(x, verbose=0) for model in (here, there))
    np.testing.assert_allclose(a, b, rtol=0, atol=2e-6)
    losses = [[float(m.train_on_batch(x, y)) for _ in range(4)] for m in (here, there)]
    # The tolerance covers four float32 steps of training.
    np.testing.assert_allclose(*losses, rtol=2e-5)
    if make is not states:  # What follows a sequence has no effect.
        longer = np.concatenate([x, np.zeros_like(x)], 1)
        np.testing.assert_allclose(
            here.predict(longer, verbose=0), here.predict(x, verbose=0), rtol=0, atol=1e-6
        )


def test_the_mask_of_what_comes_out():
    x = np.ones((2, 4), "int32")
    embedded = kerascnn.layers.Embedding(3, 2, mask_zero=True)(x)
    layers = kerascnn.layers
    assert layers.LSTM(3)(embedded)._keras_mask is None
    for layer in (
        layers.LSTM(3, return_sequences=True),
        layers.Bidirectional(layers.GRU(3, return_sequences=True)),
        layers.RNN(layers.GRUCell(3), return_sequences=True),
    ):
        assert layer(embedded)._keras_mask.numpy().tolist() == [[True] * 4] * 2
    outputs, state = layers.GRU(3, return_sequences=True, return_state=True)(embedded)
    assert outputs._keras_mask is not None and state._keras_mask is None
