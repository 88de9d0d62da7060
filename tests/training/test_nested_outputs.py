"""Losses, metrics and data nested like the outputs equal Keras'."""

from collections import namedtuple

import numpy as np
import pytest

import kerascnn

keras = pytest.importorskip("keras")

Pair = namedtuple("Pair", "first second")
X = np.arange(12, dtype="float32").reshape(4, 3) / 10
Y = np.ones((4, 2), "float32")
HALF = np.array([1.0, 0.0, 1.0, 0.0])


def distance(y_true, y_pred):
    """A loss over several outputs together, however they are nested."""

    def leaves(part):
        if isinstance(part, (list, tuple, dict)):
            values = part.values() if isinstance(part, dict) else part
            return [leaf for value in values for leaf in leaves(value)]
        return [part]

    return sum((abs(t - p) for t, p in zip(leaves(y_true), leaves(y_pred), strict=True)), 0.0)


# Each case has outputs of d0, d1 and d2, arguments of compile, targets, arguments of fit.
CASES = {
    "a list": (lambda a, b, c: [a, b], {"loss": ["mse", "mae"]}, [Y, Y], {}),
    "a tuple": (lambda a, b, c: (a, b), {"loss": ("mse", "mae")}, (Y, Y), {}),
    "a named tuple": (
        lambda a, b, c: Pair(a, b),
        {"loss": Pair("mse", "mae"), "metrics": Pair(["mae"], ["mse"])},
        Pair(Y, Y),
        {},
    ),
    "a list for a named tuple": (lambda a, b, c: Pair(a, b), {"loss": ["mse", "mae"]}, [Y, Y], {}),
    "lists in a dictionary": (
        lambda a, b, c: {"p": [a, b], "q": c},
        {"loss": {"p": ["mse", "mae"], "q": "mse"}, "metrics": {"p": ["mae", "mse"], "q": ["mae"]}},
        {"p": [Y, Y], "q": Y},
        {},
    ),
    "tuples in a dictionary": (
        lambda a, b, c: {"p": (a, b), "q": c},
        {"loss": {"p": ("mse", "mae"), "q": "mse"}, "loss_weights": {"p": (1.0, 2.0), "q": 0.5}},
        {"p": (Y, Y), "q": Y},
        {},
    ),
    "dictionaries in a list": (
        lambda a, b, c: [{"p": a}, {"q": b}],
        {"loss": [{"p": "mse"}, {"q": "mae"}]},
        [{"p": Y}, {"q": Y}],
        {},
    ),
    "deep": (
        lambda a, b, c: {"p": {"q": [a, {"r": b}]}, "z": c},
        {"loss": {"p": {"q": ["mse", {"r": "mae"}]}, "z": "mse"}},
        {"p": {"q": [Y, {"r": Y}]}, "z": Y},
        {},
    ),
    "one loss for all": (lambda a, b, c: {"p": [a, b], "q": c}, {"loss": "mse"}, None, {}),
    "a list for one output": (lambda a, b, c: a, {"loss": ["mse"]}, Y, {}),
    "a list in a dictionary": (lambda a, b, c: a, {"loss": {"d0": ["mse"]}}, Y, {}),
    "a list for one of two": (lambda a, b, c: [a, b], {"loss": ["mse", ["mae"]]}, [Y, Y], {}),
    "two losses for one of two": (
        lambda a, b, c: [a, b],
        {"loss": ["mse", ["mse", "mae"]]},
        [Y, Y],
        {},
    ),
    "lists in a dictionary of two": (
        lambda a, b, c: {"p": a, "q": b},
        {"loss": {"p": ["mse"], "q": ["mae"]}, "metrics": {"p": ["mae"]}},
        {"p": Y, "q": Y},
        {},
    ),
    "one function of two outputs, and each": (
        lambda a, b, c: (a, b),
        {"loss": [distance, ("mse", "mae")], "loss_weights": [0.5, (1.0, 2.0)]},
        (Y, Y),
        {},
    ),
    "one function of a dictionary": (
        lambda a, b, c: {"p": a, "q": b},
        {"loss": [distance, {"q": "mse"}]},
        {"p": Y, "q": Y},
        {},
    ),
    "one function of a named tuple": (
        lambda a, b, c: Pair(a, b),
        {"loss": [distance, Pair("mse", "mae")]},
        Pair(Y, Y),
        {},
    ),
    "functions of parts": (
        lambda a, b, c: {"p": (a, b), "q": {"r": b, "s": c}},
        {"loss": {"p": [distance, (None, "mse")], "q": [distance, {"r": "mae"}]}},
        {"p": (Y, Y), "q": {"r": Y, "s": Y}},
        {},
    ),
    "a dictionary for one output": (lambda a, b, c: a, {"loss": {"d0": "mse"}}, Y, {}),
    "one output in a dictionary": (lambda a, b, c: {"p": a}, {"loss": {"p": "mse"}}, {"p": Y}, {}),
    "None for an output": (lambda a, b, c: [a, b], {"loss": ["mse", None]}, [Y, Y], {}),
    "None for a target": (lambda a, b, c: [a, b], {"loss": ["mse", None]}, [Y, None], {}),
    "None in a dictionary": (
        lambda a, b, c: {"p": a, "q": b},
        {"loss": {"p": "mse", "q": None}},
        {"p": Y, "q": Y},
        {},
    ),
    "an output left out": (
        lambda a, b, c: {"p": a, "q": b},
        {"loss": {"p": "mse"}},
        {"p": Y},
        {},
    ),
    "names of outputs": (
        lambda a, b, c: [a, b],
        {"loss": {"d0": "mse", "d1": "mae"}, "metrics": {"d1": ["mse"]}},
        {"d0": Y, "d1": Y},
        {},
    ),
    "weights of samples": (
        lambda a, b, c: {"p": a, "q": b},
        {"loss": {"p": "mse", "q": "mae"}},
        {"p": Y, "q": Y},
        {"sample_weight": {"p": HALF, "q": np.ones(4)}},
    ),
}


