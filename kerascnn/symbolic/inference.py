"""Shapes of results for inputs of partly unknown shape, found by recording a call twice.

Any function made of `kerascnn.ops` gets its shape rule this way, from the one rule that each core
op has. Unknown sizes are given two different values; what differs in the results is unknown there.
Some calls need sizes that can be divided, such as a reshape that leaves one size open: where small
values fail, two are tried that everyday numbers divide. Others broadcast unknown sizes to each
other or to known ones: then all unknown sizes are alike, and at last those that broadcasting asks
for. Where an unknown axis is summed over with one of known size, it must be as long as that.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

from kerascnn import _core, tracing, trees
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.symbolic.no_value import NoValueError
from kerascnn.tracing import Trace
from kerascnn.variable import Block

# These are two sizes for the first axis (the batch), and two for the others, which may be images
# that get smaller.
_Sizes = tuple[tuple[int, int], tuple[int, int]]
_SMALL: _Sizes = ((2, 3), (64, 96))
# These can be divided by 1 to 10 and by powers of two up to 128.
_DIVISIBLE: _Sizes = ((40320, 80640), (192, 384))
# All axes have the same sizes.
_ALIKE: _Sizes = ((6, 12), (6, 12))

# Attributes of errors: the sizes that differ, and those that stood for unknown ones.
_UNEQUAL = "_unequal_sizes"
_UNKNOWN = "_unknown_sizes"
# Each doubles the number of trials, or more.
_MOST_DECISIONS = 2
_STANDS = "Recorded for inputs of"

_computes: contextvars.ContextVar[bool] = contextvars.ContextVar("computes", default=False)

_Run = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any], tuple[int, int]], Any]


def is_symbolic_text(x: Any) -> bool:
    """Tells whether this stands for text, which traces do not support."""
    return isinstance(x, KerasTensor) and x.dtype == "string"


def infer(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    may_compute: bool = False,
) -> Any:
    """KerasTensors for what `function(*args, **kwargs)` would return.

    Args:
        function: Computes with `kerascnn.ops` (a layer's `call`, for example).
        args: Arguments with KerasTensors in them.
        kwargs: The same.
        may_compute: Whether a function that asks for values is run on ones: a layer that does can
            be part of a model whose steps run eagerly.
    """
    text = [x for x in trees.leaves((args, kwargs)) if is_symbolic_text(x)]
    if text:
        raise TypeError(
            f"{text[0]!r} is text, which only layers of text take, such as TextVectorization and "
            "StringLookup, and layers of your own with one of these inside."
        )
    try:
        first, second = _with_sizes(_record, function, args, kwargs)
    except NoValueError as error:
        if not may_compute:
            raise
        try:
            first, second = _twice(_compute, function, args, kwargs, _SMALL)
        except Exception as other:
            raise error from other

    def merge(a: Any, b: Any) -> Any:
        if not hasattr(a, "shape"):
            return a
        shape = [x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)]
        return KerasTensor(shape, a.dtype)

    return trees.map_structure(merge, first, second)


def unequal_sizes(message: str, first: int, second: int) -> ValueError:
    """An error of an op that needs two equal sizes.

    If one of them stands for an unknown one, `infer` tries whether the call is right with the
    other in its place.
    """
    error = ValueError(message)
    error.__dict__[_UNEQUAL] = (first, second)
    return error


def _with_sizes(
    run: _Run, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    tensors = [x for x in trees.leaves((args, kwargs)) if isinstance(x, KerasTensor)]
    if not any(None in x.shape for x in tensors):
        return [run(function, args, kwargs, (0, 0))] * 2
    try:
        return _with_stand_ins(run, function, args, kwargs)
    except ValueError as error:
        first_error = error
    with contextlib.suppress(ValueError):
        return _with_broadcast_sizes(run, function, args, kwargs)
    # As few sizes as possible are decided.
    decided = [(args, kwargs)]
    for _ in range(_MOST_DECISIONS):
        decided = [more for some in decided for more in _decided(run, function, *some)]
        for attempt in (_with_stand_ins, _with_broadcast_sizes):
            for some_args, some_kwargs in decided:
                with contextlib.suppress(ValueError):
                    return attempt(run, function, some_args, some_kwargs)
    raise _explained(first_error, tensors)


def _with_stand_ins(
    run: _Run, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    first_error: ValueError | None = None
    for sizes in (_SMALL, _DIVISIBLE, _ALIKE):
        try:
            return _twice(run, function, args, kwargs, sizes)
        except ValueError as error:
            first_error = first_error or error
    assert first_error is not None
    raise first_error


def _with_broadcast_sizes(
    run: _Run, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    results = []
    for size, as_ones in zip(_ALIKE[0], (False, True), strict=True):
        some_args, some_kwargs = _broadcast_sizes(args, kwargs, as_ones)
        results.append(run(function, some_args, some_kwargs, (size, size)))
    return results


def _explained(error: ValueError, tensors: list[KerasTensor]) -> ValueError:
    """The error, which says what its numbers stand for."""
    batch, other = getattr(error, _UNKNOWN, (0, 0))
    used = [f"{batch}"] if any(x.shape[:1] == (None,) for x in tensors) else []
    used += [f"{other}"] if any(None in x.shape[1:] for x in tensors) else []
    if batch and len(error.args) == 1 and _STANDS not in str(error.args[0]):
        stands = "stands for None" if len(used) == 1 else "stand for None"
        shapes = ", ".join(str(tuple(x.shape)) for x in tensors)
        error.args = (f"{error.args[0]}\n{_STANDS} {shapes}: here {' and '.join(used)} {stands}.",)
    return error


def _decided(
    run: _Run, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The arguments with one unknown size decided, in each way that could end their error."""
    try:
        _twice(run, function, args, kwargs, _SMALL)
    except ValueError as error:
        sizes = getattr(error, _UNEQUAL, (0, 0))
    else:
        return []
    tensors = {id(x): x for x in trees.leaves((args, kwargs)) if isinstance(x, KerasTensor)}
    known = {size for x in tensors.values() for size in x.shape}
    results = []
    for stand_in, size in [pair for pair in (sizes, sizes[::-1]) if pair[1] in known]:
        for key, tensor in tensors.items():
            for axis, unknown in enumerate(tensor.shape):
                if unknown is None and stand_in in _SMALL[axis > 0]:
                    shape = (*tensor.shape[:axis], size, *tensor.shape[axis + 1 :])
                    replace = functools.partial(_replaced, {key: KerasTensor(shape, tensor.dtype)})
                    results.append(trees.map_structure(replace, (args, kwargs)))
    return results


def _replaced(others: dict[int, Any], x: Any) -> Any:
    return others.get(id(x), x)


def _broadcast_sizes(args: tuple[Any, ...], kwargs: dict[str, Any], as_ones: bool) -> Any:
    """The arguments with the unknown sizes that known ones decide, if they are broadcast together.

    Args:
        args: Arguments with KerasTensors in them.
        kwargs: The same.
        as_ones: Whether such a size is 1; otherwise it is the largest known one of its axis, as
            counted from the last. A result that does not depend on this is right for both.
    """
    largest: dict[int, int] = {}
    for x in trees.leaves((args, kwargs)):
        for place, size in enumerate(reversed(getattr(x, "shape", ()))):
            largest[place] = max(largest.get(place, 1), size or 1)

    def fill(x: Any) -> Any:
        if not isinstance(x, KerasTensor):
            return x
        known = [largest[place] for place in reversed(range(len(x.shape)))]
        decided = [1 if as_ones and k > 1 else (k if k > 1 else None) for k in known]
        shape = [d if s is None else s for s, d in zip(x.shape, decided, strict=True)]
        return KerasTensor(shape, x.dtype)

    return trees.map_structure(fill, (args, kwargs))


def _twice(
    run: _Run,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    sizes: _Sizes,
) -> list[Any]:
    results = []
    for unknown in zip(*sizes, strict=True):
        try:
            results.append(run(function, args, kwargs, unknown))
        except ValueError as error:
            error.__dict__[_UNKNOWN] = unknown
            raise
    return results


def _known(x: KerasTensor, unknown: tuple[int, int]) -> list[int]:
    return [unknown[axis > 0] if size is None else size for axis, size in enumerate(x.shape)]


def _record(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    unknown: tuple[int, int],
) -> Any:
    """Records a call with one size for unknown first axes and one for all other unknown axes."""
    with Trace("cpu", scratch=True) as trace:
        names = iter(range(1 << 30))

        def stand_in(x: Any) -> Any:
            if not isinstance(x, KerasTensor):
                return x
            return trace.graph.input(f"input_{next(names)}", _known(x, unknown), x.dtype)

        args, kwargs = trees.map_structure(stand_in, (args, kwargs))
        return function(*args, **kwargs)


def _compute(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    unknown: tuple[int, int],
) -> Any:
    """Runs a call on values that are all ones."""

    def ones(x: Any) -> Any:
        return ops.ones(_known(x, unknown), x.dtype) if isinstance(x, KerasTensor) else x

    from kerascnn import ops

    token = _computes.set(True)
    try:
        with without_traces():
            args, kwargs = trees.map_structure(ones, (args, kwargs))
            return function(*args, **kwargs)
    finally:
        _computes.reset(token)


def only_learns_shapes() -> bool:
    """Tells whether the current code runs only to infer shapes."""
    trace = tracing.current()
    return _computes.get() or (trace is not None and trace.scratch)


@contextlib.contextmanager
def without_traces() -> Iterator[None]:
    """A block that computes at once without side effects: no assignments, no random draws."""
    with (
        tracing.suspended(),
        _core.RecordingPause(),
        Block().repeating({}),
        tracing.numbering(tracing.Streams(), moves_on=False),
    ):
        yield
