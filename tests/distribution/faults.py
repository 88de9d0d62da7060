"""A training in which one process fails, on purpose.

    mpirun -n 3 python faults.py KIND RANK STEP FOLDER

Process RANK does what KIND says before step STEP (see `FAULTS`). Each leaves a file in FOLDER,
named by its number in the system. With KIND "killed" or "none" the state of the training is kept in
FOLDER too, from which the next one goes on, and so are the weights in the end.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import kerascnn as keras


def raises():
    raise ArithmeticError("out of luck")


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def stalls():
    os.kill(os.getpid(), signal.SIGSTOP)


def sleeps():
    time.sleep(3600)


def leaves():
    sys.exit(0)


FAULTS = {fault.__name__: fault for fault in (raises, killed, stalls, sleeps, leaves)}


class FailAt(keras.callbacks.Callback):
    """Does something before one step in one process."""

    def __init__(self, rank, step, fault):
        super().__init__()
        self.rank, self.left, self.fault = rank, step, fault

    def on_train_batch_begin(self, batch, logs=None):
        if keras.distribution.process_id() == self.rank and self.left == 0:
            self.fault()
        self.left -= 1


def main(kind, rank, step, folder):
    keras.distribution.initialize()
    (Path(folder) / str(os.getpid())).touch()
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    own = keras.distribution.process_id() == int(rank)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    samples, epochs = 24, 10
    if kind == "weights" and own:
        model.set_weights([2 * w for w in model.get_weights()])
    if kind == "data" and own:
        samples = 32
    if kind == "epochs" and own:
        epochs = 11
    if kind == "dtype" and own:
        keras.config.set_floatx("float64")
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
    x, y = np.ones((samples, 3), "float32"), np.ones((samples, 2), "float32")
    callbacks = [FailAt(int(rank), int(step), FAULTS[kind])] if kind in FAULTS else []
    folder = Path(folder)
    if kind in ("killed", "none"):
        callbacks.append(keras.callbacks.BackupAndRestore(folder / "state", save_freq=2))
    batch_size = 2 if kind == "batch" else 8
    model.fit(x, y, batch_size, epochs=epochs, callbacks=callbacks, verbose=0)
    if keras.distribution.process_id() == 0:
        np.save(folder / "weights.npy", np.concatenate([w.ravel() for w in model.get_weights()]))
    print("trained", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
