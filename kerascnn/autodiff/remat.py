"""Gradient checkpointing, which saves memory and costs time."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable
from typing import Any

from kerascnn import _core, masks, tracing, trees
from kerascnn.autodiff.tape import GradientTape
from kerascnn.ops import dispatch
from kerascnn.variable import Block, Variable, variable_of


def remat(f: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which keeps no intermediate results for its gradient.

    They are computed again when the gradient is taken. Random numbers are the same both times.

    Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.

    Args:
        f: A function of (nested) tensors and whatever else, or a layer. It must give the same
            results for the same arguments.

    Returns:
        A function of the same arguments and results.

    Example:

    >>> import kerascnn as keras
    >>> block = keras.remat(lambda x: keras.ops.square(keras.ops.square(x)))
    >>> float(keras.grad(block)(2.0))
    32.0
    """

    @functools.wraps(f, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        trace = tracing.current()
        if trace is None and not _core.is_recording():
            return f(*args, **kwargs)
        block = _Block(f, args, kwargs)
        return block.record() if trace is None else block.trace(trace)

    return call


class _Block:
    """A call that can be repeated with other tensors in place of its own."""

    def __init__(self, f: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self.f = f
        self.structure = (args, kwargs)
        self.leaves = [
            dispatch.convert(x) if _is_input(x) else x for x in trees.leaves(self.structure)
        ]
        self.places = [i for i, x in enumerate(self.leaves) if dispatch.is_tensor(x)]
        self.inputs = [self.leaves[i] for i in self.places]
        self.name = getattr(f, "__name__", type(f).__name__)
        # The copy holds the settings of scopes around the call: how weights are read, whether
        # layers train.
        self.context = contextvars.copy_context()

    def compute(self, inputs: list[Any]) -> Any:
        leaves = list(self.leaves)
        for place, x in zip(self.places, inputs, strict=True):
            leaves[place] = masks.copy_mask(self.leaves[place], x)
        args, kwargs = trees.pack_as(self.structure, leaves)
        return self.f(*args, **kwargs)

    def record(self) -> Any:
        """Computes at once; tapes keep only the arguments."""
        block, pause = Block(), _core.RecordingPause()
        numbers = tracing.current_streams()
        streams = {} if numbers is None else numbers.streams()
        with block.noting(), pause:
            outputs = self.compute(self.inputs)
        flat = [dispatch.convert(y) for y in trees.flatten(outputs)]
        found = [v for v in map(variable_of, pause.reads) if v is not None]
        variables = [v for v in found if v.core not in block.given]
        untrained = set(_core.watched_untrained())
        # The second computation must read the values of now.
        before = [*self.inputs, *block.given_now()]
        saved = [_core.SavedTensor(x) for x in before]
        name = f"remat({self.name})"

        def backward(upstream: list[Any]) -> list[Any]:
            return self.context.copy().run(repeat, upstream)

        def repeat(upstream: list[Any]) -> list[Any]:
            again = contextlib.nullcontext() if numbers is None else numbers.drawing_from(streams)
            with GradientTape() as tape:
                fresh = [_alias(s.get(name, x)) for s, x in zip(saved, before, strict=True)]
                tape.watch(_floating(fresh))
                tape.watch([v for v in variables if v.core in untrained])
                given = dict(zip(block.given, fresh[len(self.inputs) :], strict=True))
                with block.repeating(given), again:
                    outputs = self.compute(fresh[: len(self.inputs)])
                flat = [dispatch.convert(y) for y in trees.flatten(outputs)]
            return _gradients(tape, flat, upstream, [*fresh, *variables])

        sources = [*before, *(v.core for v in variables)]
        results = _core.record_function(name, sources, flat, backward)
        return trees.pack_as(outputs, list(map(masks.copy_mask, flat, results)))

    def trace(self, trace: Any) -> Any:
        """Records the block, and records it again for its gradient."""
        block, streams = Block(), trace.streams()
        with block.noting():
            outputs = self.compute(self.inputs)
        flat = [dispatch.convert(y) for y in trees.flatten(outputs)]
        sources = [*self.inputs, *block.given.values()]

        def backward(upstream: list[Any]) -> list[Any]:
            return self.context.copy().run(repeat, upstream)

        def repeat(upstream: list[Any]) -> list[Any]:
            # The values are new ones, so that the second computation is not merged with the first.
            with GradientTape(watch_accessed_variables=False) as tape:
                fresh = [dispatch.apply_one("barrier", [x]) for x in sources]
                tape.watch(_floating(fresh))
                given = dict(zip(block.given, fresh[len(self.inputs) :], strict=True))
                with block.repeating(given), trace.drawing_from(streams):
                    outputs = self.compute(fresh[: len(self.inputs)])
                again = [dispatch.convert(y) for y in trees.flatten(outputs)]
            return _gradients(tape, again, upstream, fresh)

        results = trace.graph.with_own_gradient(sources, flat, backward)
        return trees.pack_as(outputs, list(map(masks.copy_mask, flat, results)))


def _floating(values: list[Any]) -> list[Any]:
    return [x for x in values if dispatch.dtypes.is_float(x.dtype)]


def _gradients(
    tape: GradientTape, outputs: list[Any], upstream: list[Any], sources: list[Any]
) -> list[Any]:
    """Returns a gradient for each source, None for those that are not floating."""
    targets, seeds = _given(outputs, upstream)
    found = iter(tape.gradient(targets, _floating(sources), seeds))
    return [next(found) if dispatch.dtypes.is_float(x.dtype) else None for x in sources]


def _given(outputs: list[Any], upstream: list[Any]) -> tuple[list[Any], list[Any]]:
    """Returns the outputs that have a gradient, and these gradients."""
    pairs = [(y, g) for y, g in zip(outputs, upstream, strict=True) if g is not None]
    return [y for y, _ in pairs], [g for _, g in pairs]


def _is_input(x: Any) -> bool:
    return dispatch.is_tensor(x) or (dispatch.is_array_like(x) and not isinstance(x, Variable))


def _alias(x: Any) -> Any:
    """Returns the tensor under another name, connected to it where an outer tape records."""
    return dispatch.apply_one("reshape", [x], {"shape": list(x.shape)})
