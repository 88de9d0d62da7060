"""Threads, forks and the end of the interpreter, in the middle of training."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import warnings

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import callbacks, layers

SAMPLES = 64


def convnet(seed):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dropout(0.3, seed=seed),
            layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


@pytest.fixture
def data(rng):
    return rng.random((SAMPLES, 8, 8, 1), "float32"), rng.integers(0, 3, SAMPLES)


def in_threads(functions):
    """Runs functions at once; returns what each returned or raised."""
    results = [None] * len(functions)

    def run(place):
        try:
            results[place] = functions[place]()
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
        assert not thread.is_alive()
    return results


def assert_equal_weights(one, other):
    for ours, theirs in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_four_models_in_four_threads(data, device, amount):
    def fit(model):
        return model.fit(*data, epochs=amount(3, 100), shuffle=False, verbose=0).history

    with keras.device(device):
        alone, together = [convnet(i) for i in range(4)], [convnet(i) for i in range(4)]
    expected = [fit(model) for model in alone]
    assert in_threads([lambda model=model: fit(model) for model in together]) == expected
    for one, other in zip(together, alone, strict=True):
        assert_equal_weights(one, other)


def test_one_model_predicts_in_several_threads(data, device, amount):
    with keras.device(device):
        model = convnet(0)
    # Kernels for few rows may round in another way than those for many.
    whole, few = (model.predict(x, verbose=0) for x in (data[0], data[0][:5]))

    def check():
        result = True
        for _ in range(amount(25, 2000)):
            result &= np.array_equal(model.predict(data[0], verbose=0), whole)
            result &= np.array_equal(model.predict(data[0][:5], verbose=0), few)
        return result

    assert in_threads([check] * 3) == [True] * 3


def test_a_model_predicts_while_it_is_trained(data, device):
    with keras.device(device):
        model, alone = convnet(0), convnet(0)
    expected = alone.fit(*data, epochs=40, shuffle=False, verbose=0).history
    ended = threading.Event()

    def fit():
        try:
            return model.fit(*data, epochs=40, shuffle=False, verbose=0).history
        finally:
            ended.set()

    def predict():
        count = 0
        while not ended.is_set() or count == 0:
            assert np.isfinite(model.predict(data[0][:7], verbose=0)).all()
            count += 1
        return count

    history, predictions = in_threads([fit, predict])
    assert history == expected and predictions > 0
    assert_equal_weights(model, alone)


@pytest.mark.parametrize(
    "method", ["fit", "evaluate", "train_on_batch", "test_on_batch", "profile"]
)
def test_what_would_disturb_a_training_is_refused(data, method):
    model, alone = convnet(0), convnet(0)
    expected = alone.fit(*data, epochs=2, shuffle=False, verbose=0).history
    errors = []

    class Other(callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if not errors:
                call = threading.Thread(target=self.disturb, name="disturber")
                call.start()
                while not model._turns._waiting:  # it waits for its turn, which comes next
                    time.sleep(0.001)
                self.call = call

        def disturb(self):
            try:
                getattr(model, method)(*data)
            except Exception as error:
                errors.append(error)

    other = Other()
    found = model.fit(*data, epochs=2, shuffle=False, verbose=0, callbacks=[other]).history
    other.call.join(600)
    [error] = errors
    assert isinstance(error, RuntimeError)
    assert f"`{method}()` can't run in 'disturber'" in str(error)
    assert found == expected
    assert_equal_weights(model, alone)
    getattr(model, method)(*data)  # afterwards it can


def test_garbage_is_collected_in_the_middle(data, device):
    class Collect(callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            convnet(7).predict(data[0], verbose=0)  # garbage with programs of its own
            gc.collect()

    with keras.device(device):
        model, alone = convnet(0), convnet(0)
        expected = alone.fit(*data, epochs=2, shuffle=False, verbose=0).history
        found = model.fit(*data, epochs=2, shuffle=False, verbose=0, callbacks=[Collect()])
    assert found.history == expected
    assert_equal_weights(model, alone)


def fork_and_call(function):
    """Calls a function in a child. Returns its exit code, which is 0 where that gave true."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads, on purpose
        child = os.fork()
    if child == 0:
        signal.alarm(600)
        # A child that went on with the tests would report their results as this process does.
        try:
            os._exit(0 if function() else 1)
        except BaseException:
            traceback.print_exc()
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Fork(callbacks.Callback):
    """Calls a function in a child, once; `code` is its exit code."""

    def __init__(self, function):
        super().__init__()
        self.function, self.code = function, None

    def on_train_batch_end(self, batch, logs=None):
        if self.code is None:
            self.code = fork_and_call(self.function)


