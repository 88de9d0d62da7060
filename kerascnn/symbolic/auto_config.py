"""Configurations of classes that don't write their own: the arguments that an object was made with.

As in Keras, only plain values count: a class with other arguments has to say in `get_config` what
makes another object like this one. Without that, a copy would silently have default values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from kerascnn import trees

F = TypeVar("F", bound=Callable[..., Any])

_PLAIN = (str, int, float, bool, type(None))
_DEFAULTS: set[Any] = set()
_ARGUMENTS = "_init_arguments"
_OF_LAYERS = ("name", "trainable", "dtype", "autocast", "activity_regularizer", "input_shape")


def default(get_config: F) -> F:
    """Marks a `get_config` that subclasses need not override."""
    _DEFAULTS.add(get_config)
    return get_config


def is_wanted(cls: type) -> bool:
    """Tells whether a class lacks its own `get_config`."""
    return getattr(cls, "get_config", None) in _DEFAULTS


def note(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Stores the arguments of `__init__` if they are plain values, or what is wrong with them."""
    # Classes may guard their attributes, so this does not use the object's own `__setattr__`.
    object.__setattr__(target, _ARGUMENTS, _plain_arguments(type(target), args, kwargs))


def add_arguments(target: Any, config: dict[str, Any]) -> dict[str, Any]:
    """A configuration with the arguments that the object was made with.

    Args:
        target: What the configuration is of. Where its class has a `get_config` of its own, that
            adds what belongs in it.
        config: What the class above says.

    Raises:
        NotImplementedError: for arguments that are no plain values.
    """
    cls = type(target)
    if not is_wanted(cls):
        return config
    arguments = getattr(target, _ARGUMENTS, {})
    if isinstance(arguments, str):
        raise NotImplementedError(
            f"{cls.__name__} {arguments}, so its configuration cannot be made by itself. Implement "
            "`get_config`, which returns what `__init__` takes: `return {**super().get_config(), "
            "'units': self.units}`."
        )
    parameters = inspect.signature(cls).parameters
    config = {**arguments, **config}
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return config
    return {name: value for name, value in config.items() if name in parameters}


def _plain_arguments(
    cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any] | str:
    # The signature is that of the function, with self, so that binding by Python does not matter.
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError:
        return {}  # `__init__` will say what is wrong
    bound.apply_defaults()
    found = dict(list(bound.arguments.items())[1:])  # this leaves out self
    for name, parameter in list(signature.parameters.items())[1:]:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found.update(found.pop(name))
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            return f"takes {name} by position only"
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL and found.pop(name):
            return f"was made with arguments that have no names, *{name}"
    for name, value in found.items():
        # The parent's configuration contains what every layer takes.
        if name not in _OF_LAYERS and not all(isinstance(x, _PLAIN) for x in trees.leaves(value)):
            return f"was made with {name}={value!r:.60}, which is no plain value"
    return {name: value for name, value in found.items() if name not in _OF_LAYERS}
