"""Named state: weights, moving averages, optimizer slots, counters."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kerascnn import _core, dtypes, naming, tracing
from kerascnn.device import current as current_device

Initial = Any  # a callable (shape, dtype) -> array, or an array

# What floating variables are read as while a layer of mixed precision computes.
_autocast: contextvars.ContextVar[str | None] = contextvars.ContextVar("autocast", default=None)


@contextlib.contextmanager
def autocast_scope(dtype: str | None) -> Iterator[None]:
    """A block in which floating variables are read as `dtype`, or as they are where it is None."""
    token = _autocast.set(dtype)
    try:
        yield
    finally:
        _autocast.reset(token)


def current_autocast() -> str | None:
    """What floating variables are read as here; None for the dtype that they have."""
    return _autocast.get()


class Variable:
    """A tensor that keeps its place and changes its value.

    Inside a trace, reading gives a symbolic value and assigning takes effect at the end of each
    step of the compiled program; outside, both happen at once.

    Args:
        initializer: The first value: an array, a tensor, a number, the name of an initializer, or a
            callable `(shape, dtype)`.
        shape: Needed with a callable or a name only.
        dtype: By default the array's own, `floatx` for Python numbers and callables.
        trainable: Whether training changes it.
        autocast: Whether layers of mixed precision read it in what they compute in.
        name: By default variable, variable_1, ...

    Raises:
        ValueError: for a callable without a shape, or a value that does not have `shape`.

    Example:

    >>> import kerascnn as keras
    >>> v = keras.Variable([1.0, 2.0], name="v")
    >>> v.assign_add([1.0, 1.0])
    >>> v.numpy()
    array([2., 3.], dtype=float32)
    """

    def __init__(
        self,
        initializer: Initial,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        trainable: bool = True,
        autocast: bool = True,
        aggregation: str | None = "none",
        synchronization: str = "auto",
        name: str | None = None,
        *,
        device_name: str | None = None,
    ) -> None:
        self.name = name or naming.auto_name("variable")
        if "/" in self.name:
            raise ValueError(
                f"A variable's name must not contain '/'. Received: name={self.name!r}"
            )
        self.path = "/".join((*naming.current_scopes(), self.name))
        self.trainable = bool(trainable)
        self.autocast = autocast
        self.aggregation = aggregation
        self.regularizer: Callable[[Any], Any] | None = None
        self.constraint: Callable[[Any], Any] | None = None
        with tracing.suspended():
            value = _initial_value(initializer, shape, dtype)
            tensor = _core.from_numpy(value, device_name or current_device())
        self.core: Any = _core.Variable(self.path, tensor)
        # Freezing changes `trainable`; the order of a layer's weights must not change with it.
        self.made_trainable = self.trainable

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.core.shape)

    @property
    def ndim(self) -> int:
        return len(self.core.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def dtype(self) -> str:
        """What reading gives: inside a layer of mixed precision, what that computes in."""
        return self._read_dtype() or self.core.dtype

    def _read_dtype(self) -> str | None:
        """What to cast to on reading, None for nothing."""
        wanted = _autocast.get()
        own = self.core.dtype
        if wanted is None or wanted == own or not self.autocast or not dtypes.is_float(own):
            return None
        return wanted

    @property
    def device(self) -> str:
        return self.core.device

    @property
    def value(self) -> Any:
        """The tensor that shares this variable's memory; inside a trace, a symbolic value."""
        value = self._stored()
        wanted = self._read_dtype()
        if wanted is None:
            return value
        from kerascnn.ops import dispatch

        return dispatch.apply_one("cast", [value], {"dtype": wanted})

    def _stored(self) -> Any:
        trace = tracing.current()
        return self.core.value if trace is None else trace.graph.read(self.core)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy of what is held now."""
        return np.array(self.core.value.numpy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def assign(self, value: Any) -> None:
        """Puts a new value in place of the old one.

        Args:
            value: Of this variable's shape; other dtypes are cast.

        Raises:
            ValueError: for another shape.
        """
        from kerascnn.ops import dispatch

        trace = tracing.current()
        if trace is None:
            value = dispatch.to_tensor(value, dtype=self.core.dtype, device_name=self.device)
        else:
            value = dispatch.convert(value, dtype=self.core.dtype)
        if tuple(value.shape) != self.shape:
            raise ValueError(
                f"The variable '{self.path}' has shape {self.shape}; a value of shape "
                f"{tuple(value.shape)} cannot be assigned to it."
            )
        if trace is None:
            self.core.assign(value)
        else:
            trace.graph.assign(self.core, value)

    def assign_add(self, value: Any) -> None:
        """Adds to the value, in place."""
        self.assign(self._stored() + self._operand(value))

    def assign_sub(self, value: Any) -> None:
        """Subtracts from the value, in place."""
        self.assign(self._stored() - self._operand(value))

    def _operand(self, value: Any) -> Any:
        from kerascnn.ops import dispatch

        target = self.device if tracing.current() is None else None
        dtype = self.core.dtype
        return dispatch.convert(value, dtype, like=self.core.value, device_name=target)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __pos__(self) -> Any:
        return self.value

    def __bool__(self) -> bool:
        # Without this a variable would be true whatever it holds.
        raise TypeError(
            f"The variable '{self.path}' cannot be a condition. Compare its value with something, "
            "as in `float(variable) > 0`, or inside a step with ops.where or ops.cond."
        )

    def __repr__(self) -> str:
        return (
            f"<Variable path={self.path}, shape={self.shape}, dtype={self.dtype}, "
            f"value={self.numpy()}>"
        )


def _initial_value(initializer: Initial, shape: Sequence[int] | None, dtype: Any) -> Any:
    """The first value as a NumPy array or a tensor of the wanted dtype and shape."""
    if isinstance(initializer, str):
        from kerascnn import initializers

        initializer = initializers.get(initializer)
    wanted: str | None
    is_array = hasattr(initializer, "__array__") or isinstance(initializer, _core.Tensor)
    if callable(initializer) and not is_array:
        if shape is None:
            raise ValueError(
                "A variable that is made by an initializer needs a shape. "
                f"Received: initializer={initializer}, shape=None."
            )
        wanted = dtypes.standardize_dtype(dtype)
        draw = getattr(initializer, "draw", None)
        value = draw(tuple(shape), wanted) if draw else initializer(tuple(shape), dtype=wanted)
    else:
        wanted = None if dtype is None else dtypes.standardize_dtype(dtype)
        value = initializer
    if isinstance(value, _core.Tensor):
        value = value.numpy()
    from kerascnn.ops import dispatch

    value = dispatch.to_numpy_array(value, wanted)
    if shape is not None and tuple(value.shape) != tuple(shape):
        raise ValueError(
            f"The first value of a variable has shape {tuple(value.shape)}, but the variable was "
            f"to have shape {tuple(shape)}."
        )
    return value
