"""For every form of data that fit takes, the losses equal Keras' from the same weights."""

import random
import warnings

import numpy as np
import pytest

import kerascnn
from kerascnn.data import Dataset

SAMPLES = 40
RNG = np.random.default_rng(17)
X = RNG.normal(size=(SAMPLES, 4)).astype("float32")
Y = RNG.integers(0, 3, SAMPLES)
WEIGHTS = RNG.uniform(0.2, 2.0, SAMPLES).astype("float32")

# Keras 3.15's variables do not take NumPy 2's `copy` argument. It warns about `shuffle` for
# data with its own order, even if nobody passed it, and both warn where data runs out. Other tests
# are about these warnings.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`shuffle=True` was passed"),
    pytest.mark.filterwarnings("ignore:Your input ran out of data"),
    pytest.mark.filterwarnings("ignore:The data has only"),
]
# There are at most 15 float32 steps, each of which carries on earlier rounding.
CLOSE = {"rtol": 2e-5, "atol": 1e-6}


def model_of(library):
    model = library.Sequential(
        [
            library.Input((4,)),
            library.layers.Dense(5, activation="tanh"),
            library.layers.Dense(3, activation="softmax"),
        ]
    )
    weighted = [library.metrics.SparseCategoricalCrossentropy(name="weighted")]
    model.compile(
        library.optimizers.SGD(0.3),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        weighted_metrics=weighted,
    )
    return model


def generator(batches=None, size=8, weighted=False):
    """Yields batches from X, without end or so many of them."""
    count = 0
    while batches is None or count < batches:
        rows = [(count * size + i) % SAMPLES for i in range(size)]
        count += 1
        yield (X[rows], Y[rows], WEIGHTS[rows]) if weighted else (X[rows], Y[rows])


def dataset(library, length=5, **kwargs):
    """Returns a PyDataset that rotates its order after each epoch and notes its hooks."""

    class Turning(library.utils.PyDataset):
        def __init__(self):
            super().__init__(**kwargs)
            self.order = np.arange(SAMPLES)
            self.hooks = ""

        def __len__(self):
            return length

        def __getitem__(self, index):
            rows = self.order[index * 8 : index * 8 + 8]
            return X[rows], Y[rows]

        def on_epoch_begin(self):
            self.hooks += "b"

        def on_epoch_end(self):
            self.hooks += "e"
            self.order = np.roll(self.order, 3)

    return Turning()


def loader(*arrays, **kwargs):
    data = pytest.importorskip("torch.utils.data")
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    return data.DataLoader(data.TensorDataset(*(torch.tensor(a) for a in arrays)), **kwargs)


def frames(pandas):
    weights = pandas.Series(WEIGHTS)
    arrays = {"x": pandas.DataFrame(X), "y": pandas.Series(Y), "sample_weight": weights}
    return arrays | {"shuffle": False, "epochs": 2}


ARRAYS = {"x": X, "y": Y, "shuffle": False, "epochs": 3}
CASES = {
    "arrays": lambda k: ARRAYS,
    "sample weights": lambda k: ARRAYS | {"sample_weight": WEIGHTS},
    "class weights": lambda k: ARRAYS | {"class_weight": {0: 2.0, 1: 0.5}},
    "validation split": lambda k: ARRAYS | {"validation_split": 0.3, "batch_size": 8},
    "arrays in parts": lambda k: (
        ARRAYS | {"batch_size": 8, "steps_per_epoch": 2, "validation_data": (X[:16], Y[:16])}
    ),
    "pandas": lambda k: frames(pytest.importorskip("pandas")),
    "torch tensors": lambda k: (
        ARRAYS | dict(zip("xy", map(pytest.importorskip("torch").tensor, (X, Y)), strict=True))
    ),
    "generator": lambda k: {"x": generator(), "steps_per_epoch": 3, "epochs": 3},
    "generator with weights": lambda k: {
        "x": generator(weighted=True),
        "steps_per_epoch": 3,
        "epochs": 2,
    },
    "generator with an end": lambda k: {"x": generator(5)},
    "generator that is dry after an epoch": lambda k: {"x": generator(5), "epochs": 3},
    "generator that runs dry": lambda k: {"x": generator(5), "epochs": 3, "steps_per_epoch": 3},
    "generator of one batch": lambda k: {"x": generator(1), "epochs": 2, "steps_per_epoch": 2},
    "validation from a generator": lambda k: {
        "x": generator(),
        "steps_per_epoch": 2,
        "epochs": 3,
        "validation_data": generator(size=5),
        "validation_steps": 3,
    },
    "arrays and a generator": lambda k: (
        ARRAYS | {"validation_data": generator(), "validation_steps": 4}
    ),
    "a generator and arrays": lambda k: {
        "x": generator(),
        "steps_per_epoch": 4,
        "epochs": 2,
        "validation_data": (X[:10], Y[:10], WEIGHTS[:10]),
    },
    "PyDataset": lambda k: {"x": dataset(k), "epochs": 3, "shuffle": False},
    "PyDataset, shuffled": lambda k: {"x": dataset(k), "epochs": 3},
    "PyDataset, class weights": lambda k: {
        "x": dataset(k),
        "epochs": 2,
        "shuffle": False,
        "class_weight": {0: 3.0},
    },
    "PyDataset in parts": lambda k: {
        "x": dataset(k),
        "epochs": 4,
        "steps_per_epoch": 2,
        "shuffle": False,
    },
    "PyDatasets": lambda k: {
        "x": dataset(k),
        "epochs": 3,
        "shuffle": False,
        "validation_data": dataset(k, 3),
    },
    "DataLoader": lambda k: {"x": loader(X, Y, batch_size=7), "epochs": 2},
    "DataLoader, shuffled": lambda k: {"x": loader(X, Y, batch_size=7, shuffle=True), "epochs": 3},
    "DataLoader in parts": lambda k: {
        "x": loader(X, Y, WEIGHTS, batch_size=7),
        "epochs": 3,
        "steps_per_epoch": 4,
        "validation_data": loader(X, Y, batch_size=9),
    },
}


