"""Operators of tensors and symbolic values, and of KerasTensors and variables.

One set of small functions serves all of them, so `a + b` means the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerascnn import _core
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.variable import Variable

Tensor = _core.Tensor


def _forward(name: str) -> Callable[[Any, Any], Any]:
    def operator(self: Any, other: Any) -> Any:
        from kerascnn import ops

        return getattr(ops, name)(self, other)

    return operator


def _reflected(name: str) -> Callable[[Any, Any], Any]:
    def operator(self: Any, other: Any) -> Any:
        from kerascnn import ops

        return getattr(ops, name)(other, self)

    return operator


def _unary(name: str) -> Callable[[Any], Any]:
    def operator(self: Any) -> Any:
        from kerascnn import ops

        return getattr(ops, name)(self)

    return operator


def _getitem(self: Any, key: Any) -> Any:
    from kerascnn import ops

    return ops.get_item(self, key)


def _astype(self: Any, dtype: Any) -> Any:
    """The same elements as another dtype."""
    from kerascnn import ops

    return ops.cast(self, dtype)


def _tensor_repr(self: Any) -> str:
    values = np.array2string(self.numpy(), separator=", ", prefix="Tensor(", threshold=100)
    return (
        f"Tensor({values}, shape={tuple(self.shape)}, dtype={self.dtype}, device={self.device!r})"
    )


def _value_repr(self: Any) -> str:
    return f"<Value shape={tuple(self.shape)}, dtype={self.dtype}>"


def _item(self: Any) -> Any:
    """The only element, as a Python number."""
    array = self.numpy()
    if array.size != 1:
        raise ValueError(
            f"Only a tensor of one element can be made a Python number. Received: shape={array.shape}"
        )
    return array.reshape(()).astype("float64" if array.dtype.kind == "V" else array.dtype).item()


def _tensor_len(self: Any) -> int:
    if not self.shape:
        raise TypeError("A tensor without axes has no length.")
    return int(self.shape[0])


def _iterate(self: Any) -> Any:
    return (self[i] for i in range(len(self)))


def _without_value(self: Any, *args: Any) -> Any:
    raise TypeError(
        f"{self!r} has no value yet: it is being recorded for a compiled program. Use kerascnn.ops "
        "in place of NumPy functions, `if` (ops.where) and float()."
    )


_BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "mod",
    "pow": "power",
    "matmul": "matmul",
    "and": "logical_and",
    "or": "logical_or",
}
_COMPARISONS = {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


def _add_operators(cls: Any) -> None:
    for suffix, name in _BINARY.items():
        setattr(cls, f"__{suffix}__", _forward(name))
        setattr(cls, f"__r{suffix}__", _reflected(name))
    for suffix, name in _COMPARISONS.items():
        setattr(cls, f"__{suffix}__", _forward(name))
    for suffix, name in {"neg": "negative", "abs": "abs", "invert": "logical_not"}.items():
        setattr(cls, f"__{suffix}__", _unary(name))
    cls.__getitem__ = _getitem
    cls.astype = _astype
    # NumPy would otherwise take the element-wise lead in `array + tensor`.
    cls.__array_ufunc__ = None


def install_operators() -> None:
    """Gives the core's classes, KerasTensor and Variable their Python operators."""
    for cls in (_core.Tensor, _core.Value, KerasTensor, Variable):
        _add_operators(cls)
    for cls in (_core.Tensor, _core.Value):
        setattr(cls, "__eq__", _forward("equal"))  # noqa: B010 (mypy: assignment to a method)
        setattr(cls, "__ne__", _forward("not_equal"))  # noqa: B010
        setattr(cls, "__hash__", object.__hash__)  # noqa: B010
    for name in ("__bool__", "__float__", "__int__"):
        convert = {"__bool__": bool, "__float__": float, "__int__": int}[name]
        setattr(_core.Tensor, name, lambda self, _convert=convert: _convert(_item(self)))
        setattr(_core.Value, name, _without_value)
    _core.Tensor.item = _item
    _core.Tensor.__repr__ = _tensor_repr
    _core.Tensor.__len__ = _tensor_len
    _core.Tensor.__iter__ = _iterate
    _core.Value.__repr__ = _value_repr
    _core.Value.__iter__ = _without_value
    _core.Value.__array__ = _without_value
    _core.Value.ndim = property(lambda self: len(self.shape))
