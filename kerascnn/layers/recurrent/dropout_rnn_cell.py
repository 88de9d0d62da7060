"""Dropout masks that are the same for all time steps."""

from __future__ import annotations

import weakref
from typing import Any

from kerascnn import ops, random, tracing


class DropoutRNNCell:
    """The base of cells with dropout: masks that are drawn once for a sequence.

    A cell with it has the rates `dropout` (of inputs) and `recurrent_dropout` (of the state), and
    `seed_generator`. With an integer `dropout_mask_count` there are so many masks of each kind, one
    for each gate.

    A mask that was drawn is used until it is reset; recurrent layers do so for each sequence. One
    that was drawn in a compiled step is not used outside of it.
    """

    dropout: float
    recurrent_dropout: float
    seed_generator: random.SeedGenerator | None
    dropout_mask_count: int | None = None

    def get_dropout_mask(self, step_input: Any) -> Any:
        """Returns what inputs of one step are multiplied by in training; None without dropout."""
        return self._mask("_dropout_mask", step_input, self.dropout)

    def get_recurrent_dropout_mask(self, step_input: Any) -> Any:
        """Returns what the state is multiplied by in training; None without dropout."""
        return self._mask("_recurrent_dropout_mask", step_input, self.recurrent_dropout)

    def reset_dropout_mask(self) -> None:
        """Forgets the mask of inputs: the next step draws another one."""
        self._dropout_mask: Any = None

    def reset_recurrent_dropout_mask(self) -> None:
        """Forgets the mask of the state: the next step draws another one."""
        self._recurrent_dropout_mask: Any = None

    def hold_dropout_masks(self, holds: bool) -> None:
        """Whether masks that are there are valid, whatever records the step that asks for them.

        A loop's body may be recorded by itself; its masks are those from around it.
        """
        self._holds_masks = holds

    def _mask(self, name: str, step_input: Any, rate: float) -> Any:
        if rate <= 0:
            return None
        trace = tracing.current()
        kept = getattr(self, name, None)
        if kept is not None:
            place, mask = kept
            drawn_in = None if place is None else place()
            if getattr(self, "_holds_masks", False) or (
                drawn_in is trace and (place is None) == (trace is None)
            ):
                return mask
        mask = self._draw(step_input, rate)
        setattr(self, name, (None if trace is None else weakref.ref(trace), mask))
        return mask

    def _draw(self, step_input: Any, rate: float) -> Any:
        ones = ops.ones_like(step_input)
        if self.dropout_mask_count is None:
            return random.dropout(ones, rate, seed=self.seed_generator)
        return [
            random.dropout(ones, rate, seed=self.seed_generator)
            for _ in range(self.dropout_mask_count)
        ]
