"""Custom classes and functions in configurations, and whether lambdas may run."""

from __future__ import annotations

import contextvars
import inspect
import types
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

_objects: dict[str, Any] = {}
_names: dict[Any, str] = {}
_NONE: Mapping[str, Any] = types.MappingProxyType({})
_scope: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "custom_objects", default=_NONE
)
_safe_mode: contextvars.ContextVar[bool | None] = contextvars.ContextVar("safe_mode", default=None)
_unsafe_everywhere = False


class CustomObjectScope:
    """While it is open, configurations may name these classes and functions.

    Args:
        custom_objects: A dictionary from names to classes and functions. It takes the place of
            that of a scope around this one.

    Example:

    >>> import kerascnn as keras
    >>> def swish2(x):
    ...     return x * keras.ops.sigmoid(2.0 * x)
    >>> config = keras.layers.Activation(swish2).get_config()
    >>> with keras.saving.custom_object_scope({"swish2": swish2}):
    ...     layer = keras.layers.Activation.from_config(config)
    >>> layer.activation is swish2
    True
    """

    def __init__(self, custom_objects: Mapping[str, Any] | None) -> None:
        self.custom_objects = custom_objects or {}
        self._tokens: list[contextvars.Token[Mapping[str, Any]]] = []

    def __enter__(self) -> CustomObjectScope:
        self._tokens.append(_scope.set(dict(self.custom_objects)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _scope.reset(self._tokens.pop())


custom_object_scope = CustomObjectScope


class SafeModeScope:
    """While it is open, configurations may hold lambdas (`False`) or must not (`True`)."""

    def __init__(self, safe_mode: bool | None = True) -> None:
        self.safe_mode = safe_mode
        self._tokens: list[contextvars.Token[bool | None]] = []

    def __enter__(self) -> SafeModeScope:
        self._tokens.append(_safe_mode.set(self.safe_mode))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _safe_mode.reset(self._tokens.pop())


def in_safe_mode() -> bool | None:
    """Returns the innermost scope's mode; False after `enable_unsafe_deserialization`; or None."""
    return False if _unsafe_everywhere else _safe_mode.get()


def enable_unsafe_deserialization() -> None:
    """Lets configurations hold lambdas from now on, without `safe_mode=False` for each."""
    global _unsafe_everywhere
    _unsafe_everywhere = True


def get_custom_objects() -> dict[str, Any]:
    """The dictionary of all registered classes and functions; changes to it take effect.

    Returns:
        Classes and functions by registered name.

    Example:

    >>> import kerascnn as keras
    >>> keras.saving.get_custom_objects()["Mine"] = keras.layers.Dense
    >>> keras.saving.get_registered_object("Mine").__name__
    'Dense'
    >>> del keras.saving.get_custom_objects()["Mine"]
    """
    return _objects


def register_keras_serializable(
    package: str = "Custom", name: str | None = None
) -> Callable[[T], T]:
    """Lets configurations name a custom class or function as `package>name`.

    Args:
        package: Goes before the name.
        name: By default the name of the class or function.

    Returns:
        A decorator.

    Raises:
        ValueError: for a class without `get_config`.

    Example:

    >>> import kerascnn as keras
    >>> @keras.saving.register_keras_serializable("examples")
    ... class Twice(keras.Layer):
    ...     def call(self, inputs):
    ...         return 2 * inputs
    >>> keras.saving.get_registered_name(Twice)
    'examples>Twice'
    """

    def decorator(target: T) -> T:
        if inspect.isclass(target) and not hasattr(target, "get_config"):
            raise ValueError(
                f"{target.__name__} cannot be registered: it has no `get_config`, from which it "
                "could be made again."
            )
        full = f"{package}>{name if name is not None else target.__name__}"  # type: ignore[attr-defined]
        _objects[full] = target
        _names[target] = full
        return target

    return decorator


def get_registered_name(obj: Any) -> str:
    """The name that a class or function is registered under, else its own name.

    Args:
        obj: A class or function.

    Returns:
        The name, as configurations have it.

    Example:

    >>> import kerascnn as keras
    >>> @keras.saving.register_keras_serializable("documentation")
    ... def twice(x):
    ...     return 2 * x
    >>> keras.saving.get_registered_name(twice)
    'documentation>twice'
    """
    return _names.get(obj, obj.__name__)


def get_registered_object(
    name: str,
    custom_objects: Mapping[str, Any] | None = None,
    module_objects: Mapping[str, Any] | None = None,
) -> Any:
    """Returns what is registered under a name, None where nothing is.

    Args:
        name: As in a configuration.
        custom_objects: More to look in, after the open scope and what is registered.
        module_objects: More to look in, last.

    Returns:
        A class or function, or None.

    Example:

    >>> import kerascnn as keras
    >>> keras.saving.get_registered_object("twice", {"twice": lambda x: 2 * x})(4)
    8
    >>> keras.saving.get_registered_object("three times") is None
    True
    """
    for known in (_scope.get(), _objects, custom_objects or {}, module_objects or {}):
        if name in known:
            return known[name]
    return None


def all_custom_objects(custom_objects: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Joins the given objects, the open scope's and the registered ones; later ones win."""
    return {**(custom_objects or {}), **_scope.get(), **_objects}
