"""Choices and loops over tensors.

At once they are Python's. In a traced step, whose values nobody knows, each is a node with graphs
of its own: a loop stays a loop however long it is, and of a choice one side runs.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerascnn import _core, trees
from kerascnn.ops import creation, dispatch, elementwise, joining, loops, shaping
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.symbolic.operation import op

__all__ = [
    "associative_scan",
    "cond",
    "custom_gradient",
    "fori_loop",
    "jvp",
    "map",
    "scan",
    "stop_gradient",
    "switch",
    "vectorized_map",
    "while_loop",
]


@op
def stop_gradient(variable: Any) -> Any:
    """The same elements, through which no gradient flows: what comes after takes them as constants.

    Args:
        variable: Tensor of any shape and dtype.

    Returns:
        A tensor of the same shape, dtype and elements.

    Example:

    >>> import kerascnn as keras
    >>> from kerascnn import ops
    >>> slope = keras.grad(lambda x: x * ops.stop_gradient(x))  # not 2 x
    >>> float(slope(ops.convert_to_tensor(3.0)))
    3.0
    """
    return dispatch.apply_one("stop_gradient", [dispatch.convert(variable)])


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Lets a function define its own gradient; see `kerascnn.custom_gradient`.

    Args:
        f: Takes tensors, and returns a result together with a function that makes the gradients of
            the tensors from the result's gradient.

    Returns:
        A function of the same tensors that returns the result alone.

    Example:

    >>> import kerascnn as keras
    >>> from kerascnn import ops
    >>> @ops.custom_gradient
    ... def clipped(x):
    ...     return ops.clip(x, 0.0, 1.0), lambda upstream: upstream  # as if it had not been clipped
    >>> float(keras.grad(clipped)(ops.convert_to_tensor(2.0)))
    1.0
    """
    from kerascnn.autodiff.custom import custom_gradient

    return custom_gradient(f)


