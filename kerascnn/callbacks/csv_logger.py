"""Writes the logs of epochs to a CSV file."""

import csv
import os
from collections.abc import Iterable
from typing import Any, TextIO

import numpy as np

from kerascnn.callbacks.callback import Callback


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

    def on_train_begin(self, logs: dict | None = None) -> None:
        if self.append and os.path.exists(self.filename):
            with open(self.filename) as file:
                self.append_header = not file.readline()
        self._close()
        # newline="\n" keeps the line ends that the csv module writes.
        self.csv_file = open(self.filename, "a" if self.append else "w", newline="\n")  # noqa: SIM115
        self.writer = None
        self.keys = None

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        logs = logs or {}
        if self.keys is None:
            self.keys = sorted(logs)
            if not any(key.startswith("val_") for key in self.keys):
                self.keys += [f"val_{key}" for key in self.keys]
        if self.csv_file is None:
            raise RuntimeError("CSVLogger opens its file in on_train_begin, which was not called.")
        if self.writer is None:
            self.writer = csv.DictWriter(
                self.csv_file, fieldnames=["epoch", *self.keys], delimiter=self.sep
            )
            if self.append_header:
                self.writer.writeheader()
        row = {key: _as_cell(logs.get(key, "NA")) for key in self.keys}
        self.writer.writerow({"epoch": epoch, **row})
        self.csv_file.flush()

    def on_train_end(self, logs: dict | None = None) -> None:
        self._close()
        self.writer = None

    def _close(self) -> None:
        if self.csv_file is not None and not self.csv_file.closed:
            self.csv_file.close()


def _as_cell(value: Any) -> Any:
    """One value of a line; several numbers are written as a list in quotes."""
    is_scalar = isinstance(value, np.ndarray) and value.ndim == 0
    if isinstance(value, str) or is_scalar or not isinstance(value, Iterable):
        return value
    return f'"[{", ".join(map(str, value))}]"'
