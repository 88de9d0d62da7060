"""What training costs besides its steps: the first step, and Python in each epoch."""

import sys
import time

import numpy as np

import kerascnn as keras
from kerascnn import layers


def network_d():
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )


def test_the_first_step_of_a_convolutional_network_takes_less_than_half_a_second():
    """The measured time is 0.03 s on one core of an EPYC, with tracing and compiling.

    The time is the processor time of this thread, which traces and compiles models, so that other
    processes do not count. The best of three models counts, each with its own first step.
    """
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, (128, 28, 28, 1)).astype("uint8"), np.arange(128) % 10
    seconds = []
    with keras.device("cpu"):
        for _ in range(3):
            model = network_d()
            model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
            begin = time.thread_time()
            model.fit(x, y, batch_size=128, verbose=0)
            seconds.append(time.thread_time() - begin)
    assert min(seconds) < 0.5


def calls_per_epoch(depth, source):
    """Returns how many Python functions run in an epoch after the first.

    The least count of several epochs is taken, since the garbage collector may run in any of them.
    """
    x, y = np.ones((16, 4), "float32"), np.zeros(16, int)
    dense = [layers.Dense(4, activation="relu") for _ in range(depth)]
    model = keras.Sequential([keras.Input((4,)), *dense, layers.Dense(3, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    counts = []

    class Counting(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.calls = 0
            sys.setprofile(self.count)

        def count(self, frame, event, argument):
            self.calls += event == "call"

        def on_epoch_end(self, epoch, logs=None):
            sys.setprofile(None)
            counts.append(self.calls)

    options = {"epochs": 6, "callbacks": [Counting()], "verbose": 0}
    try:
        if source == "arrays":
            model.fit(x, y, batch_size=16, validation_data=(x, y), **options)
        else:
            data = Once((x, y))
            model.fit(data, validation_data=data, **options)
    finally:
        sys.setprofile(None)
    return min(counts[1:])


class Once:
    """Gives one batch in each pass."""

    def __init__(self, batch):
        self.batch = batch

    def __iter__(self):
        return iter([self.batch])


def test_python_for_an_epoch_does_not_grow_with_the_number_of_layers():
    """Calls are counted, not timed, in epochs with one step of training and one of validation."""
    for source in ("arrays", "iterable"):
        few, many = (calls_per_epoch(depth, source) for depth in (2, 40))
        assert few == many, source
        assert few < 1000
