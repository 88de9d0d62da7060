"""Initializers, which give weights their first values."""

from __future__ import annotations

from typing import Any

from kerascnn import lookup, serialization
from kerascnn.initializers.constant_initializers import (
    STFT,
    Constant,
    Identity,
    Ones,
    Zeros,
)
from kerascnn.initializers.initializer import Initializer
from kerascnn.initializers.random_initializers import (
    GlorotNormal,
    GlorotUniform,
    HeNormal,
    HeUniform,
    LecunNormal,
    LecunUniform,
    Orthogonal,
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
    Identity,
    LecunNormal,
    LecunUniform,
    Ones,
    Orthogonal,
    RandomNormal,
    RandomUniform,
    STFT,
    TruncatedNormal,
    VarianceScaling,
    Zeros,
)
_BY_NAME: dict[str, type[Initializer]] = {to_snake_case(cls.__name__): cls for cls in _CLASSES}
_BY_NAME |= {cls.__name__: cls for cls in _CLASSES}
_BY_NAME |= {"IdentityInitializer": Identity, "OrthogonalInitializer": Orthogonal}
_BY_NAME |= {"STFTInitializer": STFT}
_BY_NAME |= {"uniform": RandomUniform, "normal": RandomNormal, "one": Ones, "zero": Zeros}

# Older names and the snake-case names are public too, as in Keras: initializers.he_normal(seed=1).
IdentityInitializer = Identity
OrthogonalInitializer = Orthogonal
STFTInitializer = STFT
constant = Constant
glorot_normal = GlorotNormal
glorot_uniform = GlorotUniform
he_normal = HeNormal
he_uniform = HeUniform
identity = Identity
lecun_normal = LecunNormal
lecun_uniform = LecunUniform
ones = Ones
orthogonal = Orthogonal
random_normal = RandomNormal
random_uniform = RandomUniform
stft = STFT
truncated_normal = TruncatedNormal
variance_scaling = VarianceScaling
zeros = Zeros


def get(identifier: Any) -> Any:
    """An initializer from a name, a configuration, a class, a callable, an array or None.

    Args:
        identifier: One of them; an array stands for a `Constant`.

    Returns:
        An initializer, or None for None.

    Raises:
        ValueError: for an unknown name, with those that come close.

    Example:

    >>> from kerascnn import initializers
    >>> type(initializers.get("he_normal")).__name__
    'HeNormal'
    """
    if hasattr(identifier, "__array__"):
        return Constant(identifier)
    return lookup.get(identifier, _BY_NAME, "initializer")


def serialize(initializer: Any) -> Any:
    """The configuration of an initializer.

    Args:
        initializer: An initializer.

    Returns:
        A dictionary, which `deserialize` makes an initializer of.

    Example:

    >>> from kerascnn import initializers
    >>> initializers.serialize(initializers.HeNormal(seed=1))["class_name"]
    'HeNormal'
    """
    return serialization.serialize_object(initializer)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """The initializer that a configuration describes.

    Args:
        config: What `serialize` returned.
        custom_objects: Classes of your own by name.

    Returns:
        An initializer.

    Raises:
        ValueError: for a class that is not known.

    Example:

    >>> from kerascnn import initializers
    >>> config = initializers.serialize(initializers.HeNormal(seed=1))
    >>> initializers.deserialize(config).seed
    1
    """
    return serialization.deserialize_object(config, custom_objects, "kerascnn.initializers")


__all__ = [
    "STFT",
    "Constant",
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "Identity",
    "IdentityInitializer",
    "Initializer",
    "LecunNormal",
    "LecunUniform",
    "Ones",
    "Orthogonal",
    "OrthogonalInitializer",
    "RandomInitializer",
    "RandomNormal",
    "RandomUniform",
    "STFTInitializer",
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
    "identity",
    "lecun_normal",
    "lecun_uniform",
    "ones",
    "orthogonal",
    "random_normal",
    "random_uniform",
    "serialize",
    "stft",
    "truncated_normal",
    "variance_scaling",
    "zeros",
]
