"""predict keeps the outputs of many steps on the device and copies them to the host together."""

import gc

import numpy as np
import pytest

import kerascnn
from kerascnn import _core, layers, ops, trees
from kerascnn.callbacks import Callback
from kerascnn.training import memory, prediction
from kerascnn.training.output_buffers import OutputBuffers
from kerascnn.training.steps import PREDICT, CompiledStep

from .helpers import blobs, classifier, count_compilations

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

SIZES = [(1, 32), (7, 8), (8, 8), (9, 8), (33, 32), (100, 7), (64, 1)]


def by_hand(model, x, batch_size):
    """Predicts batch by batch, and joins the leaves of the outputs."""
    parts = [
        trees.flatten(model.predict_on_batch(x[i : i + batch_size]))
        for i in range(0, len(x), batch_size)
    ]
    return [np.concatenate(leaves) for leaves in zip(*parts, strict=True)]


def several_outputs(library):
    """Returns a model with floats, integers and flags in nested outputs, one of rank 1."""
    x = library.Input((5,))
    hidden = library.layers.Dense(7, activation="tanh")(x)
    return library.Model(
        x,
        {
            "scores": library.layers.Dense(3, activation="softmax")(hidden),
            "more": [
                library.ops.argmax(hidden, axis=-1),
                library.ops.greater(hidden, 0.1),
                library.ops.reshape(hidden[:, :6], (-1, 2, 3)),
            ],
        },
    )


@pytest.mark.parametrize(("samples", "batch_size"), SIZES)
@pytest.mark.parametrize("chunk_bytes", [1, 700, 1 << 20])
def test_every_number_of_samples_gives_the_rows_of_its_batches(
    monkeypatch, samples, batch_size, chunk_bytes, device, rng
):
    """The buffers have room for one batch, for some, or for all of them."""
    monkeypatch.setattr(memory, "CHUNK_BYTES", chunk_bytes)
    taken = []
    take = OutputBuffers.take
    monkeypatch.setattr(OutputBuffers, "take", lambda *args: taken.append(1) or take(*args))
    with kerascnn.device(device):
        model = several_outputs(kerascnn)
    x = rng.normal(size=(samples, 5)).astype("float32")
    result = model.predict(x, batch_size=batch_size, verbose=0)
    assert sorted(result) == ["more", "scores"]
    assert isinstance(result["more"], list)
    full = samples // batch_size
    if chunk_bytes == 1:
        assert len(taken) == full
    elif chunk_bytes == 700:
        assert (full == 0) == (len(taken) == 0)
        assert len(taken) <= full
    else:
        assert len(taken) == min(full, 1)
    for leaf, wanted in zip(trees.flatten(result), by_hand(model, x, batch_size), strict=True):
        assert leaf.dtype == wanted.dtype
        np.testing.assert_array_equal(leaf, wanted)


