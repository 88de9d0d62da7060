"""A layer's setting that changes after a step was compiled applies to the next call."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers

from .helpers import count_compilations


def sequential():
    return keras.Sequential(
        [keras.Input((5,)), layers.Dense(4, "relu"), layers.Dense(3, "softmax")]
    )


def functional():
    x = keras.Input((5,))
    return keras.Model(x, layers.Dense(3, "softmax")(layers.Dense(4, "relu")(x)))


# One of the models changes a number in its steps on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*changed the number `calls`:UserWarning")


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.scores = layers.Dense(4, "relu"), layers.Dense(3, "softmax")
        self.factor = 1.0
        self.calls = 0

    def call(self, x):
        self.calls += 1
        return self.scores(self.hidden(x)) * self.factor


def logits(model, x):
    """Computes the logits in float64 NumPy."""
    kernel, bias, last, last_bias = (w.astype("float64") for w in model.get_weights())
    return np.maximum(x @ kernel + bias, 0) @ last + last_bias


@pytest.mark.parametrize("make", [sequential, functional, Subclassed])
def test_an_activation_that_is_taken_away(make, rng):
    model = make()
    model.compile("sgd", "mse")
    x, y = rng.random((8, 5), dtype="float32"), rng.random((8, 3), dtype="float32")
    for _ in range(3):  # Later calls reuse what was kept for data of the same form.
        model.predict(x, verbose=0)
        model.evaluate(x, y, verbose=0)
    model.fit(x, y, verbose=0)
    model.train_on_batch(x, y)
    model.layers[-1].activation = None
    want = logits(model, x)
    loss = ((want - y) ** 2).mean()
    # The results are float32 sums of a few terms.
    np.testing.assert_allclose(model.predict(x, verbose=0), want, atol=1e-5)
    np.testing.assert_allclose(model.predict_on_batch(x), want, atol=1e-5)
    np.testing.assert_allclose(model(x).numpy(), want, atol=1e-5)
    assert model.evaluate(x, y, verbose=0) == pytest.approx(loss, rel=1e-4)
    assert model.test_on_batch(x, y) == pytest.approx(loss, rel=1e-4)
    history = model.fit(x, y, verbose=0).history
    assert history["loss"][0] == pytest.approx(loss, rel=1e-4)
    loss = ((logits(model, x) - y) ** 2).mean()
    assert model.train_on_batch(x, y) == pytest.approx(loss, rel=1e-4)


def test_layers_without_an_activation(rng):
    x = rng.random((2, 6, 6, 2), dtype="float32")
    for layer in (
        layers.Conv2D(3, 3, activation="relu"),
        layers.Conv2DTranspose(3, 3, activation="relu"),
        layers.DepthwiseConv2D(3, activation="relu"),
        layers.SeparableConv2D(3, 3, activation="relu"),
        layers.EinsumDense("bhwc,cd->bhwd", (None, None, 4), activation="relu"),
        layers.Activation("relu"),
    ):
        layer(x)
        layer.activation = keras.activations.linear
        want = layer(x).numpy()
        layer.activation = None
        np.testing.assert_array_equal(layer(x).numpy(), want)


def test_numbers_that_layers_are_told(rng):
    dropout, leaky = layers.Dropout(0.0), layers.LeakyReLU(0.5)
    inner = keras.Sequential([keras.Input((4,)), leaky, dropout])
    same = layers.Dense(4, use_bias=False, kernel_initializer="identity")
    model = keras.Sequential([keras.Input((4,)), inner, same])
    model.compile("sgd", "mse")
    x = rng.normal(size=(64, 4)).astype("float32")
    y = np.where(x < 0, x * np.float32(0.5), x)
    assert model.evaluate(x, y, verbose=0) == 0
    assert model.fit(x, y, verbose=0).history["loss"] == [0.0]
    leaky.negative_slope = 0.25
    assert model.evaluate(x, y, verbose=0) > 0
    leaky.negative_slope = 0.5
    assert model.evaluate(x, y, verbose=0) == 0
    dropout.rate = 0.75
    assert model.fit(x, y, verbose=0).history["loss"][0] > 0


def test_what_stays_is_not_compiled_again(rng):
    """Assigning an equal number changes nothing, and a model may count its calls."""
    model = Subclassed()
    model.compile("sgd", "mse")
    x, y = rng.random((8, 5), dtype="float32"), rng.random((8, 3), dtype="float32")

    def run():
        model.fit(x, y, validation_data=(x, y), batch_size=4, epochs=3, verbose=0)
        model.train_on_batch(x, y)
        model.predict(x, verbose=0)

    for _ in range(2):  # After the first run it is known which attributes the calls change.
        run()
    with count_compilations() as compiled:
        model.factor = float("1.0")
        model.hidden.activation = model.hidden.activation
        run()
    assert compiled == []
    model.factor = 2.0
    with count_compilations() as compiled:
        run()
    assert {"train", "test", "predict"} <= set(compiled)
