"""The same logs lead to the same decisions as with Keras' callbacks."""

import contextlib
import csv
import functools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kerascnn

keras = pytest.importorskip("keras")
MODULES = (kerascnn, keras)

# Keras causes this warning when NumPy converts its variables.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

EXAMPLES = settings(max_examples=20, deadline=None)
# There are few values, so that equal ones and differences of exactly min_delta occur.
values = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 2.0])
sequences = st.lists(values, min_size=1, max_size=12)


@pytest.fixture(scope="module")
def models():
    made = []
    for module in MODULES:
        model = module.Sequential([module.Input((2,)), module.layers.Dense(1)])
        model.compile(module.optimizers.SGD(0.5), "mse", metrics=["mae", "accuracy"])
        x = np.zeros((2, 2), "float32")
        model.fit(x, np.zeros((2, 1)), verbose=0)  # Keras creates its metrics in the first step.
        made.append(model)
    return made


def epochs(model, callback, logs, stop=True):
    """Returns the logs of each epoch until the callback stops training, and the warnings."""
    model.stop_training = False
    callback.set_params({"verbose": 0, "epochs": len(logs), "steps": 1})
    callback.set_model(model)
    seen = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        callback.on_train_begin()
        for epoch, entry in enumerate(logs):
            entry = dict(entry)
            callback.on_epoch_begin(epoch, {})
            callback.on_epoch_end(epoch, entry)
            seen.append(entry)
            if model.stop_training and stop:
                break
        callback.on_train_end()
    return seen, [w for w in caught if w.category is UserWarning]


def compare(models, make, logs, state=lambda callback, model: None):
    results = []
    for module, model in zip(MODULES, models, strict=True):
        outcome = None
        try:
            callback = make(module)
            seen, warned = epochs(model, callback, logs)
            outcome = (seen, len(warned), state(callback, model))
        except Exception as error:
            outcome = type(error)
        results.append(outcome)
    assert results[0] == results[1]
    return results[0]


@EXAMPLES
@given(
    sequences,
    st.sampled_from(["val_loss", "loss", "accuracy", "val_mae", "missing"]),
    st.sampled_from(["auto", "min", "max", "other"]),
    st.integers(0, 3),
    st.sampled_from([0, 0.25, -0.25, 0.3]),
    st.sampled_from([None, 0.5, 1.5]),
    st.integers(0, 2),
    st.booleans(),
)
def test_early_stopping(models, sequence, monitor, mode, patience, delta, baseline, start, restore):
    logs = [{"val_loss": v, "loss": v, "accuracy": v, "val_mae": v} for v in sequence]

    def state(callback, model):
        kept = callback.best_weights is not None
        return callback.stopped_epoch, callback.wait, callback.best_epoch, callback.best, kept

    compare(
        models,
        lambda module: module.callbacks.EarlyStopping(
            monitor=monitor,
            mode=mode,
            patience=patience,
            min_delta=delta,
            baseline=baseline,
            start_from_epoch=start,
            restore_best_weights=restore,
        ),
        logs,
        state,
    )


@EXAMPLES
@given(
    sequences,
    st.sampled_from(["val_loss", "val_accuracy", "missing"]),
    st.sampled_from(["auto", "min", "max"]),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from([0.1, 0.5, 1.0, 2.0]),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([1e-4, 0.25]),
)
def test_reduce_lr_on_plateau(models, sequence, monitor, mode, patience, cooldown, factor, low, d):
    for model in models:
        model.optimizer.learning_rate = 0.5
    compare(
        models,
        lambda module: module.callbacks.ReduceLROnPlateau(
            monitor=monitor,
            mode=mode,
            patience=patience,
            cooldown=cooldown,
            factor=factor,
            min_lr=low,
            min_delta=d,
        ),
        [{"val_loss": v, "val_accuracy": v} for v in sequence],
        lambda callback, model: (
            float(np.asarray(model.optimizer.learning_rate.numpy())),
            callback.wait,
            callback.cooldown_counter,
        ),
    )


@EXAMPLES
@given(sequences, st.sampled_from(["rate", "epoch", "integer"]))
def test_learning_rate_scheduler(models, sequence, kind):
    for model in models:
        model.optimizer.learning_rate = 0.5

    def halve(epoch, rate):
        return rate / 2 if epoch else rate

    schedules = {"rate": halve, "epoch": lambda epoch: 1.0 / (epoch + 2), "integer": lambda e, r: 1}
    compare(
        models,
        lambda module: module.callbacks.LearningRateScheduler(schedules[kind]),
        [{"loss": v} for v in sequence],
    )


