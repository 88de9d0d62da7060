"""A function of one time step, applied to the steps of a sequence one after another.

All recurrent layers are written with it. It is one `scan`, whose body reads what does not change
from step to step (weights, the masks of dropout) as it finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerascnn import trees
from kerascnn.ops import control, creation, dispatch, elementwise, shaping

Step = Callable[[Any, Any], tuple[Any, Any]]


def rnn(
    step_function: Step,
    inputs: Any,
    initial_states: Any,
    go_backwards: bool = False,
    mask: Any = None,
    unroll: bool = False,
    zero_output_for_mask: bool = False,
    return_all_outputs: bool = True,
) -> tuple[Any, Any, Any]:
    """output, states = step_function(inputs of one step, states) for the steps of a sequence.

    Args:
        step_function: Takes and returns tensors, nested as `inputs` and `initial_states` are. It
            is called once more than there are steps, to learn the shape of its output.
        inputs: Tensors of shape (batch, steps, ...), with at least one step.
        initial_states: States before the first step.
        go_backwards: Whether it begins with the last step.
        mask: (batch, steps), False where a step is to be passed over: the states stay as they are,
            and the output is that of the step before (zeros, if there is none).
        unroll: Whether a compiled step holds a copy of the loop's body for each time step.
        zero_output_for_mask: Whether outputs of masked steps are zeros.
        return_all_outputs: Whether the outputs of all steps are kept.

    Returns:
        (output of the step that was computed last, outputs (batch, steps, ...) in the order of
        computing or None, states). States keep their dtypes; outputs have that of the step
        function.

    Raises:
        ValueError: for a mask of another length, and a step function that returns another number of
            states than it was given.

    Example:

    >>> from kerascnn import ops
    >>> from kerascnn.ops.recurrence import rnn
    >>> def add(x, states):
    ...     total = states[0] + x
    ...     return total, [total]
    >>> sequences = ops.reshape(ops.arange(4.0), (1, 4, 1))
    >>> last, outputs, states = rnn(add, sequences, [ops.zeros((1, 1))])
    >>> outputs.numpy().ravel().tolist(), last.numpy().tolist()
    ([0.0, 1.0, 3.0, 6.0], [[6.0]])
    """
    sequences = trees.map_structure(_swap_batch_and_time, inputs)
    steps = trees.flatten(sequences)[0].shape[0]
    states = trees.map_structure(dispatch.convert, initial_states)
    masks = None if mask is None else _swap_batch_and_time(checked_mask(mask, steps))
    keeps_output = masks is not None or not return_all_outputs
    before: Any = ()
    if keeps_output:
        first = trees.map_structure(lambda x: x[steps - 1 if go_backwards else 0], sequences)
        before = trees.map_structure(creation.zeros_like, step_function(first, states)[0])

    def body(carry: Any, slices: Any) -> tuple[Any, Any]:
        before, states = carry
        part, mask = slices if masks is not None else (slices, None)
        output, after = step_function(part, states)
        after = _like(after, states)
        if mask is not None:
            kept = trees.map_structure(creation.zeros_like, output)
            output = _select(mask, output, kept if zero_output_for_mask else before)
            after = _select(mask, after, states)
        return (output if keeps_output else (), after), (output if return_all_outputs else ())

    (last, states), outputs = control.scan(
        body,
        (before, states),
        sequences if masks is None else (sequences, masks),
        reverse=go_backwards,
        unroll=True if unroll else 1,
    )
    if not return_all_outputs:
        return last, None, states
    if not keeps_output:
        last = trees.map_structure(lambda x: x[0 if go_backwards else steps - 1], outputs)
    if go_backwards:  # `scan` puts results at the places of their inputs
        outputs = trees.map_structure(lambda x: shaping.flip(x, 0), outputs)
    return last, trees.map_structure(_swap_batch_and_time, outputs), states


def _swap_batch_and_time(x: Any) -> Any:
    x = dispatch.convert(x)
    return shaping.transpose(x, (1, 0, *range(2, len(x.shape))))


def checked_mask(mask: Any, steps: int) -> Any:
    """Returns a mask as booleans; raises a ValueError unless it has so many steps."""
    mask = dispatch.convert(mask, "bool")
    if len(mask.shape) < 2 or mask.shape[1] != steps:
        raise ValueError(
            f"The mask of a sequence has the shape (batch, steps), here (batch, {steps}). "
            f"Received: mask.shape={tuple(mask.shape)}"
        )
    return mask


def _like(after: Any, before: Any) -> Any:
    """Gives new states the structure and dtypes of the previous ones, which a loop requires."""
    new, old = trees.flatten(after), trees.flatten(before)
    if len(new) != len(old):
        raise ValueError(
            f"A recurrent cell was given {len(old)} state tensors and returned {len(new)}. It has "
            "to return the new value of each."
        )
    cast = [dispatch.convert(a, b.dtype) for a, b in zip(new, old, strict=True)]
    return trees.pack_as(before, cast)


def _select(mask: Any, where_true: Any, where_false: Any) -> Any:
    def select(a: Any, b: Any) -> Any:
        own = shaping.reshape(mask, (*mask.shape, *[1] * (len(a.shape) - len(mask.shape))))
        return elementwise.where(own, a, b)

    return trees.map_structure(select, where_true, where_false)
