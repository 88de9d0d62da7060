"""Several inputs and outputs: losses, weights and metrics in every form equal Keras'."""

import numpy as np
import pytest

import kerascnn

keras = pytest.importorskip("keras")
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    # Both libraries warn where an output has no loss, each in its own words.
    pytest.mark.filterwarnings("ignore:Gradients do not exist"),
    pytest.mark.filterwarnings("ignore:The loss does not depend on"),
]

RNG = np.random.default_rng(29)
A = RNG.normal(size=(24, 4)).astype("float32")
B = RNG.normal(size=(24, 2)).astype("float32")
KIND = RNG.integers(0, 3, 24)
SIZE = RNG.normal(size=(24, 1)).astype("float32")
WEIGHTS = [RNG.uniform(0.2, 2.0, 24).astype("float32") for _ in range(2)]
LOSSES = ["sparse_categorical_crossentropy", "mse"]
# There are 8 float32 steps, each of which carries on earlier rounding.
CLOSE = {"rtol": 2e-5, "atol": 1e-6}


def model_of(library, outputs):
    a, b = library.Input((4,), name="a"), library.Input((2,), name="b")
    shared = library.layers.Dense(2, activation="tanh", name="shared")
    joined = library.layers.Concatenate()([a, shared(b), shared(shared(b))])
    inner_input = library.Input((8,))
    inner = library.Model(inner_input, library.layers.Dense(5, activation="tanh")(inner_input))
    hidden = inner(joined)
    kind = library.layers.Dense(3, activation="softmax", name="kind")(hidden)
    size = library.layers.Dense(1, name="size")(hidden)
    if outputs == "list":
        return library.Model([a, b], [kind, size])
    keys = {"dictionary": ("k", "s"), "named": ("kind", "size")}[outputs]
    return library.Model({"a": a, "b": b}, dict(zip(keys, (kind, size), strict=True)))


LISTS = {"x": [A, B], "y": [KIND, SIZE]}
DICTIONARIES = {"x": {"a": A, "b": B}, "y": {"k": KIND, "s": SIZE}}
BY_NAME = dict(zip(["kind", "size"], LOSSES, strict=True))
BY_KEY = dict(zip("ks", LOSSES, strict=True))
CASES = {
    "list": ("list", {"loss": LOSSES}, LISTS),
    "dictionary of losses": ("list", {"loss": BY_NAME}, LISTS),
    "dictionary of targets": (
        "list",
        {"loss": BY_NAME},
        {"x": {"b": B, "a": A}, "y": {"size": SIZE, "kind": KIND}},
    ),
    "weights of losses": ("list", {"loss": LOSSES, "loss_weights": [0.5, 2.0]}, LISTS),
    "lists of metrics": (
        "list",
        {"loss": LOSSES, "metrics": [["accuracy"], ["mae", "mse"]]},
        LISTS,
    ),
    "metrics without a list": ("list", {"loss": LOSSES, "metrics": ["accuracy", ["mae"]]}, LISTS),
    "dictionary of metrics": (
        "list",
        {
            "loss": LOSSES,
            "metrics": {"kind": "accuracy", "size": ["mae"]},
            "weighted_metrics": {"size": ["mae"]},
        },
        LISTS,
    ),
    "sample weights": (
        "list",
        {"loss": LOSSES, "metrics": {"kind": "acc"}, "weighted_metrics": [["accuracy"], ["mae"]]},
        LISTS | {"sample_weight": WEIGHTS},
    ),
    "one sample weight": (
        "list",
        {"loss": LOSSES, "weighted_metrics": [["accuracy"], ["mae"]]},
        LISTS | {"sample_weight": WEIGHTS[0]},
    ),
    "a metric twice": (
        "list",
        {
            "loss": LOSSES,
            "metrics": [["accuracy", "accuracy"], ["mae"]],
            "weighted_metrics": [["accuracy", "accuracy"], ["mae"]],
        },
        LISTS,
    ),
    "one loss": ("list", {"loss": "mse"}, LISTS | {"y": [np.eye(3)[KIND], SIZE]}),
    "no loss for one": ("list", {"loss": [LOSSES[0], None]}, LISTS),
    "dictionaries": (
        "dictionary",
        {"loss": BY_KEY, "metrics": {"k": ["accuracy"], "s": ["mae"]}},
        DICTIONARIES,
    ),
    "dictionaries, all weighted": (
        "dictionary",
        {
            "loss": BY_KEY,
            "loss_weights": {"k": 0.1, "s": 3.0},
            "weighted_metrics": {"s": ["mae"]},
        },
        DICTIONARIES | {"sample_weight": dict(zip("ks", WEIGHTS, strict=True))},
    ),
    "dictionaries by names of layers": (
        "named",
        {"loss": BY_NAME, "metrics": {"kind": "acc", "size": ["mae"]}},
        {"x": DICTIONARIES["x"], "y": {"kind": KIND, "size": SIZE}},
    ),
}


