"""A Sequential that was built on data takes other lengths and sizes, if its layers do."""

import numpy as np
import pytest

import kerascnn
from kerascnn import layers

keras = pytest.importorskip("keras")
# Keras converts PyTorch tensors in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

STACKS = {
    "dense": lambda L: [L.Dense(5, activation="relu"), L.Dense(4)],
    "recurrent": lambda L: [L.LSTM(3, return_sequences=True), L.Dense(2)],
    "convolutions": lambda L: [L.Conv1D(3, 3, padding="same"), L.GlobalMaxPooling1D()],
}


@pytest.mark.parametrize("name", STACKS)
def test_other_lengths_are_those_of_keras(name, rng):
    here = kerascnn.Sequential(STACKS[name](kerascnn.layers))
    there = keras.Sequential(STACKS[name](keras.layers))
    for length in (7, 11, 4):
        x = rng.normal(size=(3, length, 6)).astype("float32")
        found = here(x)
        if not there.built:
            there.build((None, length, 6))
            there.set_weights(here.get_weights())
        expected = keras.ops.convert_to_numpy(there(x))
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)
    assert here.input_shape == (None, None, 6)


class Block(layers.Layer):
    """Holds a Sequential and takes inputs of any length, as Keras' transformer examples do."""

    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.inner = kerascnn.Sequential([layers.Dense(8, activation="relu"), layers.Dense(width)])

    def call(self, x):
        return x + self.inner(x)


def test_inside_of_a_layer_on_inputs_of_any_length(rng):
    inputs = kerascnn.Input((None, 6))
    block = Block(6)
    model = kerascnn.Model(inputs, layers.GlobalAveragePooling1D()(block(inputs)))
    assert block.inner.input_shape == (None, None, 6)
    model.compile("sgd", "mse")
    for length in (5, 9):
        x, y = rng.normal(size=(8, length, 6)), rng.normal(size=(8, 6))
        model.fit(x, y, verbose=0)
        first, bias, second, last = block.get_weights()
        expected = (x + np.maximum(x @ first + bias, 0) @ second + last).mean(1)
        np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-3, atol=1e-4)


def test_images_of_other_sizes(rng):
    model = kerascnn.Sequential([layers.Conv2D(4, 3), layers.GlobalAveragePooling2D()])
    assert model(rng.normal(size=(2, 8, 10, 3))).shape == (2, 4)
    assert model(rng.normal(size=(2, 8, 12, 3))).shape == (2, 4)
    assert model.input_shape == (None, 8, None, 3)
    weights = len(model.weights)
    assert model(rng.normal(size=(2, 9, 12, 3))).shape == (2, 4)
    assert len(model.weights) == weights


def test_what_layers_need_stays_an_error(rng):
    flat = kerascnn.Sequential([layers.Flatten(), layers.Dense(2)])
    flat(rng.normal(size=(2, 8, 3)))
    with pytest.raises(ValueError, match=r"expected shape=\(None, 8, 3\), found shape=\(2, 9, 3\)"):
        flat(rng.normal(size=(2, 9, 3)))
    assert flat(rng.normal(size=(2, 8, 3))).shape == (2, 2)
    features = kerascnn.Sequential([layers.Dense(2)])
    features(rng.normal(size=(2, 8, 3)))
    with pytest.raises(ValueError, match=r"found shape=\(2, 8, 4\)"):
        features(rng.normal(size=(2, 8, 4)))
    told = kerascnn.Sequential([kerascnn.Input((8, 3)), layers.Dense(2)])
    with pytest.raises(ValueError, match=r"found shape=\(2, 9, 3\)"):
        told(rng.normal(size=(2, 9, 3)))
