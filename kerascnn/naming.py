"""Automatic names (conv2d, conv2d_1, ...) and the scopes that variables' paths are made of."""

from __future__ import annotations

import contextlib
import contextvars
import re
from collections import Counter
from collections.abc import Iterator

_uses: Counter[str] = Counter()
_scopes: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("scopes", default=())


def to_snake_case(name: str) -> str:
    """Class names as object names.

    Example:

    >>> from kerascnn.naming import to_snake_case
    >>> to_snake_case("MaxPooling2D"), to_snake_case("ReLU"), to_snake_case("MyHTTPLayer")
    ('max_pooling2d', 're_lu', 'my_http_layer')
    """
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def auto_name(prefix: str) -> str:
    """The next free name of a series: conv2d, conv2d_1, conv2d_2, ..."""
    count = _uses[prefix]
    _uses[prefix] += 1
    return f"{prefix}_{count}" if count else prefix


def next_uid(prefix: str) -> int:
    """Takes a number of a series of automatic names: 1, 2, ..."""
    _uses[prefix] += 1
    return _uses[prefix]


def reset() -> None:
    """Starts all series of automatic names anew."""
    _uses.clear()


@contextlib.contextmanager
def name_scope(name: str) -> Iterator[None]:
    """Puts `name` in front of the paths of variables that are made in this block.

    Args:
        name: What to put there; blocks within each other are joined by "/".

    Returns:
        What `with` takes.

    Example:

    >>> import kerascnn as keras
    >>> with keras.name_scope("encoder"):
    ...     weight = keras.Variable([1.0], name="scale")
    >>> weight.path
    'encoder/scale'
    """
    token = _scopes.set((*_scopes.get(), name))
    try:
        yield
    finally:
        _scopes.reset(token)


@contextlib.contextmanager
def absolute_scope(path: tuple[str, ...]) -> Iterator[None]:
    """As `name_scope`, but in place of the scopes that are open."""
    token = _scopes.set(path)
    try:
        yield
    finally:
        _scopes.reset(token)


def current_scopes() -> tuple[str, ...]:
    """The names of the open scopes, outermost first."""
    return _scopes.get()


def current_path() -> str:
    """The names of the open scopes as one, `outer/inner`."""
    return "/".join(_scopes.get())
