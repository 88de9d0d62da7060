"""Files whose disk fails: every call of the system in turn. `python failing.py LIBRARY FOLDER ...`

The library is `failing_files.c`, which has to be loaded before the C library (`LD_PRELOAD`). What
is printed is one line of JSON with the number of calls that failed, and what was wrong with what.
"""

import contextlib
import ctypes
import errno
import gc
import json
import sys
import traceback
from pathlib import Path

import numpy as np

import kerascnn as keras
from kerascnn import callbacks, layers

OPEN, READ, WRITE, SYNC, CLOSE, RENAME, MAKE = (1 << i for i in range(7))
# What a full disk, a quota that is used up, a disk that is defect and a server that is gone refuse.
ERRORS = {
    errno.ENOSPC: (OPEN | WRITE | SYNC | RENAME | MAKE, True),
    errno.EDQUOT: (OPEN | WRITE | SYNC | CLOSE | RENAME | MAKE, True),
    errno.EIO: (READ | WRITE | SYNC | CLOSE, False),
    errno.ESTALE: (OPEN | READ | WRITE | SYNC | CLOSE | RENAME | MAKE, True),
}
MODELS = ("a.keras", "a.h5", "whole")  # the last one is a folder
NAMES = (*MODELS, "a.weights.h5", "a.weights.json", "a.safetensors")


def small_model(value):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(6), layers.Dense(2)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    model.set_weights([np.full_like(weight, value) for weight in model.get_weights()])
    return model


class Work:
    """What reads and writes files in a folder, and how to see that these are whole."""

    def __init__(self, folder):
        self.folder = folder
        self.old, self.new = small_model(1.0), small_model(2.0)
        self.x, self.y = np.ones((8, 4), "float32"), np.ones((8, 2), "float32")
        self.target = small_model(0.0)

    def save(self, name, model):
        if name in MODELS:
            keras.saving.save_model(model, self.folder / name, zipped=name != "whole")
        elif name.endswith(".json"):
            model.save_weights(self.folder / name, max_shard_size=1e-7)
        else:
            model.save_weights(self.folder / name)

    def value(self, name):
        """The one value that all weights in a file have."""
        if name in MODELS:
            model = keras.saving.load_model(self.folder / name)
        else:
            model = self.target
            model.set_weights([np.full_like(weight, -1) for weight in model.get_weights()])
            model.load_weights(self.folder / name)
        (value,) = {float(v) for weight in model.get_weights() for v in weight.flat}
        return value

    def contents(self):
        return {p.relative_to(self.folder): p.read_bytes() for p in self.folder.rglob("*.*")}

    def fit(self):
        """Trains on, as after an interruption, with every callback that has files."""
        boards = [callbacks.TensorBoard(self.folder / "board", write_graph=False)] * HAS_BOARD
        self.new.fit(
            self.x,
            self.y,
            epochs=3,
            verbose=0,
            callbacks=[
                callbacks.BackupAndRestore(self.folder / "backup"),
                callbacks.CSVLogger(self.folder / "log.csv"),
                callbacks.ModelCheckpoint(
                    self.folder / "{epoch}.weights.h5", save_weights_only=True
                ),
                *boards,
            ],
        )


try:
    import tensorboard  # noqa: F401

    HAS_BOARD = 1
except ImportError:
    HAS_BOARD = 0


class Disk:
    """The library that makes calls fail."""

    def __init__(self, library, folder):
        self._calls, self._folder = ctypes.CDLL(library), str(folder).encode()

    def seen(self):
        """How many calls there were in the last block that might have failed."""
        return self._calls.seen()

    @contextlib.contextmanager
    def failing(self, number, before):
        """In this block the call after `before` others fails, with an error of `ERRORS`."""
        kinds, stays = ERRORS[number]
        failures = []
        self._calls.arm(self._folder, kinds, before, number, stays)
        try:
            yield failures
        finally:
            failures.append(self._calls.disarm())


def check_error(error, number, folder):
    assert error.errno == number, error
    assert error.filename is not None and str(folder) in str(error.filename), error
    assert ".part" not in str(error), error


