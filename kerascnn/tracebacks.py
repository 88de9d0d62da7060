"""Tracebacks without the library's own frames, as Keras shows them, and lines of warnings."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

from kerascnn import config, serialization

P = ParamSpec("P")
R = TypeVar("R")


def filtered(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback of the frames that are not the library's; the innermost one where all are.

    Without a change where `config.disable_traceback_filtering()` was called.
    """
    if not config.is_traceback_filtering_enabled():
        return traceback
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    kept = [frame for frame in frames if not _is_own(frame.tb_frame)] or frames[-1:]
    result = None
    for frame in reversed(kept):
        result = TracebackType(result, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return result


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "kerascnn"


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warns of the innermost line that is not the library's."""
    level, frame = 2, sys._getframe(1)
    while _is_own(frame) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def filter_traceback(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, whose errors have filtered tracebacks.

    The error for a keyword argument that it does not have names those that it has.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            wrong = _wrong_name(function, kwargs) if isinstance(error, TypeError) else None
            if wrong is not None:
                raise wrong from None
            raise error.with_traceback(filtered(error.__traceback__))  # noqa: B904

    return call


def names_arguments(cls: type) -> None:
    """Makes a class of the library answer misspelt arguments with those of its constructor.

    For `__init_subclass__`. Classes of users keep their constructors, whose own calls of the
    library's are answered.
    """
    initializer = cls.__dict__.get("__init__")
    if initializer is not None and cls.__module__.partition(".")[0] == "kerascnn":
        cls.__init__ = filter_traceback(initializer)  # type: ignore[misc]


def _wrong_name(function: Callable[..., Any], given: Mapping[str, Any]) -> TypeError | None:
    """The error for a name that a function has no argument of, None where it has all."""
    parameters = inspect.signature(function).parameters.values()
    known = [p.name for p in parameters if p.name != "self"]
    wrong = [name for name in given if name not in known]
    if not wrong or any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    name = getattr(function, "__name__", "This")
    if name == "__init__":
        name = str(getattr(function, "__qualname__", name)).removesuffix(".__init__")
    return TypeError(
        f"{name}() got an unexpected keyword argument "
        f"{wrong[0]!r}. {serialization.did_you_mean(wrong[0], known)}"
    )
