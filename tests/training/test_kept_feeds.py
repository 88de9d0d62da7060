"""predict and evaluate reuse the feed of an earlier call unless something changed."""

import gc
import threading
import weakref

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, layers
from kerascnn.training import feed as feed_module
from kerascnn.training import memory, pacing

from .helpers import blobs, classifier


def compiled(model, **more):
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"], **more)
    return model


@pytest.fixture(params=["whole", "in pieces"])
def piecewise(request, monkeypatch):
    """Data goes to the device at once, or in pieces as large data goes to a GPU."""
    if request.param == "in pieces":
        monkeypatch.setattr(memory, "worth_pieces", lambda *_: True)
        monkeypatch.setattr(memory, "PIECE_BYTES", 450)


@pytest.fixture
def begun_again(monkeypatch):
    """Gives a list of the feeds that were started again with other data."""
    found = []
    begin_again = feed_module.Feed.begin_again

    def counting(self, data):
        found.append(self)
        return begin_again(self, data)

    monkeypatch.setattr(feed_module.Feed, "begin_again", counting)
    return found


def warm(model, x, y):
    """Runs until feeds are kept: the first call compiles."""
    for _ in range(3):
        model.predict(x, batch_size=8, verbose=0)
        model.evaluate(x, y, batch_size=8, verbose=0)


def by_hand(model, x):
    parts = [model.predict_on_batch(x[i : i + 8]) for i in range(0, len(x), 8)]
    return np.concatenate(parts)


def test_a_feed_goes_on_with_new_data(piecewise, begun_again, device):
    with keras.device(device):
        model = compiled(classifier())
    sets = [blobs(50, seed=seed) for seed in range(6)]
    expected = [(by_hand(model, x), model.evaluate(x, y, batch_size=8, verbose=0)) for x, y in sets]
    begun_again.clear()
    outputs = []
    for (x, y), (probabilities, results) in zip(sets, expected, strict=True):
        x = x.copy()
        outputs.append(model.predict(x, batch_size=8, verbose=0))
        x[:] = 7  # Nothing reads this array any more.
        np.testing.assert_array_equal(outputs[-1], probabilities)
        assert model.evaluate(*blobs_like(x, y, sets), batch_size=8, verbose=0) == results
    assert len(set(map(id, begun_again))) == 2
    assert len(begun_again) >= 2 * len(sets) - 4
    for received, (probabilities, _) in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(received, probabilities)


def blobs_like(x, y, sets):
    """Returns the set that the labels `y` belong to."""
    return next((a, b) for a, b in sets if b is y)


def test_new_weights_and_other_lengths_are_seen(piecewise, begun_again, device):
    x, y = blobs(50)
    with keras.device(device):
        model = compiled(classifier())
    warm(model, x, y)
    for step in range(4):
        model.fit(x, y, batch_size=8, verbose=0)
        model.layers[-1].bias.assign(np.full(model.layers[-1].bias.shape, 0.1 * step, "float32"))
        for samples in (50, 33, 50, 5):
            received = model.predict(x[:samples], batch_size=8, verbose=0)
            np.testing.assert_array_equal(received, by_hand(model, x[:samples]))
    assert begun_again


def freeze(model):
    model.layers[0].trainable = False


def compute_in_float64(model):
    model.layers[-1].dtype_policy = "float64"


def compile_again(model):
    compiled(model)


def run_eagerly(model):
    model.run_eagerly = True


def new_variable_in_a_list(model):
    with keras.device(model.weights[0].device):
        model.layers[0].more.append(keras.Variable([1.0]))


def new_layer_in_a_dictionary(model):
    model.layers[0].named["new"] = layers.Dense(2)


def freeze_a_variable(model):
    model.layers[0].weights[0].trainable = False


def new_metric_of_a_layer(model):
    model.layers[0].seen = keras.metrics.Mean("seen")


CHANGES = [
    freeze,
    compute_in_float64,
    compile_again,
    run_eagerly,
    new_variable_in_a_list,
    new_layer_in_a_dictionary,
    freeze_a_variable,
    new_metric_of_a_layer,
]


class Holder(layers.Dense):
    """Has attributes in which more parts can be put."""

    def __init__(self, units):
        super().__init__(units, activation="relu")
        self.more = [(1, [])]
        self.named = {"nothing": None}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_gets_a_new_feed(begun_again, change, device):
    x, y = blobs(50)
    with keras.device(device):
        model = compiled(
            keras.Sequential([keras.Input((4,)), Holder(7), layers.Dense(3, activation="softmax")])
        )
    warm(model, x, y)
    begun_again.clear()
    warm(model, x, y)
    assert len(begun_again) == 6
    change(model)
    begun_again.clear()
    expected = by_hand(model, x)
    received = model.predict(x, batch_size=8, verbose=0)
    model.evaluate(x, y, batch_size=8, verbose=0)
    assert not begun_again
    np.testing.assert_array_equal(received, expected)
    warm(model, x, y)
    assert begun_again


