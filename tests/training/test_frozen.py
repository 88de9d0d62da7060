"""Warnings about code that runs only while a step is recorded, and what a step must return."""

import random
import warnings

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers

X, Y = np.ones((10, 2), "float32"), np.ones((10, 1), "float32")


def own(change, run_eagerly=False):
    class Own(keras.Model):
        count = 0

        def train_step(self, data):
            change(self)
            return super().train_step(data)

    inputs = keras.Input((2,))
    model = Own(inputs, layers.Dense(1)(inputs))
    model.count = 0
    model.compile("sgd", "mse", run_eagerly=run_eagerly)
    return model


def count(model):
    model.count += 1


FROZEN = {
    "Own.train_step draws random numbers from NumPy": lambda model: np.random.rand(),  # noqa: NPY002
    "Own.train_step draws random numbers from Python": lambda model: random.random(),
    "Own.train_step changed the number `count` of Own": count,
}


@pytest.mark.parametrize("text", FROZEN)
def test_what_is_frozen_is_warned_of_once(text):
    model = own(FROZEN[text])
    with pytest.warns(UserWarning, match=text) as caught:
        # There are whole and last batches, training and validation.
        model.fit(X, Y, batch_size=4, epochs=2, verbose=0, validation_split=0.3)
    assert len([w for w in caught if "run_eagerly=True" in str(w.message)]) == 1


@pytest.mark.parametrize("text", FROZEN)
def test_steps_that_python_runs_are_not_warned_of(text):
    model = own(FROZEN[text], run_eagerly=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, Y, batch_size=4, epochs=2, verbose=0)
    assert model.count == (6 if "count" in text else 0)


def test_what_the_library_draws_and_counts_is_not_warned_of():
    class Late(layers.Layer):
        """Makes weights and generators while the step is recorded."""

        def build(self, shape):
            self.width = shape[-1]
            self.parts = [layers.Dense(3), layers.Dropout(0.5), layers.BatchNormalization()]

        def call(self, x, training=False):
            for part in self.parts:
                x = part(x, training=training)
            return x

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.late, self.last = Late(), layers.Dense(1)

        def call(self, x, training=False):
            return self.last(self.late(x, training=training))

    model = Own()
    model.compile("adam", "mse")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, Y, batch_size=4, verbose=0, validation_split=0.2)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_step_must_return_logs(run_eagerly):
    class Own(keras.Model):
        def train_step(self, data):
            super().train_step(data)

    inputs = keras.Input((2,))
    model = Own(inputs, layers.Dense(1)(inputs))
    model.compile("sgd", "mse", run_eagerly=run_eagerly)
    with pytest.raises(TypeError, match=r"Own.train_step returned None.*get_metrics_result"):
        model.fit(X, Y, verbose=0)


def noise(shape):
    return np.random.normal(size=shape).astype("float32")  # noqa: NPY002, from here on: draws


class Counting(layers.Layer):
    """Counts and draws numbers, each on a line that the test finds."""

    steps = 0

    def call(self, x):
        self.steps += 1  # here: counts
        return x + self.jitter(x.shape[-1:])

    def jitter(self, shape):
        from random import gauss

        gauss(0.0, 1.0)  # here: bells
        return noise(shape)


def line_of(mark):
    """Returns number and text of the only line in this file that ends with a mark."""
    with open(__file__) as file:
        (found,) = [(i, line) for i, line in enumerate(file, 1) if line.endswith(f": {mark}\n")]
    return found[0], found[1].strip()


PLACES = {
    "Counting 'counting'": "counts",
    "from NumPy": "draws",
    "from Python": "bells",
}


def test_the_file_and_the_line_are_named():
    layer = Counting(name="counting")
    layer.steps = 0
    model = keras.Sequential([layer, layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="recorded") as caught:
        model.fit(X, Y, verbose=0)
    texts = [str(warning.message) for warning in caught]
    for what, mark in PLACES.items():
        (text,) = [text for text in texts if what in text]
        number, code = line_of(mark)
        assert f'(File "{__file__}", line {number}: `{code}`)' in text


def test_losses_of_ones_own_are_read_too():
    def shaky(y_true, y_pred):
        factor = random.random()  # here: shakes
        return keras.ops.mean(keras.ops.square(y_true - y_pred)) * factor

    model = keras.Sequential([layers.Dense(1)])
    model.compile("sgd", shaky)
    number, _ = line_of("shakes")
    with pytest.warns(UserWarning, match=f"`random` while .* line {number}: `factor = random"):
        model.fit(X, Y, verbose=0)


def test_attributes_are_set_as_ever_after_a_recording():
    model = own(count)
    with pytest.warns(UserWarning, match="changed the number `count` of Own"):
        model.fit(X, Y, verbose=0)
    assert layers.Layer.__setattr__ is object.__setattr__
    failing = own(lambda model: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failing.fit(X, Y, verbose=0)
    assert layers.Layer.__setattr__ is object.__setattr__


def made_in_call(*, in_a_list):
    class Net(keras.Model):
        def call(self, x):
            dense = layers.Dense(1)
            self.dense = [dense] if in_a_list else dense
            return dense(x)

    model = Net(name="net")
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize("in_a_list", [False, True])
def test_layers_that_each_recording_would_make_anew_are_refused(in_a_list):
    """They had new weights in `fit`, `evaluate` and each shape of `predict`, without a word."""
    model = made_in_call(in_a_list=in_a_list)
    with pytest.raises(ValueError, match=r"Net 'net' makes the layer 'dense.*`dense`.*`__init__`"):
        model.fit(X, Y, batch_size=5, verbose=0)
        model.predict(X, verbose=0)
        model.evaluate(X, Y, verbose=0)


def test_layers_made_once_in_the_first_call_stay():
    class Net(keras.Model):
        dense = None

        def call(self, x):
            if self.dense is None:
                self.dense = layers.Dense(1)
            self.latest = [self.dense]  # the same one each time
            return self.dense(x)

    model = Net()
    model.compile(keras.optimizers.SGD(0.0), "mse")
    loss = model.fit(X, Y, batch_size=4, verbose=0).history["loss"][0]
    np.testing.assert_allclose(model.evaluate(X, Y, batch_size=4, verbose=0), loss, rtol=1e-6)
    assert len(model.weights) == 2
