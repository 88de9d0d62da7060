"""Sends the logs of epochs to a server."""

import json
import warnings
from typing import Any

import numpy as np

from kerascnn.callbacks.callback import Callback


class RemoteMonitor(Callback):
    """Sends the logs of each epoch to a server by HTTP POST; a server that is not there is only
    warned of.

    Args:
        root: the address of the server.
        path: where on the server the logs go.
        field: the name of the form's field that the JSON text is in; not with `send_as_json`.
        headers: a dictionary of further HTTP headers.
        send_as_json: whether the body is JSON (`application/json`) instead of a form.

    >>> keras.callbacks.RemoteMonitor(root="http://localhost:8080").path
    '/publish/epoch/end/'
    """

    first_process_only = True

    def __init__(
        self,
        root: str = "http://localhost:9000",
        path: str = "/publish/epoch/end/",
        field: str = "data",
        headers: dict[str, str] | None = None,
        send_as_json: bool = False,
    ) -> None:
        super().__init__()
        self.root = root
        self.path = path
        self.field = field
        self.headers = headers
        self.send_as_json = send_as_json

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        from http.client import HTTPException
        from urllib.parse import urlencode
        from urllib.request import Request, urlopen

        text = json.dumps({"epoch": epoch, **{k: _plain(v) for k, v in (logs or {}).items()}})
        if self.send_as_json:
            body, kind = text, "application/json"
        else:
            body, kind = urlencode({self.field: text}), "application/x-www-form-urlencoded"
        headers = {"Content-Type": kind, **(self.headers or {})}
        try:
            with urlopen(Request(self.root + self.path, body.encode(), headers), timeout=30):
                pass
        except (OSError, HTTPException) as error:
            warnings.warn(
                f"RemoteMonitor could not send to {self.root}{self.path}: {error}", stacklevel=2
            )


def _plain(value: Any) -> Any:
    """Returns what JSON can hold for a value of the logs."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
