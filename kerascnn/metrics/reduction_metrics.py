"""Sums and means of the values since the last reset."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from kerascnn import losses, ops, serialization, tracing
from kerascnn.distribution import replicas
from kerascnn.losses.loss import apply_mask, divide_no_nan, squeeze_or_expand_to_same_rank
from kerascnn.masks import own_mask
from kerascnn.metrics.metric import Metric
from kerascnn.metrics.recording import current_recording
from kerascnn.variable import current_scope, in_place


def _one_value_per_sample(
    values: Any, sample_weight: Any, reduce: Callable, dtype: str
) -> tuple[Any, Any]:
    """Reduces weighted values to one per sample; also returns weights of that form, or None."""
    mask = own_mask(values)
    values = ops.cast(values, dtype)
    if sample_weight is not None:
        # As in Keras, without weights, masked values count unchanged.
        sample_weight = apply_mask(sample_weight, mask, dtype, "sum")
        sample_weight = ops.convert_to_tensor(sample_weight, dtype=dtype)
        values, sample_weight = squeeze_or_expand_to_same_rank(values, sample_weight)
        weight_rank, rank = len(sample_weight.shape), len(values.shape)
        if rank > weight_rank:
            values = reduce(values, axis=list(range(weight_rank, rank)))
        sample_weight = ops.broadcast_to(sample_weight, tuple(values.shape))
        values = ops.multiply(values, sample_weight)
        if weight_rank > 1:
            sample_weight = reduce(sample_weight, axis=list(range(1, weight_rank)))
    if len(values.shape) > 1:
        values = reduce(values, axis=list(range(1, len(values.shape))))
    return values, sample_weight


def _sum(values: Any) -> Any:
    return ops.sum(values) if len(values.shape) else values


class Sum(Metric):
    """The (weighted) sum of the values.

    >>> metric = keras.metrics.Sum()
    >>> metric.update_state([1.0, 3.0], sample_weight=[1.0, 0.5])
    >>> float(metric.result())
    2.5
    """

    def __init__(self, name: str | None = "sum", dtype: Any = None):
        super().__init__(name=name, dtype=dtype)
        self.total = self.add_variable((), "zeros", dtype=self.dtype, name="total")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        values, _ = _one_value_per_sample(values, sample_weight, ops.sum, self.dtype)
        self.total.assign_add(_sum(values))

    def result(self) -> Any:
        return self.total.value


class Mean(Metric):
    """The (weighted) mean of the values.

    `total` holds the sum of the weighted values and `count` the sum of the weights. Where weights
    are absent, or one number that is known when a step is traced, the count is kept on the host.

    >>> metric = keras.metrics.Mean()
    >>> metric.update_state([1.0, 3.0, 5.0, 7.0])
    >>> float(metric.result())
    4.0
    """

    def __init__(self, name: str | None = "mean", dtype: Any = None):
        super().__init__(name=name, dtype=dtype)
        self.total = self.add_variable((), "zeros", dtype=self.dtype, name="total")
        self._count = self.add_variable((), "zeros", dtype=self.dtype, name="count")
        self._count_on_host = 0.0
        self._count_is_read = False  # true if a program that somebody else compiled reads it

    @property
    def count(self) -> Any:
        """The sum of the weights, a variable."""
        if current_recording() is None:
            self._settle()
        return self._count

    def _settle(self) -> None:
        if tracing.current() is not None:
            # What is recorded reads the variable without asking the host for its count.
            self._count_is_read = True
        self._bring_count_to_device()

    def _bring_count_to_device(self) -> None:
        amount, self._count_on_host = self._count_on_host, 0.0
        if amount:
            with in_place():
                self._count.assign_add(amount)

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        fixed_weight = isinstance(sample_weight, (int, float))
        weights = None if fixed_weight else sample_weight
        values, weights = _one_value_per_sample(values, weights, ops.mean, self.dtype)
        samples = values.shape[0] if len(values.shape) else 1
        if fixed_weight:
            values = ops.multiply(values, float(sample_weight))
            samples *= sample_weight
        self.total.assign_add(_sum(values))
        if weights is None:
            self._add_to_count(samples)
        else:
            self._count.assign_add(_sum(weights))

    def _add_to_count(self, samples: float) -> None:
        recording, is_stateless = current_recording(), current_scope() is not None
        share = replicas.current_share()
        # A step on samples of others takes back what metrics have counted in variables.
        is_empty = share is not None and share.is_empty
        is_traced = tracing.current() is not None or is_empty
        # Nor does the host count for several devices of this process.
        is_apart = is_empty or replicas.local_replica() is not None
        if recording is not None and (recording.results_on_device or is_apart):
            recording = None
        if recording is not None and not is_stateless and not self._count_is_read:
            recording.each_step(lambda steps: self._count_steps(steps * samples))
        elif is_traced or is_stateless or self._count_is_read:
            self._count.assign_add(float(samples))
        else:
            self._count_on_host += samples

    def _count_steps(self, samples: float) -> None:
        self._count_on_host += samples
        if self._count_is_read:
            self._bring_count_to_device()

    def reset_state(self) -> None:
        if current_scope() is None:
            self._count_on_host = 0.0
            # What is recorded resets only the variable, and nothing on the host.
            self._count_is_read |= tracing.current() is not None
        super().reset_state()

    def result(self) -> Any:
        return divide_no_nan(self.total.value, self.count.value)

    def state_on_device(self) -> list[Any]:
        """Returns the tensors on the device that `result_on_host` needs."""
        return [self.total.core.value, self._count.core.value]

    def result_on_host(self, state: Sequence[Any] | None = None) -> float:
        """The mean as a number, read without any work or allocation on the device.

        Args:
            state: arrays with the values of `state_on_device`, where they were read already.
        """
        values = [tensor.numpy() for tensor in self.state_on_device()] if state is None else state
        total, count = (float(value) for value in values)
        count += self._count_on_host
        return total / count if count else 0.0


class MeanMetricWrapper(Mean):
    """The mean of what a function of `(y_true, y_pred)` returns for each sample.

    Args:
        fn: the function.
        name: see `Metric`.
        dtype: see `Metric`.
        **kwargs: passed on to the function.

    >>> metric = keras.metrics.MeanMetricWrapper(lambda t, p: keras.ops.abs(p - t), name="distance")
    >>> metric.update_state(np.zeros(2, "float32"), np.array([1.0, 3.0], "float32"))
    >>> float(metric.result())
    2.0
    """

    def __init__(self, fn: Callable, name: str | None = None, dtype: Any = None, **kwargs: Any):
        fallback = getattr(fn, "__name__", "mean_metric_wrapper")
        super().__init__(name=str(name or fallback), dtype=dtype)
        self._fn = fn
        self._fn_kwargs = kwargs
        if isinstance(fn, losses.Loss) or losses.is_loss_function(fn):
            self._direction = "down"

    def update_state(  # type: ignore[override]
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        mask = own_mask(y_pred)
        values = self._fn(y_true, y_pred, **self._fn_kwargs)
        sample_weight = apply_mask(sample_weight, mask, self.dtype, "sum")
        super().update_state(values, sample_weight=sample_weight)

    def get_config(self) -> dict:
        own = {"fn": self._fn, **self._fn_kwargs}
        return {**super().get_config(), **serialization.serialize_object(own)}

    @classmethod
    def from_config(cls, config: dict) -> "Metric":
        if "fn" in config:
            from kerascnn import metrics

            config = {**config, "fn": metrics.deserialize(config["fn"])}
        return cls(**config)


class NamedMeanMetric(MeanMetricWrapper):
    """A wrapper whose configuration holds the arguments of its own constructor."""

    # As in Keras, these arguments are in the configuration only if they differ from this default.
    _left_out: ClassVar[dict[str, Any]] = {}

    def __init__(self, fn: Callable, name: str | None = None, dtype: Any = None, **kwargs: Any):
        super().__init__(fn, name=name, dtype=dtype, **kwargs)
        for argument, value in kwargs.items():
            setattr(self, argument, value)

    def get_config(self) -> dict:
        arguments = {
            name: value
            for name, value in self._fn_kwargs.items()
            if name not in self._left_out or value != self._left_out[name]
        }
        return {"name": self.name, "dtype": self.dtype, **arguments}