def jvp(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> Any:
    """A function's result and how it changes along a direction; see `kerascnn.autodiff`.

    Args:
        fun: Takes and returns (nested) floating tensors.
        primals: Its arguments, a tuple or list.
        tangents: The direction: of the structure and shapes of `primals`.
        has_aux: Whether `fun` returns (result, anything else).

    Returns:
        (result, its derivative along `tangents`), and with `has_aux` what else `fun` returned.

    Raises:
        TypeError: for primals or results that are not floating.
        ValueError: for tangents of another structure, and where the way leads through an op without
            a second derivative: this takes the gradient of a gradient.

    Example:

    >>> from kerascnn import ops
    >>> y, slope = ops.jvp(lambda x: x * x, (3.0,), (2.0,))
    >>> float(y), float(slope)
    (9.0, 12.0)
    """
    from kerascnn.autodiff.functional import jvp

    return jvp(fun, primals, tangents, has_aux)


def _is_unknown(x: Any) -> bool:
    """Tells whether the value is known only when a step or a model runs."""
    if isinstance(x, KerasTensor):
        return True
    return isinstance(dispatch.convert(x) if dispatch.is_array_like(x) else x, _core.Value)


def cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """The result of one of two functions.

    At once, only one of them is called. In a compiled step both are traced, and their results must
    have one structure and the same shapes; one of them runs in each step. So it is in a functional
    model, for a KerasTensor of shape () and the functions around KerasTensors; where results are
    broadcast to one shape, both are computed.

    Args:
        pred: A bool, or a tensor of one element.
        true_fn: What to call, without arguments, where it is True.
        false_fn: What to call where it is False.

    Returns:
        What the function returns: tensors, nested as it likes.

    Raises:
        TypeError: for something that cannot be called.

    Example:

    >>> from kerascnn import ops
    >>> x = ops.convert_to_tensor([1.0, -4.0])
    >>> ops.cond(ops.sum(x) > 0, lambda: x, lambda: -x).numpy().tolist()
    [-1.0, 4.0]
    """
    if not callable(true_fn) or not callable(false_fn):
        raise TypeError(f"cond needs two functions. Received: {true_fn!r}, {false_fn!r}")
    if not _is_unknown(pred):
        return true_fn() if bool(pred) else false_fn()
    if loops.is_traced():
        flag = shaping.reshape(dispatch.convert(pred, "bool"), ())
        return loops.switch(flag, [false_fn, true_fn], "cond")
    first, second = true_fn(), false_fn()
    if first is None and second is None:
        return None
    if isinstance(pred, KerasTensor) and pred.shape == () and _are_alike(first, second):
        return one_of(pred, first, second)
    return trees.map_structure(lambda a, b: elementwise.where(pred, a, b), first, second)


@op
def one_of(pred: Any, first: Any, second: Any) -> Any:
    """The first of two results of one structure where `pred` is True, else the second.

    What `cond` is in a functional model, which computes only what is needed for the one of them.
    """
    return trees.map_structure(lambda a, b: elementwise.where(pred, a, b), first, second)


one_of.is_choice = True  # type: ignore[attr-defined]


def _are_alike(first: Any, second: Any) -> bool:
    """Tells whether two nested results have the same structure and shapes."""

    def shapes(x: Any) -> Any:
        return trees.map_structure(lambda y: _Leaf(getattr(y, "shape", np.shape(y))), x)

    return bool(shapes(first) == shapes(second))


class _Leaf(NamedTuple):
    shape: tuple[int | None, ...]


@op
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """The result of one of several functions of the operands.

    In a compiled step all of them are traced, and their results must have one structure and the
    same shapes; one of them runs in each step.

    Args:
        index: The number of the function, an integer or a tensor of one; below 0 it counts as 0,
            and beyond the last function as the last.
        branches: At least one function.
        operands: What the function is called with.

    Returns:
        What the function returns.

    Example:

    >>> from kerascnn import ops
    >>> branches = [lambda x: x + 1, lambda x: x * 10]
    >>> ops.switch(1, branches, 3), ops.switch(-7, branches, 3)
    (30, 4)
    """
    if loops.is_traced() and _is_unknown(index):
        place = shaping.reshape(dispatch.convert(index), ())
        return loops.switch(place, [functools.partial(f, *operands) for f in branches])
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


@op
def fori_loop(lower: int, upper: int, body_fun: Callable[..., Any], init_val: Any) -> Any:
    """val = body_fun(i, val) for i from lower to upper - 1.

    In a compiled step i is a tensor, and `val` keeps its shapes and dtypes. Limits that are known
    only in the step make it a `while_loop` without a limit, which has no gradient.

    Args:
        lower: The first i.
        upper: The i before which the loop ends; with `upper` up to `lower` it runs not at all.
        body_fun: Takes i and the current value, and returns the next one.
        init_val: The first value: tensors or numbers, nested in any way.

    Returns:
        The last value.

    Example:

    >>> from kerascnn import ops
    >>> ops.fori_loop(1, 5, lambda i, product: product * i, 1)
    24
    """
    if loops.is_traced():
        if _is_unknown(lower) or _is_unknown(upper):
            last = dispatch.convert(upper)
            return while_loop(
                lambda i, _: elementwise.less(i, last),
                lambda i, val: (i + 1, body_fun(i, val)),
                (dispatch.convert(lower), init_val),
            )[1]
        first = dispatch.convert(int(lower))
        steps = builtins.max(int(upper) - int(lower), 0)
        return scan(
            lambda carry, _: ((carry[0] + 1, body_fun(*carry)), ()), (first, init_val), None, steps
        )[0][1]
    val = init_val
    for i in range(int(lower), int(upper)):
        val = body_fun(i, val)
    return val


@op
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    maximum_iterations: int | None = None,
) -> Any:
    """loop_vars = body(*loop_vars) while cond(*loop_vars) holds.

    In a compiled step values keep their shapes and dtypes, and a gradient needs
    `maximum_iterations`: for each of so many steps there is room for the values that it begins
    with.

    Args:
        cond: Takes the values and says whether to go on: a bool, or a tensor of one.
        body: Takes the values and returns the next ones.
        loop_vars: First values: a tuple or list of (nested) tensors or numbers, or a single one.
        maximum_iterations: By default no limit.

    Returns:
        The last values as tensors: a tuple, or a single one where `loop_vars` is none.

    Raises:
        ValueError: for a condition without a value, in a functional model, where
            `maximum_iterations` is missing.

    Example:

    >>> from kerascnn import ops
    >>> ops.while_loop(lambda i: i < 5, lambda i: i + 2, ops.convert_to_tensor(0)).numpy().tolist()
    6
    >>> count, total = ops.while_loop(
    ...     lambda i, total: total < 10, lambda i, total: (i + 1, total + i), (0, 0)
    ... )
    >>> int(count), int(total)
    (5, 10)
    """
    is_tuple = isinstance(loop_vars, (tuple, list))
    values = tuple(loop_vars) if is_tuple else (loop_vars,)
    values = trees.map_structure(dispatch.convert, values)
    if loops.is_traced():
        values = loops.while_loop(cond, body, values, maximum_iterations)
        return values if is_tuple else values[0]
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


