"""Named state: weights, moving averages, optimizer slots, counters."""

from __future__ import annotations

import contextlib
import contextvars
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kerascnn import _core, dtypes, naming, tracing
from kerascnn.device import current as current_device

Initial = Any  # an array, or a callable (shape, dtype) -> array

# While a mixed-precision layer computes, floating variables are read in this dtype.
_autocast: contextvars.ContextVar[str | None] = contextvars.ContextVar("autocast", default=None)


@contextlib.contextmanager
def autocast_scope(dtype: str | None) -> Iterator[None]:
    """A block in which floating variables are read as `dtype`, or unchanged if it is None."""
    token = _autocast.set(dtype)
    if dtype is not None:
        _core.enter_scope()  # from here on, operators of tensors look for it
    try:
        yield
    finally:
        _autocast.reset(token)
        if dtype is not None:
            _core.leave_scope()


def current_autocast() -> str | None:
    """Returns the dtype in which floating variables are read here, or None for their own."""
    return _autocast.get()


# This maps each variable of the core to the `Variable` whose state it is.
_of_core: weakref.WeakKeyDictionary[Any, weakref.ref[Variable]] = weakref.WeakKeyDictionary()


def variable_of(core: Any) -> Variable | None:
    """Returns the `Variable` of a variable of the core, or None if it no longer exists."""
    found = _of_core.get(core)
    return None if found is None else found()


class VariableScope:
    """A block that decides what reading and assigning variables does."""

    # If true, the values are the block's own, and compiled programs must not replace calls in it.
    is_stateless = False
    # If true, the block notes the losses that layers add.
    collect_losses = False

    def __init__(self) -> None:
        self.trace: Any = None  # the trace in which the block was entered
        self._outer: VariableScope | None = None

    def in_other_trace(self) -> VariableScope | None:
        """Returns what stands between variables and values in a trace that began in the block.

        That of a loop's body reads and assigns variables by itself; it belongs to no block.
        """
        return None if self._outer is None else self._outer.in_other_trace()

    def read(self, variable: Variable) -> Any:
        """Returns what reading the variable gives in the block."""
        return self._read_outside(variable)

    def takes(self, core: Any, value: Any) -> bool:
        """Tells whether an assignment stays in the block."""
        return self._outer is not None and self._outer.takes(core, value)

    def holds(self, core: Any) -> bool:
        """Tells whether the block has a value for the variable."""
        return self._outer is not None and self._outer.holds(core)

    def stands_before(self, core: Any) -> bool:
        """Whether reading the variable gives a value of the block's, not what the variable holds.

        More than `holds`, by which generators know whether they are a block's state.
        """
        return self.holds(core) or (self._outer is not None and self._outer.stands_before(core))

    def led_to(self, core: Any, value: Any) -> Any:
        """Returns what was read of the variable in the block, as recording tapes now follow it."""
        return value if self._outer is None else self._outer.led_to(core, value)

    def add_loss(self, loss: Any) -> None:
        """Takes a loss that a layer adds, if `collect_losses` is true."""

    def _read_outside(self, variable: Variable) -> Any:
        return variable._current() if self._outer is None else self._outer.read(variable)

    @contextlib.contextmanager
    def _active(self) -> Iterator[None]:
        self._outer, self.trace = _scope.get(), tracing.current()
        token = _scope.set(self)
        _core.enter_scope()  # from here on, operators of tensors look for the block
        try:
            yield
        finally:
            _core.leave_scope()
            _scope.reset(token)
            self._outer = None


def current_scope() -> VariableScope | None:
    """Returns the innermost open block, or None."""
    return _scope.get()


def note_loss(held: list[Any]) -> None:
    """Reports the loss that a layer has put at the end of its list."""
    trace, scope = tracing.current(), _scope.get()
    if trace is not None and trace.is_body and (scope is None or scope.trace is not trace):
        trace.losses.append((held, held[-1]))  # its value is known after the node
    elif scope is not None and scope.collect_losses:
        scope.add_loss(held[-1])


@contextlib.contextmanager
def in_place() -> Iterator[None]:
    """A block in which variables are read and assigned at once, whatever else is open."""
    token = _scope.set(None)
    try:
        with tracing.suspended():
            yield
    finally:
        _scope.reset(token)


