"""Callables that weights are passed through after each update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerascnn import serialization


def get(identifier: Any) -> Callable[[Any], Any] | None:
    """A constraint: None, or any callable from weights to weights.

    Raises:
        ValueError: for anything else.
    """
    if identifier is None:
        return None
    if isinstance(identifier, type):
        identifier = identifier()
    if callable(identifier):
        return identifier
    raise ValueError(
        f"A constraint is a callable that takes and returns weights. Received: {identifier!r}"
    )


def serialize(constraint: Any) -> Any:
    """The configuration of a constraint."""
    return serialization.serialize_object(constraint)
