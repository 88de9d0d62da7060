"""Data that does not fit on the device, and batches that do not."""

import bisect
from types import SimpleNamespace

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, layers
from kerascnn.training import chunks, feed, memory

from .helpers import WatchedUpload, blobs, classifier


def stream_in_chunks(monkeypatch, chunk_bytes):
    monkeypatch.setattr(memory, "SMALL_BYTES", 0)
    monkeypatch.setattr(memory, "RESIDENT_SHARE", 1e-12)
    monkeypatch.setattr(
        memory, "chunk_batches", lambda per_batch, *_: max(1, chunk_bytes // per_batch)
    )


class CopiedChunks(chunks.Chunks):
    """Copies data to the device as for a GPU, also on the CPU."""

    def __init__(self, arrays, rows, device):
        super().__init__(arrays, rows, device)
        self._copies = True
        self._sources = [
            _core.empty_for_upload(list(tensor.shape), tensor.dtype, device)
            for tensor in self.tensors
        ]
        self._hosts = [source.numpy() for source in self._sources]
        self._uploads = [WatchedUpload(device) for _ in range(2)]


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("samples", [48, 50, 3, 5])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("chunk_bytes", [1, 300])
def test_streamed_data_train_the_same_weights(
    monkeypatch, samples, shuffle, chunk_bytes, copies, device
):
    """A batch of 5 samples has 5 * (16 + 4) bytes, so chunks have one batch or three."""
    x, y = blobs(samples)
    results = []
    for streamed in (False, True):
        if streamed:
            stream_in_chunks(monkeypatch, chunk_bytes)
            if copies:
                monkeypatch.setattr(feed, "Chunks", CopiedChunks)
        keras.utils.set_random_seed(2)
        with keras.device(device):
            model = classifier()
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        history = model.fit(
            x, y, batch_size=5, epochs=3, shuffle=shuffle, validation_data=(x, y), verbose=0
        )
        evaluated = model.evaluate(x, y, batch_size=5, verbose=0)
        predicted = model.predict(x, batch_size=5, verbose=0)
        results.append((history.history, evaluated, predicted, model.get_weights()[0]))
    resident, streamed = results
    assert resident[:2] == streamed[:2]
    np.testing.assert_array_equal(resident[2], streamed[2])
    np.testing.assert_array_equal(resident[3], streamed[3])


def test_streamed_data_go_on_where_an_epoch_ended(monkeypatch, device):
    """Epochs take 4 of 10 batches in chunks of three, with validation in between."""
    x, y = blobs(48)
    histories = []
    for streamed in (False, True):
        if streamed:
            stream_in_chunks(monkeypatch, 300)
            monkeypatch.setattr(feed, "Chunks", CopiedChunks)
        with keras.device(device):
            model = classifier()
        model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
        history = model.fit(
            x, y, batch_size=5, epochs=2, steps_per_epoch=4, shuffle=False,
            validation_data=(x[:23], y[:23]), validation_batch_size=5, verbose=0,
        )  # fmt: skip
        again = model.fit(x, y, batch_size=5, epochs=2, shuffle=False, verbose=0)
        histories.append((history.history, again.history))
    assert histories[0] == histories[1]


def test_a_batch_that_does_not_fit_says_which_one_would():
    """No machine that runs tests has room for 400 GB of activations."""
    model = keras.Sequential(
        [keras.Input((1,)), layers.Dense(100_000, activation="relu"), layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    x = np.zeros((1_000_000, 1), "float32")
    before = model.get_weights()
    with pytest.raises(MemoryError) as caught:
        model.fit(x, x, batch_size=1_000_000, verbose=0)
    error = caught.value
    assert isinstance(error, keras.OutOfMemoryError)
    assert error.requested > 400e9
    assert error.batch_size == 1_000_000
    assert 1 <= error.fitting_batch_size < 1_000_000
    for part in ("batch_size=1000000", "asked for", "in use", "free", "batch_size of up to about"):
        assert part in str(error)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    model.fit(x[:32], x[:32], batch_size=8, verbose=0)


@pytest.mark.parametrize("kink", [1, 10, 1000, 10**6])
@pytest.mark.parametrize("room", [500, 20_000, 10**7])
def test_the_batch_that_is_named_fits_also_where_growth_is_not_linear(monkeypatch, kink, room):
    """From `kink` samples on, a sample needs twice as much memory, as if other kernels ran."""

    def needs(size):
        return 300 + 7 * size + (7 * size if size >= kink else 0)

    def compile_with(size):
        stats = {"least_arena_bytes": needs(size), "output_bytes": 0}
        return SimpleNamespace(program=SimpleNamespace(stats=lambda: stats))

    share = memory._FITTING_SHARE
    monkeypatch.setattr(_core, "memory_stats", lambda device: {"available": room / share})
    batch = 2_000_000
    fitting = memory._fitting_batch_size(batch, "cpu", compile_with)
    largest = bisect.bisect_right(range(batch), room, key=needs) - 1
    assert 1 <= fitting <= largest
    # The estimate extrapolates linear growth, which is exact only beyond the kink.
    assert fitting >= 0.45 * largest
