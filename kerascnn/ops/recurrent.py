"""Whole sequences of recurrent cells in one call of the core, for the layers of that name.

The functions do the serial part: what the inputs add to the gates is one product over all steps,
which the caller makes before.
"""

from __future__ import annotations

from typing import Any

from kerascnn import dtypes
from kerascnn.ops import creation, dispatch, elementwise, shaping, statistics

__all__ = ["gru_sequence", "lstm_sequence"]


def lstm_sequence(
    x: Any,
    h0: Any,
    c0: Any,
    recurrent_kernel: Any,
    mask: Any = None,
    reverse: bool = False,
) -> tuple[Any, Any, Any]:
    """The states of an LSTM over a sequence (Hochreiter and Schmidhuber, 1997).

    Args:
        x: (batch, time, 4 * units), the inputs times the kernel plus the bias, for the input gate,
            the forget gate, the candidate and the output gate.
        h0: (batch, units), the first hidden state; None stands for zeros.
        c0: (batch, units), the first cell state; None stands for zeros.
        recurrent_kernel: (units, 4 * units).
        mask: (batch, time) or (batch, time, 1) booleans. Where it is false, both states stay as
            they are and the output is that of the step before, zeros where there is none.
        reverse: Whether the last step is read first.

    Returns:
        outputs: (batch, time, units), in the order in which the steps are read: with `reverse` the
            first one belongs to the last step of `x`.
        last_h: (batch, units), the hidden state in the end. Where a row's mask is false throughout,
            this is `h0`, while its outputs are zeros.
        last_c: (batch, units), the cell state in the end.

    Raises:
        ValueError: where the shapes don't fit.
        TypeError: where the dtypes differ.

    Example:

    >>> import numpy as np
    >>> from kerascnn.ops.recurrent import lstm_sequence
    >>> x, state = np.ones((2, 5, 12), "float32"), np.zeros((2, 3), "float32")
    >>> outputs, h, c = lstm_sequence(x, state, state, np.zeros((3, 12), "float32"))
    >>> outputs.shape, h.shape, c.shape
    ((2, 5, 3), (2, 3), (2, 3))
    """
    x, kernel = dispatch.convert(x), dispatch.convert(recurrent_kernel)
    inputs = [x, _state(h0, x, kernel), _state(c0, x, kernel), kernel]
    mask = _two_axes(mask)
    last_h, last_c, outputs = _apply("lstm", inputs, mask, reverse)[:3]
    return _as_read(outputs, h0, mask, reverse), last_h, last_c


def gru_sequence(
    x: Any,
    h0: Any,
    recurrent_kernel: Any,
    recurrent_bias: Any = None,
    mask: Any = None,
    reverse: bool = False,
    reset_after: bool = True,
) -> tuple[Any, Any]:
    """The states of a GRU over a sequence (Cho et al., 2014), as cuDNN computes it.

    Args:
        x: (batch, time, 3 * units), the inputs times the kernel plus the input bias, for the update
            gate, the reset gate and the candidate.
        h0: (batch, units), the first hidden state; None stands for zeros.
        recurrent_kernel: (units, 3 * units).
        recurrent_bias: (3 * units,), by default zeros.
        mask: As in `lstm_sequence`.
        reverse: Whether the last step is read first.
        reset_after: Whether the reset gate scales the product of the state and the kernel, rather
            than the state. There is no kernel for the latter.

    Returns:
        outputs: (batch, time, units), in the order in which the steps are read.
        last_h: (batch, units), the hidden state in the end.

    Raises:
        ValueError: where the shapes don't fit, and for `reset_after=False`.
        TypeError: where the dtypes differ.

    Example:

    >>> import numpy as np
    >>> from kerascnn.ops.recurrent import gru_sequence
    >>> x, state = np.ones((2, 5, 9), "float32"), np.zeros((2, 3), "float32")
    >>> outputs, h = gru_sequence(x, state, np.zeros((3, 9), "float32"))
    >>> outputs.shape, h.shape
    ((2, 5, 3), (2, 3))
    """
    if not reset_after:
        raise ValueError(
            "gru_sequence: with reset_after=False the reset gate scales the state before the "
            "product, for which there is no kernel over whole sequences. Compute the steps one by "
            "one, or use reset_after=True."
        )
    x, kernel = dispatch.convert(x), dispatch.convert(recurrent_kernel)
    if recurrent_bias is None:
        recurrent_bias = creation.zeros((kernel.shape[1],), kernel.dtype)
    inputs = [x, _state(h0, x, kernel), kernel, dispatch.convert(recurrent_bias)]
    mask = _two_axes(mask)
    last_h, outputs = _apply("gru", inputs, mask, reverse)[:2]
    return _as_read(outputs, h0, mask, reverse), last_h


def _two_axes(mask: Any) -> Any:
    """Returns the mask as booleans of shape (batch, time)."""
    if mask is None:
        return None
    mask = dispatch.convert(mask)
    if dtypes.standardize_dtype(mask.dtype) != "bool":
        mask = creation.cast(mask, "bool")
    if len(mask.shape) == 3 and mask.shape[2] == 1:
        mask = shaping.squeeze(mask, 2)
    return mask


def _state(state: Any, x: Any, kernel: Any) -> Any:
    """Returns the first state, or zeros of shape (batch, units) for None."""
    if state is None:
        return creation.zeros((x.shape[0], kernel.shape[0]), kernel.dtype)
    return dispatch.convert(state)


def _apply(op: str, inputs: list[Any], mask: Any, reverse: bool) -> list[Any]:
    masked = mask is not None
    attributes = {"reverse": bool(reverse), "masked": masked}
    return dispatch.apply(op, [*inputs, mask] if masked else inputs, attributes)


def _as_read(outputs: Any, h0: Any, mask: Any, reverse: bool) -> Any:
    """The core's outputs, which lie where their inputs lie, in the order in which those are read.

    The core repeats the state where the mask is false, and so `h0` where no step has counted yet.
    """
    if reverse:
        outputs = shaping.flip(outputs, 1)
    if mask is None or h0 is None:
        return outputs
    counted = shaping.flip(mask, 1) if reverse else mask
    has_begun = statistics.cumsum(creation.cast(counted, "int32"), 1) > 0
    return elementwise.where(shaping.expand_dims(has_begun, 2), outputs, 0.0)
