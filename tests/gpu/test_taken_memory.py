"""Another process takes the GPU's memory: an error says so, and training goes on afterwards."""

import os
import subprocess
import sys

import numpy as np
import pytest

import kerascnn as keras

ROOM = 512 << 20  # what the other process leaves
BATCH = 8_000  # with activations of 3.2 GB

TAKE = f"""
import sys
import kerascnn as keras

bytes_left = keras.config.memory_stats()["available"] - {ROOM}
taken = keras.ops.ones((bytes_left // 4,))
keras.config.synchronize()
print("taken", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def other_process(cuda_device):
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"KERASCNN_DEVICE": cuda_device},
    )
    yield process
    process.kill()
    process.communicate()


def test_memory_that_another_process_has_taken(cuda_device, other_process):
    with keras.device(cuda_device):
        model = keras.Sequential(
            [
                keras.Input((1,)),
                keras.layers.Dense(100_000, activation="relu"),
                keras.layers.Dense(1),
            ]
        )
        model.compile("sgd", "mse")
        x = np.linspace(0, 1, BATCH, dtype="float32")[:, None]
        model.fit(x[:32], x[:32], verbose=0)
        weights = model.get_weights()
        keras.config.release_cached_memory()
        assert other_process.stdout.readline() == "taken\n"
        for call in (
            lambda: model.fit(x, x, batch_size=BATCH, verbose=0),
            lambda: model.predict(x, batch_size=BATCH, verbose=0),
            lambda: keras.ops.ones((ROOM,)),
        ):
            with pytest.raises(keras.OutOfMemoryError, match="ut of memory on cuda:0"):
                call()
        for ours, before in zip(model.get_weights(), weights, strict=True):
            np.testing.assert_array_equal(ours, before)
        model.fit(x[:32], x[:32], batch_size=8, verbose=0)  # as there is room for that
        other_process.communicate("end\n")
        assert other_process.returncode == 0
        model.fit(x, x, batch_size=BATCH, verbose=0)
        assert np.isfinite(model.predict(x, batch_size=BATCH, verbose=0)).all()