def fit(library, make_outputs, compile_arguments, y, fit_arguments):
    inputs = library.Input((3,))
    dense = [
        library.layers.Dense(2, name=f"d{i}", kernel_initializer="ones")(inputs) for i in range(3)
    ]
    model = library.Model(inputs, make_outputs(*dense))
    model.compile("sgd", **compile_arguments)
    if y is None:
        y = {"p": [Y, Y], "q": Y}
    options = {"batch_size": 2, "epochs": 2, "shuffle": False, "verbose": 0, **fit_arguments}
    history = model.fit(X, y, **options).history
    return history, model.predict(X, verbose=0)


@pytest.mark.filterwarnings("ignore:(Gradients do not exist|The loss does not depend)")
@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_as_keras(case):
    here, predicted = fit(kerascnn, *case)
    there, expected = fit(keras, *case)
    assert set(here) == set(there)
    for name, values in there.items():
        # There are float32 sums of 8 numbers near 1, over four updates.
        np.testing.assert_allclose(here[name], values, rtol=1e-5, err_msg=name)
    keras.tree.assert_same_structure(predicted, expected)


@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize("names", ["dzm", "xyz"])
@pytest.mark.parametrize("loss", [{"m": "mse", "d": "mae", "z": "mse"}, "mse"])
def test_evaluate_lists_losses_in_the_order_of_the_dictionary(loss, names):
    def evaluated(library):
        inputs = library.Input((3,))
        outputs = {
            key: library.layers.Dense(2, name=name, kernel_initializer="ones")(inputs)
            for key, name in zip("dzm", names, strict=True)
        }
        model = library.Model(inputs, outputs)
        model.compile("sgd", loss, metrics={"z": ["mae"]})
        return model.evaluate(X, {"d": Y, "z": 10 * Y, "m": 100 * Y}, verbose=0)

    np.testing.assert_allclose(evaluated(kerascnn), evaluated(keras), rtol=1e-5)


def test_no_loss_at_all():
    with pytest.raises(ValueError, match="No loss to compute"):
        fit(kerascnn, lambda a, b, c: [a, b], {"loss": [None, None]}, [Y, Y], {})


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (["mse", "mae", "mse"], "one entry for each of the 2 outputs"),
        ({"d0": "mse", "other": "mae"}, "must be names of outputs"),
        ([["mse", "mae"], {"d1": "mse"}], "must be nested like the model's outputs"),
    ],
)
def test_losses_for_other_outputs(loss, message):
    with pytest.raises(ValueError, match=message):
        fit(kerascnn, lambda a, b, c: [a, b], {"loss": loss}, [Y, Y], {})


def test_two_losses_for_one_output():
    """Keras silently uses only the first of them."""
    with pytest.raises(ValueError, match="one entry for each"):
        fit(kerascnn, lambda a, b, c: a, {"loss": ["mse", "mae"]}, Y, {})


class Split(kerascnn.Layer):
    def call(self, x):
        return {"p": x, "q": x * 2}


class Join(kerascnn.Layer):
    def call(self, x):
        parts = list(x.values()) if isinstance(x, dict) else list(x)
        return parts[0] + parts[1]


def top():
    return kerascnn.layers.Dense(2, kernel_initializer="ones")


@pytest.mark.parametrize(
    ("layers", "x", "y", "loss", "scale"),
    [
        (lambda: [Join(), top()], {"p": X, "q": X}, Y, "mse", 2),
        (lambda: [Join(), top()], [X, X], Y, "mse", 2),
        (lambda: [kerascnn.Input((3,)), Split(), Join(), top()], X, Y, "mse", 3),
        (lambda: [top(), Split()], X, {"p": Y, "q": Y}, {"p": "mse", "q": "mae"}, None),
    ],
)
def test_sequential_of_nested_tensors(layers, x, y, loss, scale):
    model = kerascnn.Sequential(layers())
    predicted = model.predict(x, verbose=0)
    sums = np.repeat(X.sum(1, keepdims=True), 2, 1)
    if scale is None:
        np.testing.assert_allclose(predicted["q"], 2 * sums, rtol=1e-6)
    else:
        np.testing.assert_allclose(predicted, scale * sums, rtol=1e-6)
    model.compile("sgd", loss)
    before = model.evaluate(x, y, verbose=0, return_dict=True)["loss"]
    assert model.fit(x, y, epochs=3, verbose=0).history["loss"][-1] < before
    with kerascnn.saving.custom_object_scope({"Split": Split, "Join": Join}):
        copy = kerascnn.Sequential.from_config(model.get_config())
    copy.set_weights(model.get_weights())
    kerascnn.tree.map_structure(
        np.testing.assert_array_equal, copy.predict(x, verbose=0), model.predict(x, verbose=0)
    )
