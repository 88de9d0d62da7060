"""Penalties on weights and outputs, added to the loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kerascnn import config, lookup, ops, serialization
from kerascnn.naming import to_snake_case
from kerascnn.ops import dispatch


class Regularizer:
    """Base of penalties: `__call__(x)` returns a scalar.

    It is traced into the training step: use `kerascnn.ops`. A plain function will do as well.

    >>> import kerascnn as keras
    >>> class Sum(keras.regularizers.Regularizer):
    ...     def __call__(self, x):
    ...         return 0.5 * keras.ops.sum(x)
    >>> layer = keras.layers.Dense(2, kernel_regularizer=Sum(), kernel_initializer="ones")
    >>> _ = layer(keras.ops.ones((1, 3)))
    >>> [float(loss) for loss in layer.losses]
    [3.0]
    """

    def __call__(self, x: Any) -> Any:
        return 0.0

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Regularizer:
        """Makes one of what `get_config` returned.

        Args:
            config: The dictionary.
        """
        return cls(**config)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make another regularizer like this one."""
        raise NotImplementedError(
            f"{type(self).__name__} must implement get_config to be put into a configuration."
        )


class L1L2(Regularizer):
    """l1 * sum(|x|) + l2 * sum(x * x).

    Args:
        l1: Weight of the absolute values, from 0 on.
        l2: Weight of the squares, from 0 on.

    Raises:
        ValueError: for a weight that is negative, not finite or no number.

    Example:

    >>> from kerascnn import regularizers
    >>> float(regularizers.L1L2(l1=0.5, l2=0.25)([1.0, -2.0]))
    2.75
    """

    def __init__(self, l1: float = 0.0, l2: float = 0.0) -> None:
        self.l1 = _weight("l1", 0.0 if l1 is None else l1)
        self.l2 = _weight("l2", 0.0 if l2 is None else l2)

    def __call__(self, x: Any) -> Any:
        x = dispatch.convert(x)
        terms = []
        if self.l1:
            terms.append(self.l1 * ops.sum(ops.absolute(x)))
        if self.l2:
            terms.append(self.l2 * ops.sum(ops.square(x)))
        if not terms:
            return ops.zeros((), x.dtype)
        return terms[0] if len(terms) == 1 else ops.add(*terms)

    def get_config(self) -> dict[str, Any]:
        return {"l1": self.l1, "l2": self.l2}


class L1(Regularizer):
    """l1 * sum(|x|).

    Args:
        l1: Weight of the absolute values, from 0 on; kept as a float32.

    Raises:
        ValueError: for a weight that is negative, not finite or no number.

    Example:

    >>> from kerascnn import regularizers
    >>> float(regularizers.L1(0.5)([1.0, -2.0]))
    1.5
    """

    def __init__(self, l1: float = 0.01) -> None:
        self.l1 = float(np.float32(_weight("l1", 0.01 if l1 is None else l1)))

    def __call__(self, x: Any) -> Any:
        return self.l1 * ops.sum(ops.absolute(dispatch.convert(x)))

    def get_config(self) -> dict[str, Any]:
        return {"l1": self.l1}


class L2(Regularizer):
    """l2 * sum(x * x).

    Args:
        l2: Weight of the squares, from 0 on.

    Raises:
        ValueError: for a weight that is negative, not finite or no number.

    Example:

    >>> from kerascnn import regularizers
    >>> float(regularizers.L2(0.5)([1.0, -2.0]))
    2.5
    """

    def __init__(self, l2: float = 0.01) -> None:
        self.l2 = _weight("l2", 0.01 if l2 is None else l2)

    def __call__(self, x: Any) -> Any:
        return self.l2 * ops.sum(ops.square(dispatch.convert(x)))

    def get_config(self) -> dict[str, Any]:
        return {"l2": self.l2}


