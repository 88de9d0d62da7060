"""Full disks and vanishing folders: what was saved stays whole, and errors are clear."""

import errno
import os
import resource
import shutil
import signal
import socket
import sys

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import callbacks, layers, part_files

SAVES = {
    "a.keras": lambda model, path: model.save(path),
    "a.h5": lambda model, path: model.save(path),
    "a folder": lambda model, path: keras.saving.save_model(model, path, zipped=False),
    "a.weights.h5": lambda model, path: model.save_weights(path),
    "a.weights.json": lambda model, path: model.save_weights(path, max_shard_size=1e-4),
    "a.safetensors": lambda model, path: model.save_weights(path),
}


def small_model(value):
    model = keras.Sequential([keras.Input((30,)), layers.Dense(40), layers.Dense(30)])
    model.compile("adam", "mse")
    model.set_weights([np.full_like(weight, value) for weight in model.get_weights()])
    return model


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}


def limit_files(num_bytes):
    """No file may grow further. Python ignores the signal, and a write says that it failed."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if num_bytes is None else num_bytes, hard))


def save_on_a_full_disk(name, folder, limit):
    sys.stderr = open(folder.parent / "stderr", "w")  # noqa: SIM115
    os.dup2(sys.stderr.fileno(), 2)  # what C libraries write
    SAVES[name](small_model(1.0), folder / name)
    before = contents(folder)
    limit_files(limit)
    with pytest.raises(OSError) as caught:
        SAVES[name](small_model(2.0), folder / name)
    limit_files(None)
    assert caught.value.errno == errno.EFBIG and caught.value.filename
    after = contents(folder)
    if name != "a folder":  # each of its files is replaced by itself
        assert after == before
    assert after.keys() == before.keys()
    SAVES[name](small_model(2.0), folder / name)
    assert contents(folder) != before


@pytest.mark.parametrize("limit", [0, 100, 3000])
@pytest.mark.parametrize("name", SAVES)
def test_a_full_disk_keeps_what_was_saved(tmp_path, processes, name, limit):
    (tmp_path / "files").mkdir()
    assert processes(save_on_a_full_disk, name, tmp_path / "files", limit) == 0
    assert (tmp_path / "stderr").read_text() == ""


def fit_on_a_full_disk(folder):
    model = small_model(1.0)
    x, y = np.ones((8, 30)), np.ones((8, 30))

    class Fill(callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                limit_files(1000)

    backup = callbacks.BackupAndRestore(folder / "backup")
    save = callbacks.ModelCheckpoint(folder / "{epoch}.keras")
    for callback in (backup, save):
        with pytest.raises(OSError, match=str(folder)):
            model.fit(x, y, epochs=4, verbose=0, callbacks=[callback, Fill()])
        limit_files(None)
        assert np.isfinite(model.get_weights()[0]).all()
    assert sorted(path.name for path in folder.glob("*.*")) == ["1.keras", "2.keras"]
    # The backup is that of the second epoch.
    history = model.fit(x, y, epochs=4, verbose=0, callbacks=[backup])
    assert history.epoch == [0, 1, 2, 3]


def test_a_training_on_a_full_disk_can_go_on(tmp_path, processes):
    assert processes(fit_on_a_full_disk, tmp_path) == 0


def test_a_folder_that_vanishes_is_made_anew(tmp_path):
    class Vanish(callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            shutil.rmtree(tmp_path / "a", ignore_errors=True)

    model, data = small_model(1.0), (np.ones((8, 30)), np.ones((8, 30)))
    extra = [
        callbacks.ModelCheckpoint(tmp_path / "a" / "{epoch}.keras"),
        callbacks.BackupAndRestore(tmp_path / "a" / "backup"),
    ]
    model.fit(*data, epochs=3, verbose=0, callbacks=[Vanish(), *extra])
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["3.keras"]


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "a").write_text("a file")
    model, data = small_model(1.0), (np.ones((8, 30)), np.ones((8, 30)))
    for callback in (
        callbacks.ModelCheckpoint(tmp_path / "a" / "b.keras"),
        callbacks.BackupAndRestore(tmp_path / "a" / "backup"),
    ):
        with pytest.raises(OSError, match=str(tmp_path / "a")):
            model.fit(*data, verbose=0, callbacks=[callback])
    assert (tmp_path / "a").read_text() == "a file"


def test_what_dead_processes_have_left_is_removed(tmp_path, processes):
    target, host = tmp_path / "a[1].keras", socket.gethostname()[:32]
    assert processes(os.getpid) == 0
    dead = 2**22 + 1  # above the largest number of a process that Linux gives
    names = {
        f".a[1].keras.{host}.{dead}.0.part": False,
        f".a[1].keras.{host}.{os.getpid()}.0.part": True,
        f".a[1].keras.{host}-elsewhere.{dead}.0.part": True,
        f".a[1].keras.{host}.{dead}.part": True,
        f".b.keras.{host}.{dead}.0.part": True,
        ".a[1].keras.part": True,
    }
    for name in names:
        (tmp_path / name).touch()
    small_model(1.0).save(target)
    assert {name: (tmp_path / name).exists() for name in names} == names
    assert part_files.beside(target) != part_files.beside(target)


def die_while_a_cache_is_made(path):
    dataset = keras.data.Dataset.range(9).map(lambda x: x).cache(path)
    begun = iter(dataset)
    next(begun)
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_process_has_left_of_a_cache_is_removed(tmp_path, processes):
    path = tmp_path / "c"
    assert processes(die_while_a_cache_is_made, path) == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".part")
    dataset = keras.data.Dataset.range(9).map(lambda x: x).cache(path)
    assert [int(x) for x in dataset] == list(range(9))
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
