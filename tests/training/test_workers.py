"""PyDataset with threads and processes: order, what workers see, and how they fail."""

import os
import threading
import time

import numpy as np
import pytest

import kerascnn as keras
from kerascnn.training.workers import PreparedBatches

# Python 3.12 and later warn about forks when there are threads; the workers only use NumPy.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

LENGTH = 6
PATIENCE = 600  # seconds for what takes milliseconds, on a machine with nothing else to do


class Rows(keras.utils.PyDataset):
    """Gives batches of rows from an array that changes after each epoch."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        rng = np.random.default_rng(3)
        self.x = rng.normal(size=(LENGTH * 4, 3)).astype("float32")
        self.epochs = 0

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        # Later batches are ready sooner, so only a kept order gives the same losses.
        time.sleep(0.002 * (LENGTH - index) if self.workers > 1 else 0)
        x = self.x[index * 4 : index * 4 + 4] + self.epochs
        return x, x.sum(axis=1)

    def on_epoch_end(self):
        self.epochs += 1


def fitted(dataset, **kwargs):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model.fit(dataset, verbose=0, **kwargs).history["loss"]


@pytest.mark.parametrize("processes", [False, True])
def test_workers_give_the_batches_in_order_and_as_the_data_set_is_now(processes):
    expected = fitted(Rows(), epochs=3, shuffle=False)
    prepared = Rows(workers=3, use_multiprocessing=processes, max_queue_size=4)
    assert fitted(prepared, epochs=3, shuffle=False) == expected
    parts = Rows(workers=2, use_multiprocessing=processes)
    plain = fitted(Rows(), epochs=2, steps_per_epoch=LENGTH, shuffle=False)
    assert fitted(parts, epochs=2, steps_per_epoch=LENGTH, shuffle=False) == plain


def test_threads_end_with_fit():
    def prepared_threads():
        return [t for t in threading.enumerate() if t.name.startswith("PyDataset")]

    fitted(Rows(workers=3), epochs=2)
    # The workers were told to stop, but may still be at their last batch.
    for thread in prepared_threads():
        thread.join(timeout=PATIENCE)
    assert not prepared_threads()


def test_no_more_batches_are_made_ahead_than_asked_for():
    made = []

    class Counting(Rows):
        def __getitem__(self, index):
            made.append(index)
            return super().__getitem__(index)

    batches = PreparedBatches(Counting(), range(1000), 2, False, 3)
    next(batches)
    end = time.monotonic() + PATIENCE
    while len(made) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.1)  # for those that should not come
    # Three batches were under way when the first was taken.
    assert sorted(made) == [0, 1, 2]
    batches.close()


class Failing(Rows):
    def __getitem__(self, index):
        if index == 2:
            raise KeyError("no such image")
        return super().__getitem__(index)


class Dying(Rows):
    def __getitem__(self, index):
        if index == 3:
            os._exit(9)
        return super().__getitem__(index)


@pytest.mark.parametrize(
    "options", [{}, {"workers": 2}, {"workers": 2, "use_multiprocessing": True}]
)
def test_an_error_in_a_worker_is_the_callers(options):
    with pytest.raises(KeyError, match="no such image"):
        fitted(Failing(**options), shuffle=False)


def test_a_worker_that_dies_is_named_at_once():
    # No process waits for a batch that will never come: the test would not end.
    with pytest.raises(RuntimeError, match="worker process of the data set Dying died"):
        fitted(Dying(workers=2, use_multiprocessing=True), shuffle=False)


def test_a_data_set_without_an_end_needs_steps():
    class Endless(Rows):
        num_batches = None

        def __getitem__(self, index):
            return super().__getitem__(index % LENGTH)

    assert len(fitted(Endless(workers=2), epochs=3, steps_per_epoch=4)) == 3


def test_the_base_class_says_what_is_missing():
    class Empty(keras.utils.PyDataset):
        pass

    class Forgetful(Rows):
        def __init__(self):
            self.x, self.epochs = np.ones((LENGTH * 4, 3), "float32"), 0

    with pytest.raises(NotImplementedError, match="Empty must implement `__len__`"):
        fitted(Empty())
    with pytest.warns(UserWarning, match=r"super\(\).__init__\(\*\*kwargs\).*Forgetful"):
        fitted(Forgetful())

    class Wrong(Rows):
        def __getitem__(self, index):
            return "a batch"

    with pytest.raises(ValueError, match="Wrong.__getitem__ must return .*str"):
        fitted(Wrong())


def test_iterating_by_hand_and_its_other_name():
    assert keras.utils.Sequence is keras.utils.PyDataset
    batches = list(Rows())
    assert len(batches) == LENGTH and batches[0][0].shape == (4, 3)
