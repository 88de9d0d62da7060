"""Callables that weights are passed through after each update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerascnn import config, lookup, ops, serialization
from kerascnn.naming import to_snake_case


class Constraint:
    """Base of constraints: `__call__(w)` returns what becomes of the weight.

    It is traced into the training step: use `kerascnn.ops`.

    >>> import kerascnn as keras
    >>> class Whole(keras.constraints.Constraint):
    ...     def __call__(self, w):
    ...         return keras.ops.round(w)
    >>> layer = keras.layers.Dense(2, kernel_constraint=Whole())
    """

    def __call__(self, w: Any) -> Any:
        return w

    def get_config(self) -> dict[str, Any]:
        """The arguments that make another constraint like this one."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Constraint:
        """Makes one of what `get_config` returned.

        Args:
            config: The dictionary.
        """
        return cls(**config)


def _lengths(w: Any, axis: Any) -> Any:
    """Returns Euclidean lengths along axes, which stay with size 1."""
    return ops.sqrt(ops.sum(ops.square(w), axis=axis, keepdims=True))


class MaxNorm(Constraint):
    """Shortens vectors of weights that are longer than `max_value` (Srivastava et al., 2014,
    "Dropout: A Simple Way to Prevent Neural Networks from Overfitting").

    Args:
        max_value: the greatest length.
        axis: the axes that one vector extends along: 0 for the inputs of one unit of a `Dense`
            kernel, `[0, 1, 2]` for one filter of a `Conv2D` kernel.

    >>> import numpy as np
    >>> import kerascnn as keras
    >>> keras.constraints.MaxNorm(1.0)(np.array([[3.0], [4.0]], "float32")).numpy().round(4)
    array([[0.6],
           [0.8]], dtype=float32)
    """

    def __init__(self, max_value: float = 2, axis: int | Sequence[int] = 0) -> None:
        self.max_value = max_value
        self.axis = axis

    def __call__(self, w: Any) -> Any:
        lengths = _lengths(w, self.axis)
        wanted = ops.clip(lengths, 0, self.max_value)
        return ops.multiply(w, wanted / (config.epsilon() + lengths))

    def get_config(self) -> dict[str, Any]:
        return {"max_value": self.max_value, "axis": self.axis}


class NonNeg(Constraint):
    """Sets negative weights to 0.

    >>> import numpy as np
    >>> import kerascnn as keras
    >>> keras.constraints.NonNeg()(np.array([-1.0, 2.0], "float32")).numpy()
    array([0., 2.], dtype=float32)
    """

    def __call__(self, w: Any) -> Any:
        return ops.maximum(w, 0.0)


class UnitNorm(Constraint):
    """Gives vectors of weights the length 1.

    Args:
        axis: see `MaxNorm`.

    >>> import numpy as np
    >>> import kerascnn as keras
    >>> keras.constraints.UnitNorm()(np.array([0.3, 0.4], "float32")).numpy().round(4)
    array([0.6, 0.8], dtype=float32)
    """

    def __init__(self, axis: int | Sequence[int] = 0) -> None:
        self.axis = axis

    def __call__(self, w: Any) -> Any:
        return ops.divide(w, config.epsilon() + _lengths(w, self.axis))

    def get_config(self) -> dict[str, Any]:
        return {"axis": self.axis}


class MinMaxNorm(Constraint):
    """Brings the length of vectors of weights between two limits, or part of the way.

    Args:
        min_value: the least length.
        max_value: the greatest length.
        rate: how much of the way is gone in each step, from 0 to 1.
        axis: see `MaxNorm`.

    >>> import numpy as np
    >>> import kerascnn as keras
    >>> keras.constraints.MinMaxNorm(2.0, 4.0)(np.array([0.6, 0.8], "float32")).numpy().round(4)
    array([1.2, 1.6], dtype=float32)
    """

    def __init__(
        self,
        min_value: float = 0.0,
        max_value: float = 1.0,
        rate: float = 1.0,
        axis: int | Sequence[int] = 0,
    ) -> None:
        self.min_value = min_value
        self.max_value = max_value
        self.rate = rate
        self.axis = axis

    def __call__(self, w: Any) -> Any:
        lengths = _lengths(w, self.axis)
        within = ops.clip(lengths, self.min_value, self.max_value)
        wanted = self.rate * within + (1 - self.rate) * lengths
        return ops.multiply(w, wanted / (config.epsilon() + lengths))

    def get_config(self) -> dict[str, Any]:
        return {
            "min_value": self.min_value,
            "max_value": self.max_value,
            "rate": self.rate,
            "axis": self.axis,
        }


_CLASSES = (Constraint, MaxNorm, MinMaxNorm, NonNeg, UnitNorm)
_BY_NAME: dict[str, type[Constraint]] = {to_snake_case(cls.__name__): cls for cls in _CLASSES}
_BY_NAME |= {cls.__name__: cls for cls in _CLASSES}

# The snake-case names are public too, as in Keras.
max_norm = MaxNorm
min_max_norm = MinMaxNorm
non_neg = NonNeg
unit_norm = UnitNorm


def get(identifier: Any) -> Callable[[Any], Any] | None:
    """A constraint from a name, a configuration, a class, a callable or None.

    Args:
        identifier: One of them.

    Returns:
        A function that maps a weight to an allowed one, or None for None.

    Raises:
        ValueError: for anything else.

    Example:

    >>> import kerascnn as keras
    >>> keras.constraints.get("max_norm").max_value
    2
    """
    return lookup.get(identifier, _BY_NAME, "constraint")


def serialize(constraint: Any) -> Any:
    """The configuration of a constraint.

    Args:
        constraint: A constraint.

    Returns:
        A dictionary, which `deserialize` makes a constraint of.

    Example:

    >>> from kerascnn import constraints
    >>> constraints.serialize(constraints.MaxNorm(3))["class_name"]
    'MaxNorm'
    """
    return serialization.serialize_object(constraint)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """The constraint that a configuration describes.

    Args:
        config: What `serialize` returned.
        custom_objects: Classes of your own by name.

    Returns:
        A constraint.

    Raises:
        ValueError: for a class that is not known.

    Example:

    >>> from kerascnn import constraints
    >>> config = constraints.serialize(constraints.MaxNorm(3))
    >>> constraints.deserialize(config).max_value
    3
    """
    return serialization.deserialize_object(config, custom_objects, "kerascnn.constraints")


__all__ = [
    "Constraint",
    "MaxNorm",
    "MinMaxNorm",
    "NonNeg",
    "UnitNorm",
    "deserialize",
    "get",
    "max_norm",
    "min_max_norm",
    "non_neg",
    "serialize",
    "unit_norm",
]