def test_settings_and_layers_that_come_and_go_are_seen(begun_again, device):
    x, y = blobs(50)
    with keras.device(device):
        model = compiled(classifier())
    warm(model, x, y)
    tf32 = keras.config.tf32()
    try:
        keras.config.set_tf32(not tf32)
        begun_again.clear()
        model.predict(x, batch_size=8, verbose=0)
        assert not begun_again
    finally:
        keras.config.set_tf32(tf32)
    with keras.device(device):
        stack = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
        for _ in range(3):
            stack.predict(x, batch_size=8, verbose=0)
        begun_again.clear()
        stack.add(layers.Dense(2))
    assert stack.predict(x, batch_size=8, verbose=0).shape == (50, 2)
    stack.pop()
    assert stack.predict(x, batch_size=8, verbose=0).shape == (50, 3)
    assert not begun_again


def test_data_is_let_go_of_and_models_too(piecewise, device):
    x, y = blobs(50)
    with keras.device(device):
        model = compiled(classifier())
    warm(model, x, y)
    gone = weakref.ref(x)
    del x
    assert gone() is None
    assert 1 <= len(model._state.kept_feeds) <= 4
    forms = [blobs(samples) for samples in (40, 41, 42)]
    for x, y in forms:
        warm(model, x, y)
    assert 1 <= len(model._state.kept_feeds) <= 4
    weights = weakref.ref(model.weights[0])
    del model, x, y, forms
    gc.collect()
    assert weights() is None


def test_labels_that_are_wrong_leave_the_model_working(piecewise, begun_again, device):
    x, y = blobs(50)
    with keras.device(device):
        model = compiled(classifier())
    expected = model.evaluate(x, y, batch_size=8, verbose=0)
    warm(model, x, y)
    for _ in range(3):
        with pytest.raises(ValueError, match="class numbers from 0"):
            model.evaluate(x, y + 40, batch_size=8, verbose=0)
        assert model.evaluate(x, y, batch_size=8, verbose=0) == expected
    assert begun_again


def test_an_error_in_the_middle_drops_the_feed(piecewise, device):
    x, y = blobs(50)
    with keras.device(device):
        model = compiled(classifier())
    warm(model, x, y)
    plain = model.predict(x, batch_size=8, verbose=0)

    class Fail(keras.callbacks.Callback):
        def on_predict_batch_end(self, batch, logs=None):
            if batch == 3:
                raise RuntimeError("in the middle")

    for _ in range(3):
        before = len(model._state.kept_feeds)
        with pytest.raises(RuntimeError, match="in the middle"):
            model.predict(x, batch_size=8, verbose=0, callbacks=[Fail()])
        assert len(model._state.kept_feeds) == before - 1
        for _ in range(2):
            received = model.predict(x, batch_size=8, verbose=0)
            np.testing.assert_array_equal(received, plain)


