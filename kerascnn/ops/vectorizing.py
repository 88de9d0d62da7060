"""Functions of elements made functions of tensors."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from kerascnn import trees
from kerascnn.ops import dispatch, joining, shaping

__all__ = ["vectorize"]


def vectorize(
    pyfunc: Callable[..., Any],
    *,
    excluded: Collection[int | str] | None = None,
    signature: str | None = None,
) -> Callable[..., Any]:
    """Turns a function of elements into a function of tensors.

    `pyfunc` is called once for each element of the broadcast arguments, in a compiled step while it
    is traced: meant for a few of them. Functions made of `ops` take whole tensors by themselves.

    Args:
        pyfunc: Takes elements, or what `signature` says, and returns a tensor or a tuple of them.
        excluded: Numbers of arguments that are passed as they are; those by name always are.
        signature: The axes that `pyfunc` takes and returns, as in "(n,k),(k)->(n)", over which
            there is no loop; by default none.

    Returns:
        A function that returns the results stacked: the axes of the broadcast arguments, then those
        of a result.

    Raises:
        ValueError: for what cannot be called, a signature that cannot be read, and when called for
            arguments that don't fit it or have no elements.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.vectorize.html

    Example:

    >>> from kerascnn import ops
    >>> larger = ops.vectorize(lambda a, b: ops.maximum(a, b))
    >>> larger([1, 5, 2], 3).numpy().tolist()
    [3, 5, 3]
    >>> length = ops.vectorize(ops.norm, signature="(n)->()")
    >>> length([[3.0, 4.0], [6.0, 8.0]]).numpy().tolist()
    [5.0, 10.0]
    """
    if not callable(pyfunc):
        raise ValueError(f"Expected argument `pyfunc` to be a callable. Received: pyfunc={pyfunc}")
    left_out = frozenset(excluded or ())
    cores = None if signature is None else _signature(signature)

    @functools.wraps(pyfunc)
    def call(*args: Any, **kwargs: Any) -> Any:
        places = [i for i in range(len(args)) if i not in left_out and args[i] is not None]
        tensors = [dispatch.convert(args[i]) for i in places]
        ranks = [0] * len(tensors) if cores is None else [len(names) for names in cores]
        if len(ranks) != len(tensors):
            raise ValueError(
                f"vectorize: the signature {signature!r} is one of {len(ranks)} tensors, the "
                f"function was called with {len(tensors)}."
            )
        if cores is not None:
            _check_core_axes(tensors, cores, str(signature))

        def apply(parts: Sequence[Any]) -> Any:
            every = list(args)
            for i, part in zip(places, parts, strict=True):
                every[i] = part
            return pyfunc(*every, **kwargs)

        return _over_elements(apply, tensors, ranks)

    return call


def _signature(text: str) -> list[list[str]]:
    """Returns the names of each argument's axes in a signature such as "(n,k),(k)->(n)"."""
    axes = r"\([^()]*\)"
    if not re.fullmatch(rf"{axes}(,{axes})*->{axes}(,{axes})*", text.replace(" ", "")):
        raise ValueError(
            "vectorize: a signature names the axes of arguments and results, as in "
            f"'(n,k),(k)->(n)'. Received: signature={text!r}"
        )
    inputs = re.findall(axes, text.replace(" ", "").split("->")[0])
    return [[name for name in group[1:-1].split(",") if name] for group in inputs]


def _check_core_axes(tensors: Sequence[Any], cores: list[list[str]], text: str) -> None:
    sizes: dict[str, int] = {}
    for tensor, names in zip(tensors, cores, strict=True):
        last = tuple(tensor.shape)[len(tensor.shape) - len(names) :] if names else ()
        for name, size in zip(names, last, strict=False):
            if len(names) > len(tensor.shape) or sizes.setdefault(name, size) != size:
                raise ValueError(
                    f"vectorize: a tensor of shape {tuple(tensor.shape)} does not fit "
                    f"({','.join(names)}) of the signature {text!r} with the sizes {sizes}."
                )


def _over_elements(
    apply: Callable[[Sequence[Any]], Any], tensors: Sequence[Any], ranks: Sequence[int]
) -> Any:
    """Stacks the results for each element of the axes before the last `ranks` ones."""
    loops = [tuple(t.shape)[: len(t.shape) - rank] for t, rank in zip(tensors, ranks, strict=True)]
    shape = np.broadcast_shapes(*loops)
    flat = []
    for tensor, loop in zip(tensors, loops, strict=True):
        core = tuple(tensor.shape)[len(loop) :]
        whole = shaping.broadcast_to(tensor, (*shape, *core))
        flat.append(shaping.reshape(whole, (math.prod(shape), *core)))
    if not shape:
        return apply([part[0] for part in flat])
    results = [apply([part[i] for part in flat]) for i in range(math.prod(shape))]
    if not results:
        raise ValueError(f"vectorize: there is no element in arguments of the shape {shape}.")
    return trees.map_structure(
        lambda *parts: shaping.reshape(joining.stack(parts), (*shape, *tuple(parts[0].shape))),
        *(trees.map_structure(dispatch.convert, result) for result in results),
    )
