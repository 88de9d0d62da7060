"""Trains with kerascnn, or with Keras on one of its backends: the same script, plain `fit`.

The variant is "kerascnn", or the name of Keras' backend. kerascnn also has "generator", whose
batches come from a Python generator, and "hooks", whose callback has a hook for batches that reads
nothing.
"""

import importlib
import os

import numpy as np
from keras_nets import build, epoch_times
from nets import Case, Data
from worker import main

OWN = ("kerascnn", "kerascnn-generator", "kerascnn-hooks")


def batch_hook(keras):
    class BatchHook(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.last = batch

    return BatchHook()


class KerasModel:
    def __init__(self, peer: "KerasPeer", case: Case):
        self._peer, self._batch_size = peer, case.batch_size
        self._model = build(peer.keras, case, peer.is_own)

    def run_epochs(self, count: int) -> list[float]:
        peer, times = self._peer, epoch_times(self._peer.keras)
        callbacks = [times]
        if peer.variant == "kerascnn-hooks":
            callbacks.append(batch_hook(peer.keras))
        if peer.variant == "kerascnn-generator":
            steps = -(-len(peer.x) // self._batch_size)
            self._model.fit(
                self._batches(), epochs=count, steps_per_epoch=steps, verbose=0, callbacks=callbacks
            )
        else:
            self._model.fit(
                peer.x,
                peer.y,
                batch_size=self._batch_size,
                epochs=count,
                verbose=0,
                callbacks=callbacks,
            )
        return times.milliseconds

    def _batches(self):
        """Yields batches of shuffled samples forever; the last batch of each pass is smaller."""
        x, y, size = self._peer.x, self._peer.y, self._batch_size
        random = np.random.default_rng(0)
        while True:
            order = random.permutation(len(x))
            for first in range(0, len(x), size):
                chosen = order[first : first + size]
                yield x[chosen], y[chosen]

    def predict(self, x, batch_size):
        return self._model.predict(self._peer.images(x), batch_size=batch_size, verbose=0)

    def evaluate(self, x, y, batch_size):
        images, labels = self._peer.images(x), y.astype("int32")
        loss, accuracy = self._model.evaluate(images, labels, batch_size=batch_size, verbose=0)
        return float(loss), float(accuracy)


def require_device(backend: str, device: str) -> None:
    """Raises an error if the backend would silently train on another device."""
    if device == "cpu":
        return
    library = importlib.import_module(backend)
    if backend == "tensorflow":
        found = bool(library.config.list_physical_devices("GPU"))
    elif backend == "jax":
        found = library.default_backend() == "gpu"
    else:
        found = library.cuda.is_available()
    if not found:
        raise RuntimeError(f"{backend} {library.__version__} finds no GPU")


class KerasPeer:
    def __init__(self, variant: str, data: Data, device: str):
        self.variant = variant
        self.is_own = variant in OWN
        if not self.is_own:
            os.environ["KERAS_BACKEND"] = variant
            require_device(variant, device)
        self.keras = importlib.import_module("kerascnn" if self.is_own else "keras")
        if self.is_own:
            self.keras.config.set_device(device)
        elif variant == "torch":
            importlib.import_module("torch").set_float32_matmul_precision("high")
        self.keras.utils.set_random_seed(0)
        self.x, self.y = self.images(data.x_train), data.y_train.astype("int32")

    def images(self, x):
        # Keras is fastest with images that are scaled beforehand.
        return x[..., None] if self.is_own else x.astype("float32")[..., None] / 255

    def versions(self) -> dict[str, str]:
        found = {self.keras.__name__: self.keras.__version__}
        if not self.is_own:
            found[self.variant] = importlib.import_module(self.variant).__version__
        return found

    def make(self, case: Case) -> KerasModel:
        return KerasModel(self, case)

    def reset_peak(self) -> None:
        if self.is_own:
            self.keras.config.reset_peak_memory()

    def peak_bytes(self) -> int | None:
        return self.keras.config.memory_stats()["peak"] if self.is_own else None


if __name__ == "__main__":
    main(KerasPeer)
