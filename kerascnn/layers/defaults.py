"""Gives layers of several ranks one constructor with different defaults."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any, TypeVar

C = TypeVar("C", bound=type)


def defaults(**values: Any) -> Callable[[C], C]:
    """Gives a class the constructor of its base, with other defaults of some arguments.

    Type checkers see the base's constructor, `inspect.signature` and `help` the new defaults.

    Args:
        **values: The new defaults by the names of their arguments.

    Raises:
        TypeError: for a name that is no argument with a default.

    Example:

    >>> from kerascnn.layers.defaults import defaults
    >>> class Window:
    ...     def __init__(self, size, steps=1):
    ...         self.size, self.steps = size, steps
    >>> @defaults(steps=(1, 1))
    ... class Window2D(Window):
    ...     pass
    >>> Window2D(3).steps
    (1, 1)
    """

    def decorate(cls: C) -> C:
        base: Any = cls.__init__  # type: ignore[misc]
        parameters = inspect.signature(base).parameters.values()
        given = [p for p in parameters if p.default is not p.empty]
        unknown = set(values) - {p.name for p in given}
        if unknown:
            raise TypeError(f"{base.__qualname__} has no defaults of {sorted(unknown)}.")
        own = types.FunctionType(
            base.__code__,
            base.__globals__,
            base.__name__,
            tuple(values.get(p.name, p.default) for p in given),
            base.__closure__,
        )
        own.__annotations__ = base.__annotations__
        own.__doc__ = base.__doc__
        own.__module__ = cls.__module__
        own.__qualname__ = f"{cls.__qualname__}.__init__"
        cls.__init__ = own  # type: ignore[misc]
        return cls

    return decorate
