"""What calls inside a call inherit from it: `training`, and arguments that layers registered."""

from __future__ import annotations

import contextvars
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class CallContext(NamedTuple):
    """What a call inside another call inherits from it."""

    training: bool | None
    arguments: Mapping[str, Any] = _NOTHING  # the arguments that layers registered, by name


context: contextvars.ContextVar[CallContext | None] = contextvars.ContextVar(
    "call_context", default=None
)


class ContextArguments:
    """The part of `Layer` that passes registered arguments on to the layers called inside it."""

    name: str
    _context_arguments: tuple[str, ...] = ()
    _was_called = False

    def _register_call_context_args(self, *names: str) -> None:
        """Makes arguments of this layer's calls known to all calls inside of them.

        A layer whose `call` has such an argument gets what was given in its own call, else what
        was given in the nearest one around it, else its default. In a layer whose `call` lacks it,
        it only goes on to the layers inside.

        Args:
            *names: Names of keyword arguments.

        Raises:
            RuntimeError: after the layer's first call.
        """
        if self._was_called:
            raise RuntimeError(
                f"Layer '{self.name}' was called already, so that the arguments {list(names)} of "
                "calls come too late. Register them in `__init__`."
            )
        self._context_arguments = tuple(dict.fromkeys((*self._context_arguments, *names)))

    def _take_context_arguments(
        self, kwargs: dict[str, Any], around: CallContext | None, parameters: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Splits off the arguments of `call`, and returns what inner calls inherit."""
        inherited = _NOTHING if around is None else around.arguments
        if not self._context_arguments:
            return kwargs, inherited
        kwargs, handed_on = dict(kwargs), dict(inherited)
        for name in self._context_arguments:
            value = kwargs.pop(name, None)
            value = inherited.get(name) if value is None else value
            if value is None:
                continue
            handed_on[name] = value
            if name in parameters:
                kwargs[name] = value
        return kwargs, handed_on