@op
def scan(
    f: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> Any:
    """carry, y = f(carry, x) for each slice x along the first axis of xs.

    In a compiled step f is traced once, or once more where what it makes of a carry has another
    dtype. A carry keeps its shape. The gradient keeps the carries of all steps, and computes again
    what a step computes in between.

    Args:
        f: Takes the carry and a slice, gives the next carry and a result (or None).
        init: First carry: tensors or numbers, nested in any way.
        xs: Tensors, nested as f takes them, or None; a list is not a tensor, but a nest of its
            items.
        length: How many steps; by default the length of xs.
        reverse: Whether it begins with the last slice.
        unroll: True for a compiled step that repeats what f does as often as there are steps.
            Nothing depends on a number.

    Returns:
        (carry, the results stacked). Results are at the places of their slices also with `reverse`;
        they are zeros like the carry where f gives None, and None where there are no steps.

    Raises:
        TypeError: for an f that cannot be called.
        ValueError: without xs and length, and for an `unroll` below 1.

    Source: https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html

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
    if loops.is_traced() and unroll is not True and steps > 0:
        return loops.scan(f, carry, xs, steps, reverse)
    results = []
    for i in reversed(range(steps)) if reverse else range(steps):
        x = None if xs is None else trees.map_structure(lambda part, i=i: part[i], xs)
        carry, y = f(carry, x)
        results.append(trees.map_structure(creation.zeros_like, carry) if y is None else y)
    if reverse:
        results.reverse()
    if not results:
        return carry, None
    return carry, trees.map_structure(lambda *parts: joining.stack(parts), *results)


@op
def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """The results of f for each slice along the first axis of xs, stacked.

    In a compiled step it is a `scan`: one loop, however many slices there are.

    Args:
        f: Takes a slice of each tensor, nested as `xs`, and returns (nested) tensors.
        xs: Tensors of one length along the first axis, nested as f takes them; a list is not a
            tensor, but a nest of its items.

    Returns:
        The results with one more axis at the front; None where there are no slices.

    Example:

    >>> from kerascnn import ops
    >>> x = ops.convert_to_tensor([[1, 2], [3, 4]])
    >>> ops.map(lambda row: row * ops.sum(row), x).numpy().tolist()
    [[3, 6], [21, 28]]
    """
    return scan(lambda _, x: ((), f(x)), (), xs)[1]


def vectorized_map(function: Callable[[Any], Any], elements: Any) -> Any:
    """The results of a function for each slice along the first axis, stacked: the same as `map`.

    The slices are computed one after another; functions of whole tensors are faster.

    Args:
        function: Takes a slice of each tensor, nested as `elements`, and returns (nested) tensors.
        elements: Tensors of one length along the first axis, nested as `function` takes them.

    Returns:
        The results with one more axis at the front; None where there are no slices.

    Example:

    >>> from kerascnn import ops
    >>> x = ops.convert_to_tensor([[3.0, 4.0], [6.0, 8.0]])
    >>> ops.vectorized_map(ops.norm, x).numpy().tolist()
    [5.0, 10.0]
    """
    return map(function, elements)


@op
def associative_scan(
    f: Callable[..., Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """Running results of a function of two arguments that is associative.

    Runs of 1, 2, 4, ... elements are combined, in as many steps as the length has bits.

    Args:
        f: Combines two (nested) tensors, the earlier and the later part of the axis, place by
            place.
        elems: Tensors, nested as f takes them, of one length along the axis; a list is not a
            tensor, but a nest of its items.
        reverse: Whether it begins at the axis' end.
        axis: Along which it runs; a negative one counts from the end.

    Returns:
        Tensors of the shapes of `elems`: at each place what f makes of all elements up to it.

    Raises:
        TypeError: for an f that cannot be called.
        ValueError: for tensors of several lengths.

    Source: Hillis and Steele, "Data Parallel Algorithms", 1986.

    Example:

    >>> from kerascnn import ops
    >>> ops.associative_scan(ops.add, ops.arange(4)).numpy().tolist()
    [0, 1, 3, 6]
    >>> ops.associative_scan(ops.maximum, ops.array([1, 3, 2, 0]), reverse=True).numpy().tolist()
    [3, 3, 2, 0]
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
            lambda part, new, n=reach: joining.concatenate([cut(part, 0, n), new], axis),
            elems,
            f(earlier, later),
        )
        reach *= 2
    return over(lambda part: shaping.flip(part, axis), elems) if reverse else elems
