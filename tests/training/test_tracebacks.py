"""Tracebacks show the user's frames, and the message names the call that failed."""

import re
import subprocess
import sys
import traceback

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers


class Failing(layers.Layer):
    def compute_output_shape(self, input_shape):
        return input_shape

    def call(self, x):
        raise ValueError("no such thing")


@pytest.fixture
def all_frames():
    keras.config.disable_traceback_filtering()
    yield
    keras.config.enable_traceback_filtering()


def failing_model():
    model = keras.Sequential([layers.Dense(2), Failing(name="failing")])
    model.compile("sgd", "mse", run_eagerly=True)
    return model


CALLS = {
    "fit": lambda x: failing_model().fit(x, x, verbose=0),
    "evaluate": lambda x: failing_model().evaluate(x, x, verbose=0),
    "predict": lambda x: failing_model().predict(x, verbose=0),
    "train_on_batch": lambda x: failing_model().train_on_batch(x, x),
    "test_on_batch": lambda x: failing_model().test_on_batch(x, x),
    "predict_on_batch": lambda x: failing_model().predict_on_batch(x),
    "a call": lambda x: Failing(name="failing")(x),
}


def frames_of(call):
    with pytest.raises(ValueError, match=r"no such thing.*\n.*'failing' \(Failing\)") as caught:
        call(np.ones((3, 2), "float32"))
    modules = [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(caught.tb)]
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(caught.tb)]
    return sum(module.startswith("kerascnn") for module in modules), names


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda m, x: m.fit(x, x, validation=(x, x)), r"fit.*'validation'\..*'validation_data'"),
        (lambda m, x: m.fit(x, x, nb_epoch=2), r"fit.*'nb_epoch'\. Did you mean 'epochs'"),
        (lambda m, x: m.evaluate(x, x, batchsize=2), r"evaluate.*Did you mean 'batch_size'\?"),
        (lambda m, x: m.predict(x, device="cpu"), "predict.*Known are as_tensor, batch_size, "),
        (lambda m, x: m.compile("sgd", los="mse"), r"compile.*'los'\. Did you mean 'loss'\?"),
    ],
)
def test_arguments_that_are_not_there(call, text):
    """The error is Python's, with the names that there are."""
    with pytest.raises(TypeError, match="got an unexpected keyword argument") as caught:
        call(failing_model(), np.ones((3, 2), "float32"))
    assert re.search(text, str(caught.value)) and "self" not in str(caught.value)
    assert caught.value.__suppress_context__ and len(caught.traceback) == 3  # test, lambda, method


def test_type_errors_of_users_stay():
    """An argument of the call is misspelt only where the method has no such argument."""

    class Wrong(layers.Layer):
        def call(self, x):
            return len(x=x)

    model = keras.Sequential([Wrong()])
    model.compile("sgd", "mse")
    with pytest.raises(TypeError, match="len.. takes no keyword arguments"):
        model.predict(x=np.ones((3, 2), "float32"), verbose=0)


@pytest.mark.parametrize("what", CALLS)
def test_the_frames_of_the_library_are_left_out(what):
    own, names = frames_of(CALLS[what])
    assert own <= 1  # That frame is the function that was called.
    assert names[-1] == "call"


@pytest.mark.parametrize("what", CALLS)
def test_all_frames_are_shown_where_that_is_wanted(what, all_frames):
    own, names = frames_of(CALLS[what])
    assert own > 1 and names[-1] == "call"
    assert not keras.config.is_traceback_filtering_enabled()


def test_an_error_keeps_its_cause():
    class Chained(layers.Layer):
        def call(self, x):
            raise ValueError("second") from KeyError("first")

    with pytest.raises(ValueError, match="second") as caught:
        Chained()(np.ones((1, 1)))
    assert isinstance(caught.value.__cause__, KeyError)


def test_flash_attention_is_kept_without_effect():
    keras.config.enable_flash_attention()
    assert keras.config.is_flash_attention_enabled()
    keras.config.disable_flash_attention()
    assert keras.config.is_flash_attention_enabled() is False


def test_flash_attention_is_undecided_at_first():
    code = "import kerascnn; print(kerascnn.config.is_flash_attention_enabled())"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "None\n"
