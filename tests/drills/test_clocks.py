"""The clock is set in the middle of training, back or forth: that changes no result and no file."""

import itertools
import re
import time

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import callbacks, layers

# Seconds that the clock is set by with each look at it: back to years before 1980, a moment, into
# years after 2107. Python's other clocks can't be set.
STEPS = [-2e9, -0.001, 1e10]


def small_model():
    keras.utils.set_random_seed(6)
    model = keras.Sequential([keras.Input((5,)), layers.Dense(8), layers.Dropout(0.2, seed=1)])
    model.add(layers.Dense(2))
    model.compile("adam", "mse", metrics=["mae"])
    return model


def all_calls(folder, x, y):
    """All that looks at a clock; returns what must not depend on it."""
    model = small_model()
    extra = [
        callbacks.BackupAndRestore(folder / "backup", save_freq=1),
        callbacks.CSVLogger(folder / "log.csv"),
        callbacks.ModelCheckpoint(folder / "{epoch}.keras"),
        callbacks.TensorBoard(folder / "board", update_freq=1),
    ]
    history = model.fit(
        x, y, batch_size=4, epochs=3, validation_split=0.25, verbose=1, callbacks=extra
    ).history
    values = model.evaluate(x, y, batch_size=4, verbose=1)
    predicted = model.predict(x, batch_size=4, verbose=1)
    log = (folder / "log.csv").read_text()
    files = sorted(path.name for path in folder.glob("*.keras"))
    return history, values, predicted.tobytes(), log, files, [w.tolist() for w in model.weights]


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_clock_that_is_set(tmp_path, monkeypatch, capsys, device, rng, step):
    x, y = rng.random((32, 5), "float32"), rng.random((32, 2), "float32")
    (tmp_path / "plain").mkdir()
    with keras.device(device):
        expected = all_calls(tmp_path / "plain", x, y)
        (tmp_path / "set").mkdir()
        plain = time.time
        by = itertools.cycle([step, 0.0])
        monkeypatch.setattr(time, "time", lambda: plain() + next(by))
        capsys.readouterr()
        assert all_calls(tmp_path / "set", x, y) == expected
        bar = keras.utils.Progbar(3)
        for number in range(1, 4):
            bar.update(number)
        keras.saving.load_model(tmp_path / "set" / "3.keras")
    shown = capsys.readouterr().out
    assert not re.search(r"-\d+(\.\d+)?(s|ms|us|:)", shown), shown
    assert not re.search(r"\b(nan|inf)\b", shown), shown
    assert np.isfinite(expected[1]).all()
