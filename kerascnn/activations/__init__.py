"""Activation functions, and how layers find them by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerascnn import serialization
from kerascnn.activations.functions import (
    celu,
    elu,
    exponential,
    gelu,
    glu,
    hard_shrink,
    hard_sigmoid,
    hard_silu,
    hard_tanh,
    leaky_relu,
    linear,
    log_sigmoid,
    log_softmax,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_shrink,
    softmax,
    softplus,
    softsign,
    sparse_plus,
    sparse_sigmoid,
    sparsemax,
    squareplus,
    tanh,
    tanh_shrink,
    threshold,
)

swish = silu
hard_swish = hard_silu


def get(identifier: Any) -> Callable[..., Any]:
    """An activation function from a name, a callable, a configuration or None (`linear`).

    Args:
        identifier: One of them.

    Returns:
        A function of tensors.

    Raises:
        ValueError: for an unknown name, with those that come close, and for anything else.

    Example:

    >>> from kerascnn import activations
    >>> activations.get("relu").__name__, activations.get(None).__name__
    ('relu', 'linear')
    """
    if identifier is None:
        return linear
    if isinstance(identifier, dict):
        identifier = serialization.deserialize_object(identifier, place="kerascnn.layers")
    if isinstance(identifier, str):
        if identifier not in _BY_NAME:
            hint = serialization.did_you_mean(identifier, _BY_NAME)
            raise ValueError(f"There is no activation {identifier!r}. {hint}")
        return _BY_NAME[identifier]
    if callable(identifier):
        return identifier
    raise ValueError(f"An activation is a name or a callable. Received: {identifier!r}")


def serialize(activation: Any) -> Any:
    """Returns the name of an activation, or the configuration of a layer or custom function.

    Args:
        activation: A function of tensors.

    Returns:
        What `deserialize` makes the activation of: a string or a dictionary.

    Example:

    >>> from kerascnn import activations
    >>> activations.serialize(activations.relu)
    'relu'
    """
    name = getattr(activation, "__name__", None)
    if name is not None and _BY_NAME.get(name) is activation:
        return name
    return serialization.serialize_object(activation)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Returns the activation that a name or a configuration describes.

    Args:
        config: What `serialize` returned.
        custom_objects: Functions of your own by name.

    Returns:
        A function of tensors.

    Raises:
        ValueError: for a name that neither this module nor `custom_objects` has.

    Example:

    >>> from kerascnn import activations
    >>> activations.deserialize("twice", {"twice": lambda x: 2 * x})(4)
    8
    """
    if custom_objects and isinstance(config, str) and config in custom_objects:
        return custom_objects[config]
    return get(serialization.deserialize_object(config, custom_objects, "kerascnn.layers"))


__all__ = [
    "celu",
    "deserialize",
    "elu",
    "exponential",
    "gelu",
    "get",
    "glu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "relu",
    "relu6",
    "selu",
    "serialize",
    "sigmoid",
    "silu",
    "soft_shrink",
    "softmax",
    "softplus",
    "softsign",
    "sparse_plus",
    "sparse_sigmoid",
    "sparsemax",
    "squareplus",
    "swish",
    "tanh",
    "tanh_shrink",
    "threshold",
]

_BY_NAME: dict[str, Callable[..., Any]] = {
    name: globals()[name] for name in __all__ if name not in ("get", "serialize", "deserialize")
}