@pytest.mark.parametrize(("samples", "batch_size"), [(33, 8), (5, 32), (24, 8)])
def test_keras_predicts_the_same(samples, batch_size):
    keras = pytest.importorskip("keras")
    # Two float32 layers round differently: a value within that of 0.1, or of another value, would
    # make other outputs. With these seeds there is none.
    keras.utils.set_random_seed(samples)
    theirs, ours = several_outputs(keras), several_outputs(kerascnn)
    ours.set_weights(theirs.get_weights())
    x = np.random.default_rng(samples).normal(size=(samples, 5)).astype("float32")
    wanted = theirs.predict(x, batch_size=batch_size, verbose=0)
    result = ours.predict(x, batch_size=batch_size, verbose=0)
    assert sorted(result) == sorted(wanted)
    np.testing.assert_allclose(result["scores"], wanted["scores"], rtol=1e-5, atol=1e-6)
    for leaf, other in zip(result["more"], wanted["more"], strict=True):
        assert leaf.shape == other.shape
        assert leaf.dtype.kind == other.dtype.kind
        np.testing.assert_allclose(
            leaf.astype("float64"), other.astype("float64"), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("samples", [24, 51])
def test_data_that_come_in_chunks_leave_their_outputs_in_chunks(monkeypatch, samples, device):
    monkeypatch.setattr(memory, "SMALL_BYTES", 0)
    monkeypatch.setattr(memory, "RESIDENT_SHARE", 1e-12)
    monkeypatch.setattr(
        memory, "chunk_batches", lambda per_batch, *_: max(1, 500 // max(1, per_batch))
    )
    x, _ = blobs(samples)
    with kerascnn.device(device):
        model = classifier()
    result = model.predict(x, batch_size=5, verbose=0)
    np.testing.assert_array_equal(result, by_hand(model, x, 5)[0])


def test_outputs_that_are_not_rows_of_samples_are_joined_all_the_same(device):
    class Halves(kerascnn.Model):
        def call(self, x):
            return ops.reshape(x, (-1, 2)), x[:3]

    with kerascnn.device(device):
        model = Halves()
    x, _ = blobs(26)
    halves, first = model.predict(x, batch_size=8, verbose=0)
    np.testing.assert_array_equal(halves, x.reshape(-1, 2))
    np.testing.assert_array_equal(first, np.concatenate([x[i : i + 8][:3] for i in (0, 8, 16, 24)]))


def test_what_goes_through_and_what_is_always_the_same_are_outputs_too(device):
    class Odd(kerascnn.Model):
        def call(self, x):
            return {"x": x, "again": x, "ones": ops.ones((x.shape[0], 2))}

    with kerascnn.device(device):
        model = Odd()
    x, _ = blobs(21)
    result = model.predict(x, batch_size=4, verbose=0)
    np.testing.assert_array_equal(result["x"], x)
    np.testing.assert_array_equal(result["again"], x)
    np.testing.assert_array_equal(result["ones"], np.ones((21, 2), "float32"))
    result["x"][:] = 0
    np.testing.assert_array_equal(result["again"], x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes(dtype, device):
    with kerascnn.device(device):
        model = kerascnn.Sequential([kerascnn.Input((4,)), layers.Dense(3, dtype=dtype)])
    x, _ = blobs(29)
    result = model.predict(x, batch_size=4, verbose=0)
    assert result.dtype.name == dtype
    np.testing.assert_array_equal(result, by_hand(model, x, 4)[0])


def test_results_stay_as_they_are(device):
    """The next prediction reuses the buffers, but not the arrays that were returned."""
    with kerascnn.device(device):
        model = classifier()
    x, _ = blobs(40)
    first = model.predict(x, batch_size=8, verbose=0)
    kept = first.copy()
    assert first.flags.writeable
    model.predict(x + 1, batch_size=8, verbose=0)
    np.testing.assert_array_equal(first, kept)


def test_many_batches_take_few_launches_and_the_second_time_nothing_is_compiled(device):
    with kerascnn.device(device):
        model = classifier()
    x, _ = blobs(403)
    launches = []
    run = CompiledStep.run

    def counting(self, inputs, steps, later=False):
        launches.append(steps)
        return run(self, inputs, steps, later)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledStep, "run", counting)
        with count_compilations() as compiled:
            first = model.predict(x, batch_size=2, verbose=0)
            # There is one for whole batches, and one for the last batch.
            assert compiled == [PREDICT] * 2
            second = model.predict(x, batch_size=2, verbose=0)
            assert compiled == [PREDICT] * 2
    assert sum(launches) == 2 * 202
    # There are slices of 1, 8 and all other steps, and the last batch. A very slow machine has
    # more.
    assert len(launches) < 100
    np.testing.assert_array_equal(first, second)


def test_buffers_are_written_in_place_and_reused(device):
    with kerascnn.device(device):
        model = classifier(classes=40)
    x, _ = blobs(4000)
    model.predict(x, batch_size=8, verbose=0)
    (step,) = model._programs.values()
    assert any(call["op"] == "put_batch" for call in step.program.describe())
    # There is no room for a second buffer of 4000 rows: the steps write into the only one.
    assert step.program.stats()["arena_bytes"] < 4000 * 40 * 4
    gc.collect()
    gc.disable()
    try:
        used = []
        for _ in range(5):
            model.predict(x, batch_size=8, verbose=0)
            used.append(_core.memory_stats(device)["allocated"])
        # A program keeps its last inputs until the next run, and no call leaves anything else. A
        # block counts with its whole size, which may be larger than the request.
        assert max(used[1:]) - min(used[1:]) < 1 << 15
    finally:
        gc.enable()


class Watch(Callback):
    def __init__(self, stop_at=None):
        super().__init__()
        self.seen, self.stop_at = [], stop_at

    def on_predict_batch_end(self, batch, logs=None):
        self.seen.append((batch, np.array(logs["outputs"])))
        if batch == self.stop_at:
            self.model.stop_predicting = True


def test_hooks_of_batches_get_each_batch(device):
    with kerascnn.device(device):
        model = classifier()
    x, _ = blobs(22)
    plain = model.predict(x, batch_size=4, verbose=0)
    watch = Watch()
    watched = model.predict(x, batch_size=4, verbose=0, callbacks=[watch])
    np.testing.assert_array_equal(watched, plain)
    assert [batch for batch, _ in watch.seen] == list(range(6))
    np.testing.assert_array_equal(np.concatenate([rows for _, rows in watch.seen]), plain)
    # The steps with hooks advance the same counter, so the next prediction starts from the
    # beginning.
    np.testing.assert_array_equal(model.predict(x, batch_size=4, verbose=0), plain)
    stopped = model.predict(x, batch_size=4, verbose=0, callbacks=[Watch(stop_at=1)])
    np.testing.assert_array_equal(stopped, plain[:8])


def test_a_model_that_is_stopped_at_the_beginning_predicts_one_batch(device):
    class Stop(Callback):
        def on_predict_begin(self, logs=None):
            self.model.stop_predicting = True

    with kerascnn.device(device):
        model = classifier()
    x, _ = blobs(22)
    plain = model.predict(x, batch_size=4, verbose=0)
    for _ in range(2):
        stopped = model.predict(x, batch_size=4, verbose=0, callbacks=[Stop()])
        np.testing.assert_array_equal(stopped, plain[:4])
    np.testing.assert_array_equal(model.predict(x, batch_size=4, verbose=0), plain)


def test_an_interrupt_between_slices_leaves_the_model_working(monkeypatch, device):
    with kerascnn.device(device):
        model = classifier()
    x, _ = blobs(203)
    plain = model.predict(x, batch_size=4, verbose=0)
    finished = prediction.Pacer.finished
    calls = []

    next_slice = prediction.Pacer.next_slice

    def interrupting(self, steps):
        finished(self, steps)
        calls.append(steps)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prediction.Pacer, "finished", interrupting)
        patch.setattr(prediction.Pacer, "next_slice", lambda self: min(7, next_slice(self)))
        with pytest.raises(KeyboardInterrupt):
            model.predict(x, batch_size=4, verbose=0)
    assert len(calls) == 2
    assert sum(calls) <= 14
    np.testing.assert_array_equal(model.predict(x, batch_size=4, verbose=0), plain)


def test_steps_end_a_prediction_early(device):
    with kerascnn.device(device):
        model = classifier()
    x, _ = blobs(50)
    plain = model.predict(x, batch_size=4, verbose=0)
    few = model.predict(x, batch_size=4, steps=3, verbose=0)
    np.testing.assert_array_equal(few, plain[:12])


def test_prediction_and_training_in_turns(device):
    """Both take batches by the same counter."""
    with kerascnn.device(device):
        model = classifier()
    model.compile("sgd", "sparse_categorical_crossentropy")
    x, y = blobs(50)
    for _ in range(3):
        model.fit(x, y, batch_size=8, verbose=0)
        result = model.predict(x, batch_size=8, verbose=0)
        np.testing.assert_array_equal(result, by_hand(model, x, 8)[0])
        model.evaluate(x, y, batch_size=8, verbose=0)
        np.testing.assert_array_equal(model.predict(x, batch_size=8, verbose=0), result)


def test_no_batches_at_all_say_so():
    class Nothing:
        def __iter__(self):
            return iter(())

    with pytest.raises(ValueError, match="no batches|empty"):
        classifier().predict(Nothing(), verbose=0)
