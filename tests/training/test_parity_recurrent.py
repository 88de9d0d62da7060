"""Recurrent networks have Keras' losses from the same weights and batches."""

import numpy as np
import pytest

import kerascnn

from .test_parity import batches

# Keras 3.15's variables do not take NumPy 2's `copy` argument, so NumPy warns.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

STEPS = 8


def readers(keras, name):
    layers = keras.layers
    return {
        "lstm": lambda: [layers.LSTM(24)],
        "gru": lambda: [layers.GRU(24)],
        "two ways": lambda: [
            layers.Bidirectional(layers.LSTM(9, return_sequences=True), merge_mode="sum"),
            layers.Bidirectional(layers.GRU(8, reset_after=False)),
        ],
        "stacked": lambda: [layers.RNN([layers.LSTMCell(12), layers.SimpleRNNCell(10)])],
    }[name]()


@pytest.mark.parametrize("name", ["lstm", "gru", "two ways", "stacked"])
def test_digits_row_by_row(name):
    keras = pytest.importorskip("keras")

    def make(library):
        model = library.Sequential(
            [
                library.Input((28, 28, 1)),
                library.layers.Rescaling(1 / 255),
                library.layers.Reshape((28, 28)),
                *readers(library, name),
                library.layers.Dense(10),
            ]
        )
        loss = library.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(library.optimizers.SGD(0.1, momentum=0.9), loss)
        return model

    ours, theirs = make(kerascnn), make(keras)
    ours.set_weights(theirs.get_weights())
    losses = np.array(
        [
            [float(model.train_on_batch(x, y)) for model in (ours, theirs)]
            for (x, y), _ in zip(batches(16), range(STEPS), strict=False)
        ]
    )
    assert np.ptp(losses[:, 1]) > 1e-3
    # Float32 goes through 28 time steps and back. The first loss differs by one rounding of each
    # term, and each update carries on the rounding of its gradient.
    np.testing.assert_allclose(losses[:2, 0], losses[:2, 1], rtol=2e-6)
    np.testing.assert_allclose(losses[:, 0], losses[:, 1], rtol=5e-5)
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=5e-5)


def test_batches_of_several_lengths(rng):
    """Batches from a generator have several lengths, each of which compiles its own step."""
    keras = pytest.importorskip("keras")

    def make(library):
        model = library.Sequential(
            [
                library.Input((None, 3)),
                library.layers.GRU(6, return_sequences=True),
                library.layers.LSTM(5),
                library.layers.Dense(1),
            ]
        )
        model.compile(library.optimizers.SGD(0.05), "mse")
        return model

    ours, theirs = make(kerascnn), make(keras)
    ours.set_weights(theirs.get_weights())
    data = [
        (rng.normal(size=(4, n, 3)).astype("float32"), rng.normal(size=(4, 1)).astype("float32"))
        for n in (5, 2, 7, 5, 2)
    ]
    losses = [[float(m.train_on_batch(x, y)) for x, y in data] for m in (ours, theirs)]
    np.testing.assert_allclose(*losses, rtol=2e-5)
