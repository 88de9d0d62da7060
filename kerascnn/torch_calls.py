"""Functions of PyTorch on tensors: computed by PyTorch, and known to tapes.

`torch.relu(x)` on a tensor gives a tensor. While a tape records, PyTorch's own gradient of the call
becomes part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerascnn import _core, dtypes
from kerascnn.array_protocols import apply_operator
from kerascnn.interchange import from_dlpack
from kerascnn.symbolic.no_value import operator_of
from kerascnn.variable import Variable

# Callers of these functions want a PyTorch tensor.
_CONVERSIONS = frozenset({"tensor", "as_tensor", "asarray", "from_dlpack", "from_numpy"})


def torch_function(
    cls: Any, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    """Runs PyTorch's functions on instances of a class (`__torch_function__`).

    Tensors become PyTorch's, over the same memory, and results of PyTorch tensors.
    """
    import torch

    label = getattr(function, "__name__", str(function))
    operator = operator_of(label.strip("_"))
    if operator is not None and len(args) == 2 and not kwargs:
        return apply_operator(operator, *args)
    given: list[Any] = []  # our tensors, in the order of PyTorch's in `taken`
    taken: list[Any] = []

    def take(x: Any) -> Any:
        if not isinstance(x, (_core.Tensor, Variable)):
            return x
        x = x.value if isinstance(x, Variable) else x
        theirs = torch.from_dlpack(x)
        if _core.is_tracked(x) and dtypes.is_float(x.dtype):
            theirs = theirs.detach().requires_grad_()
        given.append(x)
        taken.append(theirs)
        return theirs

    args, kwargs = _map(take, args), _map(take, kwargs or {})
    with torch.enable_grad():
        results = function(*args, **kwargs)
    if label in _CONVERSIONS:
        return results.detach()
    theirs: list[Any] = []
    _map(lambda y: theirs.append(y) if isinstance(y, torch.Tensor) else None, results)
    ours = [from_dlpack(y.detach()) for y in theirs]
    if any(y.requires_grad for y in theirs):
        backward = _gradient(torch, taken, theirs)
        ours = _core.record_function(f"torch.{label}", given, ours, backward)
    left = iter(ours)
    return _map(lambda y: next(left) if isinstance(y, torch.Tensor) else y, results)


def _gradient(torch: Any, taken: list[Any], results: list[Any]) -> Callable[[list[Any]], list[Any]]:
    """Returns PyTorch's gradient by its inputs."""
    wanted = [x for x in taken if x.requires_grad]

    def backward(upstream: list[Any]) -> list[Any]:
        pairs = [
            (y, torch.from_dlpack(g))
            for y, g in zip(results, upstream, strict=True)
            if g is not None and y.requires_grad
        ]
        found = torch.autograd.grad(
            [y for y, _ in pairs],
            wanted,
            [g for _, g in pairs],
            retain_graph=True,
            allow_unused=True,
        )
        by_id = {id(x): g for x, g in zip(wanted, found, strict=True)}
        gradients = [by_id.get(id(x)) for x in taken]
        return [None if g is None else from_dlpack(g.contiguous()) for g in gradients]

    return backward


def _map(function: Callable[[Any], Any], x: Any) -> Any:
    """Applies a function to everything in lists, tuples and dictionaries."""
    if isinstance(x, dict):
        return {key: _map(function, value) for key, value in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_map(function, item) for item in x))
    if isinstance(x, (list, tuple)):
        return type(x)(_map(function, item) for item in x)
    return function(x)
