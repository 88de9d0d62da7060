"""A training in which processes fail, on purpose.

    mpirun -n 3 python faults.py PLAN FOLDER

PLAN has what goes wrong in each start of the training, separated by commas: `KIND@RANK:STEP`, for
what process RANK does before its step STEP (see `FAULTS`), or in what it is unlike the others.
After these nothing goes wrong; `none` is such a plan. From that step on processes wait for one
another for as many seconds as KERASCNN_TEST_PATIENCE says, where it is set. FOLDER counts the
starts that went wrong and has a line for each step of the first process. The state of the training
is kept there too, from which the next one goes on, and in the end the weights.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import kerascnn as keras
from kerascnn.distribution import processes


def raises(mark):
    raise ArithmeticError("out of luck")


def killed(mark):
    os.kill(os.getpid(), signal.SIGKILL)


def stalls(mark):
    os.kill(os.getpid(), signal.SIGSTOP)


def sleeps(mark):
    time.sleep(3600)


def leaves(mark):
    sys.exit(0)


def waits(mark):
    """Gives the test the time to do something to the network, and goes on; all processes do so."""
    mark.with_name(f"waits-{keras.distribution.process_id()}").touch()
    while not mark.with_name("go").exists():
        time.sleep(0.01)


FAULTS = {fault.__name__: fault for fault in (raises, killed, stalls, sleeps, leaves, waits)}


class FailAt(keras.callbacks.Callback):
    """Does something before one step in one process, and says so in a file first."""

    def __init__(self, rank, step, fault, mark):
        super().__init__()
        self.rank, self.left, self.fault, self.mark = rank, step, fault, mark

    def on_train_batch_begin(self, batch, logs=None):
        if self.left == 0:
            is_own = keras.distribution.process_id() == self.rank
            if is_own:
                self.mark.touch()
            if is_own or self.fault is waits:
                self.fault(self.mark)
            # Only now, so that nobody is given up who comes late for another reason.
            if "KERASCNN_TEST_PATIENCE" in os.environ:
                processes.engine().patience = float(os.environ["KERASCNN_TEST_PATIENCE"])
        self.left -= 1


class Steps(keras.callbacks.Callback):
    """Writes down when the first process begins which step, as it has begun so many times."""

    first_process_only = True

    def __init__(self, start, path, steps_of_epoch):
        super().__init__()
        self.start, self.path, self.steps_of_epoch = start, path, steps_of_epoch

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        with self.path.open("a") as file:
            step = self.epoch * self.steps_of_epoch + batch
            file.write(f"{self.start} {step} {time.time()}\n")


def fail_at(plan, folder):
    """The callbacks, and the kind and rank, of what goes wrong in this start of the training."""
    start = len(list(folder.glob("failed-*")))
    parts = [] if plan == "none" else plan.split(",")
    kind, rank, step = "none", -1, -1
    if start < len(parts):
        kind, _, place = parts[start].partition("@")
        rank, step = map(int, place.split(":"))
    callbacks = [Steps(start, folder / "steps", 3)]
    if kind in FAULTS:
        callbacks.append(FailAt(rank, step, FAULTS[kind], folder / f"failed-{start}"))
    return callbacks, kind, rank


def dense():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
    return model


def train(plan, folder, keeper):
    """Trains for 30 steps, of which `keeper` keeps the state."""
    folder = Path(folder)
    keras.distribution.initialize()
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    callbacks, kind, odd = fail_at(plan, folder)
    own = keras.distribution.process_id() == odd
    keras.utils.set_random_seed(1)
    model = dense()
    samples, epochs = 24, 10
    if kind == "weights" and own:
        model.set_weights([2 * w for w in model.get_weights()])
    if kind == "data" and own:
        samples = 32
    if kind == "epochs" and own:
        epochs = 11
    if kind == "dtype" and own:
        keras.config.set_floatx("float64")
        model = dense()
    x, y = np.ones((samples, 3), "float32"), np.ones((samples, 2), "float32")
    x *= np.arange(samples)[:, None] / samples
    batch_size = 2 if kind == "batch" else 8
    model.fit(x, y, batch_size, epochs=epochs, callbacks=[*callbacks, keeper], verbose=0)
    if keras.distribution.process_id() == 0:
        np.save(folder / "weights.npy", np.concatenate([w.ravel() for w in model.get_weights()]))
    print("trained", flush=True)


if __name__ == "__main__":
    plan, folder = sys.argv[1:]
    train(plan, folder, keras.callbacks.BackupAndRestore(Path(folder) / "state", save_freq=2))
