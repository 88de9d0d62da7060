"""Ten thousand times the same: memory, threads and descriptors stay what they were."""

import gc
import sys
import threading

import numpy as np
import pytest
from holdings import PATIENCE, check_nothing_is_left, holdings, resident_bytes

import kerascnn as keras
from kerascnn import layers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ROUNDS = 4
# What the least of the rounds may grow by. Each cycle of a leak shows in each of them: one float
# of a large round is 10 kB, one object a hundred in the smallest.
MOST_BYTES = 256 << 10
MOST_OBJECTS = 5


def small_model():
    model = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.RandomTranslation(0.1, 0.1),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y, **kwargs):
        super().__init__(**kwargs)
        self.x, self.y = x, y

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.x[index::2], self.y[index::2]


class Cycles:
    """One model, and what is done to it again and again."""

    def __init__(self, folder, rng):
        self.x, self.y = rng.random((12, 6, 6, 1), "float32"), rng.integers(0, 3, 12)
        self.folder, self.model = folder, small_model()

    def fit(self):
        validation = (self.x[:5], self.y[:5])
        self.model.fit(self.x, self.y, batch_size=5, validation_data=validation, verbose=0)

    def fit_with_threads(self):
        self.model.fit(Batches(self.x, self.y, workers=2), verbose=0)

    def fit_with_callbacks(self):
        callbacks = [
            keras.callbacks.BackupAndRestore(self.folder / "backup"),
            keras.callbacks.CSVLogger(self.folder / "log.csv"),
            keras.callbacks.EarlyStopping("loss", restore_best_weights=True),
        ]
        self.model.fit(self.x, self.y, batch_size=6, verbose=0, callbacks=callbacks)

    def predict(self):
        self.model.predict(self.x, batch_size=5, verbose=0)

    def save(self):
        self.model.save(self.folder / "saved.keras")
        self.model.save_weights(self.folder / "saved.weights.h5")

    def load(self):
        if not (self.folder / "saved.keras").exists():
            self.save()
        keras.saving.load_model(self.folder / "saved.keras")
        self.model.load_weights(self.folder / "saved.weights.h5")

    def new_model(self):
        small_model().fit(self.x, self.y, batch_size=6, verbose=0)

    def error(self):
        with pytest.raises(ValueError, match="from 0 to 2"):
            self.model.fit(self.x, self.y + 7, verbose=0)


def wait_for_workers():
    """Returns when the threads of data sets, which were told to end, have done so."""
    for thread in threading.enumerate():
        if thread.name.startswith("PyDataset"):
            thread.join(PATIENCE)


# What is done in usual runs, and with `--thorough`.
AMOUNTS = {
    "fit": (120, 10_000),
    "predict": (200, 10_000),
    "load": (40, 10_000),
    "save": (40, 10_000),
    "fit_with_threads": (40, 2_000),
    "fit_with_callbacks": (40, 2_000),
    "new_model": (12, 400),
    "error": (40, 2_000),
}


@pytest.mark.timeout(20_000)
@pytest.mark.parametrize("kind", AMOUNTS)
def test_nothing_grows(kind, device, tmp_path, rng, amount, note):
    count = amount(*AMOUNTS[kind])
    with keras.device(device):
        cycle = getattr(Cycles(tmp_path, rng), kind)
        # Programs, threads and the room of Python's own lists come with the first ones.
        for _ in range(max(4, count // 10)):
            cycle()
        seen, before = [], None
        for number in range(ROUNDS + 1):
            for _ in range(count // ROUNDS if number else 0):
                cycle()
            wait_for_workers()
            now = holdings()  # which collects garbage
            before = before or now
            allocated = keras.config.memory_stats(device)["allocated"]
            seen.append((resident_bytes(), len(gc.get_objects()), allocated))
    # Anything else that the process does shows in some rounds, a leak in each.
    growths = np.diff(np.array(seen), axis=0)
    num_bytes, num_objects, allocated = growths.min(axis=0)
    total = int(seen[-1][0] - seen[0][0])
    note(kind, device, cycles=count, grown_bytes=total, least_of_a_round=int(num_bytes))
    assert num_bytes < MOST_BYTES and num_objects < MOST_OBJECTS and allocated <= 0, growths
    check_nothing_is_left(before)
