"""Gradients inside a step that Python runs at once, batch by batch.

`kerascnn.training.gradients` has the functions that users call; in a step that is run rather than
traced they come here. A tape records the whole step, so that a gradient can be taken anywhere in
it, and more than one.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import Any

from kerascnn import _core, tracing
from kerascnn.variable import Variable

_current: contextvars.ContextVar[StepGradients | None] = contextvars.ContextVar(
    "step_gradients", default=None
)


class StepGradients:
    """What a step records, and what `backward` has found in it."""

    def __init__(self) -> None:
        self._tape = _core.Tape(True, True)
        # Gradients are stored by the memory address of their variable: each reading gives another
        # tensor over the same memory.
        self._found: dict[tuple[str, int], Any] = {}

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Returns the block in which the step runs."""
        token = _current.set(self)
        self._tape.start()
        try:
            yield
        finally:
            if self._tape.is_recording:
                self._tape.stop()
            _current.reset(token)

    def of(self, loss: Any, variables: Sequence[Variable], is_last: bool = False) -> list[Any]:
        """The gradients of a loss; None where it does not depend on a variable.

        Args:
            loss: a scalar.
            variables: what to differentiate by.
            is_last: whether none will be taken after these, so that they need not be recorded.
        """
        for variable in variables:
            if not variable.trainable:
                raise ValueError(
                    f"The variable '{variable.path}' is not trainable, so a step that runs eagerly "
                    "does not record what is computed from it. Set its `trainable`, or use "
                    "keras.GradientTape and `watch` it."
                )
        if is_last and self._tape.is_recording:
            self._tape.stop()
        return list(self._tape.gradients([loss], [None], [v.core for v in variables]))

    def backward(self, loss: Any) -> None:
        """Adds the gradients by all trained variables that were read to earlier ones."""
        cores = [core for core in self._tape.watched_variables() if core.trainable]
        found = self._tape.gradients([loss], [None], cores)
        for core, gradient in zip(cores, found, strict=True):
            if gradient is not None:
                key = _place_of(core.value)
                before = self._found.get(key)
                self._found[key] = gradient if before is None else before + gradient

    def found(self, value: Any) -> Any:
        """Returns the result of `backward` for the variable with this value, or None."""
        return self._found.get(_place_of(value))

    def forget(self, variables: Sequence[Variable]) -> None:
        """Forgets the results of `backward` for these."""
        for variable in variables:
            self._found.pop(_place_of(variable.core.value), None)


def current() -> StepGradients | None:
    """Returns those of the running step; None outside one, and while something in it is traced."""
    return None if tracing.current() is not None else _current.get()


def _place_of(tensor: Any) -> tuple[str, int]:
    return tensor.device, tensor.address
