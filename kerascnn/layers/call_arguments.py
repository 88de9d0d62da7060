"""The arguments of layers' calls, and how errors show them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from kerascnn import _core, trees
from kerascnn.ops import dispatch
from kerascnn.symbolic.keras_tensor import KerasTensor

# These arguments of calls are not tensors.
NO_TENSORS = frozenset(("training",))


@functools.cache
def call_parameters(call: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = dict(inspect.signature(call).parameters)
    parameters.pop("self", None)
    return parameters


@functools.cache
def mask_parameters(call: Callable[..., Any]) -> frozenset[str]:
    return frozenset(n for n in call_parameters(call) if n == "mask" or n.endswith("_mask"))


def holds_tensors(value: Any) -> bool:
    """Tells whether an argument is a tensor, or a nesting of nothing but tensors (and None)."""
    if isinstance(value, (list, tuple, dict)):
        items = trees.flatten(value)
        return bool(items) and all(x is None or holds_tensors(x) for x in items)
    return isinstance(value, KerasTensor) or dispatch.is_tensor(value)


def shown(structure: Any) -> str:
    """Formats the arguments of a call for an error, with shapes and dtypes in place of values."""

    def show(x: Any) -> Any:
        if isinstance(x, (_core.Tensor, _core.Value, KerasTensor)):
            return f"{x.dtype} {tuple(x.shape)}"
        return x

    result = trees.map_structure(show, structure)
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        positional = ", ".join(str(x) for x in result[0])
        keywords = ", ".join(f"{k}={v}" for k, v in result[1].items())
        return ", ".join(part for part in (positional, keywords) if part)
    return str(result)
