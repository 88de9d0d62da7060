"""Memory, descriptors, shared memory and permissions that run out: an error, and no harm."""

import contextlib
import errno
import os
import resource
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from holdings import address_bytes, check_nothing_is_left, holdings

import kerascnn as keras
from kerascnn import callbacks, layers

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="sets limits of Linux"),
    # Python 3.12 and later warn about forks when there are threads; the workers only use NumPy.
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

SAMPLES = 1500


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y, **kwargs):
        super().__init__(**kwargs)
        self.x, self.y = x, y

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return self.x[index:90:3], self.y[index:90:3]


class Work:
    """A model whose steps, results and files need some megabytes each, and what it does."""

    def __init__(self, folder, seed, runs=True):
        # What runs out is the host's. A GPU's driver reserves more addresses than the limits leave,
        # and ends the process where it gets none.
        keras.config.set_device("cpu")
        rng = np.random.default_rng(seed)
        self.folder = folder
        self.x = rng.random((SAMPLES, 12, 12, 3), "float32")
        self.y = rng.integers(0, 10, SAMPLES)
        self.model = self.make_model()
        self.start = [v.numpy().copy() for v in self.variables()]
        if not runs:
            return
        self.model.save(folder / "whole.keras")
        self.files = {path: path.read_bytes() for path in folder.glob("*.keras")}
        self.expected = self.fit_again(), self.weights()

    def make_model(self):
        keras.utils.set_random_seed(4)
        model = keras.Sequential(
            [
                keras.Input((12, 12, 3)),
                layers.Conv2D(16, 3, activation="relu", padding="same"),
                layers.BatchNormalization(),
                layers.Conv2D(16, 3, strides=2, activation="gelu"),
                layers.Flatten(),
                layers.Dropout(0.2, seed=1),
                layers.Dense(400, activation="relu"),
                layers.Dense(10),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss)
        model.optimizer.build(model.trainable_variables)
        return model

    def variables(self):
        return [*self.model.variables, *self.model.optimizer.variables]

    def weights(self):
        return [v.numpy().tobytes() for v in self.variables()]

    def fit_again(self):
        for variable, value in zip(self.variables(), self.start, strict=True):
            variable.assign(value)
        return self.model.fit(self.x[:64], self.y[:64], shuffle=False, verbose=0).history

    def fit(self):
        self.model.fit(self.x, self.y, batch_size=500, verbose=0)

    def fit_small_batches(self):
        self.model.fit(self.x[:90], self.y[:90], batch_size=7, verbose=0)

    def evaluate(self):
        self.model.evaluate(self.x, self.y, batch_size=500, verbose=0)

    def predict(self):
        self.model.predict(self.x, batch_size=750, verbose=0)

    def new_model(self):
        self.make_model().fit(self.x[:100], self.y[:100], verbose=0)

    def single_ops(self):
        x = keras.ops.convert_to_tensor(self.x)
        with keras.GradientTape() as tape:
            tape.watch(x)
            loss = keras.ops.mean(keras.ops.square(keras.ops.tanh(x)))
        tape.gradient(loss, x)
        keras.ops.matmul(keras.ops.reshape(x, (SAMPLES, -1)), np.ones((432, 900), "float32"))

    def save(self):
        self.model.save(self.folder / "whole.keras")

    def save_h5(self):
        self.model.save_weights(self.folder / "whole.weights.h5")

    def load(self):
        keras.saving.load_model(self.folder / "whole.keras")

    def load_weights(self):
        self.model.load_weights(self.folder / "whole.keras")

    def threads(self):
        self.model.fit(Batches(self.x, self.y, workers=2), verbose=0)

    def processes(self):
        self.model.fit(Batches(self.x, self.y, workers=2, use_multiprocessing=True), verbose=0)

    def callbacks(self):
        self.model.fit(
            self.x[:50],
            self.y[:50],
            verbose=0,
            callbacks=[
                callbacks.BackupAndRestore(self.folder / "backup"),
                callbacks.CSVLogger(self.folder / "log.csv"),
            ],
        )

    def check(self):
        """The model is whole, trains as it did before, and the file it was saved to is whole."""
        assert all(np.isfinite(w).all() for w in self.model.get_weights())
        assert (self.fit_again(), self.weights()) == self.expected
        keras.saving.load_model(self.folder / "whole.keras")
        assert not list(self.folder.rglob("*.part"))

    def take_all_threads(self):
        """Starts the threads of OpenMP that the last work had no use for, or a fork has ended.

        Their number would depend on where a call has failed.
        """
        image, kernel = np.ones((1, 32, 32, 64), "float32"), np.ones((3, 3, 64, 64), "float32")
        keras.ops.conv(image, kernel, padding="same")

    def usual_holdings(self, call):
        getattr(self, call)()
        self.take_all_threads()
        return holdings()

    def check_nothing_is_left(self, before):
        self.take_all_threads()
        check_nothing_is_left(before)


@contextlib.contextmanager
def limit(kind, value):
    """Lowers the soft limit of a resource; None is for none."""
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


CALLS = [
    *("fit", "fit_small_batches", "evaluate", "predict", "new_model", "single_ops"),
    *("save", "save_h5", "load", "load_weights"),
]


def choose_threads(rng):
    """Of many threads some have their first piece of work when there is no memory left."""
    os.environ["KERASCNN_NUM_THREADS"] = str(rng.choice([2, 16]))


def run_in_little_memory(folder, call, seed, rounds, has_run):
    """Gives a call more addresses each time, from none to as many as it takes."""
    rng = np.random.default_rng(seed)
    choose_threads(rng)
    work = Work(folder, seed)
    before = work.usual_holdings(call) if has_run else None
    failed = 0
    for room in [0, *np.sort(2.0 ** rng.uniform(12, 26, rounds - 1))]:
        try:
            with limit(resource.RLIMIT_AS, address_bytes() + int(room)):
                getattr(work, call)()
        except MemoryError:
            failed += 1
        except OSError as error:
            assert error.errno == errno.ENOMEM, error
            failed += 1
        if has_run:
            work.check_nothing_is_left(before)
        work.check()
    getattr(work, call)()
    (folder / "failed").write_text(str(failed))


def run_for_the_first_time_in_little_memory(folder, call, seed, rounds):
    """The same where threads and code that come with the first step are not there yet."""
    rng = np.random.default_rng(seed)
    choose_threads(rng)
    work = Work(folder, seed, runs=False)
    for room in [0, *np.sort(2.0 ** rng.uniform(22, 27, rounds - 1))]:
        with (
            contextlib.suppress(MemoryError),
            limit(resource.RLIMIT_AS, address_bytes() + int(room)),
        ):
            getattr(work, call)()
        assert all(np.isfinite(w).all() for w in work.model.get_weights())
    getattr(work, call)()
    assert (work.fit_again(), work.weights()) == Work(folder, seed).expected


@pytest.mark.timeout(20_000)
@pytest.mark.parametrize("call", CALLS[:6])
def test_little_memory_from_the_start(tmp_path, processes, rng, amount, note, call):
    rounds, times = amount(4, 10), amount(1, 20)
    for _ in range(times):
        seed = int(rng.integers(2**31))
        code = processes(run_for_the_first_time_in_little_memory, tmp_path, call, seed, rounds)
        assert code == 0
    note(call, processes=times, limits=rounds * times)


@pytest.mark.timeout(20_000)
@pytest.mark.parametrize("has_run", [True, False], ids=["again", "first"])
@pytest.mark.parametrize("call", CALLS)
def test_little_memory(tmp_path, processes, rng, amount, note, call, has_run):
    seed, rounds = int(rng.integers(2**31)), amount(4, 60)
    assert processes(run_in_little_memory, tmp_path, call, seed, rounds, has_run) == 0
    note(call, "again" if has_run else "first", limits=rounds,
         failed=(tmp_path / "failed").read_text())  # fmt: skip


def run_without_descriptors(folder, call, seed, rounds):
    """Leaves a call none, one, two descriptors, until it has enough of them."""
    work = Work(folder, seed)
    before = work.usual_holdings(call)
    for room in range(rounds):
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(highest + 1)]
        free, taken[len(taken) - room :] = taken[len(taken) - room :], []
        for descriptor in free:
            os.close(descriptor)
        try:
            with limit(resource.RLIMIT_NOFILE, max(taken) + 1 + room):
                getattr(work, call)()
        except OSError as error:
            assert error.errno == errno.EMFILE, error
        for descriptor in taken:
            os.close(descriptor)
        work.check_nothing_is_left(before)
        work.check()


