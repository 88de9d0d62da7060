"""Threads that use one model take turns, since they share its compiled steps and their memory."""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_Method = TypeVar("_Method", bound=Callable[..., Any])


class Turns:
    """A lock that goes to those who wait in order; a thread that has it may take it again.

    Attributes:
        trainer: the name of the thread that trains, while one does.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self._waiting: collections.deque[tuple[int, threading.Lock]] = collections.deque()
        self.trainer: str | None = None

    def __reduce__(self) -> tuple:
        return Turns, ()  # a copy of a model is used by nobody yet

    def __enter__(self) -> None:
        self._take(1)

    def __exit__(self, *error: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            with self._mutex:
                self._hand_over()

    def _take(self, depth: int) -> None:
        me = threading.get_ident()
        if self._owner == me:
            self._depth += depth
            return
        gate = None
        with self._mutex:
            if self._owner is None:
                self._owner = me
            else:
                gate = threading.Lock()
                gate.acquire()
                self._waiting.append((me, gate))
        if gate is not None:
            try:
                gate.acquire()  # `_hand_over` opens it
            except BaseException:  # Ctrl-C
                self._leave(me, gate)
                raise
        self._depth = depth

    def _leave(self, me: int, gate: threading.Lock) -> None:
        """Stops waiting; the turn may have come in the meantime."""
        with self._mutex:
            if (me, gate) in self._waiting:
                self._waiting.remove((me, gate))
            else:
                self._hand_over()

    def _hand_over(self) -> None:
        self._owner = None
        if self._waiting:
            self._owner, gate = self._waiting.popleft()
            gate.release()

    def give_way(self) -> None:
        """Lets those who wait have their turn, between two steps of a training."""
        if not self._waiting:
            return
        depth = self._depth
        with self._mutex:
            self._hand_over()
        self._take(depth)


def turns_of(model: Any) -> Turns:
    """The turns of a model; the first thread that asks makes them."""
    own = model.__dict__
    return own.get("_turns") or own.setdefault("_turns", Turns())


def in_turn(method: _Method) -> _Method:
    """Makes a method of a model wait for its turn."""

    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        with turns_of(self):
            return method(self, *args, **kwargs)

    return wrapped  # type: ignore[return-value]


def trained_by_one_thread(method: _Method) -> _Method:
    """The same for a method that changes weights or metrics, which no other thread may meanwhile.

    Raises:
        RuntimeError: where another thread trains the model.
    """

    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        turns = turns_of(self)
        with turns:
            here = threading.current_thread().name
            before = turns.trainer
            if before not in (None, here):
                raise RuntimeError(
                    f"Model '{self.name}' is being trained by the thread '{before}', so "
                    f"`{method.__name__}()` can't run in '{here}': it would change the weights or "
                    "metrics of that training. Call it after the training, or in a callback; "
                    "`predict()` is possible at any time."
                )
            turns.trainer = here
            try:
                return method(self, *args, **kwargs)
            finally:
                turns.trainer = before

    return wrapped  # type: ignore[return-value]
