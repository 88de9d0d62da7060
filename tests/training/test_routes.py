"""How batches of generators get to their steps; the results do not depend on the route.

A GPU gets them through a ring. That code also runs on a CPU, where copies are immediate.
"""

import time

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core
from kerascnn.training import batch_feed, chunks, routes

from .helpers import WatchedUpload, blobs, classifier


def compiled(**arguments):
    model = classifier()
    arguments.setdefault("loss", "sparse_categorical_crossentropy")
    model.compile(keras.optimizers.SGD(0.3), metrics=["accuracy"], **arguments)
    return model


def steps_of(model):
    return int(model.optimizer.iterations.numpy())


def batches_of(x, y, size=4):
    for first in range(0, len(x), size):
        yield x[first : first + size], y[first : first + size]


class Batches:
    def __init__(self, *arguments):
        self.arguments = arguments

    def __iter__(self):
        return batches_of(*self.arguments)


def make_ring_route(model, kind, source, state, is_on_device):
    """Returns the route of a GPU, whatever the device is."""
    assert not is_on_device
    return routes.RingRoute(model, kind, source, state)


@pytest.fixture(params=["one by one", "halves of 1", "halves of 3", "large halves"])
def through_the_ring(request, monkeypatch):
    """Sends batches through a ring on the CPU, one by one or when half of the ring is full."""
    halves = {"halves of 1": 1, "halves of 3": 3}.get(request.param, 64)
    monkeypatch.setattr(batch_feed, "make_route", make_ring_route)
    monkeypatch.setattr(routes, "HALF_BATCHES", halves)
    monkeypatch.setattr(routes, "COLLECT_SECONDS", 0 if request.param == "one by one" else 1e3)
    monkeypatch.setattr(routes._core, "Upload", WatchedUpload)


@pytest.mark.parametrize("samples", [3, 40, 90])
def test_the_ring_trains_as_arrays_do(through_the_ring, samples):
    x, y = blobs(samples)
    model = compiled()
    start = model.get_weights()
    arguments = {"epochs": 3, "verbose": 0}
    expected = model.fit(x, y, batch_size=4, shuffle=False, **arguments).history
    weights = model.get_weights()
    model.set_weights(start)
    assert model.fit(Batches(x, y), **arguments).history == expected
    for own, other in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(own, other)
    again = [model.evaluate(Batches(x, y), verbose=0), model.evaluate(x, y, 4, verbose=0)]
    assert again[0] == again[1]
    np.testing.assert_array_equal(
        model.predict(Batches(x, y), verbose=0), model.predict(x, batch_size=4, verbose=0)
    )


def test_validation_in_between_and_other_shapes_share_the_ring(through_the_ring):
    x, y = blobs(120)
    model = compiled()
    start = model.get_weights()

    def endless(size):
        while True:
            yield from batches_of(x, y, size)

    held_out = (x[:25], y[:25])
    by_arrays = {"validation_data": held_out, "validation_batch_size": 5}
    arguments = {"epochs": 5, "steps_per_epoch": 4, "verbose": 0}
    expected = model.fit(x, y, batch_size=6, shuffle=False, **by_arrays, **arguments).history
    for validation in ({"validation_data": Batches(*held_out, 5)}, by_arrays):
        model.set_weights(start)
        assert model.fit(endless(6), **validation, **arguments).history == expected


def test_a_source_that_fails_has_trained_on_what_it_gave(through_the_ring):
    x, y = blobs(40)

    def failing(error):
        yield from batches_of(x[:28], y[:28])
        raise error

    for error in (OSError("gone"), KeyboardInterrupt()):
        model = compiled()
        with pytest.raises(type(error)):
            model.fit(failing(error), verbose=0)
        assert steps_of(model) == 7
        expected = compiled()
        expected.fit(x[:28], y[:28], batch_size=4, shuffle=False, verbose=0)
        for own, other in zip(model.get_weights(), expected.get_weights(), strict=True):
            np.testing.assert_array_equal(own, other)
        assert model.fit(Batches(x, y), verbose=0).epoch == [0]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", ">i4", "uint16", "uint32"])