class OrthogonalRegularizer(Regularizer):
    """factor * the mean of |cosine| over all pairs of rows (or columns) of a matrix.

    Args:
        factor: Weight of the penalty, from 0 on; kept as a float32.
        mode: "rows" or "columns": which of them are to become orthogonal.

    Raises:
        ValueError: for another mode or a factor that is negative, not finite or no number; and in
            calls on anything but matrices.

    Example:

    >>> from kerascnn import regularizers
    >>> round(float(regularizers.OrthogonalRegularizer(1.0)([[1.0, 0.0], [3.0, 4.0]])), 4)
    0.6
    """

    def __init__(self, factor: float = 0.01, mode: str = "rows") -> None:
        self.factor = float(np.float32(_weight("factor", factor)))
        if mode not in ("rows", "columns"):
            raise ValueError(f"`mode` must be 'rows' or 'columns'. Received: mode={mode!r}")
        self.mode = mode

    def __call__(self, inputs: Any) -> Any:
        x = dispatch.convert(inputs)
        if len(x.shape) != 2:
            raise ValueError(
                f"OrthogonalRegularizer is for matrices. Received: inputs.shape={tuple(x.shape)}"
            )
        if self.mode == "columns":
            x = ops.transpose(x)
        squares = ops.sum(ops.square(x), axis=1, keepdims=True)
        x = x * ops.rsqrt(ops.maximum(squares, config.epsilon() ** 2))
        cosines = ops.absolute(ops.matmul(x, ops.transpose(x)))
        rows = x.shape[0]
        different = 1.0 - np.eye(rows, dtype="float32")
        pairs = rows * (rows - 1.0) / 2.0
        total = ops.sum(cosines * ops.cast(different, x.dtype))
        return total * (self.factor * 0.5) / pairs

    def get_config(self) -> dict[str, Any]:
        return {"factor": self.factor, "mode": self.mode}


def _weight(name: str, value: Any) -> float:
    number = isinstance(value, (int, float, np.number))
    if not number or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a finite number from 0 on. Received: {name}={value!r}")
    return float(value)


_CLASSES = (L1, L1L2, L2, OrthogonalRegularizer, Regularizer)
_BY_NAME: dict[str, type[Regularizer]] = {to_snake_case(cls.__name__): cls for cls in _CLASSES}
_BY_NAME |= {cls.__name__: cls for cls in _CLASSES} | {"l1_l2": L1L2}

# The snake-case names are public too, as in Keras: regularizers.l2(0.01).
l1 = L1
l1_l2 = L1L2
l2 = L2
orthogonal_regularizer = OrthogonalRegularizer


def get(identifier: Any) -> Callable[[Any], Any] | None:
    """A regularizer from a name, a configuration, a class, a callable or None.

    Args:
        identifier: One of them.

    Returns:
        A function of a weight that returns a loss, or None for None.

    Raises:
        ValueError: for anything else.

    Example:

    >>> from kerascnn import regularizers
    >>> type(regularizers.get("l2")).__name__
    'L2'
    """
    return lookup.get(identifier, _BY_NAME, "regularizer")


def serialize(regularizer: Any) -> Any:
    """The configuration of a regularizer.

    Args:
        regularizer: A regularizer.

    Returns:
        A dictionary, which `deserialize` makes a regularizer of.

    Example:

    >>> from kerascnn import regularizers
    >>> regularizers.serialize(regularizers.L2(0.5))["class_name"]
    'L2'
    """
    return serialization.serialize_object(regularizer)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """The regularizer that a configuration describes.

    Args:
        config: What `serialize` returned.
        custom_objects: Classes of your own by name.

    Returns:
        A regularizer.

    Raises:
        ValueError: for a class that is not known.

    Example:

    >>> from kerascnn import regularizers
    >>> config = regularizers.serialize(regularizers.L2(0.5))
    >>> regularizers.deserialize(config).l2
    0.5
    """
    return serialization.deserialize_object(config, custom_objects, "kerascnn.regularizers")


__all__ = [
    "L1",
    "L1L2",
    "L2",
    "OrthogonalRegularizer",
    "Regularizer",
    "deserialize",
    "get",
    "l1",
    "l1_l2",
    "l2",
    "orthogonal_regularizer",
    "serialize",
]
