"""A training whose epochs are one loop on a GPU each, longer than processes wait for one another.

    torchrun --nproc-per-node 2 long_loops.py KIND FOLDER

KIND is what the second process does in its second epoch: `nothing`, `sleeps` before its loop, so
that the first one's waits in its first sum, or `killed` in the middle of its loop.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import kerascnn as keras

STEPS, BATCH_SIZE = 120_000, 8


class InSecondEpoch(keras.callbacks.Callback):
    def __init__(self, kind, mark):
        super().__init__()
        self.kind, self.mark = kind, mark

    def on_epoch_begin(self, epoch, logs=None):
        self.begin = time.monotonic()
        if epoch == 0 or keras.distribution.process_id() == 0:
            return
        self.mark.write_text(str(time.time()))
        if self.kind == "sleeps":
            time.sleep(3600)
        if self.kind == "killed":
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()

    def on_epoch_end(self, epoch, logs=None):
        print(f"an epoch of {time.monotonic() - self.begin:.2f} seconds", flush=True)


def main(kind, folder):
    keras.distribution.initialize()
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    x = np.ones((STEPS * BATCH_SIZE, 3), "float32")
    before = keras.config.launch_stats()["graph_launches"]
    callback = InSecondEpoch(kind, Path(folder) / "second_epoch")
    model.fit(x, x[:, :2], BATCH_SIZE, epochs=2, callbacks=[callback], verbose=0)
    launches = keras.config.launch_stats()["graph_launches"] - before
    print(f"trained with {launches} launches", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