@pytest.mark.parametrize("wrong", [-1, 3])
def test_wrong_class_numbers_are_found_before_any_weight_sees_them(through_the_ring, dtype, wrong):
    x, y = blobs(40)
    bad = y.copy()
    bad[21] = wrong
    bad, y = bad.astype(dtype), y.astype(dtype)
    model = compiled()
    with pytest.raises(
        ValueError, match=f"from 0 to 2.* Received labels from .*{bad[20:24].max()}"
    ):
        model.fit(Batches(x, bad), verbose=0)
    assert steps_of(model) == 5
    assert np.isfinite(model.fit(Batches(x, y), verbose=0).history["loss"]).all()


def test_class_numbers_that_wrap_around_in_32_bits_are_no_class_numbers(through_the_ring):
    x, y = blobs(12)
    y[9] += 2**32
    model = compiled()
    with pytest.raises(ValueError, match="from 0 to 2"):
        model.fit(Batches(x, y), verbose=0)
    assert steps_of(model) == 2


def test_wide_targets_keep_their_width(through_the_ring):
    """Only class numbers fit into 32 bits; targets of a regression may not."""
    x, _ = blobs(12)
    y = np.arange(12)
    y[6] = 2**40
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    loss = model.evaluate(Batches(x, y), verbose=0)
    # The other targets are too small to matter.
    np.testing.assert_allclose(loss, 2.0**80 / 12, rtol=1e-5)


def test_other_weights_of_classes_and_labels_to_ignore_go_the_long_way(through_the_ring):
    x, y = blobs(24)
    for loss in (
        keras.losses.SparseCategoricalCrossentropy(ignore_class=-1),
        keras.losses.SparseCategoricalCrossentropy(),
    ):
        labels = (
            np.where(np.arange(24) % 5 == 0, -1, y) if loss._fn_kwargs.get("ignore_class") else y
        )
        labels = labels.astype("float32" if labels is y else "int64")
        model = compiled(loss=loss)
        start = model.get_weights()
        expected = model.fit(x, labels, batch_size=4, shuffle=False, verbose=0).history
        model.set_weights(start)
        assert model.fit(Batches(x, labels), verbose=0).history == expected
        labels[17] = 5
        with pytest.raises(ValueError, match="to 5"):
            model.fit(Batches(x, labels), verbose=0)


FORMS = {
    "float64": lambda x: x.astype("float64"),
    "big-endian": lambda x: x.astype(">f4"),
    "every second column": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "column by column": np.asfortranarray,
    "backwards": lambda x: x[::-1].copy()[::-1],
    "subclass": lambda x: np.ma.masked_array(x, mask=False),
    "tensor": lambda x: _core.from_numpy(np.ascontiguousarray(x), "cpu"),
}


@pytest.mark.parametrize("form", FORMS)
def test_any_form_of_array_arrives_with_its_numbers(through_the_ring, form):
    x, y = blobs(24)
    model = compiled()
    start = model.get_weights()
    expected = model.fit(x, y, batch_size=4, shuffle=False, epochs=2, verbose=0).history
    model.set_weights(start)
    batches = [(FORMS[form](a), b) for a, b in batches_of(x, y)]
    assert model.fit((b for b in batches * 2), steps_per_epoch=6, epochs=2, verbose=0).history == (
        expected
    )


def test_batches_that_change_their_dtype_or_are_targets_of_themselves(through_the_ring):
    x, _ = blobs(24)
    whole = np.round(x * 4)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    model.compile("sgd", "mse")
    start = model.get_weights()
    expected = model.fit(whole, whole, batch_size=4, shuffle=False, verbose=0).history
    for kinds in (["float32"], ["float64", "int32", "int8"]):
        batches = [
            a.astype(kinds[i % len(kinds)]) for i, (a, _) in enumerate(batches_of(whole, whole))
        ]
        model.set_weights(start)
        assert model.fit(((a, a) for a in batches), verbose=0).history == expected


def test_a_source_may_write_into_the_batch_that_it_gave(through_the_ring):
    x, y = blobs(40)
    model = compiled()
    start = model.get_weights()
    expected = model.fit(x, y, batch_size=4, shuffle=False, verbose=0).history

    def reusing():
        images, labels = np.empty((4, 4), "float32"), np.empty(4, "int64")
        for a, b in batches_of(x, y):
            images[...], labels[...] = a, b
            yield images, labels
        images[...] = np.nan

    model.set_weights(start)

    class Source:
        def __iter__(self):
            return reusing()

    assert model.fit(Source(), verbose=0).history == expected