def history_of(library, case, weights):
    random.seed(5)
    model = model_of(library)
    model.set_weights(weights)
    arguments = CASES[case](library)
    random.seed(6)
    history = model.fit(verbose=0, **arguments).history
    hooks = getattr(arguments["x"], "hooks", None)
    return history, model.get_weights(), hooks


@pytest.mark.parametrize("case", CASES)
def test_losses_are_those_of_keras(case):
    keras = pytest.importorskip("keras")
    weights = model_of(keras).get_weights()
    expected, expected_weights, expected_hooks = history_of(keras, case, weights)
    with kerascnn.device("cpu"):
        history, own_weights, hooks = history_of(kerascnn, case, weights)
    assert list(history) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, **CLOSE, err_msg=name)
    for own, other in zip(own_weights, expected_weights, strict=True):
        np.testing.assert_allclose(own, other, **CLOSE)
    assert hooks == expected_hooks


@pytest.mark.parametrize("form", ["generator", "PyDataset", "DataLoader", "list of batches"])
def test_evaluate_and_predict_take_the_same_forms(form, device):
    with kerascnn.device(device):
        model = model_of(kerascnn)

    def source():
        return {
            "generator": lambda: generator(5),
            "PyDataset": lambda: dataset(kerascnn),
            "DataLoader": lambda: loader(X, Y, batch_size=8),
            "list of batches": lambda: Batches(list(generator(5))),
        }[form]()

    # PyDataset rotates its order when evaluate begins; otherwise the order is that of X.
    order = np.roll(np.arange(SAMPLES), 3) if form == "PyDataset" else np.arange(SAMPLES)
    logs = model.evaluate(source(), verbose=0, return_dict=True)
    expected = model.evaluate(X[order], Y[order], batch_size=8, verbose=0, return_dict=True)
    assert logs == expected
    outputs = model.predict(source(), verbose=0)
    np.testing.assert_array_equal(outputs, model.predict(X, batch_size=8, verbose=0))
    assert model.predict(source(), steps=2, verbose=0).shape == (16, 3)