def results(library, case, weights):
    outputs, arguments, data = CASES[case]
    model = model_of(library, outputs)
    model.set_weights(weights)
    model.compile(library.optimizers.SGD(0.1), **arguments)
    options = {"verbose": 0, "batch_size": 7}
    history = model.fit(**data, **options, epochs=2, shuffle=False).history
    return {
        "history": history,
        "evaluate": model.evaluate(**data, **options),
        "return_dict": model.evaluate(**data, **options, return_dict=True),
        "predict": model.predict(data["x"], **options),
        "names": model.metrics_names,
        "batch": model.train_on_batch(**data),
        "weights": model.get_weights(),
    }


def check_equal(own, expected, what):
    if isinstance(expected, dict):
        # The order of logs matters; predictions are looked up by name.
        order = list if what != "predict" else sorted
        assert order(own) == order(expected), what
        for name in expected:
            check_equal(own[name], expected[name], f"{what} {name}")
    elif isinstance(expected, (list, tuple)):
        assert type(own) is type(expected) and len(own) == len(expected), what
        for a, b in zip(own, expected, strict=True):
            check_equal(a, b, what)
    elif isinstance(expected, str):
        assert own == expected, what
    else:
        np.testing.assert_allclose(own, expected, **CLOSE, err_msg=what)


@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_keras(case):
    weights = model_of(keras, CASES[case][0]).get_weights()
    expected = results(keras, case, weights)
    with kerascnn.device("cpu"):
        own = results(kerascnn, case, weights)
    for what in expected:
        check_equal(own[what], expected[what], what)


@pytest.mark.parametrize(
    ("arguments", "data"),
    [
        ({"loss": {"kin": "mse", "size": "mse"}}, LISTS),
        ({"loss": LOSSES, "loss_weights": [1.0]}, LISTS),
        ({"loss": LOSSES, "metrics": ["accuracy"]}, LISTS),
        ({"loss": LOSSES, "metrics": {"foo": "mae"}}, LISTS),
        ({"loss": LOSSES}, LISTS | {"y": KIND}),
        ({"loss": LOSSES}, {"x": LISTS["x"]}),
        ({"loss": LOSSES, "metrics": "accuracy"}, LISTS),
    ],
)
def test_errors_are_of_the_classes_of_keras(arguments, data):
    for library in (keras, kerascnn):
        model = model_of(library, "list")
        with pytest.raises(ValueError):
            model.compile("sgd", **arguments)
            model.fit(**data, verbose=0)


def test_frozen_layers_stay_and_a_new_compile_trains_the_rest():
    """Transfer learning trains the head alone, then everything at a lower rate."""
    histories, weights = [], model_of(keras, "list").get_weights()
    for library in (keras, kerascnn):
        model = model_of(library, "list")
        model.set_weights(weights)
        frozen = [layer for layer in model.layers if layer.name not in ("kind", "size")]
        for layer in frozen:
            layer.trainable = False
        options = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}
        model.compile(library.optimizers.Adam(0.05), LOSSES)
        history = model.fit(**LISTS, **options).history["loss"]
        assert len(model.trainable_weights) == 4
        for before, after in zip(weights, model.get_weights(), strict=True):
            is_head = before.shape in ((5, 3), (3,), (5, 1), (1,))
            assert (before != after).any() == is_head
        for layer in frozen:
            layer.trainable = True
        model.compile(library.optimizers.Adam(0.001), LOSSES)
        history += model.fit(**LISTS, **options).history["loss"]
        histories.append(history)
    np.testing.assert_allclose(histories[1], histories[0], **CLOSE)


def test_nested_outputs_take_losses_and_targets_nested_like_them():
    inputs = kerascnn.Input((4,))
    kind = kerascnn.layers.Dense(3, activation="softmax")(inputs)
    size = kerascnn.layers.Dense(1)(inputs)
    nested = kerascnn.Model(inputs, {"first": [kind], "second": (size,)})
    flat = kerascnn.Model(inputs, [kind, size])
    nested.compile(kerascnn.optimizers.SGD(0.0), {"first": [LOSSES[0]], "second": (LOSSES[1],)})
    flat.compile(kerascnn.optimizers.SGD(0.0), LOSSES)
    own = nested.evaluate(A, {"first": [KIND], "second": (SIZE,)}, verbose=0)
    assert own == flat.evaluate(A, [KIND, SIZE], verbose=0)
    nested.compile("sgd", {"first": [LOSSES[0], "mse"], "other": "mse"})
    with pytest.raises(ValueError, match="nested like the model's outputs"):
        nested.evaluate(A, {"first": [KIND], "second": (SIZE,)}, verbose=0)