def test_a_source_that_asks_the_model_sees_the_steps_so_far(through_the_ring):
    x, y = blobs(40)
    model, alone = compiled(), compiled()
    seen = []

    def asking():
        for batch in batches_of(x, y):
            seen.append(model.predict(x[:4], verbose=0))
            yield batch

    class Source:
        def __iter__(self):
            return asking()

    alone_seen = []
    for batch in batches_of(x, y):
        alone_seen.append(alone.predict(x[:4], verbose=0))
        alone.train_on_batch(*batch)
    # The model is built already, so it needs no batch to learn the form of its inputs.
    model.evaluate(x, y, verbose=0)
    model.fit(Source(), verbose=0)
    np.testing.assert_array_equal(seen[-10:], alone_seen)


def test_a_slow_source_is_not_waited_for(monkeypatch):
    """When the device has nothing to do, it gets the batches that are there."""
    monkeypatch.setattr(batch_feed, "make_route", make_ring_route)
    x, y = blobs(32)
    model = compiled()
    model.fit(Batches(x, y), verbose=0)
    before, steps = steps_of(model), []

    def slow():
        for batch in batches_of(x, y):
            time.sleep(2 * routes.COLLECT_SECONDS)
            steps.append(steps_of(model) - before)
            yield batch

    class Source:
        def __iter__(self):
            return slow()

    model.fit(Source(), verbose=0)
    assert steps == list(range(8))


def test_no_page_locked_memory_is_said_and_makes_no_difference(monkeypatch):
    def fail(shape, dtype, device):
        raise _core.OutOfMemoryError("the system gives none")

    monkeypatch.setattr(batch_feed, "make_route", make_ring_route)
    monkeypatch.setattr(chunks._core, "empty_for_upload", fail)
    x, y = blobs(32)
    model = compiled()
    start = model.get_weights()
    with pytest.warns(RuntimeWarning, match="ordinary memory, which is slower: the system gives"):
        history = model.fit(Batches(x, y), verbose=0).history
    model.set_weights(start)
    assert model.fit(x, y, batch_size=4, shuffle=False, verbose=0).history == history


def test_a_larger_batch_gets_a_larger_ring():
    sizes = [100, 8]
    assert routes.batches_per_half(1 << 20, sizes) == routes.HALF_BATCHES
    for half in (1, 5, 40):
        room = sum(-(-2 * half * size // 256) * 256 for size in sizes)
        assert routes.batches_per_half(room, sizes) >= half
        fitting = routes.batches_per_half(room, sizes)
        assert sum(-(-2 * fitting * size // 256) * 256 for size in sizes) <= room
    assert routes.batches_per_half(256, sizes) == 0


def test_hooks_of_batches_see_every_step(through_the_ring):
    """With arrays and with a ring, a hook that reads its logs gets those of its own batch."""
    x, y = blobs(30)
    model = compiled()
    start = model.get_weights()

    class Reading(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.losses = []

        def on_train_batch_end(self, batch, logs=None):
            self.losses.append((batch, dict(logs), steps_of(self.model)))

    notes = []
    for arguments in (
        {"x": Batches(x, y)},
        {"x": x, "y": y, "batch_size": 4, "shuffle": False},
    ):
        model.set_weights(start)
        model.optimizer.iterations.assign(0)
        reading = Reading()
        model.fit(callbacks=[reading], verbose=0, **arguments)
        notes.append(reading.losses)
    assert notes[0] == notes[1]
    assert [(batch, steps) for batch, _, steps in notes[0]] == [(i, i + 1) for i in range(8)]


def test_only_hooks_that_are_there_are_called_for_each_batch():
    x, y = blobs(24)
    calls = []

    class Old(keras.callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            calls.append(("old", batch))

    plain = keras.callbacks.Callback()
    plain.on_train_batch_begin = lambda batch, logs=None: calls.append(("begin", batch))
    model = compiled()
    model.fit(x, y, batch_size=12, callbacks=[Old(), plain], verbose=0)
    assert calls == [("begin", 0), ("old", 0), ("begin", 1), ("old", 1)]
    quiet = keras.callbacks.CallbackList([keras.callbacks.TerminateOnNaN()], add_history=True)
    assert not quiet.uses_batch_hooks("train")
    # The device notes the NaN instead.
    quiet.batch_hook("train", end=True)(0, {"loss": float("nan")})
