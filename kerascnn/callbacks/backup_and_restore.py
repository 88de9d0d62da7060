"""Continues a training that was interrupted."""

import os
import shutil
from pathlib import Path
from typing import Any

from kerascnn.callbacks.callback import Callback
from kerascnn.distribution import replicas

_STATE = "latest.training_state.safetensors"


class BackupAndRestore(Callback):
    """Keeps the state of a training in a file, from which the next `fit` goes on where an
    interrupted one ended.

    A training that was interrupted (by an error, a kill, a power failure) and one that was not end
    with the same bits, on one device and with the same versions: weights, history, and the files of
    `CSVLogger` and `TensorBoard`. The state is the weights and the optimizer's state, the epoch and
    the step in it with the metrics so far, the places in the sequences of random numbers (those of
    layers, of orders of data, of Python, NumPy and PyTorch), the place in the data, and what
    callbacks know. It is one file that is replaced as a whole and has a checksum: an interruption
    leaves the old state or the new one. When `fit` ends the file is removed.

    Give the next `fit` the same arguments. Of data:

    - Arrays, a `PyDataset` and files of a folder go on with the next batch. A `PyDataset` that
      changes itself in `on_epoch_end` needs `state_dict()` and `load_state_dict(state)`, as
      callbacks have them, since a new one has not seen the epochs before.
    - Of other data sets, a `DataLoader` or a generator, the batches that were taken are made again
      and left out, from where random generators were. One with a `state_dict()` of its own, such as
      torchdata's `StatefulDataLoader`, goes on by itself.
    - Numbers that worker processes or threads draw for their batches are theirs to repeat.

    Where several processes train one model, the first one keeps the state and gives it to the
    others. Another number of processes goes on from it too, to rounding.

    It is called after all other callbacks, wherever it stands, so that the state has what they
    know. Those of your own may keep something too, see `Callback.state_dict`.

    Args:
        backup_dir: a folder for this training alone; it is removed when `fit` ends.
        save_freq: `"epoch"`, or a number of batches, after which `fit` saves within epochs too (and
            runs step by step).
        double_checkpoint: whether to keep the state before the last one too, which is used where
            the last one can't be read.
        delete_checkpoint: whether to remove the folder when `fit` ends.

    Raises:
        ValueError: for an empty `backup_dir` or another `save_freq`; in `fit` for a model that is
            not built, or a state that is damaged or does not fit the model.

    >>> import tempfile
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x, y = np.zeros((4, 2)), np.zeros((4, 1))
    >>> def interrupt(epoch, logs):
    ...     if epoch == 2:
    ...         raise RuntimeError("out of time")
    >>> stop = keras.callbacks.LambdaCallback(on_epoch_begin=interrupt)
    >>> backup = keras.callbacks.BackupAndRestore(tempfile.mkdtemp())
    >>> try:
    ...     _ = model.fit(x, y, epochs=5, callbacks=[backup, stop], verbose=0)
    ... except RuntimeError:
    ...     pass
    >>> model.fit(x, y, epochs=5, callbacks=[backup], verbose=0).epoch
    [0, 1, 2, 3, 4]
    """

    _comes_last = True

    def __init__(
        self,
        backup_dir: str | os.PathLike,
        save_freq: str | int = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
    ) -> None:
        super().__init__()
        if not backup_dir:
            raise ValueError("BackupAndRestore needs a `backup_dir`. Received: an empty one.")
        if save_freq != "epoch" and not isinstance(save_freq, int):
            raise ValueError(
                f"`save_freq` has to be 'epoch' or a number of batches. Received: {save_freq!r}"
            )
        self.backup_dir = os.fspath(backup_dir)
        self.save_freq = save_freq
        self.double_checkpoint = double_checkpoint
        self.delete_checkpoint = delete_checkpoint
        self._path = Path(self.backup_dir) / _STATE
        self._previous = self._path.with_name(f"previous.{_STATE}")
        self._batches_since_saving = 0
        self._last_batch = 0
        self._own_loop: Any = None

    def uses_batch_hooks(self, kind: str) -> bool:
        if type(self).on_train_batch_end is BackupAndRestore.on_train_batch_end:
            return kind == "train" and self._saves_in_epochs
        return super().uses_batch_hooks(kind)

    @property
    def _saves_in_epochs(self) -> bool:
        return self.save_freq != "epoch" and self.save_freq is not False

    @property
    def _training(self) -> Any:
        """The fit that runs, or what stands for it in a loop of the user's own."""
        return self.model._training or self._own_loop

    def on_train_begin(self, logs: dict | None = None) -> None:
        if not self.model.built:
            raise ValueError(
                "BackupAndRestore needs a model that is built before fit: give it a keras.Input, "
                f"or call it on a batch of data. Model '{self.model.name}' is not built."
            )
        from kerascnn.training.resumption import Training

        self._batches_since_saving = self._last_batch = 0
        self._own_loop = Training(self.model)
        self._training.keep_places()
        state = self._last_state()
        if state is not None:
            self._training.restore(state, self.backup_dir)

    def state_dict(self) -> dict[str, Any]:
        return {"last_batch": self._last_batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._last_batch = state["last_batch"]

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._last_batch = 0
        if self._training is self._own_loop:
            self._own_loop.end_epoch(epoch, logs or {})
        if self.save_freq == "epoch":
            self._save()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if not self._saves_in_epochs:
            return
        new_epoch = batch <= self._last_batch
        self._batches_since_saving += batch + 1 if new_epoch else batch - self._last_batch
        self._last_batch = batch
        if self._batches_since_saving >= int(self.save_freq):
            self._batches_since_saving = 0
            self._save()

    def on_train_end(self, logs: dict | None = None) -> None:
        if self.delete_checkpoint and replicas.is_first():
            shutil.rmtree(self.backup_dir, ignore_errors=True)
        self._wait_for_first()

    def _save(self) -> None:
        state = self._training.state()
        if replicas.is_first():
            self._write(state)
        self._wait_for_first()

    def _wait_for_first(self) -> None:
        processes = replicas.active()
        if processes is not None:
            processes.wait()

    def _write(self, state: dict[str, Any]) -> None:
        from kerascnn.saving import nested_state

        os.makedirs(self.backup_dir, exist_ok=True)
        if self.double_checkpoint and self._path.exists():
            os.replace(self._path, self._previous)
        nested_state.write(self._path, state)

    def _last_state(self) -> dict[str, Any] | None:
        """Returns what the first process finds, None where there is nothing."""
        state: dict[str, Any] | None = None
        failure: Exception | None = None
        if replicas.is_first() and (self._path.exists() or self._previous.exists()):
            try:
                state = self._read()
            except (OSError, ValueError) as error:
                failure = error
        processes = replicas.active()
        if processes is not None:
            state, failure = processes.from_first((state, failure))
        if failure is not None:
            raise failure
        return state

    def _read(self) -> dict[str, Any]:
        """Reads the last state, or the one before it if the last is damaged."""
        from kerascnn.saving import nested_state

        try:
            return nested_state.read(self._path)
        except (OSError, ValueError):
            if not self._previous.exists():
                raise
            return nested_state.read(self._previous)