@EXAMPLES
@given(
    sequences,
    st.sampled_from(["val_loss", "val_mae", "val_accuracy", "missing"]),
    st.sampled_from(["auto", "min", "max"]),
    st.booleans(),
    st.sampled_from([None, 0.5, 1.0]),
    st.sampled_from(["{epoch:02d}-{val_loss:.2f}", "best", "{nothing}"]),
)
def test_model_checkpoint(models, sequence, monitor, mode, best_only, threshold, name):
    logs = [{"val_loss": v, "val_mae": v, "val_accuracy": v} for v in sequence]
    results = []
    for module, model in zip(MODULES, models, strict=True):
        saved = []

        class Recording(type(model)):
            def save_weights(self, path, overwrite=True, saved=saved):
                saved.append(path)

        original = type(model)
        model.__class__ = Recording
        try:
            callback = module.callbacks.ModelCheckpoint(
                f"{name}.weights.h5",
                monitor=monitor,
                mode=mode,
                save_best_only=best_only,
                save_weights_only=True,
                initial_value_threshold=threshold,
            )
            _, warned = epochs(model, callback, logs)
            results.append((saved, len(warned), callback.best))
        except Exception as error:
            results.append((saved, type(error)))
        finally:
            model.__class__ = original
    assert results[0] == results[1]


def note_place(saved, place, *args, **kwargs):
    saved.append(tuple(place))


@EXAMPLES
@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(1, 5), st.booleans())
def test_saving_every_few_batches(models, batches_of_epochs, frequency, backup):
    results = []
    for module, model in zip(MODULES, models, strict=True):
        name = "m.weights.h5"
        if backup:
            callback = module.callbacks.BackupAndRestore("folder", save_freq=frequency)
        else:
            callback = module.callbacks.ModelCheckpoint(
                name, save_weights_only=True, save_freq=frequency
            )
        saved, place = [], [None, None]
        method = "_save" if module is kerascnn else "_save_model"
        setattr(callback, method, functools.partial(note_place, saved, place))
        callback.set_model(model)
        callback.on_train_begin()
        for epoch, batches in enumerate(batches_of_epochs):
            callback.on_epoch_begin(epoch)
            for batch in range(batches):
                place[:] = (epoch, batch)
                callback.on_train_batch_begin(batch)
                callback.on_train_batch_end(batch, {"loss": 1.0})
            callback.on_epoch_end(epoch, {"loss": 1.0, "val_loss": 1.0})
        results.append(saved)
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ModelCheckpoint", {"filepath": "x.txt"}),
        ("ModelCheckpoint", {"filepath": "x.h5", "save_weights_only": True}),
        ("ModelCheckpoint", {"filepath": "x.keras", "save_freq": "batch"}),
        ("BackupAndRestore", {"backup_dir": ""}),
        ("BackupAndRestore", {"backup_dir": "x", "save_freq": "batch"}),
        ("ReduceLROnPlateau", {"factor": 1.0}),
        ("TensorBoard", {"profile_batch": (3, 2)}),
        ("TensorBoard", {"profile_batch": (1, 2, 3)}),
        ("TensorBoard", {"profile_batch": "two"}),
        ("TensorBoard", {"profile_batch": -1}),
    ],
)
def test_arguments_that_are_wrong(name, arguments):
    for module in MODULES:
        with pytest.raises(ValueError):
            getattr(module.callbacks, name)(**arguments)


@EXAMPLES
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["loss", "mae", "val_loss", "text", "list", "array"]),
            values,
            max_size=4,
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([",", ";", "\t"]),
    st.booleans(),
)
def test_csv_logger(tmp_path_factory, models, logs, separator, append):
    kinds = {
        "text": lambda v: f"a{v}",
        "list": lambda v: [v, 1],
        "array": lambda v: np.array([v, 2.0]),
    }
    logs = [{k: kinds.get(k, lambda v: v)(v) for k, v in entry.items()} for entry in logs]
    folder = tmp_path_factory.mktemp("csv")
    texts = []
    for module, model in zip(MODULES, models, strict=True):
        path = folder / f"{module.__name__}.csv"
        for _ in range(2):
            epochs(model, module.callbacks.CSVLogger(path, separator, append), logs)
        texts.append(path.read_bytes())
    assert texts[0] == texts[1]
    rows = list(csv.reader(texts[0].decode().splitlines(), delimiter=separator))
    assert len(rows) == 1 + len(logs) * (2 if append else 1)


