"""Data that is used once goes to the device in pieces, while the steps of earlier pieces run."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers
from kerascnn.training import feed, memory

from .helpers import blobs, classifier, count_compilations


@pytest.fixture
def in_pieces(monkeypatch):
    """Makes predict and evaluate take data in pieces of so many bytes, copied as for a GPU."""

    def use(num_bytes):
        monkeypatch.setattr(memory, "worth_pieces", lambda *_: True)
        monkeypatch.setattr(memory, "PIECE_BYTES", num_bytes)

    return use


def compiled(model):
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


# A batch of 5 samples has 80 bytes, or 100 with labels. A piece has one batch, four, or all of
# them.
@pytest.mark.parametrize("piece_bytes", [1, 450, 1 << 20])
@pytest.mark.parametrize("samples", [3, 5, 48, 50, 203])
def test_pieces_give_the_same_bits(in_pieces, device, samples, piece_bytes):
    x, y = blobs(samples)
    with keras.device(device):
        model = compiled(classifier())
    predicted = model.predict(x, batch_size=5, verbose=0)
    evaluated = model.evaluate(x, y, batch_size=5, verbose=0)
    in_pieces(piece_bytes)
    for _ in range(3):  # The first run measures how long a step takes.
        received = model.predict(x, batch_size=5, verbose=0)
        np.testing.assert_array_equal(received, predicted)
        assert model.evaluate(x, y, batch_size=5, verbose=0) == evaluated
    few = model.predict(x, batch_size=5, steps=1, verbose=0)
    np.testing.assert_array_equal(few, predicted[:5])


def test_pieces_are_used_again_for_other_data_without_compiling_or_allocating(in_pieces, device):
    with keras.device(device):
        model = compiled(classifier())
    in_pieces(450)
    sets = [blobs(samples, seed=seed) for seed, samples in enumerate((60, 55, 60))]
    expected = [model.predict_on_batch(x) for x, _ in sets]
    model.predict(sets[0][0], batch_size=5, verbose=0)
    places = dict(model._state.free_places)
    assert len(places) == 1
    with count_compilations() as found:
        for (x, _), values in zip(sets, expected, strict=True):
            received = model.predict(x, batch_size=5, verbose=0)
            # The float32 products have batches of another size.
            np.testing.assert_allclose(received, values, rtol=1e-5, atol=1e-6)
    assert not found
    assert model._state.free_places == places


def test_a_callback_may_predict_the_same_kind_of_data_while_pieces_are_in_use(in_pieces, device):
    x, y = blobs(48)
    with keras.device(device):
        model = compiled(classifier())
    plain = model.predict(x, batch_size=5, verbose=0)
    evaluated = model.evaluate(x, y, batch_size=5, verbose=0)
    in_pieces(450)
    seen = []

    class Inner(keras.callbacks.Callback):
        def on_predict_batch_end(self, batch, logs=None):
            if batch in (0, 3, 9):
                seen.append(self.model.predict(x[::-1], batch_size=5, verbose=0))

        def on_test_batch_end(self, batch, logs=None):
            if batch == 4:
                seen.append(self.model.predict(x, batch_size=5, verbose=0)[::-1])

    received = model.predict(x, batch_size=5, verbose=0, callbacks=[Inner()])
    np.testing.assert_array_equal(received, plain)
    assert model.evaluate(x, y, batch_size=5, verbose=0, callbacks=[Inner()]) == evaluated
    assert len(seen) == 4
    for values in seen:
        np.testing.assert_allclose(values, plain[::-1], rtol=1e-5, atol=1e-6)
    assert len(model._state.free_places) <= 2


def test_an_error_in_the_middle_leaves_the_model_working(in_pieces, device):
    x, y = blobs(48)
    with keras.device(device):
        model = compiled(classifier())
    evaluated = model.evaluate(x, y, batch_size=5, verbose=0)
    in_pieces(450)

    class Fail(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            if batch == 5:
                raise RuntimeError("in the middle")

    for _ in range(3):
        with pytest.raises(RuntimeError, match="in the middle"):
            model.evaluate(x, y, batch_size=5, verbose=0, callbacks=[Fail()])
        assert model.evaluate(x, y, batch_size=5, verbose=0) == evaluated


def test_neither_little_data_nor_large_batches_come_in_pieces():
    mib = 1 << 20
    assert memory.worth_pieces(8 * mib, mib, "cuda:0")
    assert memory.worth_pieces(8 * mib, 4 * mib, "cuda:0")
    assert not memory.worth_pieces(8 * mib, mib, "cpu")
    assert not memory.worth_pieces(mib // 2, 1000, "cuda:0")
    assert not memory.worth_pieces(3 * mib, 3 * mib, "cuda:0")  # This is a single batch.
    assert not memory.worth_pieces(80 * mib, 9 * mib, "cuda:0")


def test_validation_data_stay_on_the_device(in_pieces, device, monkeypatch):
    x, y = blobs(48)
    with keras.device(device):
        model = compiled(classifier())
    in_pieces(450)
    monkeypatch.setattr(feed, "Pieces", None)  # Any use of pieces would fail.
    model.fit(x, y, batch_size=5, epochs=2, validation_data=(x, y), verbose=0)


def test_steps_with_state_and_random_layers_run_in_order(in_pieces, device, monkeypatch):
    """One layer counts its calls and another draws numbers in every call, also in predict."""

    class Counting(layers.Layer):
        def build(self, input_shape):
            self.calls = self.add_weight((), "zeros", trainable=False)

        def call(self, inputs):
            self.calls.assign(self.calls + 1.0)
            return inputs + self.calls

    class Always(layers.Layer):
        def __init__(self):
            super().__init__()
            self.dropout = layers.Dropout(0.5, seed=7)

        def call(self, inputs):
            return self.dropout(inputs, training=True)

    def run():
        keras.utils.set_random_seed(3)
        with keras.device(device):
            image = keras.Input((6, 5, 1))
            hidden = layers.Conv2D(3, 3, activation="relu")(image)
            hidden = Always()(layers.MaxPooling2D()(hidden))
            outputs = layers.Dense(4, activation="softmax")(layers.Flatten()(hidden))
            model = keras.Model(image, Counting()(outputs))
            model.compile("sgd", "mse", metrics=["mae"])
        drawn = np.random.default_rng(5)
        x = drawn.normal(size=(331, 6, 5, 1)).astype("float32")
        y = drawn.normal(size=(331, 4)).astype("float32")
        results = []
        for batch_size in (7, 2):
            for _ in range(3):
                results.append(model.predict(x, batch_size=batch_size, verbose=0))
                results.append(model.evaluate(x, y, batch_size=batch_size, verbose=0))
        return results

    monkeypatch.setenv("KERASCNN_CUDA_ARENAS", "1")
    expected = run()
    # The layer counts.
    assert expected[0][0].mean() < expected[0][-1].mean() < expected[2][0].mean()
    monkeypatch.delenv("KERASCNN_CUDA_ARENAS")
    for piece_bytes in (None, 1000, 20_000):
        if piece_bytes is not None:
            in_pieces(piece_bytes)
        for received, values in zip(run(), expected, strict=True):
            np.testing.assert_array_equal(received, values)


def test_positions_of_the_counter_come_from_the_device(device):
    from kerascnn.training.device_state import StepState

    state = StepState(device)
    for reader in (object(), object()):
        for position in (0, 1, 17, 4095, 4096, 100_000, 0):
            state.seek(reader, position)
            assert int(state.step.read()) == position
    order = state.in_order(5, 3)
    assert order is state.in_order(5, 3)
    np.testing.assert_array_equal(order.numpy(), [5, 6, 7])
    for first in range(20):
        np.testing.assert_array_equal(state.in_order(first, 2).numpy(), [first, first + 1])


def test_the_counter_is_written_anew_after_a_run_that_failed(device):
    from kerascnn.training.device_state import StepState

    state, reader = StepState(device), object()

    state.depart(reader, 0)
    state.step.core.assign(state.step.core.value + 2)  # Two steps ran, the third one failed.
    state.seek(reader, 0)  # Without `arrive` nobody knows that.
    assert int(state.step.read()) == 0
