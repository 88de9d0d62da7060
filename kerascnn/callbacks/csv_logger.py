"""Writes the logs of epochs to a CSV file."""

import csv
import os
import warnings
from collections.abc import Iterable
from typing import Any, Literal, TextIO

import numpy as np

from kerascnn.callbacks.callback import Callback
from kerascnn.system_errors import naming_file


class CSVLogger(Callback):
    """Writes a line of logs to a file after every epoch.

    The columns are those of the first epoch; where that had no validation, each gets one with
    `val_` beside it, and what is missing later is `NA`.

    Args:
        filename: the file.
        separator: what stands between two values.
        append: whether to go on with a file that is there, instead of replacing it.

    >>> import pathlib, tempfile
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> path = pathlib.Path(tempfile.mkdtemp(), "log.csv")
    >>> x, y = np.zeros((4, 2)), np.zeros((4, 1))
    >>> logger = keras.callbacks.CSVLogger(path)
    >>> _ = model.fit(x, y, epochs=2, callbacks=[logger], verbose=0)
    >>> path.read_text().splitlines()
    ['epoch,loss,val_loss', '0,0.0,NA', '1,0.0,NA']
    """

    first_process_only = True

    def __init__(
        self, filename: str | os.PathLike, separator: str = ",", append: bool = False
    ) -> None:
        super().__init__()
        self.sep = separator
        self.filename = os.fspath(filename)
        self.append = append
        self.append_header = True
        self.keys: list[str] | None = None
        self.writer: csv.DictWriter | None = None
        self.csv_file: TextIO | None = None
        self._has_begun = False

    def on_train_begin(self, logs: dict | None = None) -> None:
        if self.append and os.path.exists(self.filename):
            with open(self.filename) as file:
                self.append_header = not file.readline()
        self._close()
        self.writer = None
        self.keys = None
        self._has_begun = True

    def _open(self) -> TextIO:
        """Opens the file, not before an epoch begins: a training that goes on keeps its lines."""
        if self.csv_file is None:
            self.csv_file = _opened(self.filename, "a" if self.append else "w")
        return self.csv_file

    def state_dict(self) -> dict[str, Any]:
        if self.csv_file is None:
            return {}
        with naming_file(self.filename):
            self.csv_file.flush()
            os.fsync(self.csv_file.fileno())
        return {"size": self.csv_file.tell(), "keys": self.keys}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._close()
        self.writer = None
        self.keys = state["keys"]
        self.csv_file = self._shortened(state["size"])
        if self.csv_file is None:
            warnings.warn(
                f"CSVLogger: {self.filename} has not the lines of the epochs before the training "
                "was interrupted. Its lines begin with the epoch in which training goes on.",
                stacklevel=2,
            )
            self.append_header = True
        else:
            self.append_header = state["size"] == 0

    def _shortened(self, size: int) -> TextIO | None:
        """Returns the file, opened, with this size: later lines were written before a crash."""
        if not os.path.exists(self.filename) or os.path.getsize(self.filename) < size:
            return None
        os.truncate(self.filename, size)
        return _opened(self.filename, "a")

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        if self._has_begun:
            self._open()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        logs = logs or {}
        if self.keys is None:
            self.keys = sorted(logs)
            if not any(key.startswith("val_") for key in self.keys):
                self.keys += [f"val_{key}" for key in self.keys]
        if not self._has_begun:
            raise RuntimeError("CSVLogger opens its file in on_train_begin, which was not called.")
        row = {key: _as_cell(logs.get(key, "NA")) for key in self.keys}
        with naming_file(self.filename):
            file = self._open()
            if self.writer is None:
                fields = ["epoch", *self.keys]
                self.writer = csv.DictWriter(file, fieldnames=fields, delimiter=self.sep)
                if self.append_header:
                    self.writer.writeheader()
            self.writer.writerow({"epoch": epoch, **row})
            file.flush()

    def on_train_end(self, logs: dict | None = None) -> None:
        if self._has_begun:
            self._open()
        self._close()
        self.writer = None
        self._has_begun = False

    def _close(self) -> None:
        file, self.csv_file = self.csv_file, None  # closed, even if an error says so
        if file is not None:
            with naming_file(self.filename):
                file.close()


def _opened(filename: str, mode: Literal["a", "w"]) -> TextIO:
    return open(filename, mode, newline="\n")  # this keeps the line ends of the csv module


def _as_cell(value: Any) -> Any:
    """One value of a line; several numbers are written as a list in quotes."""
    is_scalar = isinstance(value, np.ndarray) and value.ndim == 0
    if isinstance(value, str) or is_scalar or not isinstance(value, Iterable):
        return value
    return f'"[{", ".join(map(str, value))}]"'