def save_on_it(work, disk, name, number, before):
    """Returns how many calls have failed; each save is as if there was no other."""
    work.save(name, work.old)
    whole = work.contents()
    raised = False
    with disk.failing(number, before) as failures:
        try:
            work.save(name, work.new)
        except OSError as error:
            check_error(error, number, work.folder)
            raised = True
    if not raised:
        # What failed was not needed: to remove what others left, for example.
        assert work.value(name) == 2.0
        return failures[0]
    assert work.contents().keys() == whole.keys()
    if name not in ("whole", "a.weights.json"):  # whose files are replaced one by one
        assert work.contents() == whole
    work.save(name, work.new)
    assert work.value(name) == 2.0
    return failures[0]


def load_from_it(work, disk, name, number, before):
    work.save(name, work.old)
    whole = work.contents()
    with disk.failing(number, before) as failures:
        try:
            assert work.value(name) == 1.0
        except OSError as error:
            check_error(error, number, work.folder)
    assert work.contents() == whole
    assert work.value(name) == 1.0
    return failures[0]


def fit_on_it(work, disk, name, number, before):
    with disk.failing(number, before) as failures:
        try:
            work.fit()
        except OSError as error:
            check_error(error, number, work.folder)
    assert all(np.isfinite(weight).all() for weight in work.new.get_weights())
    assert not list(work.folder.rglob("*.part"))
    work.fit()
    assert len((work.folder / "log.csv").read_text().splitlines()) == 4
    for path in work.folder.glob("*.weights.h5"):
        work.target.load_weights(path)
    return failures[0]


def data_on_it(work, disk, name, number, before):
    """Writes and reads samples in tar shards, their index, and a cache."""

    def numbers():
        samples = ({"__key__": str(i), "cls": i} for i in range(5))
        shards = keras.utils.write_tar_shards(samples, work.folder / "%d.tar", 3)
        dataset = keras.data.Dataset.from_tar(shards, index_file=work.folder / "index")
        if name == "kept":
            dataset = dataset.cache(work.folder / "cache")
        elif name == "passed":  # elements that have no numbers
            dataset = dataset.map(lambda sample: sample).cache(work.folder / "cache")
        return [sample["cls"] for _ in range(2) for sample in dataset]

    for path in work.folder.iterdir():
        path.unlink()
    with disk.failing(number, before) as failures:
        try:
            assert numbers() == [*range(5), *range(5)]
        except OSError as error:
            check_error(error, number, work.folder)
    gc.collect()
    assert not list(work.folder.glob("*.part"))
    for path in work.folder.glob("cache"):  # it is whole, but its shards are written anew
        path.unlink()
    assert numbers() == [*range(5), *range(5)]
    return failures[0]


KINDS = {
    **{f"save {name}": save_on_it for name in NAMES},
    **{f"load {name}": load_from_it for name in NAMES},
    "fit": fit_on_it,
    **{f"data {name}": data_on_it for name in ("read", "kept", "passed")},
}


def run(library, folder, seed, most):
    """Lets calls of each kind of work fail: all of them, or `most` that are drawn."""
    rng = np.random.default_rng(seed)
    faults, count = [], 0
    for kind, tried in KINDS.items():
        name = kind.partition(" ")[2]
        for number in ERRORS:
            inner = Path(folder) / f"{kind}-{number}".replace(" ", "-")
            inner.mkdir()
            work, disk = Work(inner), Disk(library, inner)
            tried(work, disk, name, number, 10**9)  # what is imported late is there then
            calls = disk.seen()
            places = range(calls) if most is None else rng.permutation(calls)[:most]
            for place in places:
                count += 1
                try:
                    failures = tried(work, disk, name, number, int(place))
                    # A `fit` that goes on does less than one that begins.
                    assert failures or kind == "fit", "no call has failed"
                except Exception:
                    text = traceback.format_exc()[-1500:]
                    faults.append(f"{kind}, {errno.errorcode[number]}, call {place}: {text}")
    return count, faults


if __name__ == "__main__":
    arguments = sys.argv[1:]
    most = int(arguments[3]) if len(arguments) > 3 else None
    number_of_calls, what_was_wrong = run(arguments[0], arguments[1], int(arguments[2]), most)
    print(json.dumps({"count": number_of_calls, "faults": what_was_wrong}))
