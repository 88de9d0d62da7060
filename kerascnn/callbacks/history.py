"""What `fit` returns."""

from typing import Any

from kerascnn.callbacks.callback import Callback


class History(Callback):
    """Records the logs of every epoch; `fit` adds one and returns it.

    Attributes:
        epoch: the numbers of the epochs that ran, from 0.
        history: a list of values for each name in the logs.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> history = model.fit(np.zeros((4, 2)), np.zeros((4, 1)), epochs=3, verbose=0)
    >>> history.history["loss"]
    [0.0, 0.0, 0.0]
    """

    def __init__(self) -> None:
        super().__init__()
        self.history: dict[str, list] = {}
        self.epoch: list[int] = []

    def on_train_begin(self, logs: dict | None = None) -> None:
        self.epoch = []

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": list(self.epoch), "history": self.history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch = [int(epoch) for epoch in state["epoch"]]
        self.history = {name: list(values) for name, values in state["history"].items()}

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value)
        self.model.history = self
