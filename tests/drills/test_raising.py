"""Callbacks, data and steps that raise: nothing is left, and the next `fit` is right."""

import sys

import numpy as np
import pytest
from holdings import check_nothing_is_left, holdings

import kerascnn as keras
from kerascnn import callbacks, layers

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    # Python 3.12 and later warn about forks when there are threads; the workers only use NumPy.
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

EPOCHS, BATCHES, VALIDATED, BATCH = 2, 3, 2, 4
# How often each hook is called in `fit` with validation, and in `evaluate` and `predict`.
HOOKS = {
    "on_train_begin": 1,
    "on_epoch_begin": EPOCHS,
    "on_train_batch_begin": EPOCHS * BATCHES,
    "on_train_batch_end": EPOCHS * BATCHES,
    "on_test_begin": EPOCHS,
    "on_test_batch_begin": EPOCHS * VALIDATED,
    "on_test_batch_end": EPOCHS * VALIDATED,
    "on_test_end": EPOCHS,
    "on_epoch_end": EPOCHS,
    "on_train_end": 1,
}
PREDICT_HOOKS = {
    "on_predict_begin": 1,
    "on_predict_batch_begin": BATCHES,
    "on_predict_batch_end": BATCHES,
    "on_predict_end": 1,
}
ERRORS = [ValueError, MemoryError, OSError, StopIteration, KeyboardInterrupt, SystemExit]


class Raises(callbacks.Callback):
    """Raises an error in one call of a hook, where `fit` shall not go on."""

    def __init__(self, hook, calls_left, error):
        super().__init__()
        self.left, self.error = calls_left, error
        setattr(self, hook, self._hook)

    def _hook(self, *_):
        if self.left == 0:
            raise self.error("as drawn")
        self.left -= 1


# `fit` looks at the class for hooks of batches.
for _name in [*HOOKS, *PREDICT_HOOKS]:
    setattr(Raises, _name, lambda self, *_: None)


class Numbered(keras.utils.PyDataset):
    def __init__(self, x, y, bad=None, error=None, **kwargs):
        super().__init__(**kwargs)
        self.x, self.y, self.bad, self.error = x, y, bad, error

    def __len__(self):
        return BATCHES

    def __getitem__(self, index):
        if index == self.bad:
            raise self.error("as drawn")
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return self.x[rows], self.y[rows]


def generated(x, y, bad=None, error=None):
    data = Numbered(x, y, bad, error)
    return (data[index % BATCHES] for index in range(EPOCHS * BATCHES))


SOURCES = {
    "generator": generated,
    "PyDataset": Numbered,
    "threads": lambda *data: Numbered(*data, workers=2),
    "processes": lambda *data: Numbered(*data, workers=2, use_multiprocessing=True),
}


class Disturbed:
    """A model, and one like it that nobody disturbs."""

    def __init__(self, folder, rng):
        self.folder = folder
        count = BATCHES * BATCH
        self.x, self.y = rng.random((count, 6, 6, 1), "float32"), rng.integers(0, 3, count)
        self.model, alone = self.make_model(), self.make_model()
        self.start = [v.numpy().copy() for v in self.variables()]
        self.expected = self.fit_on(alone), alone.get_weights()
        self.fit_on(self.model)
        self.before = holdings()

    def make_model(self):
        keras.utils.set_random_seed(4)
        model = keras.Sequential(
            [
                keras.Input((6, 6, 1)),
                layers.Conv2D(4, 3, activation="relu"),
                layers.BatchNormalization(),
                layers.Flatten(),
                layers.Dropout(0.3, seed=1),
                layers.Dense(3),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
        model.optimizer.build(model.trainable_variables)
        return model

    def variables(self):
        return [*self.model.variables, *self.model.optimizer.variables]

    def fit_on(self, model, *extra, source=None):
        data = {"x": self.x, "y": self.y, "batch_size": BATCH}
        if source is not None:
            data = {"x": source, "steps_per_epoch": BATCHES}
        validation = (self.x[: VALIDATED * BATCH], self.y[: VALIDATED * BATCH])
        files = [
            callbacks.CSVLogger(self.folder / "log.csv"),
            callbacks.TensorBoard(self.folder / "board"),
            callbacks.ModelCheckpoint(self.folder / "best.keras", save_best_only=True),
        ]
        return model.fit(
            **data,
            shuffle=False,
            epochs=EPOCHS,
            validation_data=validation,
            validation_batch_size=BATCH,
            verbose=0,
            callbacks=[*files, *extra],
        ).history

    def check(self):
        """What an error has left is nothing, and a model that trains as its twin does."""
        assert all(np.isfinite(w).all() for w in self.model.get_weights())
        check_nothing_is_left(self.before)
        for variable, value in zip(self.variables(), self.start, strict=True):
            variable.assign(value)
        history, weights = self.expected
        assert self.fit_on(self.model) == history
        for ours, theirs in zip(self.model.get_weights(), weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert not list(self.folder.rglob("*.part"))


def drawn(rng, hooks):
    hook = str(rng.choice(list(hooks)))
    return hook, int(rng.integers(hooks[hook])), ERRORS[rng.integers(len(ERRORS))]


@pytest.mark.timeout(20_000)
def test_callbacks_that_raise(tmp_path, device, rng, amount, note):
    with keras.device(device):
        disturbed = Disturbed(tmp_path, rng)
    rounds = amount(3, 300)
    for _ in range(rounds):
        hook, calls, error = drawn(rng, HOOKS)
        with pytest.raises(error):
            disturbed.fit_on(disturbed.model, Raises(hook, calls, error))
        disturbed.check()
        hook, calls, error = drawn(rng, PREDICT_HOOKS)
        with pytest.raises(error):
            disturbed.model.predict(
                disturbed.x, BATCH, verbose=0, callbacks=[Raises(hook, calls, error)]
            )
        disturbed.check()
    note("callbacks", device, errors=2 * rounds)


@pytest.mark.timeout(20_000)
@pytest.mark.parametrize("kind", SOURCES)
def test_data_that_raises(tmp_path, kind, device, rng, amount, note):
    with keras.device(device):
        disturbed = Disturbed(tmp_path, rng)
    rounds = amount(2, 100)
    for _ in range(rounds):
        # In a generator Python makes another error of StopIteration, and workers that are told to
        # exit or are interrupted have died.
        error = ERRORS[rng.integers(3)]
        bad = int(rng.integers(BATCHES))
        with pytest.raises(error, match="as drawn"):
            source = SOURCES[kind](disturbed.x, disturbed.y, bad, error)
            disturbed.fit_on(disturbed.model, source=source)
        disturbed.check()
    note(kind, device, errors=rounds)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_layers_that_raise(tmp_path, device, rng, run_eagerly):
    class Refuses(layers.Layer):
        refuses = True

        def call(self, x):
            if self.refuses:
                raise OSError("as drawn")
            return x

    with keras.device(device):
        disturbed = Disturbed(tmp_path, rng)
        refusing = Refuses()
        other = keras.Sequential([layers.Flatten(), layers.Dense(3), refusing])
    other.compile("sgd", "mse", run_eagerly=run_eagerly)
    for _ in range(2):
        with pytest.raises(OSError, match="as drawn"):
            other.fit(disturbed.x, np.ones((len(disturbed.x), 3)), verbose=0)
        disturbed.check()
    refusing.refuses = False
    other.fit(disturbed.x, np.ones((len(disturbed.x), 3)), verbose=0)
    assert np.isfinite(other.get_weights()[0]).all()
