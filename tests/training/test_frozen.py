"""What looks as if each step did it, and what a step must return."""

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
        # Whole and last batches, training and validation.
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
        """Weights and generators that are made while the step is recorded."""

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
