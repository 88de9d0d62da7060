"""The base class of metrics: state, update, result, reset."""

from typing import Any

from kerascnn import _core, config, initializers, tracing
from kerascnn.naming import auto_name, to_snake_case
from kerascnn.variable import Variable


class Metric:
    """Base class of metrics: subclasses implement `update_state` and `result`.

    State lives in variables made by `add_variable`; `fit` updates them on the device as part of the
    compiled step, and reads them when logs are asked for.

    Args:
        dtype: dtype of the state; `keras.config.floatx()` where it is `None`.
        name: the metric's name in logs; made from the class' name where it is `None`.

    >>> class Largest(keras.metrics.Metric):
    ...     def __init__(self, name="largest"):
    ...         super().__init__(name=name)
    ...         self.largest = self.add_variable((), "zeros", name="largest")
    ...     def update_state(self, y_true, y_pred, sample_weight=None):
    ...         value = keras.ops.max(keras.ops.convert_to_tensor(y_pred))
    ...         self.largest.assign(keras.ops.maximum(self.largest.value, value))
    ...     def result(self):
    ...         return self.largest.value
    >>> metric = Largest()
    >>> metric.update_state(None, np.array([1.0, 5.0], "float32"))
    >>> float(metric.result())
    5.0
    """

    # "up" or "down" where one direction is better; callbacks that monitor the metric ask.
    _direction: str | None = None

    def __init__(self, dtype: str | None = None, name: str | None = None):
        self.name = name or auto_name(to_snake_case(type(self).__name__))
        self._dtype = dtype
        self._variables: list[Variable] = []
        self._initial_values: list[Any] = []
        self._initial_tensors: list[Any] = []

    @property
    def dtype(self) -> str:
        return self._dtype or config.floatx()

    @property
    def variables(self) -> list[Variable]:
        variables = list(self._variables)
        for value in vars(self).values():
            if isinstance(value, Metric):
                variables.extend(value.variables)
        return variables

    def add_variable(
        self,
        shape: tuple,
        initializer: Any = "zeros",
        dtype: str | None = None,
        aggregation: str = "sum",
        name: str | None = None,
    ) -> Variable:
        """A state variable of `shape`, not trainable. `reset_state` brings its first value back."""
        if not hasattr(self, "_variables"):
            raise RuntimeError(
                f"{type(self).__name__}.__init__() must call super().__init__() before it adds "
                "variables."
            )
        variable = Variable(
            initializers.get(initializer),
            shape=shape,
            dtype=dtype or self.dtype,
            trainable=False,
            name=name or "variable",
        )
        self._variables.append(variable)
        self._initial_values.append(variable.numpy().copy())
        return variable

    def add_weight(
        self,
        shape: tuple = (),
        initializer: Any = "zeros",
        dtype: str | None = None,
        name: str | None = None,
    ) -> Variable:
        """The same as `add_variable`."""
        return self.add_variable(shape, initializer, dtype=dtype, name=name)

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} must implement update_state.")

    def result(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must implement result.")

    def reset_state(self) -> None:
        """Gives every variable its first value back."""
        if tracing.current() is not None:
            for variable, value in zip(self._variables, self._initial_values, strict=True):
                variable.assign(value)
            return
        # Kept on the device: every epoch begins with a reset, which should allocate nothing.
        if [t.device for t in self._initial_tensors] != [v.device for v in self._variables]:
            pairs = zip(self._initial_values, self._variables, strict=True)
            self._initial_tensors = [_core.from_numpy(value, v.device) for value, v in pairs]
        for variable, tensor in zip(self._variables, self._initial_tensors, strict=True):
            variable.core.assign(tensor)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.update_state(*args, **kwargs)
        return self.result()

    def get_config(self) -> dict:
        return {"name": self.name, "dtype": self.dtype}

    @classmethod
    def from_config(cls, config: dict) -> "Metric":
        return cls(**config)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"
