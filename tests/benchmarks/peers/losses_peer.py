"""Trains a network with kerascnn or Keras for `cifar_losses.py`; requests are lines of JSON.

It gets images, labels and first weights in files, so that every process starts from the same ones.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
from typing import Any

import numpy as np
from large_nets import Case, keras_model
from worker import say, serve, take_standard_output


class Worker:
    """Answers the requests.

    Args:
        library: "kerascnn", or "keras-torch" and its like.
        case: The network.
        policy: Of dtypes.
        device: "cpu" or "cuda:0".
        data: File with x, y, x_test and y_test.
    """

    def __init__(self, library: str, case: Case, policy: str, device: str, data: str):
        name, _, backend = library.partition("-")
        if backend:
            os.environ["KERAS_BACKEND"] = backend
        self._keras = keras = importlib.import_module(name)
        if not backend:
            keras.config.set_device(device)
        keras.config.set_dtype_policy(policy)
        self.versions = {"python": platform.python_version(), name: keras.__version__}
        if backend:
            self.versions[backend] = importlib.import_module(backend).__version__
        with np.load(data) as arrays:
            self._x, self._y = arrays["x"], arrays["y"]
            self._test = arrays["x_test"], arrays["y_test"]
        self._batch_size = case.batch_size
        self._model = keras_model(keras, case)
        self._model.optimizer.build(self._model.trainable_variables)
        self._slots = [keras.ops.convert_to_numpy(v) for v in self._model.optimizer.variables]

    def train(self, weights: str, order: str, steps: int, window: int) -> dict[str, Any]:
        """Trains from new weights.

        Args:
            weights: File with the arrays of `set_weights`, in their order.
            order: File with the places of the images, in the order of training.
            steps: How many.
            window: Of how many steps each reported loss is the mean.

        Returns:
            The training losses, and loss and accuracy on test images after the last step.
        """
        with np.load(weights) as arrays:
            self._model.set_weights([arrays[name] for name in arrays.files])
        for variable, value in zip(self._model.optimizer.variables, self._slots, strict=True):
            variable.assign(value)
        rows = np.load(order)
        losses = []
        for first in range(0, steps, window):
            some = rows[first * self._batch_size : (first + window) * self._batch_size]
            history = self._model.fit(
                self._x[some], self._y[some], self._batch_size, verbose=0, shuffle=False
            )
            losses.append(float(history.history["loss"][0]))
        found = self._model.evaluate(*self._test, batch_size=500, verbose=0, return_dict=True)
        return {
            "losses": losses,
            "test_loss": float(found["loss"]),
            "test_accuracy": float(found["accuracy"]),
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("library", "case", "policy", "device", "data"):
        parser.add_argument(name)
    args = parser.parse_args()
    answers = take_standard_output()
    case = Case.parse(args.case)
    worker = Worker(args.library, case, args.policy, args.device, args.data)
    say({"versions": worker.versions}, answers)
    serve(worker, answers)


if __name__ == "__main__":
    main()