@pytest.mark.parametrize("loss", [1.0, math.nan, math.inf, -math.inf, np.float32("nan"), None])
@pytest.mark.parametrize("raises", [False, True])
def test_terminate_on_nan(models, loss, raises):
    results = []
    for module, model in zip(MODULES, models, strict=True):
        model.stop_training = False
        callback = module.callbacks.TerminateOnNaN(raise_error=raises)
        callback.set_model(model)
        try:
            callback.on_batch_end(3, {"loss": loss})
            results.append(model.stop_training)
        except RuntimeError as error:
            results.append(type(error))
        model.stop_training = False
    assert results[0] == results[1]


def test_lambda_callback_has_the_hooks_of_keras():
    hooks = [name for name in dir(keras.callbacks.Callback) if name.startswith("on_")]
    assert set(hooks) <= set(dir(kerascnn.callbacks.Callback))
    for module in MODULES:
        calls = []
        callback = module.callbacks.LambdaCallback(
            **{
                name: (lambda *args, name=name, calls=calls, **kwargs: calls.append(name))
                for name in hooks
            }
        )
        for name in hooks:
            getattr(callback, name)(0, {}) if "epoch" in name or "batch" in name else getattr(
                callback, name
            )({})
        assert calls == hooks


def test_callback_lists(models):
    results = []
    for module, model in zip(MODULES, models, strict=True):
        seen = []

        class Recorder(module.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None, seen=seen):
                seen.append((epoch, dict(logs), [type(v) for v in logs.values()]))
                logs["added"] = 1.0

        first, second = Recorder(), Recorder()
        together = module.callbacks.CallbackList(
            [first, second], add_history=True, add_progbar=True, model=model, epochs=2, steps=3,
            verbose=0,
        )  # fmt: skip
        logs = {"b": np.float32(1.5), "a": {"z": np.array(2.0)}, "text": "x"}
        together.on_train_begin()
        together.on_epoch_begin(0)
        together.on_epoch_end(0, logs)
        together.on_train_end()
        assert "added" not in logs
        with pytest.raises(ValueError), contextlib.ExitStack():
            together.on_train_end()
        results.append(
            (seen, [type(c).__name__ for c in together.callbacks][2:], first.params, second.params)
        )
    assert results[0] == results[1]


@pytest.mark.parametrize("module", MODULES)
def test_swap_ema_weights(module):
    model = module.Sequential([module.Input((2,)), module.layers.Dense(1)])
    model.compile(module.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5), "mse")
    model.set_weights([np.array([[1.0], [2.0]]), np.array([0.5])])
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 2)).astype("float32"), rng.normal(size=(8, 1)).astype("float32")
    swap = module.callbacks.SwapEMAWeights(swap_on_epoch=True)
    kept = []
    keep = module.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: kept.append(model.get_weights()[0].copy())
    )
    # The weights and their averages are computed by hand, over whole batches.
    w, b = np.array([[1.0], [2.0]]), np.array([0.5])
    average, expected = [w, b], []
    for step in range(3):
        error = x @ w + b - y
        w, b = w - 0.1 * 2 * x.T @ error / 8, b - 0.1 * 2 * error.mean(axis=0)
        share = 0.5 if step else 0.0
        average = [share * a + (1 - share) * v for a, v in zip(average, (w, b), strict=True)]
        expected.append(average[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(
            x, y, epochs=3, batch_size=8, shuffle=False, verbose=0, callbacks=[swap, keep],
            validation_data=(x, y),
        )  # fmt: skip
        result = model.get_weights()[0]
    # The tolerance covers three steps of a few float32 operations each.
    np.testing.assert_allclose(kept, expected, rtol=1e-5)
    np.testing.assert_allclose(result, expected[-1], rtol=1e-5)
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="use_ema"):
        model.evaluate(x, y, verbose=0, callbacks=[module.callbacks.SwapEMAWeights()])
