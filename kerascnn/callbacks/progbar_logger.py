"""Shows the progress of training, evaluation and prediction."""

from collections.abc import Callable
from typing import Any

from kerascnn.callbacks.callback import Callback


class ProgbarLogger(Callback):
    """Prints progress and metrics; `fit` adds one unless `verbose=0`.

    How it prints is said by `verbose` of `fit`, `evaluate` or `predict`: 1 is a bar, 2 one line for
    each epoch.

    >>> keras.callbacks.ProgbarLogger().uses_batch_hooks("train")  # it does not slow steps down
    False
    """

    first_process_only = True

    def __init__(self) -> None:
        super().__init__()
        self.verbose = 1
        self.epochs = 1
        self.target: int | None = None
        self._in_fit = False
        self._display: Any = None

    def set_params(self, params: dict) -> None:
        verbose = params.get("verbose", 1)
        self.verbose = 1 if verbose == "auto" else int(verbose)
        self.epochs = params.get("epochs", 1)
        self.target = params.get("steps")

    def uses_batch_hooks(self, kind: str) -> bool:
        return False

    def on_steps(self, kind: str, seen: int, logs: Callable[[], dict]) -> None:
        """Runs after some steps; `logs` reads the metrics from the device."""
        if self._display is not None and not (kind == "test" and self._in_fit):
            self._display.update(seen, logs if kind != "predict" else dict)

    def _begin(self, title: str | None = None) -> None:
        from kerascnn.training.progress import ProgressDisplay

        self._display = ProgressDisplay(self.target, self.verbose, title)

    def _end(self, logs: dict | None) -> None:
        if self._display is not None:
            self._display.finish(logs or {})
            self._display = None

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._in_fit = True

    def on_train_end(self, logs: dict | None = None) -> None:
        self._in_fit = False

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._begin(f"Epoch {epoch + 1}/{self.epochs}" if self.epochs > 1 else None)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._end(logs)

    def on_test_begin(self, logs: dict | None = None) -> None:
        if not self._in_fit:
            self._begin()

    def on_test_end(self, logs: dict | None = None) -> None:
        if not self._in_fit:
            self._end(logs)

    def on_predict_begin(self, logs: dict | None = None) -> None:
        self._begin()

    def on_predict_end(self, logs: dict | None = None) -> None:
        self._end(None)

    def _close(self) -> None:
        if self._display is not None:
            self._display.close()
            self._display = None
