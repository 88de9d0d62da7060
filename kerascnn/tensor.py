"""Operators of tensors and symbolic values, and of KerasTensors and variables.

One set of small functions serves all of them, so `a + b` means the same everywhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kerascnn import _core, array_protocols, masks, torch_calls, tracing
from kerascnn.symbolic import no_value
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
    """Casts the elements to another dtype."""
    from kerascnn import ops

    return ops.cast(self, dtype)


def _round(self: Any, decimals: int | None = None) -> Any:
    from kerascnn import ops

    return ops.round(self, decimals or 0)


def _value_repr(self: Any) -> str:
    return f"<Value shape={tuple(self.shape)}, dtype={self.dtype}>"


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
    "xor": "logical_xor",
}
_UNARY = {"neg": "negative", "abs": "abs", "invert": "logical_not"}
_COMPARISONS = {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


def _add_operators(cls: Any) -> None:
    operators: dict[str, Any] = {}
    for suffix, name in _BINARY.items():
        operators[f"__{suffix}__"] = _forward(name)
        operators[f"__r{suffix}__"] = _reflected(name)
    for suffix, name in _COMPARISONS.items():
        operators[f"__{suffix}__"] = _forward(name)
    for suffix, name in _UNARY.items():
        operators[f"__{suffix}__"] = _unary(name)
    for name, operator in operators.items():
        # The core implements some operators of tensors and variables, and calls these if a
        # conversion is needed.
        if name not in vars(cls) and not (cls is Variable and name in vars(_core.Operators)):
            setattr(cls, name, operator)
    cls.__round__ = _round
    cls.__getitem__ = _getitem
    cls.astype = _astype


def _add_bit_operators(cls: Any) -> None:
    """Gives tensors the operators of bits; KerasTensors and variables have truth values only."""

    def forward(name: str) -> Callable[[Any, Any], Any]:
        return lambda self, other: array_protocols.bits_or_truth(name, self, other)

    def reflected(name: str) -> Callable[[Any, Any], Any]:
        return lambda self, other: array_protocols.bits_or_truth(name, other, self)

    for name in ("and", "or", "xor"):
        setattr(cls, f"__{name}__", forward(name))
        setattr(cls, f"__r{name}__", reflected(name))
    cls.__invert__ = lambda self: array_protocols.bits_or_truth("not", self)
    for suffix, name in (("lshift", "left_shift"), ("rshift", "right_shift")):
        setattr(cls, f"__{suffix}__", _forward(name))
        setattr(cls, f"__r{suffix}__", _reflected(name))


# What the core's docstrings cannot show: examples, which Python runs. doctest finds them here.
__test__ = {
    "Tensor": """An array on one device. Its dtype and shape are fixed.

    Functions of `kerascnn.ops`, layers and models take tensors and give them. Python's operators,
    indices and `len` work as those of NumPy's arrays, with Keras' rules for the dtypes of results;
    elements cannot be assigned to (`ops.slice_update` gives a changed copy). NumPy, PyTorch, JAX
    and CuPy read one without a copy, by DLPack.

    `ops.convert_to_tensor` and `from_dlpack` make tensors.

    Example:

    >>> import kerascnn as keras
    >>> with keras.device("cpu"):
    ...     x = keras.ops.convert_to_tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x.shape, x.dtype, x.device
    ((2, 2), 'float32', 'cpu')
    >>> (x + 1)[0].numpy()
    array([2., 3.], dtype=float32)
    """,
    "DeviceError": """A device that is missing, failed, or is mixed with another; or a failed call.

    It is a RuntimeError. The message names the device and the reason.

    Example:

    >>> import kerascnn as keras
    >>> try:
    ...     with keras.device("cuda:63"):
    ...         x = keras.ops.ones((2,))
    ... except keras.DeviceError as error:
    ...     print("no such GPU:", "cuda:63" in str(error))
    no such GPU: True
    """,
    "OutOfMemoryError": """Memory of a device, or of the host, ran out.

    It is a MemoryError. The message names the device and what can be done.

    Attributes:
        requested: Bytes that were asked for.
        allocated: Bytes that tensors hold.
        cached: Bytes that the allocator keeps for reuse.
        free: Bytes that the device has left.

    Example:

    >>> import kerascnn as keras
    >>> try:
    ...     with keras.device("cpu"):
    ...         x = keras.ops.broadcast_to(1.0, (1 << 30, 1 << 20))  # 4 PiB
    ... except keras.OutOfMemoryError as error:
    ...     print(error.requested == 4 << 50)
    True
    """,
}


def install_operators() -> None:
    """Gives the core's classes, KerasTensor and Variable their Python operators."""
    for name in ("add", "subtract", "multiply", "divide", "matmul"):
        _core.set_fallback(name, _forward(name))
    for name in ("negative", "absolute"):
        _core.set_fallback(name, _unary(name))
    for name, text in __test__.items():
        getattr(_core, name).__doc__ = inspect.cleandoc(text)
    _core.set_variable_type(Variable)
    no_value.install(
        _core.Value,
        "has no value yet: it is being recorded, once, for a compiled program.",
        ", or let Python run each step with values: compile(run_eagerly=True)",
        known=tracing.known_value,
    )
    _add_bit_operators(_core.Tensor)
    _add_bit_operators(_core.Value)
    for cls in (_core.Tensor, _core.Value, KerasTensor, Variable):
        _add_operators(cls)
    array_protocols.install(_core.Tensor, Variable)
    masks.install(_core.Tensor, _core.Value)
    for tensors in (_core.Tensor, Variable):
        tensors.__torch_function__ = classmethod(torch_calls.torch_function)  # type: ignore[union-attr]
    value: Any = _core.Value
    value.__eq__ = array_protocols.compared_by("equal")
    value.__ne__ = array_protocols.compared_by("not_equal")
    value.__hash__ = object.__hash__
    value.__len__ = array_protocols.length
    value.__repr__ = _value_repr
    value.ndim = property(lambda self: len(self.shape))
