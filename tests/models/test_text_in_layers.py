"""Custom layers that take text and look words up inside their `call`."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, ops

WORDS = [f"user{i}" for i in range(12)]


class QuotientRemainder(layers.Layer):
    """Embeds words with little memory, as in one of Keras' examples."""

    def __init__(self, vocabulary, width, buckets, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary, self.width, self.buckets = vocabulary, width, buckets
        self.lookup = layers.StringLookup(vocabulary=vocabulary, num_oov_indices=0)
        self.quotients = layers.Embedding(buckets, width)
        self.remainders = layers.Embedding(buckets, width)

    def call(self, inputs):
        number = self.lookup(inputs)
        quotient = self.quotients(ops.floor_divide(number, self.buckets))
        return quotient * self.remainders(ops.mod(number, self.buckets))

    def get_config(self):
        own = {"vocabulary": self.vocabulary, "width": self.width, "buckets": self.buckets}
        return {**super().get_config(), **own}


def model_of(layer):
    inputs = keras.Input((), dtype="string")
    model = keras.Model(inputs, layers.Dense(1)(layer(inputs)))
    model.compile("adam", "mse")
    return model


@pytest.fixture
def words(rng):
    return rng.choice(WORDS, 40)


def expected(layer, words):
    numbers = np.array([WORDS.index(word) for word in words])
    quotients, remainders = layer.quotients.get_weights()[0], layer.remainders.get_weights()[0]
    return quotients[numbers // layer.buckets] * remainders[numbers % layer.buckets]


def test_called_at_once(words):
    layer = QuotientRemainder(WORDS, 3, 5)
    found = layer(words).numpy()
    np.testing.assert_allclose(found, expected(layer, words), rtol=1e-6)


def test_embeddings_behind_a_lookup_learn(words, rng, tmp_path):
    layer = QuotientRemainder(WORDS, 3, 5)
    model = model_of(layer)
    assert model.output_shape == (None, 1)
    assert layer in model.layers
    targets = rng.normal(size=(40, 1)).astype("float32")

    # The reference looks the same words up before the model.
    inputs = keras.Input((), dtype="int64")
    quotients, remainders = (layers.Embedding(5, 3) for _ in range(2))
    rows = quotients(ops.floor_divide(inputs, 5)) * remainders(ops.mod(inputs, 5))
    plain = keras.Model(inputs, layers.Dense(1)(rows))
    plain.compile("adam", "mse")
    plain.set_weights(model.get_weights())
    numbers = np.array([WORDS.index(word) for word in words])

    arguments = {"batch_size": 16, "epochs": 3, "shuffle": False, "verbose": 0}
    losses = model.fit(words, targets, **arguments).history["loss"]
    assert losses == plain.fit(numbers, targets, **arguments).history["loss"]
    for own, other in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_array_equal(own, other)
    kernel, bias = model.layers[-1].get_weights()
    found = model.predict(words, verbose=0)
    wanted = expected(layer, words) @ kernel + bias
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert np.isclose(
        model.evaluate(words, targets, verbose=0), plain.evaluate(numbers, targets, verbose=0)
    )

    model.save(tmp_path / "model.keras")
    own = {"QuotientRemainder": QuotientRemainder}
    copy = keras.saving.load_model(tmp_path / "model.keras", custom_objects=own)
    np.testing.assert_array_equal(copy.predict(words, verbose=0), found)


class Scaled(QuotientRemainder):
    """Has its own weight, so it cannot be split into a lookup and a part for the device."""

    def build(self, input_shape):
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, inputs):
        return super().call(inputs) * self.scale


class WithTraining(QuotientRemainder):
    def call(self, inputs, training=False):
        return super().call(inputs)


@pytest.mark.parametrize("kind", [Scaled, WithTraining])
def test_layers_that_stay_whole(kind, words):
    layer = kind(WORDS, 3, 5)
    model = model_of(layer)
    kernel, bias = model.layers[-1].get_weights()
    wanted = expected(layer, words) @ kernel + bias
    np.testing.assert_allclose(model(words).numpy(), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"is text.*model\(x\)"):
        model.predict(words, verbose=0)
    with pytest.raises(ValueError, match="is text"):
        model.fit(words, np.ones((40, 1)), verbose=0)


class AddsOne(layers.Layer):
    def call(self, x):
        return ops.add(x, 1)


@pytest.mark.parametrize(
    "function", [AddsOne(), layers.Lambda(lambda x: x * 2), ops.exp, lambda x: ops.add(x, 1)]
)
def test_what_takes_no_text_says_so(function):
    with pytest.raises(TypeError, match="is text, which only layers of text take"):
        function(keras.Input((1,), dtype="string"))
