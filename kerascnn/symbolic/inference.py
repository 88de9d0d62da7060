"""Shapes of results for inputs of partly unknown shape, found by recording a call twice.

Any function made of `kerascnn.ops` gets its shape rule this way, from the one rule that each core
op has. Unknown sizes are given two different values; what differs in the results is unknown there.
Some calls need sizes that can be divided, such as a reshape that leaves one size open: where small
values fail, two are tried that everyday numbers divide. Others broadcast unknown sizes to each
other or to known ones: then all unknown sizes are alike, and at last those that broadcasting asks
for.
"""

from __future__ import annotations

import contextlib
import contextvars
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


def _with_sizes(
    run: _Run, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    tensors = [x for x in trees.leaves((args, kwargs)) if isinstance(x, KerasTensor)]
    if not any(None in x.shape for x in tensors):
        return [run(function, args, kwargs, (0, 0))] * 2
    first_error: ValueError | None = None
    for sizes in (_SMALL, _DIVISIBLE, _ALIKE):
        try:
            return _twice(run, function, args, kwargs, sizes)
        except ValueError as error:
            first_error = first_error or error
    assert first_error is not None
    try:
        results = []
        for size, as_ones in zip(_ALIKE[0], (False, True), strict=True):
            some_args, some_kwargs = _broadcast_sizes(args, kwargs, as_ones)
            results.append(run(function, some_args, some_kwargs, (size, size)))
        return results
    except ValueError:
        raise first_error from None


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
    batch_sizes, other_sizes = sizes
    pairs = zip(batch_sizes, other_sizes, strict=True)
    return [run(function, args, kwargs, unknown) for unknown in pairs]


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
