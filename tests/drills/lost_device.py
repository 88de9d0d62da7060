"""Loses the GPU of this process, and looks at what still goes; test_lost_devices.py starts it."""

import sys
from pathlib import Path

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import callbacks, layers, ops
from kerascnn.saving import nested_state

EPOCHS, LOST_EPOCH = 5, 3
# 4 TiB behind the result is memory of nobody.
SOURCE = """
__global__ void careless(const x_t* x, y_t* y, int64_t size) {
  const int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= size) return;
  const int64_t far = real(x[at]) > real(1000) ? int64_t(1) << 40 : 0;
  y[at + far] = x[at];
}
"""
careless = ops.custom_op("careless", forward=ops.KernelSource(SOURCE), gradient=lambda x, y, dy: dy)


class Careless(layers.Layer):
    def call(self, x):
        return careless(x)


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.x[index::4], self.y[index::4]


def data(is_bad=False):
    rng = np.random.default_rng(3)
    x, y = rng.random((32, 6), "float32"), rng.random((32, 2), "float32")
    if is_bad:
        x[20, 3] = 1e6
    return x, y


def fit(model, where, is_bad=False, **options):
    x, y = data(is_bad)
    arrays = {"x": Batches(x, y)} if where == "batches" else {"x": x, "y": y}
    return model.fit(**arrays, verbose=0, **options).history


def made_model():
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.Input((6,)), Careless(), layers.Dense(2)])
    model.compile("adam", "mse")
    return model


def lose(where, model, extra):
    """Trains for some epochs, and then does what loses the GPU."""
    bad_x, _ = data(is_bad=True)
    calls = {
        "op": lambda: careless(bad_x).numpy(),
        "predict": lambda: model.predict(bad_x, verbose=0),
    }

    class Bad(callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == LOST_EPOCH:
                calls[where]()

    if where in calls:
        fit(model, where, epochs=EPOCHS, callbacks=[extra, Bad()])
        return
    fit(model, where, epochs=LOST_EPOCH, callbacks=[extra])
    fit(model, where, True, initial_epoch=LOST_EPOCH, epochs=EPOCHS, callbacks=[extra])


def calls_of(model, tensor):
    """What needs the GPU; each says at once that there is none."""
    x, y = data()
    return [
        lambda: ops.add(tensor, 1).numpy(),
        lambda: ops.matmul(np.ones((3, 3)), np.ones((3, 3))).numpy(),
        lambda: careless(x).numpy(),
        tensor.numpy,
        lambda: keras.ops.convert_to_tensor(x).numpy(),
        lambda: model.fit(x, y, verbose=0),
        lambda: model.predict(x, verbose=0),
        model.get_weights,
        lambda: made_model().get_weights(),
        keras.config.synchronize,
    ]


def checked_loss(where, folder):
    model, tensor = made_model(), ops.ones((4, 4))
    with pytest.raises(keras.DeviceError, match="(?i)the GPU is lost to this process") as first:
        lose(where, model, callbacks.BackupAndRestore(folder / "backup", delete_checkpoint=False))
    text = str(first.value)
    for part in ("CUDA error cudaError", "BackupAndRestore", "KERASCNN_CUDA_GRAPHS"):
        assert part in text, text
    for call in [*calls_of(model, tensor), model.get_weights]:
        with pytest.raises(keras.DeviceError) as later:
            call()
        text = str(later.value)
        assert "is lost to this process since an error before: " in text, text
        assert "CUDA error cudaError" in text, text
    # The host goes on.
    with keras.device("cpu"):
        other = keras.Sequential([keras.Input((6,)), layers.Dense(2)])
        other.compile("sgd", "mse")
        other.fit(*data(), verbose=0)
        other.save(folder / "of the host.keras")
    [state] = (folder / "backup").glob("*.training_state.safetensors")
    values = nested_state.read(state)["variables"]
    assert values and all(np.isfinite(value).all() for value in values.values())
    print("the end", flush=True)
    sys.exit(7)


def resume(where, folder):
    model = made_model()
    backup = callbacks.BackupAndRestore(folder / "backup")
    history = fit(model, where, epochs=EPOCHS, callbacks=[backup])
    assert len(history["loss"]) == EPOCHS
    assert fit(made_model(), where, epochs=EPOCHS) == history
    keras.saving.load_model(folder / "of the host.keras")
    print("the end", flush=True)


if __name__ == "__main__":
    what, where, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    if what == "lose":
        checked_loss(where, folder)
    elif what == "resume":
        resume(where, folder)
    else:
        model = made_model()
        lose(where, model, callbacks.CSVLogger(folder / "log.csv"))
