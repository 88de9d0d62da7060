"""Shapes of results for inputs of partly unknown shape, found by recording a call twice.

Any function made of `kerascnn.ops` gets its shape rule this way, from the one rule that each core
op has. Unknown sizes are given two different values; what differs in the results is unknown there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerascnn import trees
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.tracing import Trace

# For the first axis (the batch), and for others, which may be images that get smaller on the way.
_BATCH_SIZES = (2, 3)
_OTHER_SIZES = (64, 96)


def infer(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """KerasTensors for what `function(*args, **kwargs)` would return.

    Args:
        function: Computes with `kerascnn.ops` (a layer's `call`, for example).
        args: Arguments with KerasTensors in them.
        kwargs: The same.
    """
    first = _record(function, args, kwargs, 0)
    partly_known = any(
        isinstance(x, KerasTensor) and None in x.shape for x in trees.leaves((args, kwargs))
    )
    second = _record(function, args, kwargs, 1) if partly_known else first

    def merge(a: Any, b: Any) -> Any:
        if not hasattr(a, "shape"):
            return a
        shape = [x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)]
        return KerasTensor(shape, a.dtype)

    return trees.map_structure(merge, first, second)


def _record(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], attempt: int
) -> Any:
    with Trace("cpu", scratch=True) as trace:
        names = iter(range(1 << 30))

        def stand_in(x: Any) -> Any:
            if not isinstance(x, KerasTensor):
                return x
            shape = [
                size
                if size is not None
                else (_OTHER_SIZES[attempt] if axis else _BATCH_SIZES[attempt])
                for axis, size in enumerate(x.shape)
            ]
            return trace.graph.input(f"input_{next(names)}", shape, x.dtype)

        args, kwargs = trees.map_structure(stand_in, (args, kwargs))
        return function(*args, **kwargs)
