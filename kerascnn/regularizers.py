"""Penalties on weights and outputs, added to the loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kerascnn import serialization
from kerascnn.ops import elementwise, reduction


class Regularizer:
    """Base of penalties: `__call__(x)` returns a scalar."""

    def __call__(self, x: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must implement __call__(x).")

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Regularizer:
        return cls(**config)

    def get_config(self) -> dict[str, Any]:
        return {}


class L1L2(Regularizer):
    """l1 * sum(|x|) + l2 * sum(x * x).

    Args:
        l1: Weight of the absolute values, from 0 on.
        l2: Weight of the squares, from 0 on.

    Raises:
        ValueError: for a weight that is negative or not finite.

    Example:

    >>> from kerascnn import regularizers
    >>> float(regularizers.L1L2(l1=0.5, l2=0.25)([1.0, -2.0]))
    2.75
    """

    def __init__(self, l1: float = 0.0, l2: float = 0.0) -> None:
        self.l1 = _weight("l1", l1)
        self.l2 = _weight("l2", l2)

    def __call__(self, x: Any) -> Any:
        terms = []
        if self.l1:
            terms.append(elementwise.multiply(reduction.sum(elementwise.absolute(x)), self.l1))
        if self.l2:
            terms.append(elementwise.multiply(reduction.sum(elementwise.square(x)), self.l2))
        if not terms:
            return elementwise.multiply(reduction.sum(x), 0.0)
        return terms[0] if len(terms) == 1 else elementwise.add(*terms)

    def get_config(self) -> dict[str, Any]:
        return {"l1": self.l1, "l2": self.l2}


class L1(L1L2):
    """l1 * sum(|x|)."""

    def __init__(self, l1: float = 0.01) -> None:
        super().__init__(l1=l1)

    def get_config(self) -> dict[str, Any]:
        return {"l1": self.l1}


class L2(L1L2):
    """l2 * sum(x * x)."""

    def __init__(self, l2: float = 0.01) -> None:
        super().__init__(l2=l2)

    def get_config(self) -> dict[str, Any]:
        return {"l2": self.l2}


def _weight(name: str, value: float | None) -> float:
    number = 0.0 if value is None else float(value)
    if number < 0 or not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number from 0 on. Received: {name}={value}")
    return number


_BY_NAME: dict[str, type[Regularizer]] = {"l1": L1, "l2": L2, "l1_l2": L1L2, "l1l2": L1L2}
_BY_NAME |= {cls.__name__: cls for cls in (L1, L2, L1L2)}


def get(identifier: Any) -> Callable[[Any], Any] | None:
    """A regularizer from a name, a configuration, a callable or None."""
    if identifier is None:
        return None
    if isinstance(identifier, dict):
        identifier = serialization.deserialize_object(identifier, place="kerascnn.regularizers")
    elif isinstance(identifier, str):
        if identifier not in _BY_NAME:
            hint = serialization.did_you_mean(identifier, _BY_NAME)
            raise ValueError(f"There is no regularizer {identifier!r}. {hint}")
        identifier = _BY_NAME[identifier]
    if isinstance(identifier, type):
        identifier = identifier()
    if callable(identifier):
        return identifier
    raise ValueError(f"A regularizer is a name or a callable. Received: {identifier!r}")


def serialize(regularizer: Any) -> Any:
    """The configuration of a regularizer."""
    return serialization.serialize_object(regularizer)
