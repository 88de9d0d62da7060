"""Continues a training that was interrupted."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from kerascnn import random
from kerascnn.callbacks.callback import Callback

_STATE = "latest.training_state.safetensors"
# Files that were written before these were kept lack them.
_DRAWS = "random/draws"
_ORDER = "random/order"


class BackupAndRestore(Callback):
    """Keeps the state of a training in a file, from which the next `fit` goes on where an
    interrupted one ended.

    The state is the weights, the optimizer's state, the number of the epoch, the place in the
    sequences of random numbers that layers draw, and that of the generator that shuffles arrays,
    in one file that is replaced as a whole: an interruption leaves the old state or the new one.
    When `fit` ends the file is removed.

    With `save_freq="epoch"`, arrays, and epochs that are whole passes, a training that was
    interrupted and one that was not end with the same bits. Datasets and generators have an order
    of their own, of which the state knows nothing, and neither does it know that of callbacks.

    Args:
        backup_dir: a folder for this training alone; it is removed when `fit` ends.
        save_freq: `"epoch"`, or a number of batches (then `fit` runs step by step; a restored
            training begins the epoch that it was in anew).
        double_checkpoint: whether to keep the state before the last one too, which is used where
            the last one can't be read.
        delete_checkpoint: whether to remove the folder when `fit` ends.

    Raises:
        ValueError: for an empty `backup_dir` or another `save_freq`; in `fit` for a model that is
            not built, or a state that does not fit the model.

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
    [2, 3, 4]
    """

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
        self._epoch = 0

    def uses_batch_hooks(self, kind: str) -> bool:
        if type(self).on_train_batch_end is BackupAndRestore.on_train_batch_end:
            return kind == "train" and self._saves_in_epochs
        return super().uses_batch_hooks(kind)

    @property
    def _saves_in_epochs(self) -> bool:
        return self.save_freq != "epoch" and self.save_freq is not False

    def on_train_begin(self, logs: dict | None = None) -> None:
        if not self.model.built:
            raise ValueError(
                "BackupAndRestore needs a model that is built before fit: give it a keras.Input, "
                f"or call it on a batch of data. Model '{self.model.name}' is not built."
            )
        if self._path.exists() or self._previous.exists():
            self._restore(self._read())

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._epoch = epoch + 1
        self._last_batch = 0
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
        if self.delete_checkpoint:
            shutil.rmtree(self.backup_dir, ignore_errors=True)

    def _state(self) -> dict[str, Any]:
        """Returns all variables of the training by their names in the file."""
        from kerascnn.models.weights_file import named_variables

        state = {f"model/{name}": v for name, v, _ in named_variables(self.model)}
        optimizer = self.model.optimizer
        if optimizer is not None:
            if not optimizer.built:
                optimizer.build(self.model.trainable_variables)
            state.update({f"optimizer/{i}": v for i, v in enumerate(optimizer.variables)})
        return state

    def _save(self) -> None:
        from kerascnn.models import weights_file

        os.makedirs(self.backup_dir, exist_ok=True)
        if self.double_checkpoint and self._path.exists():
            os.replace(self._path, self._previous)
        arrays = {name: variable.numpy() for name, variable in self._state().items()}
        arrays["epoch"] = np.array(self._epoch, np.int64)
        arrays["batch"] = np.array(self._last_batch, np.int64)
        arrays.update(self._random_state())
        weights_file.write(self._path, arrays)

    def _random_state(self) -> dict[str, np.ndarray]:
        """Returns where the generators are that belong to no layer."""
        found = {}
        draws = random.global_place(self.model._state.device)
        if draws is not None:
            found[_DRAWS] = draws
        feed = self.model._training_feed
        order = None if feed is None else feed.order_state
        if order is not None:
            found[_ORDER] = np.frombuffer(json.dumps(order).encode(), np.uint8)
        return found

    def _restore_random_state(self, draws: np.ndarray | None, order: np.ndarray | None) -> None:
        if draws is not None:
            random.restore_global_place(self.model._state.device, draws)
        feed = self.model._training_feed
        if order is not None and feed is not None and feed.order_state is not None:
            try:
                feed.order_state = json.loads(order.tobytes())
            except (ValueError, TypeError, KeyError, OverflowError) as error:
                raise ValueError(
                    f"The training state in {self.backup_dir} is damaged: its generator of orders "
                    f"can't be restored ({error}). Remove the folder to start anew."
                ) from None

    def _read(self) -> dict[str, np.ndarray]:
        """Reads the last state, or the one before it if the last is damaged."""
        from kerascnn.models import weights_file

        try:
            return weights_file.read(self._path)
        except (OSError, ValueError):
            if not self._previous.exists():
                raise
            return weights_file.read(self._previous)

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        state = self._state()
        epoch = int(arrays.pop("epoch", 0))
        arrays.pop("batch", None)
        draws, order = arrays.pop(_DRAWS, None), arrays.pop(_ORDER, None)
        wrong = [n for n, v in state.items() if n not in arrays or arrays[n].shape != v.shape]
        wrong += [name for name in arrays if name not in state]
        if wrong:
            raise ValueError(
                f"The training state in {self.backup_dir} is not of this model and optimizer: "
                f"{', '.join(wrong[:5])} differ. Remove the folder to start anew."
            )
        for name, variable in state.items():
            variable.assign(arrays[name])
        self._restore_random_state(draws, order)
        self.model._initial_epoch = epoch
