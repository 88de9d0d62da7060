"""Choices and loops over tensors.

At once they are Python's. In a traced step, whose values nobody knows, both sides of a choice are
computed and one is selected, and loops of a known length are unrolled.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from kerascnn import _core, trees
from kerascnn.ops import creation, dispatch, elementwise, shaping
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.symbolic.operation import op

__all__ = [
    "associative_scan",
    "cond",
    "fori_loop",
    "map",
    "scan",
    "stop_gradient",
    "switch",
    "vectorized_map",
    "while_loop",
]


@op
def stop_gradient(variable: Any) -> Any:
    """The same elements, through which no gradient flows.

    Example:

    >>> from kerascnn import ops
    >>> ops.stop_gradient([1.0]).numpy().tolist()
    [1.0]
    """
    return dispatch.apply_one("stop_gradient", [dispatch.convert(variable)])


def _is_unknown(x: Any) -> bool:
    """Whether the value is known only when a step or a model runs."""
    if isinstance(x, KerasTensor):
        return True
    return isinstance(dispatch.convert(x) if dispatch.is_array_like(x) else x, _core.Value)


def cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """The result of one of two functions.

    Args:
        pred: A bool, or a tensor of one.
        true_fn: What to call where it is True.
        false_fn: What to call where it is False. In a traced step both are called, and their
            results must have one structure.

    Example:

    >>> from kerascnn import ops
    >>> ops.cond(ops.convert_to_tensor(True), lambda: 1, lambda: 2)
    1
    """
    if not callable(true_fn) or not callable(false_fn):
        raise TypeError(f"cond needs two functions. Received: {true_fn!r}, {false_fn!r}")
    if not _is_unknown(pred):
        return true_fn() if bool(pred) else false_fn()
    first, second = true_fn(), false_fn()
    if first is None and second is None:
        return None
    return trees.map_structure(lambda a, b: elementwise.where(pred, a, b), first, second)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """The result of one of several functions of the operands, the first or last for an index
    outside. In a traced step all of them are called.
    """
    if not _is_unknown(index):
        return branches[builtins.min(builtins.max(int(index), 0), len(branches) - 1)](*operands)
    result = branches[-1](*operands)
    for i in reversed(range(len(branches) - 1)):
        before = elementwise.less_equal(index, i)
        result = trees.map_structure(
            lambda a, b, before=before: elementwise.where(before, a, b),
            branches[i](*operands),
            result,
        )
    return result


def fori_loop(lower: int, upper: int, body_fun: Callable[..., Any], init_val: Any) -> Any:
    """val = body_fun(i, val) for i from lower to upper - 1.

    Raises:
        TypeError: for limits that are known only in the step.

    Example:

    >>> from kerascnn import ops
    >>> ops.fori_loop(0, 3, lambda i, total: total + i, 0)
    3
    """
    val = init_val
    for i in range(int(lower), int(upper)):
        val = body_fun(i, val)
    return val


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    maximum_iterations: int | None = None,
) -> Any:
    """loop_vars = body(*loop_vars) while cond(*loop_vars) holds.

    In a traced step, where the condition has no value, `maximum_iterations` must be given: the
    loop is unrolled so often, and values stay as they are once the condition has failed.

    Args:
        cond: Says whether to go on.
        body: Gives the next values.
        loop_vars: First values.
        maximum_iterations: By default no limit.

    Example:

    >>> from kerascnn import ops
    >>> ops.while_loop(lambda i: i < 5, lambda i: i + 2, ops.convert_to_tensor(0)).numpy().tolist()
    6
    """
    is_tuple = isinstance(loop_vars, (tuple, list))
    values = tuple(loop_vars) if is_tuple else (loop_vars,)
    values = trees.map_structure(dispatch.convert, values)
    count = 0
    running: Any = None
    while maximum_iterations is None or count < maximum_iterations:
        going = cond(*values)
        if _is_unknown(going):
            if maximum_iterations is None:
                raise ValueError(
                    "while_loop: in a traced step the condition has no value. Say how often the "
                    "loop runs at most by maximum_iterations, or use fori_loop."
                )
            running = going if running is None else elementwise.logical_and(running, going)
        elif not bool(going):
            break
        after = body(*values)
        after = tuple(after) if isinstance(after, (tuple, list)) else (after,)
        if running is None:
            values = after
        else:
            values = trees.map_structure(
                lambda a, b, on=running: elementwise.where(on, a, b), after, values
            )
        count += 1
    return values if is_tuple else values[0]


def scan(
    f: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> Any:
    """carry, y = f(carry, x) for each slice x along the first axis of xs.

    Args:
        f: Takes the carry and a slice, gives the next carry and a result (or None).
        init: First carry.
        xs: Tensors, nested as f takes them, or None.
        length: How many steps; by default the length of xs.
        reverse: Whether it begins with the last slice.
        unroll: Nothing depends on it: loops are always unrolled.

    Returns:
        (carry, the results stacked).

    Example:

    >>> from kerascnn import ops
    >>> total, sums = ops.scan(lambda c, x: (c + x, c + x), 0, ops.arange(4))
    >>> int(total), sums.numpy().tolist()
    (6, [0, 1, 3, 6])
    """
    if not callable(f):
        raise TypeError(f"`f` should be a callable. Received: f={f}")
    if not isinstance(unroll, (bool, int)) or (
        unroll is not True and unroll is not False and unroll < 1
    ):
        raise ValueError(f"`unroll` must be an positive integer or boolean. Received: {unroll}")
    if xs is None and length is None:
        raise ValueError("Got no `xs` to scan over and `length` not provided.")
    if xs is not None:
        xs = trees.map_structure(dispatch.convert, xs)
    steps = int(length) if length is not None else int(trees.flatten(xs)[0].shape[0])
    carry = trees.map_structure(dispatch.convert, init)
    results = []
    for i in reversed(range(steps)) if reverse else range(steps):
        x = None if xs is None else trees.map_structure(lambda part, i=i: part[i], xs)
        carry, y = f(carry, x)
        results.append(trees.map_structure(creation.zeros_like, carry) if y is None else y)
    if reverse:
        results.reverse()
    if not results:
        return carry, None
    return carry, trees.map_structure(lambda *parts: shaping.stack(parts), *results)


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """The results of f for each slice along the first axis of xs, stacked."""
    return scan(lambda _, x: ((), f(x)), (), xs)[1]


def vectorized_map(function: Callable[[Any], Any], elements: Any) -> Any:
    """The same as `map`."""
    return map(function, elements)


def associative_scan(
    f: Callable[..., Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """Running results of a function of two arguments that is associative.

    Runs of 1, 2, 4, ... elements are combined, in as many steps as the length has bits.

    Args:
        f: Combines two (nested) tensors, the earlier and the later part of the axis.
        elems: Tensors, nested as f takes them, of one length along the axis.
        reverse: Whether it begins at the axis' end.
        axis: Along which it runs.

    Example:

    >>> from kerascnn import ops
    >>> ops.associative_scan(ops.add, ops.arange(4)).numpy().tolist()
    [0, 1, 3, 6]
    """
    if not callable(f):
        raise TypeError(f"`f` should be a callable. Received: f={f}")
    elems = trees.map_structure(dispatch.convert, elems)
    lengths = {part.shape[axis] for part in trees.leaves(elems)}
    if len(lengths) != 1:
        raise ValueError(
            f"Array inputs to associative_scan must have one length. Received: {sorted(lengths)}"
        )
    (length,) = lengths

    def cut(part: Any, first: int, last: int) -> Any:
        place = axis % len(part.shape)
        return part[(slice(None),) * place + (slice(first, last),)]

    def over(function: Callable[..., Any], *nested: Any) -> Any:
        return trees.map_structure(function, *nested)

    if reverse:
        elems = over(lambda part: shaping.flip(part, axis), elems)
    reach = 1
    while reach < length:
        earlier = over(lambda part, n=reach: cut(part, 0, length - n), elems)
        later = over(lambda part, n=reach: cut(part, n, length), elems)
        elems = over(
            lambda part, new, n=reach: shaping.concatenate([cut(part, 0, n), new], axis),
            elems,
            f(earlier, later),
        )
        reach *= 2
    return over(lambda part: shaping.flip(part, axis), elems) if reverse else elems