@pytest.mark.timeout(20_000)
@pytest.mark.parametrize("call", [*CALLS, "threads", "processes", "callbacks"])
def test_no_descriptors(tmp_path, processes, rng, amount, note, call):
    rounds = amount(4, 25)
    assert processes(run_without_descriptors, tmp_path, call, int(rng.integers(2**31)), rounds) == 0
    note(call, limits=rounds)


def run_without_shared_memory(folder, seed):
    """No file may grow, those in /dev/shm neither, in which locks of processes lie."""
    work = Work(folder, seed)
    before = work.usual_holdings("processes")
    with pytest.raises(OSError, match="shared memory") as caught, limit(resource.RLIMIT_FSIZE, 0):
        work.processes()
    assert "use_multiprocessing=False" in str(caught.value)
    del caught  # whose frames hold what was made before the error
    work.check_nothing_is_left(before)
    work.check()
    work.threads()
    work.processes()


def test_no_shared_memory(tmp_path, processes, rng):
    assert processes(run_without_shared_memory, tmp_path, int(rng.integers(2**31))) == 0


def run_without_threads():
    os.environ["KERASCNN_NUM_THREADS"] = "4"
    keras.config.set_device("cpu")
    images, kernel = np.ones((8, 32, 32, 64), "float32"), np.ones((3, 3, 64, 64), "float32")
    keras.ops.conv(images[:1, :3, :3], kernel)  # imports what it needs
    if os.getuid() == 0:
        os.setresuid(65534, 65534, 0)  # root may have as many as it likes
    with limit(resource.RLIMIT_NPROC, 1):
        # The pool's caller computes alone. One image is for OpenMP's threads, without which its
        # library would end the process.
        keras.ops.conv(images, kernel, padding="same")
        for _ in range(2):
            with pytest.raises(keras.DeviceError, match="needs 3 more threads.*ulimit -u"):
                keras.ops.conv(images[:1], kernel, padding="same")
    found = keras.ops.conv(images[:1], kernel, padding="same")
    assert np.asarray(found)[0, 1:-1, 1:-1].min() == 9 * 64


def test_no_threads(processes):
    assert processes(run_without_threads) == 0


def run_without_permission(folder, seed):
    work = Work(folder, seed)
    work.save_h5()
    work.callbacks()
    files = {path: path.read_bytes() for path in folder.iterdir()}
    folder.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)  # root may write anywhere
    for call in (work.save, work.save_h5, work.callbacks):
        with pytest.raises(OSError, match=str(folder)) as caught:
            call()
        assert caught.value.errno == errno.EACCES, caught.value
    assert {path: path.read_bytes() for path in folder.iterdir()} == files
    if os.getuid() == 0:
        os.seteuid(0)
    folder.chmod(0o700)
    work.check()
    work.save()
    work.check()


def test_a_folder_that_may_only_be_read(processes, rng):
    # The folders of `tmp_path` are for one user only.
    folder = Path(tempfile.mkdtemp())
    try:
        assert processes(run_without_permission, folder, int(rng.integers(2**31))) == 0
    finally:
        shutil.rmtree(folder)