def test_a_fork_in_the_middle(data, on_cpu):
    model, alone, other = convnet(0), convnet(0), convnet(1)
    whole = alone.fit(*data, epochs=2, shuffle=False, verbose=0).history
    expected = other.predict(data[0], verbose=0)

    def predict_and_train():
        same = np.array_equal(other.predict(data[0], verbose=0), expected)
        other.fit(*data, verbose=0)
        return same and np.isfinite(other.get_weights()[0]).all()

    fork = Fork(predict_and_train)
    found = model.fit(*data, epochs=2, shuffle=False, verbose=0, callbacks=[fork]).history
    assert fork.code == 0 and found == whole
    assert_equal_weights(model, alone)


def test_a_fork_after_single_images(on_cpu):
    """OpenMP's threads compute them. A child has none of its parent's, and starts its own."""
    model = keras.Sequential([keras.Input((32, 32, 64)), layers.Conv2D(64, 3, padding="same")])
    x = np.ones((1, 32, 32, 64), "float32")
    expected = model.predict(x, verbose=0)

    def predict():
        return np.array_equal(model.predict(x, verbose=0), expected)

    assert [fork_and_call(predict) for _ in range(3)] == [0, 0, 0]
    assert predict()


def test_a_fork_is_told_that_the_gpu_is_its_parents(data, cuda_device):
    with keras.device(cuda_device):
        model, alone, other = convnet(0), convnet(0), convnet(1)
        tensor = keras.ops.ones((3,))
    with keras.device("cpu"):
        on_cpu = convnet(2)
    whole = alone.fit(*data, epochs=2, shuffle=False, verbose=0).history
    other.predict(data[0], verbose=0)
    refused = [
        lambda: other.predict(data[0], verbose=0),
        lambda: other.fit(*data, verbose=0),
        lambda: (tensor + 1).numpy(),
        lambda: keras.ops.convert_to_tensor(data[0]).numpy(),
        tensor.numpy,
    ]

    def use_the_gpu_and_then_the_cpu():
        for call in refused:
            with keras.device(cuda_device), pytest.raises(keras.DeviceError, match="was forked"):
                call()
        with keras.device("cpu"):
            return np.isfinite(on_cpu.fit(*data, verbose=0).history["loss"]).all()

    fork = Fork(use_the_gpu_and_then_the_cpu)
    found = model.fit(*data, epochs=2, shuffle=False, verbose=0, callbacks=[fork]).history
    assert fork.code == 0 and found == whole
    assert_equal_weights(model, alone)


THREADS = """
import sys, threading, time
import numpy as np
import kerascnn as keras
from kerascnn import layers

x, y = np.ones((512, 40), "float32"), np.ones((512, 3), "float32")

def made():
    model = keras.Sequential([keras.Input((40,)), layers.Dense(64), layers.Dense(3)])
    model.compile("sgd", "mse")
    return model

model, began = made(), threading.Event()

def forever():
    while True:
        {call}
        began.set()

threading.Thread(target=forever, daemon=True).start()
began.wait()
time.sleep(float(sys.argv[1]))
print("the end")
"""
CALLS = {
    "fit": "model.fit(x, y, epochs=20, verbose=0)",
    "predict": "model.predict(x, verbose=0)",
    "ops": "keras.ops.matmul(x, x.T)",
    "a new model": "made().fit(x, y, verbose=0)",
}


@pytest.mark.parametrize("call", CALLS)
def test_the_interpreter_ends_while_a_thread_works(tmp_path, rng, call, amount):
    # Python ends its threads where they ask for its lock, which must not happen within the core.
    script = tmp_path / "script.py"
    script.write_text(THREADS.format(call=CALLS[call]))
    for _ in range(amount(3, 100)):
        arguments = [sys.executable, str(script), f"{rng.uniform(0, 0.05)}"]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=600)
        assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")


def test_what_runs_at_exit_may_use_models(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import atexit
            atexit.register(lambda: print(predict()))
            import threading
            import numpy as np
            import kerascnn as keras

            model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
            other = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
            x, began = np.ones((3, 2)), threading.Event()

            def predict():
                return model.predict(x, verbose=0).shape

            def forever():
                while True:
                    other.predict(x, verbose=0)
                    began.set()

            threading.Thread(target=forever, daemon=True).start()
            began.wait()
            atexit.register(lambda: print(predict()))
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "(3, 1)\n(3, 1)\n", "")
