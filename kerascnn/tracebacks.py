"""Tracebacks without the library's own frames, as Keras shows them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from kerascnn import config

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
    kept = [frame for frame in frames if not _is_own(frame)] or frames[-1:]
    result = None
    for frame in reversed(kept):
        result = TracebackType(result, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return result


def _is_own(traceback: TracebackType) -> bool:
    name = str(traceback.tb_frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] == "kerascnn"


def filter_traceback(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, whose errors have filtered tracebacks."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise error.with_traceback(filtered(error.__traceback__))  # noqa: B904

    return call
