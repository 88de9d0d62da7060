"""Another process takes the GPU's memory: an error says so, and training goes on afterwards."""

import subprocess
import sys
import time

import numpy as np
import pytest

import kerascnn as keras

ROOM = 512 << 20  # what the other process leaves
BATCH = 8_000  # with activations of 3.2 GB

# By calls of the driver, which import nothing and fill nothing. It takes memory when it is told to,
# after this process has what it needs for itself.
TAKE = f"""
import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    if status != 0:
        sys.exit(f"{{name}} returned {{status}}")

device, context = ctypes.c_int(), ctypes.c_void_p()
free, total, address = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
sys.stdin.readline()
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
taken = free.value - {ROOM}
call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(taken))
print("taken", taken, "of", total.value, flush=True)
sys.stdin.readline()
"""


class OtherProcess:
    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-c", TAKE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def take(self):
        self._process.stdin.write("take\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line.startswith("taken "), self._process.communicate()[1]
        return line.strip()

    def end(self):
        _, said = self._process.communicate("end\n")
        assert self._process.returncode == 0, said

    def kill(self):
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def other_process(cuda_device):
    process = OtherProcess()
    yield process
    process.kill()


@pytest.fixture
def report(cuda_device):
    """Prints what has happened and when, with what memory; pytest shows it after a failure."""
    start = time.perf_counter()

    def printed(*what):
        memory = keras.config.memory_stats(cuda_device)
        numbers = {key: memory[key] >> 20 for key in ("allocated", "cached", "available")}
        print(f"{time.perf_counter() - start:6.1f} s", *what, f"MiB: {numbers}", flush=True)

    return printed


def test_memory_that_another_process_has_taken(cuda_device, other_process, report):
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
        report("a small fit")
        report(other_process.take())
        for name, call in {
            "fit": lambda: model.fit(x, x, batch_size=BATCH, verbose=0),
            "predict": lambda: model.predict(x, batch_size=BATCH, verbose=0),
            "an op": lambda: keras.ops.ones((ROOM // 2,)),  # twice the room
        }.items():
            with pytest.raises(keras.OutOfMemoryError, match="ut of memory on cuda:0") as caught:
                call()
            report(name, "was refused:", str(caught.value))
            del caught  # whose frames hold what was made before the error
        for ours, before in zip(model.get_weights(), weights, strict=True):
            np.testing.assert_array_equal(ours, before)
        model.fit(x[:32], x[:32], verbose=0)  # as there is room for that
        report("a small fit in what was left")
        other_process.end()
        report("the other process has ended")
        model.fit(x, x, batch_size=BATCH, verbose=0)
        report("the large fit")
        assert np.isfinite(model.predict(x, batch_size=BATCH, verbose=0)).all()
        report("the large predict")
