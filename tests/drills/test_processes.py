"""Processes that end, or whose workers are killed, in the middle of training: none is left."""

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from holdings import PATIENCE, check_nothing_is_left, holdings

import kerascnn as keras
from kerascnn import callbacks, layers

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    # Python 3.12 and later warn about forks when there are threads; the workers only use NumPy.
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


class Endless(keras.utils.PyDataset):
    """Its workers note that they are there; `on_batch` runs in the worker for each batch."""

    def __init__(self, folder=None, on_batch=None, **kwargs):
        super().__init__(**kwargs)
        self.folder, self.on_batch = folder, on_batch

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        if self.folder is not None:
            (self.folder / f"{os.getpid()}").touch()
        if self.on_batch is not None:
            self.on_batch(index)
        rng = np.random.default_rng(index)
        return rng.random((4, 5), "float32"), rng.random((4, 2), "float32")


def small_model():
    keras.utils.set_random_seed(2)
    model = keras.Sequential([keras.Input((5,)), layers.Dense(8, activation="relu")])
    model.add(layers.Dense(2))
    model.compile("adam", "mse")
    return model


WORKERS = {
    "none": {},
    "threads": {"workers": 2},
    "processes": {"workers": 2, "use_multiprocessing": True},
}


def leave(*_):
    raise SystemExit(7)


def default_sigterm():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def sigterm_that_leaves():
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


def storm():
    """One SIGTERM after another, also while the first is being obeyed."""
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.0007)


# What comes before, what ends the process in a hook of a step, and the exit codes it may have: the
# signal's number where the system ends it. A storm may go on while Python itself ends, also behind
# the end of its handlers.
ENDS = {
    "sys.exit": (None, leave, [7]),
    "os._exit": (None, lambda: os._exit(9), [9]),
    "kill": (None, lambda: os.kill(os.getpid(), signal.SIGKILL), [-signal.SIGKILL]),
    "SIGTERM": (
        default_sigterm,
        lambda: os.kill(os.getpid(), signal.SIGTERM),
        [-signal.SIGTERM],
    ),
    "SIGTERM, handled": (
        sigterm_that_leaves,
        lambda: os.kill(os.getpid(), signal.SIGTERM),
        [7],
    ),
    "SIGTERM, a storm": (sigterm_that_leaves, storm, [7, 1, -signal.SIGALRM, -signal.SIGTERM]),
}


def end_in_the_middle(folder, how, workers, step, device):
    os.setsid()  # by which the process' children are found
    prepare, end, _ = ENDS[how]

    class End(callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == step:
                end()

    with keras.device(device):
        model = small_model()
    (folder / "session").write_text(str(os.getpid()))
    if prepare is not None:
        prepare()
    model.fit(Endless(folder, **WORKERS[workers]), epochs=10**6, verbose=0, callbacks=[End()])


def members(session):
    """The processes of a session, without those that have ended and nobody has asked about."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def wait_for_the_end_of(session):
    end = time.monotonic() + PATIENCE
    while left := members(session):
        if time.monotonic() > end:
            for process in left:
                os.kill(process, signal.SIGKILL)
            pytest.fail(f"the processes {left} are left")
        time.sleep(0.01)


@pytest.mark.timeout(20_000)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("how", ENDS)
def test_a_process_that_ends_leaves_none(
    tmp_path, how, workers, device, processes, rng, amount, note
):
    rounds = amount(1, 50)
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        code = processes(end_in_the_middle, folder, how, workers, int(rng.integers(30)), device)
        assert code in ENDS[how][2]
        session = int((folder / "session").read_text())
        wait_for_the_end_of(session)
        makers = {path.name for path in folder.iterdir()} - {"session"}
        assert makers.isdisjoint({str(session)}) == (workers == "processes")
    note(how, workers, device, processes=rounds)


def killed_workers(folder, seed, rounds, device):
    """Kills one of the workers at a random moment of `fit`, again and again."""
    rng = np.random.default_rng(seed)
    parent = os.getpid()

    def on_batch(index):
        if index == left and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    with keras.device(device):
        model, alone = small_model(), small_model()
    start = model.get_weights()
    expected = alone.fit(Endless(), steps_per_epoch=20, shuffle=False, verbose=0).history
    options = {"steps_per_epoch": 20, "shuffle": False, "verbose": 0}
    left = None
    data = Endless(None, on_batch, workers=2, use_multiprocessing=True)
    model.fit(data, **options)
    before = holdings()
    for _ in range(rounds):
        left = int(rng.integers(20))
        with pytest.raises(RuntimeError, match="worker process of the data set Endless died"):
            model.fit(data, **options)
        check_nothing_is_left(before)
        left = None
        model.set_weights(start)
        for variable in model.optimizer.variables:
            variable.assign(0 * variable.value if variable.name != "learning_rate" else variable)
        assert model.fit(data, **options).history == expected


@pytest.mark.timeout(20_000)
def test_killed_workers(tmp_path, device, processes, rng, amount, note):
    rounds = amount(3, 100)
    seed = int(rng.integers(2**31))
    assert processes(killed_workers, tmp_path, seed, rounds, device) == 0
    note("killed workers", device, kills=rounds)


def predict_as_told(weights, x, results):
    model = small_model()
    model.set_weights(weights)
    results.put(model.predict(x, verbose=0))


def test_a_process_is_started_in_the_middle(device, rng):
    """By `spawn`, which is the way on a GPU; test_threads.py forks."""
    x = rng.random((8, 5), "float32")

    class Start(callbacks.Callback):
        results = None

        def on_train_batch_end(self, batch, logs=None):
            if self.results is not None:
                return
            self.expected = self.model.predict(x, verbose=0)
            context = multiprocessing.get_context("spawn")
            queue = context.SimpleQueue()
            child = context.Process(
                target=predict_as_told, args=(self.model.get_weights(), x, queue)
            )
            child.start()
            self.results = queue.get()
            child.join()
            self.code = child.exitcode

    with keras.device(device):
        model, alone = small_model(), small_model()
    options = {"steps_per_epoch": 5, "epochs": 2, "shuffle": False, "verbose": 0}
    expected = alone.fit(Endless(), **options).history
    start = Start()
    assert model.fit(Endless(), **options, callbacks=[start]).history == expected
    assert start.code == 0
    # The child computes on the default device, which may be another. Terms of about 1 are added up,
    # 14 of them, and may cancel: 14 roundings of 6e-8.
    np.testing.assert_allclose(start.results, start.expected, rtol=1e-5, atol=1e-6)