def test_models_predict_in_threads_of_their_own(piecewise, device):
    sets = [blobs(200, seed=seed)[0] for seed in range(3)]
    with keras.device(device):
        models = [classifier() for _ in sets]
    expected = [by_hand(m, x) for m, x in zip(models, sets, strict=True)]
    wrong, ended = [], []

    def run(model, x, values):
        for _ in range(20):
            if not np.array_equal(model.predict(x, batch_size=8, verbose=0), values):
                wrong.append(model)
        ended.append(model)

    threads = [
        threading.Thread(target=run, args=args) for args in zip(models, sets, expected, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(ended) == len(models)


@pytest.fixture
def no_search_for_circles():
    """Python finds no circles of objects in the meantime: what goes has no need of that."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("verbose", [0, 1])
def test_a_fit_lets_go_of_its_data_at_once(device, no_search_for_circles, verbose):
    """Otherwise the next fit has its data at another address, and a GPU captures it anew."""
    with keras.device(device):
        model = compiled(classifier())
    allocated = []
    for _ in range(4):
        x, y = blobs(403)
        model.fit(x, y, batch_size=8, epochs=2, verbose=verbose, validation_data=(x + 1, y))
        gone = weakref.ref(x)
        del x, y
        assert gone() is None
        allocated.append(_core.memory_stats(device)["allocated"])
    assert allocated[1:] == [allocated[1]] * 3


def test_a_second_fit_captures_nothing(
    cuda_device, settled_memory, no_search_for_circles, monkeypatch
):
    # An epoch is one slice of steps, however many other processes the GPU works for.
    monkeypatch.setitem(pacing._SLICE_SECONDS, "cuda", 1e6)
    x, y = blobs(403)
    with keras.device(cuda_device):
        model = compiled(classifier())
    captures = []
    for _ in range(5):
        before = keras.config.launch_stats(cuda_device)["graph_captures"]
        model.fit(x, y, batch_size=8, epochs=2, verbose=0)
        captures.append(keras.config.launch_stats(cuda_device)["graph_captures"] - before)
    # The first fit measures how long a step takes, so the second one has slices of other sizes.
    assert captures[0] > 0
    assert captures[2:] == [0, 0, 0]


class Thing:
    """An object of the kind that the search looks for."""


class Owner:
    def __init__(self):
        self.thing = Thing()
        self.things = [Thing(), (Thing(), {"deep": [Thing()]})]
        self.named = {"a": 1, "b": Thing()}
        self.flag = True
        self.number = 3.0
        self.text = "text"
        self.free = None
        self.left_out = [1]
        self.around = [self.things]
        self.around.append(self.around)  # This makes a circle.


def set_attribute(name, value):
    return lambda owner: setattr(owner, name, value)


SEEN = {
    "another thing": set_attribute("thing", Thing()),
    "an equal list": lambda owner: setattr(owner, "things", list(owner.things)),
    "one more in a list": lambda owner: owner.things.append(None),
    "one less in a list": lambda owner: owner.things.pop(),
    "deep in a list": lambda owner: owner.things[1][1]["deep"].append(1),
    "a value of another type": set_attribute("number", 3),
    "something where nothing was": set_attribute("free", Thing()),
    "a flag": set_attribute("flag", False),
    "a new attribute": set_attribute("new", 1),
    "an attribute less": lambda owner: delattr(owner, "text"),
    "one by another name": lambda owner: (delattr(owner, "text"), setattr(owner, "words", "a")),
    "a thing in a dictionary": lambda owner: owner.named.update(b=Thing()),
    "another type in a dictionary": lambda owner: owner.named.update(a=1.5),
    "a thing's own attribute": lambda owner: setattr(owner.thing, "new", 1),
    "that of one in a tuple": lambda owner: setattr(owner.things[1][0], "new", 1),
    "other attributes altogether": lambda owner: setattr(owner, "__dict__", dict(vars(owner))),
}
UNSEEN = {
    "nothing": lambda owner: None,
    "another number": set_attribute("number", 4.5),
    "another text": set_attribute("text", "more"),
    "another number in a dictionary": lambda owner: owner.named.update(a=2),
    "what is left out": set_attribute("left_out", Thing()),
}


@pytest.mark.parametrize("name", [*SEEN, *UNSEEN])
def test_a_watch_sees_what_counts(name):
    owner = Owner()
    watch, kept = _core.watch([owner], (Thing,), frozenset({"left_out"}))
    assert watch.is_unchanged()
    (SEEN | UNSEEN)[name](owner)
    assert watch.is_unchanged() == (name in UNSEEN)
    assert kept


def test_a_watch_looks_at_variables():
    variable = keras.Variable([1.0])
    watch, kept = _core.watch([variable], (keras.Variable, _core.Variable), frozenset())
    variable.assign([2.0])
    assert watch.is_unchanged()
    variable.trainable = False
    assert not watch.is_unchanged()
    variable.trainable = True
    assert watch.is_unchanged()
    variable.move_to(variable.device)  # The variable moves to other memory on the same device.
    assert not watch.is_unchanged()
    assert kept


def test_all_parts_of_a_model_are_found_whatever_holds_them():
    """Every part is found; a functional model holds its layers in a graph, not in attributes."""
    image = keras.Input((4,))
    hidden = layers.Dropout(0.5)(layers.Dense(3)(image))
    inner = keras.Model(image, layers.BatchNormalization()(hidden))
    models = [
        inner,
        keras.Model(image, layers.Dense(2)(inner(image))),
        keras.Sequential([keras.Input((4,)), inner, layers.Dense(2)]),
        classifier(),
    ]
    for model in models:
        parts = model._find_parts()
        assert list(map(id, parts.weights)) == list(map(id, model.weights))
        assert list(map(id, parts.variables)) == list(map(id, model.variables))
        assert list(map(id, parts.layers)) == list(map(id, model._flatten_layers()))
        assert len(parts.weights) >= 2