class Block(VariableScope):
    """Code that can be computed again: with the values that it read, and without its assignments.

    The first time, in `noting`, it notes what it reads; `repeating` is the block in which it reads
    that again.
    """

    def __init__(self) -> None:
        super().__init__()
        # This maps a variable of the core to what was read of it before it was assigned here.
        # Values of a trace or block around it have gradients; copies of what variables hold lead to
        # the variables.
        self.given: dict[Any, Any] = {}
        self.copies: dict[Any, Any] = {}
        # the versions of trainable variables, which are not copied
        self.versions: dict[Any, int] = {}

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        with self._active():
            yield

    @contextlib.contextmanager
    def repeating(self, given: dict[Any, Any]) -> Iterator[None]:
        """Args: given: values in place of those in `given`.

        Raises:
            ValueError: for a trainable variable that was assigned to since the block was left.
        """
        for core, version in self.versions.items():
            if core.version != version:
                raise ValueError(
                    f"The variable '{core.name}' was assigned to after a block of `remat` had read "
                    "it, and before the gradient was taken, for which the block is computed again. "
                    "Take gradients before you assign."
                )
        with _Repetition(given, self.copies)._active():
            yield

    def given_now(self) -> list[Any]:
        """Returns the values in `given`, read without recording, as tapes follow them."""
        scope = _scope.get()
        pairs = self.given.items()
        return [value if scope is None else scope.led_to(core, value) for core, value in pairs]

    def read(self, variable: Variable) -> Any:
        core = variable.core
        value = self._read_outside(variable)
        if core in self.given or core in self.copies:
            return value
        if isinstance(value, _core.Value) or self.stands_before(core):
            self.given[core] = value
        elif core.trainable and dtypes.is_float(core.dtype):
            self.versions.setdefault(core, core.version)
        else:  # its memory will be overwritten
            self._copy(core)
        return value

    def takes(self, core: Any, value: Any) -> bool:
        if self.versions.pop(core, None) is not None:
            self._copy(core)
        return super().takes(core, value)

    def _copy(self, core: Any) -> None:
        self.copies[core] = _core.from_numpy(core.value.numpy(), core.device)


class _Repetition(VariableScope):
    """A block computed again: it reads what is given, and only itself sees what it assigns.

    As elsewhere, each reading is a value of its own, whose gradient is the variable's and does not
    go through an assignment.
    """

    def __init__(self, given: dict[Any, Any], copies: dict[Any, Any]) -> None:
        super().__init__()
        self._given = given
        self._own = {**given, **copies}
        trace = tracing.current()
        self._tapes_around = [] if trace is None else list(trace.tapes)

    def read(self, variable: Variable) -> Any:
        core = variable.core
        if core not in self._own:
            return self._read_outside(variable)
        return self.led_to(core, self._own[core])

    def led_to(self, core: Any, value: Any) -> Any:
        if core not in self._own:
            return super().led_to(core, value)
        if not dtypes.is_float(core.dtype):
            return value
        source, trace = self._given.get(core, core), tracing.current()
        if trace is None:
            return _core.record_function(core.name, [source], [value], lambda given: given)[0]
        if source is not core:
            value = trace.leads_to(source, value)
        for tape in trace.tapes:
            # the tapes around know the reading that this one stands for
            if tape not in self._tapes_around:
                tape.note(core, value)
        return value

    def takes(self, core: Any, value: Any) -> bool:
        self._own[core] = value
        return True

    def stands_before(self, core: Any) -> bool:
        return core in self._own or super().stands_before(core)


_scope: contextvars.ContextVar[VariableScope | None] = contextvars.ContextVar("scope", default=None)


def _scope_here() -> VariableScope | None:
    """Returns the block that decides reads and assignments here."""
    scope = _scope.get()
    if scope is None or scope.trace is tracing.current():
        return scope
    return scope.in_other_trace()


