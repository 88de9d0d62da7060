"""First values of weights."""

from __future__ import annotations

from typing import Any

from kerascnn import serialization
from kerascnn.initializers.constant_initializers import Constant, Ones, Zeros
from kerascnn.initializers.initializer import Initializer
from kerascnn.initializers.random_initializers import (
    GlorotNormal,
    GlorotUniform,
    HeNormal,
    HeUniform,
    LecunNormal,
    LecunUniform,
    RandomInitializer,
    RandomNormal,
    RandomUniform,
    TruncatedNormal,
    VarianceScaling,
    compute_fans,
)
from kerascnn.naming import to_snake_case

_CLASSES = (
    Constant,
    GlorotNormal,
    GlorotUniform,
    HeNormal,
    HeUniform,
    LecunNormal,
    LecunUniform,
    Ones,
    RandomNormal,
    RandomUniform,
    TruncatedNormal,
    VarianceScaling,
    Zeros,
)
_BY_NAME: dict[str, type[Initializer]] = {to_snake_case(cls.__name__): cls for cls in _CLASSES}
_BY_NAME |= {cls.__name__: cls for cls in _CLASSES}
_BY_NAME |= {"uniform": RandomUniform, "normal": RandomNormal, "one": Ones, "zero": Zeros}

# The snake-case names are public too, as in Keras: initializers.he_normal(seed=1).
constant = Constant
glorot_normal = GlorotNormal
glorot_uniform = GlorotUniform
he_normal = HeNormal
he_uniform = HeUniform
lecun_normal = LecunNormal
lecun_uniform = LecunUniform
ones = Ones
random_normal = RandomNormal
random_uniform = RandomUniform
truncated_normal = TruncatedNormal
variance_scaling = VarianceScaling
zeros = Zeros


def get(identifier: Any) -> Any:
    """An initializer from a name, a configuration, a class, a callable, an array or None.

    Raises:
        ValueError: for an unknown name, with those that come close.

    Example:

    >>> from kerascnn import initializers
    >>> type(initializers.get("he_normal")).__name__
    'HeNormal'
    """
    if identifier is None:
        return None
    if isinstance(identifier, dict):
        identifier = serialization.deserialize_object(identifier, place="kerascnn.initializers")
    elif isinstance(identifier, str):
        if identifier not in _BY_NAME:
            hint = serialization.did_you_mean(identifier, _BY_NAME)
            raise ValueError(f"There is no initializer {identifier!r}. {hint}")
        identifier = _BY_NAME[identifier]
    elif hasattr(identifier, "__array__"):
        return Constant(identifier)
    if isinstance(identifier, type):
        identifier = identifier()
    if callable(identifier):
        return identifier
    raise ValueError(
        f"An initializer is a name, a callable (shape, dtype) or an array. Received: {identifier!r}"
    )


def serialize(initializer: Any) -> Any:
    """The configuration of an initializer."""
    return serialization.serialize_object(initializer)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """The initializer that a configuration describes."""
    return serialization.deserialize_object(config, custom_objects, "kerascnn.initializers")


__all__ = [
    "Constant",
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "Initializer",
    "LecunNormal",
    "LecunUniform",
    "Ones",
    "RandomInitializer",
    "RandomNormal",
    "RandomUniform",
    "TruncatedNormal",
    "VarianceScaling",
    "Zeros",
    "compute_fans",
    "constant",
    "deserialize",
    "get",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "lecun_uniform",
    "ones",
    "random_normal",
    "random_uniform",
    "serialize",
    "truncated_normal",
    "variance_scaling",
    "zeros",
]
