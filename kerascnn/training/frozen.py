"""What a recorded step does once, though it looks as if each step did it.

Python runs while a step is recorded. A number that it draws or counts then is part of the program,
and the same in every step, of which the user is warned. A layer that it makes has new weights in
each recording, which is an error.
"""

from __future__ import annotations

import random as _python_random
import sys
from types import FunctionType
from typing import Any

import numpy as np

from kerascnn import code_places, seed_generators, trees
from kerascnn.layers.layer import Layer
from kerascnn.tracebacks import warn

# For each open recording, this notes where attributes were set.
_notes: list[dict[tuple[int, str], tuple[str, int]]] = []
_SHOWN = 3
_WAY_OUT = "or let Python run each step: compile(run_eagerly=True)."


class PythonState:
    """What Python code may change while a step is recorded, as it was before.

    In its `with` block the step is recorded: it is noted where numbers of layers are set.

    Args:
        model: whose step it is.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._numpy = _numpy_state()
        self._python = _python_random.getstate()
        self._own_draws = seed_generators.num_default_seeds()
        self._numbers = _numbers_of(model)
        self._places: dict[tuple[int, str], tuple[str, int]] = {}

    def __enter__(self) -> PythonState:
        if not _notes:
            Layer.__setattr__ = _noting  # type: ignore[method-assign]
        _notes.append(self._places)
        return self

    def __exit__(self, *error: object) -> None:
        _notes.pop()
        if not _notes:
            del Layer.__setattr__

    def warn_of_changes(self, known: set[str], name: str) -> None:
        """Warns of what is not the same now.

        Args:
            known: what was warned of already; is added to.
            name: of the method that was recorded.
        """
        where = f"{type(self._model).__name__}.{name}"
        found = []
        if self._numpy != _numpy_state():
            found.append(("draws random numbers from NumPy", _is_numpy_draw))
        # Layers that are made meanwhile take seeds from Python's generator too.
        is_own = self._own_draws != seed_generators.num_default_seeds()
        if not is_own and self._python != _python_random.getstate():
            found.append(("draws random numbers from Python's `random`", _is_python_draw))
        for text, is_meant in found:
            if text not in known:
                known.add(text)
                warn(
                    f"{where} {text} while it is recorded{self._uses(is_meant)}: every step will "
                    f"use the same ones. Use keras.random, {_WAY_OUT}",
                )
        now = _numbers_of(self._model)
        for key, (layer, value) in self._numbers.items():
            attribute = key[1]
            text = f"{type(layer).__name__}.{attribute}"
            if key in now and now[key][1] != value and text not in known:
                known.add(text)
                warn(
                    f"{where} changed the number `{attribute}` of {type(layer).__name__} "
                    f"'{layer.name}' while it was recorded, from {value} to {now[key][1]}"
                    f"{self._place(key)}. The steps themselves neither change nor read it again. "
                    f"Keep what counts in a keras.Variable, {_WAY_OUT}",
                )

    def _place(self, key: tuple[int, str]) -> str:
        place = self._places.get(key)
        return "" if place is None else f" ({code_places.shown(*place)})"

    def _uses(self, is_meant: Any) -> str:
        """Finds where code of the model, its layers, losses or metrics names a function."""
        model = self._model
        parts = [model, *model._flatten_layers(), *model.metrics, getattr(model, "optimizer", None)]
        losses = trees.flatten([getattr(model, "loss", None)])
        functions = code_places.methods_of([*parts, *losses])
        functions += [loss for loss in losses if isinstance(loss, FunctionType)]
        places = [code_places.shown(*place) for place in code_places.uses_of(functions, is_meant)]
        more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
        return f" ({'; '.join(places[:_SHOWN])}{more})" if places else ""


def _noting(layer: Any, name: str, value: Any) -> None:
    """Sets an attribute, and notes the line if it sets a number of the user's.

    Raises:
        ValueError: for a new layer in the place of one with weights.
    """
    if isinstance(value, (Layer, list, tuple, dict)):
        _check_layers_stay(layer, name, value)
    object.__setattr__(layer, name, value)
    if type(value) in (int, float):
        frame = sys._getframe(1)
        for places in _notes:
            places[id(layer), name] = frame.f_code.co_filename, frame.f_lineno


def _check_layers_stay(layer: Any, name: str, value: Any) -> None:
    before = _layers_in(vars(layer).get(name))
    after = _layers_in(value)
    gone = [each for each in before if each.weights and not any(each is other for other in after)]
    made = [each for each in after if not any(each is other for other in before)]
    if gone and made and not all(each.built for each in made):
        raise ValueError(
            f"{type(layer).__name__} '{layer.name}' makes the layer '{made[0].name}' while a step "
            f"is recorded, in place of '{gone[0].name}' in its attribute `{name}`: each of fit, "
            "evaluate and predict would compute with weights of its own. Make layers once, in "
            "`__init__` or `build`, and only call them in `call`."
        )


def _layers_in(value: Any) -> list[Layer]:
    if isinstance(value, dict):
        value = list(value.values())
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [part for part in parts if isinstance(part, Layer)]


def _is_numpy_draw(value: Any) -> bool:
    drawing = np.random.mtrand._rand
    return getattr(value, "__self__", None) is drawing


def _is_python_draw(value: Any) -> bool:
    return getattr(value, "__self__", None) is _python_random._inst


def _numpy_state() -> tuple[Any, ...]:
    _, words, place, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - the user's
    return np.asarray(words).tobytes(), place, *rest


def _numbers_of(model: Any) -> dict[tuple[int, str], tuple[Any, float]]:
    """Returns the plain numbers among the attributes of the user's own layers."""
    return {
        (id(layer), name): (layer, value)
        for layer in model._flatten_layers()
        if not type(layer).__module__.startswith("kerascnn.")
        for name, value in vars(layer).items()
        if type(value) in (int, float) and not name.startswith("_")
    }
