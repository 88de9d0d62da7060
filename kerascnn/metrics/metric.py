"""The base class of metrics: state, update, result, reset."""

import math
from typing import Any

from kerascnn import config, dtype_policies, dtypes, file_budget, initializers, ops, tracing
from kerascnn.attributes import attributes_of
from kerascnn.naming import auto_name, name_scope, to_snake_case
from kerascnn.stateless import StatelessMetric
from kerascnn.tracebacks import names_arguments
from kerascnn.variable import Variable, current_scope


class Metric(StatelessMetric):
    """Base class of metrics: subclasses implement `update_state` and `result`.

    State lives in variables made by `add_variable` (or put into attributes); `fit` updates them on
    the device as part of the compiled step, and reads them when logs are asked for. Metrics in
    attributes are a part of this one.

    Args:
        dtype: dtype of the computation, or a dtype policy, whose compute dtype it is then;
            `keras.config.floatx()` where it is `None`.
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

    # This is "up" or "down" if larger or smaller is better; callbacks that monitor the metric use
    # it.
    _direction: str | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        names_arguments(cls)

    def __init__(self, dtype: Any = None, name: str | None = None):
        self.name = name or auto_name(to_snake_case(type(self).__name__))
        self._dtype_policy = dtype_policies.get(dtype or config.floatx())
        self._dtype = self._dtype_policy.compute_dtype
        self._variables: list[Variable] = []

    @property
    def dtype(self) -> str:
        """Name of the dtype in which the metric counts."""
        return self._dtype

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Variable) and "_variables" in vars(self):
            self._track(value)
        super().__setattr__(name, value)

    def _track(self, variable: Variable) -> None:
        if not any(variable is known for known in self._variables):
            self._variables.append(variable)

    @property
    def variables(self) -> list[Variable]:
        """The state, that of metrics in attributes included."""
        for metric in (self, *self._parts()):
            metric._settle()
        return [*self._own_variables(), *(v for metric in self._parts() for v in metric.variables)]

    def _settle(self) -> None:
        """Moves the counts of the host into the variables."""

    def _unsettled(self) -> list[Variable]:
        """Returns the variables without the host's counts, which training does not need."""
        if type(self).variables is not Metric.variables:
            return self.variables
        parts = (v for metric in self._parts() for v in metric._unsettled())
        return [*self._own_variables(), *parts]

    def _own_variables(self) -> list[Variable]:
        """Returns the variables in attributes, also those in lists and dictionaries."""
        return attributes_of(self, Variable)

    def _parts(self) -> list["Metric"]:
        """Returns the metrics in attributes, also those in lists and dictionaries."""
        return attributes_of(self, Metric)

    def add_variable(
        self,
        shape: tuple,
        initializer: Any,
        dtype: Any = None,
        aggregation: str = "sum",
        name: str | None = None,
    ) -> Variable:
        """A state variable, not trainable.

        Args:
            shape: its shape.
            initializer: of its first value; zeros where it is `None`. `reset_state` sets it to 0.
            dtype: `keras.config.floatx()` where it is `None`.
            aggregation: how the values of several processes that train one model become one:
                `"sum"`, `"mean"`, or `"only_first_replica"` and `"none"`, those of the first one.
            name: its name, "variable" where it is `None`.

        Raises:
            RuntimeError: before `super().__init__()`.
        """
        self._check_super_called()
        wanted = dtypes.standardize_dtype(dtype)
        size = math.prod(shape) * dtypes.ITEMSIZE[wanted]
        file_budget.charge_weight(size, self.name, "metric")
        with name_scope(self.name.replace("/", ">")):
            variable = Variable(
                initializers.get("zeros" if initializer is None else initializer),
                shape=tuple(shape),
                dtype=dtype,
                trainable=False,
                aggregation=aggregation,
                name=name or "variable",
            )
        self._track(variable)
        return variable

    def add_weight(
        self,
        shape: tuple = (),
        initializer: Any = None,
        dtype: Any = None,
        name: str | None = None,
    ) -> Variable:
        """The same as `add_variable`."""
        return self.add_variable(shape, initializer, dtype=dtype, name=name)

    def _check_super_called(self) -> None:
        if "_variables" not in vars(self):
            raise RuntimeError(
                f"{type(self).__name__}.__init__() must call super().__init__() before it adds "
                "variables."
            )

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Adds a batch to the state; `fit` calls it with targets, predictions and weights."""
        raise NotImplementedError(f"{type(self).__name__} must implement update_state.")

    def result(self) -> Any:
        """The value, or a dictionary of values by name, that the state stands for now."""
        raise NotImplementedError(f"{type(self).__name__} must implement result.")

    def reset_state(self) -> None:
        """Sets the state to 0; a metric that starts elsewhere overrides this."""
        for metric in self._parts():
            metric.reset_state()
        if tracing.current() is not None or current_scope() is not None:
            for variable in self._own_variables():
                variable.assign(ops.zeros(variable.shape, variable.dtype))
            return
        for variable in self._own_variables():
            variable.core.value.fill_zero()  # in place, so that epochs allocate nothing

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._check_super_called()
        with tracing.part("metrics"):
            self.update_state(*args, **kwargs)
            return self.result()

    def get_config(self) -> dict:
        """The arguments that make another one like it; values of JSON.

        Returns:
            A dictionary, which `from_config` takes.
        """
        return {"name": self.name, "dtype": self.dtype}

    @classmethod
    def from_config(cls, config: dict) -> "Metric":
        """Makes one of what `get_config` returned.

        Args:
            config: The dictionary.
        """
        return cls(**config)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"
