"""Saves weights while training."""

import os
import warnings
from typing import Any

import numpy as np

from kerascnn.callbacks.monitor_callback import MonitorCallback
from kerascnn.distribution import replicas
from kerascnn.distribution.sharded_state import saving_together
from kerascnn.utils.io_utils import print_msg


class ModelCheckpoint(MonitorCallback):
    """Saves the model or its weights, at every epoch's end or after a number of batches.

    Args:
        filepath: where to save; `{epoch}`, `{batch}` and the names in the logs are filled in, as in
            `"{epoch:02d}-{val_loss:.2f}.keras"`. The name ends with `.keras` or `.h5` for a model,
            `.weights.h5` or `.safetensors` for weights.
        monitor: the value's name in the logs that `save_best_only` looks at.
        verbose: 1 prints what is saved.
        save_best_only: whether to save only where the monitored value improved.
        save_weights_only: whether to save weights (`model.save_weights`) or all (`model.save`, for
            models that have it).
        mode: `"min"`, `"max"` or `"auto"`.
        save_freq: `"epoch"`, or a number of batches; then fit runs step by step.
        initial_value_threshold: save only what is better than this.

    Raises:
        ValueError: for an unknown `save_freq` or a wrong ending of `filepath`, and at the start of
            training for a model that can't be saved as a whole.

    >>> import pathlib, tempfile
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = folder + "/{epoch}.weights.h5"
    ...     save = keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
    ...     x, y = np.ones((4, 2)), np.ones((4, 1))
    ...     history = model.fit(x, y, epochs=2, callbacks=save, verbose=0)
    ...     print(sorted(file.name for file in pathlib.Path(folder).iterdir()))
    ['1.weights.h5', '2.weights.h5']
    """

    def __init__(
        self,
        filepath: str | os.PathLike,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        initial_value_threshold: float | None = None,
    ):
        super().__init__(monitor, mode, initial_value_threshold)
        self.filepath = os.fspath(filepath)
        self.verbose = verbose
        self.save_best_only = save_best_only
        self.save_weights_only = save_weights_only
        self.save_freq = save_freq
        self._batches_since_saving = 0
        self._epoch = 0
        if save_freq != "epoch" and not isinstance(save_freq, int):
            raise ValueError(
                f"`save_freq` has to be 'epoch' or a number of batches. Received: {save_freq!r}"
            )
        endings = (".weights.h5", ".safetensors") if save_weights_only else (".keras", ".h5")
        if not self.filepath.endswith(endings):
            raise ValueError(
                f"ModelCheckpoint with save_weights_only={save_weights_only} needs a file name "
                f"that ends with {' or '.join(endings)}. Received: filepath={self.filepath}"
            )

    def set_model(self, model: Any) -> None:
        # An error before training is better than one after its first epoch.
        if not self.save_weights_only and not hasattr(model, "save"):
            raise ValueError(
                f"The model '{model.name}' can only save its weights: pass save_weights_only=True "
                "and a filepath that ends with .weights.safetensors to ModelCheckpoint."
            )
        super().set_model(model)

    def uses_batch_hooks(self, kind: str) -> bool:
        if type(self).on_train_batch_end is ModelCheckpoint.on_train_batch_end:
            return kind == "train" and self.save_freq != "epoch"
        return super().uses_batch_hooks(kind)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "batches_since_saving": self._batches_since_saving}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best = state["best"]
        self._batches_since_saving = state["batches_since_saving"]

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if not isinstance(self.save_freq, int):
            return
        self._batches_since_saving += 1
        if self._batches_since_saving >= self.save_freq:
            self._batches_since_saving = 0
            self._save(self._epoch, batch, logs)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if self.monitor_op is None:
            self._set_monitor_op()
        if self.save_freq == "epoch":
            self._save(epoch, None, logs)

    def _save(self, epoch: int, batch: int | None, logs: dict | None) -> None:
        logs = dict(logs or {})
        path = self._file_path(epoch, batch, logs)
        if not self._should_save(epoch, logs, path):
            return
        with saving_together(self.model):
            if replicas.is_first():
                self._write(path)
        replicas.wait()
        if self.verbose > 0:
            print_msg(f"\nEpoch {epoch + 1}: finished saving model to {path}")

    def _write(self, path: str) -> None:
        if os.path.isdir(path):
            raise OSError(f"ModelCheckpoint can't save to {path}: it is a folder.")
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        if self.save_weights_only:
            self.model.save_weights(path, overwrite=True)
        else:
            self.model.save(path, overwrite=True)

    def _should_save(self, epoch: int, logs: dict[str, Any], path: str) -> bool:
        if not self.save_best_only:
            if self.verbose > 0:
                print_msg(f"\nEpoch {epoch + 1}: saving model to {path}")
            return True
        current = logs.get(self.monitor)
        if current is None:
            warnings.warn(
                f"ModelCheckpoint watches '{self.monitor}', which is not in the logs "
                f"({', '.join(logs)}): it saves without comparing.",
                stacklevel=2,
            )
            return True
        if np.ndim(current) > 0:
            warnings.warn(
                f"ModelCheckpoint watches '{self.monitor}', which is no single number: it saves "
                f"without comparing. Received: {current}",
                stacklevel=2,
            )
            return True
        best = "None" if self.best is None else f"{self.best:.5f}"
        if self._is_improvement(current, self.best):
            self.best = current
            if self.verbose > 0:
                print_msg(
                    f"\nEpoch {epoch + 1}: {self.monitor} improved from {best} to {current:.5f}, "
                    f"saving model to {path}"
                )
            return True
        if self.verbose > 0:
            print_msg(f"\nEpoch {epoch + 1}: {self.monitor} did not improve from {best}")
        return False

    def _file_path(self, epoch: int, batch: int | None, logs: dict[str, Any]) -> str:
        values = {"epoch": epoch + 1, **logs}
        if batch is not None:
            values.setdefault("batch", batch + 1)
        try:
            return self.filepath.format(**values)
        except KeyError as error:
            raise KeyError(
                f"The file name {self.filepath!r} asks for {error}, but there are only "
                f"{', '.join(values)}."
            ) from error