class Batches:
    """An iterable that can be used repeatedly and has no length."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def test_an_iterable_begins_anew_in_each_epoch_without_a_warning():
    by_arrays, by_batches = model_of(kerascnn), model_of(kerascnn)
    by_batches.set_weights(by_arrays.get_weights())
    expected = by_arrays.fit(X, Y, batch_size=8, epochs=3, shuffle=False, verbose=0).history
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history = by_batches.fit(Batches(list(generator(5))), epochs=3, verbose=0).history
    assert history == expected


def test_dictionaries_of_inputs_and_outputs_come_from_any_source():
    inputs = {"a": kerascnn.Input((4,), name="a"), "b": kerascnn.Input((1,), name="b")}
    joined = kerascnn.layers.Concatenate()([inputs["a"], inputs["b"]])
    kind = kerascnn.layers.Dense(3, activation="softmax")(joined)
    model = kerascnn.Model(inputs, {"kind": kind, "size": kerascnn.layers.Dense(1)(joined)})
    losses = {"kind": "sparse_categorical_crossentropy", "size": "mse"}
    model.compile(kerascnn.optimizers.SGD(0.1), losses)
    x, y = {"a": X, "b": X[:, :1]}, {"kind": Y, "size": X[:, 1:2]}
    start = model.get_weights()
    expected = model.fit(x, y, batch_size=10, shuffle=False, verbose=0).history

    def batches():
        for first in range(0, SAMPLES, 10):
            rows = slice(first, first + 10)
            yield {k: v[rows] for k, v in x.items()}, {k: v[rows] for k, v in y.items()}

    for source in (batches(), Batches(list(batches()))):
        model.set_weights(start)
        assert model.fit(source, verbose=0).history == expected
    predictions = model.predict(({"a": a["a"], "b": a["b"]},) for a, _ in batches())
    assert sorted(predictions) == ["kind", "size"] and len(predictions["kind"]) == SAMPLES


def test_arrays_of_other_libraries_are_taken():
    torch = pytest.importorskip("torch")
    model = model_of(kerascnn)
    expected = model.predict(X, verbose=0)

    class OnlyDLPack:
        def __dlpack__(self, **kwargs):
            return X.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return X.__dlpack_device__()

    for other in (OnlyDLPack(), torch.tensor(X, requires_grad=True), kerascnn.ops.array(X)):
        np.testing.assert_array_equal(model.predict(other, verbose=0), expected)
    half = torch.tensor(X).bfloat16()
    rounded = model.predict(half.float().numpy(), verbose=0)
    np.testing.assert_array_equal(model.predict(half, verbose=0), rounded)


def test_batches_may_change_their_shape(device):
    """A convolutional network with images of unknown size takes batches of any length."""
    layers = kerascnn.layers
    with kerascnn.device(device):
        model = kerascnn.Sequential(
            [
                kerascnn.Input((None, None, 1)),
                layers.Conv2D(4, 3, padding="same", activation="relu"),
                layers.GlobalAveragePooling2D(),
                layers.Dense(3, activation="softmax"),
            ]
        )
        model.compile(kerascnn.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    rng = np.random.default_rng(2)
    shapes = [(4, 8), (3, 8), (4, 12), (5, 6), (4, 8), (1, 5), (2, 5)]
    batches = [
        (rng.normal(size=(n, size, size, 1)).astype("float32"), rng.integers(0, 3, n))
        for n, size in shapes
    ]
    start = model.get_weights()
    history = model.fit((b for b in batches), verbose=0).history
    weights = model.get_weights()
    model.set_weights(start)
    total = sum(model.train_on_batch(x, y) * len(y) for x, y in batches)
    # The result is a mean of float32 losses over samples.
    assert history["loss"][0] == pytest.approx(total / sum(n for n, _ in shapes), rel=1e-6)
    for fitted, stepped in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(fitted, stepped)


@pytest.mark.parametrize(
    ("make", "arguments", "part"),
    [
        (generator, {"y": Y}, "`y` can't be passed beside a generator"),
        (generator, {"sample_weight": WEIGHTS}, "`sample_weight` can't be passed"),
        (generator, {"class_weight": {0: 1.0}}, "`class_weight` is not supported for a generator"),
        (generator, {"validation_split": 0.1}, "validation_split needs arrays"),
        (lambda: generator(0), {}, "generator is empty"),
        (lambda: ([X[:4], Y[:4]] for _ in range(3)), {}, "must yield tuples"),
        (lambda: (X[:4] for _ in range(3)), {}, "must yield tuples"),
        (lambda: ((X, Y, WEIGHTS, X) for _ in range(3)), {}, "Received a tuple of 4"),
        (lambda: dataset(kerascnn), {"y": Y}, "`y` can't be passed beside a PyDataset"),
        (lambda: dataset(kerascnn, 0), {}, "PyDataset has length 0"),
        (lambda: Batches([]), {}, "There are no batches"),
        (lambda: Dataset.range(3).batch(4, True).map(abs), {}, "the Dataset of batches has length"),
    ],
)
def test_what_can_not_be(make, arguments, part):
    with pytest.raises(ValueError, match=part):
        model_of(kerascnn).fit(make(), verbose=0, **arguments)


def test_a_bad_batch_is_named_and_earlier_ones_have_trained():
    model = model_of(kerascnn)
    bad = Y[:8] + 7
    batches = [*generator(3), (X[:8], bad)]
    with pytest.raises(ValueError, match="from 0 to 2"):
        model.fit((b for b in batches), verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 3
    batches = [*generator(2), (X[:8], Y[:5])]
    with pytest.raises(ValueError, match="Batch 2 of the generator: .*same number of samples"):
        model.fit((b for b in batches), verbose=0)
    with pytest.raises(ValueError, match=r"\(None, 4\)|4"):
        model.fit(iter([*generator(2), (X[:8, :3], Y[:8])]), verbose=0)
    # The model can still be used.
    assert model.fit(generator(3), verbose=0).epoch == [0]


def test_an_error_inside_of_a_generator_is_the_callers():
    def failing():
        yield from generator(3)
        raise OSError("the disk is gone")

    model = model_of(kerascnn)
    with pytest.raises(OSError, match="the disk is gone"):
        model.fit(failing(), verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 3


def test_data_that_runs_out_is_warned_of():
    with pytest.warns(UserWarning, match="ran out of data.* 5 batches of the generator"):
        model_of(kerascnn).fit(generator(5), steps_per_epoch=4, epochs=2, verbose=0)


def test_a_generator_is_not_asked_for_more_than_it_was_told_to_give():
    """fit takes no more than that, besides the first two batches, at which Keras looks too."""
    given = []

    def counting():
        for index, batch in enumerate(generator()):
            given.append(index)
            yield batch

    source = counting()
    model = model_of(kerascnn)
    model.fit(source, steps_per_epoch=3, epochs=2, verbose=0)
    assert given == [0, 1, 2, 3, 4, 5]
    next(source)  # The generator was not closed either.


def test_a_callback_that_raises_leaves_the_weights_of_the_last_step():
    expected, model = model_of(kerascnn), model_of(kerascnn)
    model.set_weights(expected.get_weights())
    expected.fit(generator(2), verbose=0)

    class Failing(kerascnn.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                raise RuntimeError("no more")

    for source, arguments in ((generator(), {}), (X, {"y": Y, "batch_size": 8, "shuffle": False})):
        start = expected.get_weights()
        with pytest.raises(RuntimeError, match="no more"):
            model.fit(source, callbacks=[Failing()], verbose=0, **arguments)
        for own, other in zip(model.get_weights(), start, strict=True):
            np.testing.assert_array_equal(own, other)
        model.set_weights(model_of(kerascnn).get_weights())
        expected.set_weights(model.get_weights())
        expected.fit(generator(2), verbose=0)


def test_hooks_of_batches_come_once_for_each_batch_that_there_is():
    class Noting(kerascnn.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.seen = []

        def on_train_batch_begin(self, batch, logs=None):
            self.seen.append(("begin", batch))

        def on_train_batch_end(self, batch, logs=None):
            self.seen.append(("end", batch, sorted(logs)))

    noting = Noting()
    model_of(kerascnn).fit(generator(3), callbacks=[noting], verbose=0)
    names = ["accuracy", "loss", "weighted"]
    expected = [item for i in range(3) for item in (("begin", i), ("end", i, names))]
    assert noting.seen == expected


def test_stop_training_asks_for_no_further_batch():
    class Stopping(kerascnn.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 2

    given = []

    def counting():
        for index, batch in enumerate(generator()):
            given.append(index)
            yield batch

    model_of(kerascnn).fit(counting(), callbacks=[Stopping()], epochs=5, verbose=0)
    assert given == [0, 1, 2]


@pytest.mark.parametrize("shuffle", [{}, {"shuffle": True}, {"shuffle": False}])
@pytest.mark.parametrize("name", ["generator", "DataLoader", "PyDataset", "arrays"])
def test_a_source_with_an_order_of_its_own_is_not_shuffled(name, shuffle):
    """A warning says so to those who passed `shuffle=True`; Keras warns everybody."""
    sources = {
        "generator": {"x": generator(), "steps_per_epoch": 2},
        "DataLoader": {"x": loader(X, Y, batch_size=8)},
        "PyDataset": {"x": dataset(kerascnn)},
        "arrays": {"x": X, "y": Y},
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model_of(kerascnn).fit(**sources[name], **shuffle, verbose=0)
    places = [w.filename for w in caught if "`shuffle=True`" in str(w.message)]
    warns = shuffle.get("shuffle") is True and name in ("generator", "DataLoader")
    assert places == ([__file__] if warns else [])
