"""Evaluates with the moving average of the weights."""

from collections.abc import Iterator
from typing import Any

from kerascnn.callbacks.callback import Callback


class SwapEMAWeights(Callback):
    """Evaluates and predicts with the optimizer's moving average of the weights (`use_ema=True`).

    The two change places before an evaluation and again after it.

    Args:
        swap_on_epoch: whether they change places at the end of each epoch too (and again at the
            beginning of the next one), so that a `ModelCheckpoint` that comes after this saves the
            average.

    Raises:
        ValueError: where no optimizer of the model has `use_ema=True`.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile(keras.optimizers.SGD(0.1, use_ema=True), "mse")
    >>> x, y = np.ones((4, 2)), np.ones((4, 1))
    >>> swap = keras.callbacks.SwapEMAWeights()
    >>> _ = model.fit(x, y, validation_data=(x, y), callbacks=[swap], verbose=0)
    """

    def __init__(self, swap_on_epoch: bool = False) -> None:
        super().__init__()
        self.swap_on_epoch = swap_on_epoch
        self._averages_are_in = False

    def state_dict(self) -> dict[str, Any]:
        return {"averages_are_in": self._averages_are_in}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._averages_are_in = state["averages_are_in"]

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        if self.swap_on_epoch and self._averages_are_in:
            self._swap()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if not self.swap_on_epoch or self._averages_are_in:
            return
        self._swap()
        if epoch == (self.params or {}).get("epochs", 0) - 1:
            # At its end, fit sets the weights to the averages, which hold the weights' values now.
            for variable, average in self._pairs():
                average.assign(variable)

    def on_test_begin(self, logs: dict | None = None) -> None:
        if not self._averages_are_in:
            self._swap()

    def on_test_end(self, logs: dict | None = None) -> None:
        if self._averages_are_in:
            self._swap()

    def on_predict_begin(self, logs: dict | None = None) -> None:
        if not self._averages_are_in:
            self._swap()

    def on_predict_end(self, logs: dict | None = None) -> None:
        if self._averages_are_in:
            self._swap()

    def _swap(self) -> None:
        for variable, average in self._pairs():
            weights = variable.numpy()
            variable.assign(average)
            average.assign(weights)
        for optimizer in self._averaging():
            optimizer._give_own_to_all()
        self._averages_are_in = not self._averages_are_in

    def _pairs(self) -> Iterator[tuple[Any, Any]]:
        """Yields each weight with its average, those of this process where they share them."""
        for one in self._averaging():
            yield from one._averages_of(one._trainable_variables)

    def _averaging(self) -> list[Any]:
        """Returns the optimizers that average weights."""
        optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        inner = getattr(optimizer, "optimizers", [optimizer])
        averaging = [one for one in inner if getattr(one, "use_ema", False)]
        if not averaging:
            raise ValueError(
                "SwapEMAWeights needs an optimizer that averages the weights: pass use_ema=True to "
                f"it (with several optimizers, to at least one). Received: use_ema=False of "
                f"{', '.join(str(one.name) for one in inner)}"
            )
        return averaging
