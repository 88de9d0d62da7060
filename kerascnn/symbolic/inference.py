"""Shapes of results for inputs of partly unknown shape, found by recording a call twice.

Any function made of `kerascnn.ops` gets its shape rule this way, from the one rule that each core
op has. Unknown sizes are given two different values; what differs in the results is unknown there.
Some calls need sizes that can be divided, such as a reshape that leaves one size open: where small
values fail, two are tried that everyday numbers divide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerascnn import trees
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.tracing import Trace

# Two sizes for the first axis (the batch), and two for others, which may be images that get smaller
# on the way.
_Sizes = tuple[tuple[int, int], tuple[int, int]]
_SMALL: _Sizes = ((2, 3), (64, 96))
# Divided by 1 to 10 and by powers of two up to 128.
_DIVISIBLE: _Sizes = ((40320, 80640), (192, 384))


def infer(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """KerasTensors for what `function(*args, **kwargs)` would return.

    Args:
        function: Computes with `kerascnn.ops` (a layer's `call`, for example).
        args: Arguments with KerasTensors in them.
        kwargs: The same.
    """
    tensors = [x for x in trees.leaves((args, kwargs)) if isinstance(x, KerasTensor)]
    if not any(None in x.shape for x in tensors):
        first = second = _record(function, args, kwargs, (0, 0))
    else:
        try:
            first, second = _record_twice(function, args, kwargs, _SMALL)
        except ValueError as error:
            try:
                first, second = _record_twice(function, args, kwargs, _DIVISIBLE)
            except ValueError:
                raise error from None

    def merge(a: Any, b: Any) -> Any:
        if not hasattr(a, "shape"):
            return a
        shape = [x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)]
        return KerasTensor(shape, a.dtype)

    return trees.map_structure(merge, first, second)


def _record_twice(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], sizes: _Sizes
) -> list[Any]:
    batch_sizes, other_sizes = sizes
    return [
        _record(function, args, kwargs, pair) for pair in zip(batch_sizes, other_sizes, strict=True)
    ]


def _record(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    unknown: tuple[int, int],
) -> Any:
    """The results for one value of unknown first axes and one of all other unknown axes."""
    with Trace("cpu", scratch=True) as trace:
        names = iter(range(1 << 30))

        def stand_in(x: Any) -> Any:
            if not isinstance(x, KerasTensor):
                return x
            shape = [
                unknown[axis > 0] if size is None else size for axis, size in enumerate(x.shape)
            ]
            return trace.graph.input(f"input_{next(names)}", shape, x.dtype)

        args, kwargs = trees.map_structure(stand_in, (args, kwargs))
        return function(*args, **kwargs)
