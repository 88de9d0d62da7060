"""Warnings of what a recorded step does once, though it looks as if each step did it.

Python runs while a step is recorded. A number that it draws or counts then is part of the program,
and the same in every step.
"""

from __future__ import annotations

import random as _python_random
import warnings
from typing import Any

import numpy as np

from kerascnn import random

_WAY_OUT = "or let Python run each step: compile(run_eagerly=True)."


class PythonState:
    """What Python code may change while a step is recorded, as it was before.

    Args:
        model: whose step it is.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._numpy = _numpy_state()
        self._python = _python_random.getstate()
        self._own_draws = random.num_default_seeds()
        self._numbers = _numbers_of(model)

    def warn_of_changes(self, known: set[str], name: str) -> None:
        """Warns of what is not the same now.

        Args:
            known: what was warned of already; is added to.
            name: of the method that was recorded.
        """
        where = f"{type(self._model).__name__}.{name}"
        found = []
        if self._numpy != _numpy_state():
            found.append("draws random numbers from NumPy")
        # The library takes seeds from Python's generator, for layers that are made meanwhile.
        is_own = self._own_draws != random.num_default_seeds()
        if not is_own and self._python != _python_random.getstate():
            found.append("draws random numbers from Python's `random`")
        for text in found:
            if text not in known:
                known.add(text)
                warnings.warn(
                    f"{where} {text} while it is recorded: every step will use the same ones. Use "
                    f"keras.random, {_WAY_OUT}",
                    stacklevel=2,
                )
        now = _numbers_of(self._model)
        for key, (layer, value) in self._numbers.items():
            attribute = key[1]
            text = f"{type(layer).__name__}.{attribute}"
            if key in now and now[key][1] != value and text not in known:
                known.add(text)
                warnings.warn(
                    f"{where} changed the number `{attribute}` of {type(layer).__name__} "
                    f"'{layer.name}' while it was recorded, from {value} to {now[key][1]}. The "
                    "steps themselves neither change nor read it again. Keep what counts in a "
                    f"keras.Variable, {_WAY_OUT}",
                    stacklevel=2,
                )


def _numpy_state() -> tuple[Any, ...]:
    _, words, place, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - the user's
    return np.asarray(words).tobytes(), place, *rest


def _numbers_of(model: Any) -> dict[tuple[int, str], tuple[Any, float]]:
    """The plain numbers among the attributes of the user's own layers."""
    return {
        (id(layer), name): (layer, value)
        for layer in model._flatten_layers()
        if not type(layer).__module__.startswith("kerascnn.")
        for name, value in vars(layer).items()
        if type(value) in (int, float) and not name.startswith("_")
    }