class Variable(_core.Operators):
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
        aggregation: Kept; of metrics' variables it says how the values of several processes become
            one (see `Metric.add_variable`).
        synchronization: Kept, without effect.
        device_name: Where it lies, such as "cuda:0"; by default on the current device.

    Raises:
        ValueError: for a callable without a shape, or a value that does not have `shape`.

    Example:

    >>> import kerascnn as keras
    >>> v = keras.Variable([1.0, 2.0], name="v")
    >>> _ = v.assign_add([1.0, 1.0])
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
        self.autocast = autocast
        self.aggregation = aggregation
        self.regularizer: Callable[[Any], Any] | None = None
        self.constraint: Callable[[Any], Any] | None = None
        with tracing.suspended():
            value = _initial_value(initializer, shape, dtype)
            tensor = _core.from_numpy(value, device_name or current_device())
        self._keep_in(tensor, bool(trainable))
        # Freezing changes `trainable`, but must not change the order of a layer's weights.
        self.made_trainable = self.trainable

    def _keep_in(self, tensor: Any, trainable: bool) -> None:
        """Makes memory for the value, with a copy of `tensor` in it."""
        self.core: Any = _core.Variable(self.path, tensor)
        self.core.trainable = trainable
        _of_core[self.core] = weakref.ref(self)

    def move_to(self, device_name: str) -> None:
        """Moves the value to another place. Earlier programs still have the old one."""
        with tracing.suspended():
            self._keep_in(self.core.value.to(device_name), self.trainable)

    @property
    def trainable(self) -> bool:
        """If true, training changes it, and a `GradientTape` watches it when it is read."""
        return bool(self.core.trainable)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self.core.trainable = bool(value)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(self.core.shape)

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.core.shape)

    @property
    def size(self) -> int:
        """How many elements there are."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def dtype(self) -> str:
        """The dtype of what reading gives: in a mixed-precision layer, the compute dtype."""
        return self._read_dtype() or self.core.dtype

    def _read_dtype(self) -> str | None:
        """Returns the dtype to cast to on reading, or None."""
        wanted = _autocast.get()
        own = self.core.dtype
        if wanted is None or wanted == own or not self.autocast or not dtypes.is_float(own):
            return None
        return wanted

    @property
    def device(self) -> str:
        """Name of the device that holds the value, such as "cpu" or "cuda:0"."""
        return self.core.device

    @property
    def value(self) -> Any:
        """The tensor that shares this variable's memory; inside a trace, a symbolic value.

        Outside a trace a later `assign` changes the tensor too, as in Keras on PyTorch:
        `ops.copy(variable.value)` is one that keeps its values.
        """
        value = self._stored()
        wanted = self._read_dtype()
        if wanted is None:
            return value
        from kerascnn.ops import dispatch

        return dispatch.apply_one("cast", [value], {"dtype": wanted})

    def _stored(self) -> Any:
        scope = _scope_here()
        return self._current() if scope is None else scope.read(self)

    def _current(self) -> Any:
        trace = tracing.current()
        return self.core.value if trace is None else trace.read(self)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy of what is held now.

        Raises:
            TypeError: while a step is recorded, which would go on with this value for ever.
        """
        trace = tracing.current()
        if trace is not None:
            return self._current().numpy()  # raises the error
        return self._held()

    def _held(self) -> np.ndarray[Any, Any]:
        """Returns the value on the host, also while a step is recorded."""
        return np.array(self.core.value.numpy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False and tracing.current() is None:
            # This is the memory itself, which later assignments overwrite.
            shared: np.ndarray[Any, Any] = self.core.value.__array__(dtype, copy)
            return shared
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, **arguments: Any) -> Any:
        """The variable's memory for another library, which sees what is assigned later."""
        value = self.core.value if tracing.current() is None else self._current()
        return value.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.core.value.__dlpack_device__()
        return device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface: dict[str, Any] = self.core.value.__cuda_array_interface__
        return interface

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles hold the value, and get memory of their own."""
        state = {key: value for key, value in self.__dict__.items() if key != "core"}
        return {**state, "_held": (self._held(), self.device, self.trainable)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        array, device_name, trainable = state.pop("_held")
        self.__dict__.update(state)
        with tracing.suspended():
            self._keep_in(_core.from_numpy(array, device_name), trainable)

    def assign(self, value: Any) -> Any:
        """Puts a new value in place of the old one.

        Args:
            value: Of this variable's shape; other dtypes are cast.

        Returns:
            The new value as a tensor of the variable's dtype.

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
        scope = _scope_here()
        if scope is not None and scope.takes(self.core, value):
            return value
        if trace is None:
            self.core.assign(value)
        else:
            trace.graph.assign(self.core, value)
        return value

    def assign_add(self, value: Any) -> Any:
        """Adds to the value, in place. Returns the sum."""
        return self.assign(self._stored() + self._operand(value))

    def assign_sub(self, value: Any) -> Any:
        """Subtracts from the value, in place. Returns the difference."""
        return self.assign(self._stored() - self._operand(value))

    def _operand(self, value: Any) -> Any:
        from kerascnn.ops import dispatch

        target = self.device if tracing.current() is None else None
        dtype = self.core.dtype
        return dispatch.convert(value, dtype, like=self.core.value, device_name=target)

    def __pos__(self) -> Any:
        return self.value

    def __bool__(self) -> bool:
        # Without this, a variable would always be true.
        raise TypeError(
            f"The variable '{self.path}' cannot be a condition. Compare its value with something, "
            "as in `float(variable) > 0`, or inside a step with ops.where or ops.cond."
        )

    def __repr__(self) -> str:
        return (
            f"<Variable path={self.path}, shape={self.shape}, dtype={self.dtype}, "
            f"value={self._held()}>"
        )


def _initial_value(initializer: Initial, shape: Sequence[int] | None, dtype: Any) -> Any:
    """Returns the first value as a NumPy array or tensor of the requested dtype and shape."""
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
