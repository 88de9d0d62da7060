"""Errors for bad input say what was expected, what was received and what to do."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers

from .helpers import blobs, classifier, count_compilations


@pytest.fixture
def model():
    model = classifier()
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def raises(kind, *parts):
    """Expects an error whose message contains all `parts`."""
    pattern = "".join(f"(?=.*{part})" for part in parts)
    return pytest.raises(kind, match=f"(?s){pattern}")


def check_untouched(model, x, y, **kwargs):
    """Checks that fit fails before it changes weights or optimizer, and that the next fit works."""
    before = model.get_weights()
    try:
        model.fit(x, y, **{"verbose": 0, **kwargs})
    finally:
        for old, new in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(old, new)
        assert int(model.optimizer.iterations.numpy()) == 0
        model.fit(*blobs(), verbose=0)


@pytest.mark.parametrize("method", ["fit", "evaluate", "train_on_batch", "test_on_batch"])
def test_before_compile(method):
    with raises(ValueError, r"call `compile\(\)`", method, r"model\.compile\(optimizer="):
        getattr(classifier(), method)(*blobs())


def test_no_loss():
    model = classifier()
    model.compile("sgd")
    with raises(ValueError, "No loss to compute", r"compile\("):
        model.fit(*blobs(), verbose=0)


def test_a_loss_for_an_output_that_there_is_not():
    image = keras.Input((4,))
    model = keras.Model(image, layers.Dense(3, activation="softmax")(image))
    (name,) = model.output_names
    model.compile("sgd", {"typo": "sparse_categorical_crossentropy"})
    with raises(ValueError, "keys of `loss` must be names of outputs", name, "typo"):
        model.fit(*blobs(), verbose=0)
    model.compile("sgd", {name: "sparse_categorical_crossentropy"})
    model.fit(*blobs(), verbose=0)


def test_lengths_that_differ(model):
    x, y = blobs()
    with raises(ValueError, "same number of samples", "x: 20", "y: 19"):
        check_untouched(model, x, y[:-1])


@pytest.mark.parametrize("empty", [np.zeros((0, 4)), []])
def test_no_samples(model, empty):
    with raises(ValueError, "no samples"):
        check_untouched(model, empty, np.zeros(0, int))


def test_no_x(model):
    with raises(ValueError, "x is None"):
        model.fit(None, np.zeros(3, int))


def test_no_y(model):
    with raises(ValueError, "y is None"):
        model.fit(blobs()[0], verbose=0)


def test_wrong_shape_names_the_layer_and_both_shapes(model):
    with raises(ValueError, model.name, r"\(None, 4\)|4", "5"):
        check_untouched(model, np.zeros((6, 5), "float32"), np.zeros(6, int))


def test_wrong_rank_names_the_layer_and_both_shapes():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(2, 3, name="first"),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with raises(ValueError, "sequential|first", r"8, 8"):
        model.fit(np.zeros((5, 8, 8), "float32"), np.zeros(5, int), verbose=0)


@pytest.mark.parametrize(
    ("label", "parts"),
    [
        (3, ["from 0 to 2", "3 classes", "4 units"]),
        (-1, ["from 0 to 2", "from -1", "from 0"]),
    ],
)
def test_labels_out_of_range(model, label, parts):
    x, y = blobs()
    y[7] = label
    with raises(ValueError, *parts):
        check_untouched(model, x, y)
    with raises(ValueError, *parts):
        model.evaluate(x, y, verbose=0)
    with raises(ValueError, *parts):
        model.fit(*blobs(), validation_data=(x, y), verbose=0)
    with raises(ValueError, *parts):
        model.train_on_batch(x, y)


def test_labels_that_are_no_whole_numbers(model):
    x, y = blobs()
    with raises(ValueError, "whole numbers", "float32", "0.5"):
        check_untouched(model, x, y + 0.5)
    # Floats that are whole numbers are valid labels.
    model.fit(x, y.astype("float32"), verbose=0)


def test_one_hot_targets_for_a_sparse_loss(model):
    x, y = blobs()
    with raises(ValueError, "sparse_categorical_crossentropy", r"\(batch_size, 3\)"):
        check_untouched(model, x, np.eye(3)[y])


def test_ignored_labels_are_no_error():
    x, y = blobs()
    model = classifier()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(ignore_class=-1))
    full = model.evaluate(x, y, verbose=0)
    kept = y.copy()
    kept[:10] = -1
    half = model.evaluate(x, kept, verbose=0)
    assert half == pytest.approx(model.evaluate(x[10:], y[10:], verbose=0), rel=1e-6)
    assert half != pytest.approx(full)


@pytest.mark.parametrize(
    ("x", "parts"),
    [
        (np.array([["a"] * 4] * 20), ["strings", "astype"]),
        (np.array([[object()] * 4] * 20), ["Python objects", "astype"]),
        (np.zeros((20, 4), complex), ["complex128", "not supported", "float32"]),
        (np.zeros((20, 4), "datetime64[s]"), ["dates"]),
        ([1.0, 2.0], ["list of float", "np.asarray"]),
        ("text", ["must be an array", "str"]),
        (7, ["must be an array", "int"]),
    ],
)
def test_things_that_are_no_numbers(model, x, parts):
    with raises(TypeError, *parts):
        check_untouched(model, x, blobs()[1])
    with raises(TypeError, *parts):
        model.predict(x, verbose=0)


def test_a_single_value(model):
    with raises(ValueError, "axis of samples"):
        model.predict(np.float32(3), verbose=0)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "int8", "bool", "float16", ">f4"])
def test_other_dtypes_of_numbers_are_converted(model, dtype):
    x = np.ones((4, 4)).astype(dtype)
    expected = model.predict(np.ones((4, 4), "float32"), verbose=0)
    np.testing.assert_array_equal(model.predict(x, verbose=0), expected)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"batch_size": 0}, ["batch_size", "at least 1", "=0"]),
        ({"batch_size": -3}, ["batch_size", "=-3"]),
        ({"batch_size": 2.5}, ["batch_size", "integer", "2.5"]),
        ({"epochs": -1}, ["epochs", "from 0 on", "=-1"]),
        ({"epochs": 2.5}, ["epochs", "2.5"]),
        ({"initial_epoch": -1}, ["initial_epoch"]),
        ({"steps_per_epoch": 0}, ["steps_per_epoch"]),
        ({"validation_split": 1.0}, ["validation_split", "between 0 and 1", "1.0"]),
        ({"validation_split": -0.2}, ["validation_split", "-0.2"]),
        ({"validation_split": 0.99}, ["20 samples", "nothing for training"]),
        ({"validation_data": blobs()[0]}, ["validation_data", r"\(x, y\)"]),
        ({"validation_data": blobs(), "validation_freq": 0}, ["validation_freq"]),
        ({"shuffle": "batch"}, ["shuffle", "batch"]),
        ({"verbose": 3}, ["verbose", "3"]),
        ({"class_weight": [1, 2, 3]}, ["class_weight", "dictionary", "list"]),
        ({"class_weight": {"0": 1.0}}, ["class_weight", "'0'"]),
        ({"class_weight": {-1: 1.0}}, ["class_weight", "-1"]),
        ({"class_weight": {0: float("nan")}}, ["class_weight", "nan"]),
        ({"class_weight": {0: 2.0}, "sample_weight": np.ones(20)}, ["both"]),
        ({"sample_weight": np.ones(7)}, ["same number of samples", "sample_weight: 7"]),
    ],
)
def test_arguments_out_of_range(model, arguments, parts):
    with raises(ValueError, *parts):
        check_untouched(model, *blobs(), **arguments)


def test_callbacks_that_are_none(model):
    with raises(TypeError, "keras.callbacks.Callback", "lambda"):
        model.fit(*blobs(), callbacks=[lambda: None], verbose=0)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"optimizer": "adm", "loss": "mse"}, ["optimizer", "adm", "adam"]),
        ({"optimizer": "sgd", "loss": "msee"}, ["loss", "msee", "mse"]),
        ({"optimizer": "sgd", "loss": "mse", "metrics": "accuracy"}, ["metrics", "list"]),
        ({"optimizer": "sgd", "loss": "mse", "loss_weights": ["a"]}, ["loss_weights", "number"]),
    ],
)
def test_compile_with_unknown_names(arguments, parts):
    with raises(ValueError, *parts):
        model = classifier()
        model.compile(**arguments)
        model.fit(*blobs(), verbose=0)


def test_an_unknown_metric_is_reported_where_it_is_first_used():
    model = classifier()
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["acuracy"])
    with raises(ValueError, "acuracy", "Did you mean .*'accuracy'"):
        model.fit(*blobs(), verbose=0)


def test_a_failed_fit_compiles_nothing_that_a_good_one_has_to_repeat(model):
    x, y = blobs()
    model.fit(x, y, verbose=0)
    with count_compilations() as kinds:
        with pytest.raises(ValueError):
            model.fit(x, y + 5, verbose=0)
        model.fit(x, y, verbose=0)
    assert kinds == []


def test_compile_says_that_a_model_did_not_call_its_super_init():
    class Forgetful(keras.Model):
        def __init__(self):
            self.dense = layers.Dense(1)

    with pytest.raises(RuntimeError, match=r"super\(\).__init__\(\).*Forgetful"):
        Forgetful().compile("sgd", "mse")


@pytest.mark.parametrize(
    ("loss", "shape", "parts"),
    [
        ("mse", (8, 2), ["'mse'", "(batch_size, 3)", "(batch_size, 2)"]),
        ("mse", (8,), ["'mse'", "(batch_size, 3)", "(batch_size)"]),
        ("mean_squared_error", (8, 3, 1, 2), ["'mean_squared_error'", "(batch_size, 3, 1, 2)"]),
        ("mae", (8, 2), ["'mae'", "(batch_size, 3)", "(batch_size, 2)", "units"]),
        ("binary_crossentropy", (8, 2), ["binary_crossentropy", "(batch_size, 2)"]),
        (
            "categorical_crossentropy",
            (8,),
            ["categorical_crossentropy", "(batch_size, 3)", "'sparse_categorical_crossentropy'"],
        ),
        ("categorical_crossentropy", (8, 1), ["'sparse_categorical_crossentropy'"]),
        (
            "sparse_categorical_crossentropy",
            (8, 3),
            ["sparse_categorical_crossentropy", "'categorical_crossentropy'", "one-hot"],
        ),
        ("sparse_categorical_crossentropy", (8, 2), ["(batch_size)", "(batch_size, 2)"]),
    ],
)
def test_targets_of_a_wrong_shape_name_the_loss_and_the_one_that_fits(loss, shape, parts):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    model.compile("sgd", loss)
    for method in (model.fit, model.evaluate):
        with pytest.raises(ValueError) as error:
            method(np.zeros((8, 4)), np.zeros(shape), verbose=0)
        assert not [part for part in parts if part not in str(error.value)], str(error.value)


@pytest.mark.parametrize(
    ("units", "shape"),
    [(1, (8,)), (1, (8, 1)), (3, (8, 1)), (3, (8, 3)), (1, (8, 5)), (3, (8, 3, 1))],
)
def test_targets_that_keras_stretches_to_the_output_are_taken(units, shape):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units)])
    model.compile("sgd", "mse")
    history = model.fit(np.zeros((8, 4)), np.ones(shape), verbose=0)
    assert history.history["loss"] == [1.0]


@pytest.mark.parametrize("source", ["arrays", "generator"])
def test_no_epochs_train_nothing(model, source):
    """A script may leave out a stage by its number of epochs, as in Keras."""
    x, y = blobs()
    hooks = []
    note = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: hooks.append("begin"),
        on_epoch_begin=lambda epoch, logs: hooks.append(epoch),
        on_train_end=lambda logs: hooks.append("end"),
    )
    before = model.get_weights()
    data = (x, y) if source == "arrays" else (iter([(x, y)]),)
    history = model.fit(*data, epochs=0, callbacks=[note], verbose=0)
    assert (history.history, history.epoch, hooks) == ({}, [], ["begin", "end"])
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_metrics_as_the_third_argument_of_compile(model):
    with pytest.raises(ValueError, match=r"third argument of compile\(\); metrics go by keyword"):
        model.compile("sgd", "mse", ["mae"])


def test_softmax_of_one_unit_warns():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1, activation="softmax")])
    model.compile("sgd", "mse")
    text = "For one probability use the activation 'sigmoid'"
    with pytest.warns(UserWarning, match=text) as seen:
        model.fit(np.ones((4, 4)), np.ones(4), verbose=0)
    assert {warning.filename for warning in seen} == {__file__}
    with pytest.warns(UserWarning, match=text):
        model(np.ones((4, 4)))
