"""Which recurrent layers are computed by one op for the whole sequence, in place of a loop.

This is the one place that decides it. The ops know the gates' usual functions; everything else, and
second derivatives, are for the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerascnn import activations, ops
from kerascnn.layers.recurrent.gated_cell import GatedCell, RecurrentParts
from kerascnn.ops.recurrent import gru_sequence, lstm_sequence

# It takes (projected inputs, states, parts, mask, go_backwards) and returns (outputs in the order
# of computation, states).
SequenceOp = Callable[[Any, Any, RecurrentParts, Any, bool], tuple[Any, list[Any]]]


class ZeroStates(list[Any]):
    """The states of a cell before the first step where they are known to be zeros.

    Then the state that a masked step repeats is also the output that it shows, 0 where no step has
    counted yet; of other states outputs need one more pass.
    """


def find(cell: GatedCell, parts: RecurrentParts, mask: Any, unroll: bool) -> SequenceOp | None:
    """Returns what computes whole sequences of a cell, or None if no op fits its arguments."""
    from kerascnn.layers.recurrent.gru import GRUCell  # these modules import this one
    from kerascnn.layers.recurrent.lstm import LSTMCell

    usual = (
        getattr(cell, "recurrent_activation", None) is activations.sigmoid
        and cell.activation is activations.tanh
    )
    has_usual_mask = mask is None or len(mask.shape) == 2
    if not usual or not has_usual_mask or unroll or parts.masks is not None:
        return None
    if type(cell).step is LSTMCell.step:
        return _lstm
    if type(cell).step is GRUCell.step and cell.reset_after:  # type: ignore[attr-defined]
        return _gru
    return None


def run(
    op: SequenceOp,
    projected: Any,
    states: Any,
    parts: RecurrentParts,
    mask: Any,
    go_backwards: bool,
    zero_output_for_mask: bool,
) -> tuple[Any, Any, Any]:
    """Returns what `ops.recurrence.rnn` returns: (last output, outputs, states)."""
    begins_with_zeros = isinstance(states, ZeroStates)
    given = [None] * len(states) if begins_with_zeros else states
    outputs, after = op(projected, given, parts, mask, go_backwards)
    if mask is None or (begins_with_zeros and not zero_output_for_mask):
        return after[0], outputs, after
    if zero_output_for_mask:
        counts = ops.flip(mask, axis=1) if go_backwards else mask
        outputs = ops.where(ops.expand_dims(counts, -1), outputs, ops.zeros_like(outputs))
    return outputs[:, -1], outputs, after


def _lstm(
    projected: Any, states: Any, parts: RecurrentParts, mask: Any, go_backwards: bool
) -> tuple[Any, list[Any]]:
    hidden, carry = states
    outputs, hidden, carry = lstm_sequence(
        projected, hidden, carry, parts.kernel, mask, go_backwards
    )
    return outputs, [hidden, carry]


def _gru(
    projected: Any, states: Any, parts: RecurrentParts, mask: Any, go_backwards: bool
) -> tuple[Any, list[Any]]:
    outputs, state = gru_sequence(
        projected, states[0], parts.kernel, parts.bias, mask, go_backwards
    )
    return outputs, [state]
