"""The base class of losses, and how per-sample values become one number."""

from typing import Any

from kerascnn import config, dtype_policies, ops, tracing
from kerascnn.distribution import replicas
from kerascnn.masks import own_mask
from kerascnn.naming import auto_name, to_snake_case
from kerascnn.tracebacks import names_arguments
from kerascnn.trees import map_structure

REDUCTIONS = ("sum_over_batch_size", "sum", "mean", "mean_with_sample_weight", "none", None)


def apply_mask(sample_weight: Any, mask: Any, dtype: str, reduction: str | None) -> Any:
    """`sample_weight` with 0 where the mask is False.

    Where a mean over all values follows, those that count weigh `total / counted`, which makes it
    a mean over these.
    """
    if mask is None:
        return sample_weight
    weights = ops.cast(mask, dtype)
    if reduction in ("mean", "sum_over_batch_size"):
        total, counted = float(ops.size(mask)), ops.sum(weights)
        share = replicas.current_share()
        if share is not None:  # what counts is that of all processes
            total *= share.total / mask.shape[0]
            counted = replicas.summed([counted])[0]
        weights = ops.multiply(weights, divide_no_nan(total, counted))
    if sample_weight is None:
        return weights
    sample_weight = ops.convert_to_tensor(sample_weight, dtype=dtype)
    weights, sample_weight = squeeze_or_expand_to_same_rank(weights, sample_weight)
    return ops.multiply(sample_weight, weights)


class Loss:
    """Base class of losses: subclasses implement `call(y_true, y_pred)`.

    `call` returns one value per sample, shape `(batch_size, ...)`; calling the object reduces them.
    Where the predictions or these values have a mask, only what it keeps counts, in means too.

    Args:
        name: the loss' name in logs; made from the class' name where it is `None`.
        reduction: `"sum_over_batch_size"` or `"mean"` (sum divided by the number of values),
            `"sum"`, `"mean_with_sample_weight"` (sum divided by the sum of the weights), `"none"`
            or `None` (the values as they are).
        dtype: dtype of the computation, or a dtype policy, whose compute dtype it is then;
            `keras.config.floatx()` where it is `None`.

    Raises:
        ValueError: for an unknown `reduction` or dtype.

    >>> class AbsoluteError(keras.losses.Loss):
    ...     def call(self, y_true, y_pred):
    ...         return keras.ops.mean(keras.ops.abs(y_pred - y_true), axis=-1)
    >>> float(AbsoluteError()(np.zeros((2, 2)), np.array([[1.0, 3.0], [2.0, 2.0]])))
    2.0
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        names_arguments(cls)

    def __init__(
        self,
        name: str | None = None,
        reduction: str | None = "sum_over_batch_size",
        dtype: Any = None,
    ):
        self.name = name or auto_name(to_snake_case(type(self).__name__))
        self.reduction = standardize_reduction(reduction)
        self._dtype_policy = dtype_policies.get(dtype or config.floatx())
        self._dtype = self._dtype_policy.compute_dtype

    @property
    def dtype(self) -> str:
        """Name of the dtype in which the loss is computed."""
        return self._dtype

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        with tracing.part("loss"):
            return self._reduced(y_true, y_pred, sample_weight)

    def _reduced(self, y_true: Any, y_pred: Any, sample_weight: Any) -> Any:
        mask = own_mask(y_pred)
        y_pred = map_structure(self._as_prediction, y_pred)
        y_true = map_structure(self._convert_target, y_true)
        values = self.call(y_true, y_pred)
        own = own_mask(values)
        mask = own if mask is None else mask if own is None else ops.logical_and(mask, own)
        return reduce_weighted_values(
            self._as_floating(values), sample_weight, self.reduction, mask
        )

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The losses before they are reduced; subclasses override it.

        Args:
            y_true: Targets, shape (batch_size, ...).
            y_pred: Predictions, shape (batch_size, ...).

        Returns:
            One value for each sample, shape (batch_size, ...), in the loss' dtype.

        Raises:
            NotImplementedError: where a subclass does not override it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must implement call(self, y_true, y_pred) and return one value "
            "per sample."
        )

    def _as_floating(self, value: Any) -> Any:
        return ops.convert_to_tensor(value, dtype=self.dtype)

    def _as_prediction(self, value: Any) -> Any:
        converted = self._as_floating(value)
        trace = tracing.current()
        if trace is not None:
            trace.keep_origin(value, converted)
        return converted

    def _convert_target(self, y_true: Any) -> Any:
        return self._as_floating(y_true)

    def get_config(self) -> dict:
        """The arguments that make another one like it; values of JSON.

        Returns:
            A dictionary, which `from_config` takes.
        """
        return {"name": self.name, "reduction": self.reduction}

    @classmethod
    def from_config(cls, config: dict) -> "Loss":
        """Makes one of what `get_config` returned.

        Args:
            config: The dictionary.
        """
        return cls(**config)


def standardize_reduction(reduction: str | None) -> str | None:
    if reduction not in REDUCTIONS:
        raise ValueError(
            "Invalid value for argument `reduction`. Expected one of "
            f"{', '.join(map(repr, REDUCTIONS))}. Received: reduction={reduction!r}"
        )
    return reduction


def squeeze_or_expand_to_same_rank(x1: Any, x2: Any, expand_rank_1: bool = True) -> tuple[Any, Any]:
    """Makes two ranks that differ by one equal, by a last axis of extent 1 dropped or added."""
    rank1, rank2 = len(x1.shape), len(x2.shape)
    if rank1 == rank2 + 1 and x1.shape[-1] == 1:
        if rank2 == 1 and expand_rank_1:
            x2 = ops.expand_dims(x2, axis=-1)
        else:
            x1 = ops.squeeze(x1, axis=-1)
    elif rank2 == rank1 + 1 and x2.shape[-1] == 1:
        if rank1 == 1 and expand_rank_1:
            x1 = ops.expand_dims(x1, axis=-1)
        else:
            x2 = ops.squeeze(x2, axis=-1)
    return x1, x2


def reduce_weighted_values(
    values: Any,
    sample_weight: Any = None,
    reduction: str | None = "sum_over_batch_size",
    mask: Any = None,
) -> Any:
    """Weighs per-sample `values` and reduces those that the mask keeps as `reduction` says.

    In a step on a share of a batch, the mean of the results of all processes is that of the whole
    batch; see `distribution/replicas.py`.
    """
    share = replicas.current_share()
    dtype = str(values.dtype)
    sample_weight = apply_mask(sample_weight, mask, dtype, reduction)
    if sample_weight is not None:
        sample_weight = ops.convert_to_tensor(sample_weight, dtype=dtype)
        values, sample_weight = squeeze_or_expand_to_same_rank(values, sample_weight)
        values = ops.multiply(values, sample_weight)
    if reduction in (None, "none") or tuple(values.shape) == (0,):
        return values
    if len(values.shape) == 0:
        return _of_share(values, None if share is None else share.weight)
    if reduction == "sum" or ops.size(values) == 0:
        return _of_share(ops.sum(values), None if share is None else _times(share))
    if reduction == "mean_with_sample_weight" and sample_weight is not None:
        total, weights = ops.sum(values), ops.sum(sample_weight)
        if share is not None:
            total, weights = _of_share(total, _times(share)), replicas.summed([weights])[0]
        return divide_no_nan(total, weights)
    return _of_share(ops.mean(values), None if share is None else share.weight)


def _of_share(value: Any, weight: float | None) -> Any:
    return value if weight is None or weight == 1 else ops.multiply(value, weight)


def _times(share: replicas.Share) -> float:
    """Returns what a sum over the own samples is multiplied by."""
    return 0.0 if share.is_empty else float(share.processes)


def divide_no_nan(numerator: Any, denominator: Any) -> Any:
    """The quotient, 0 where the denominator is 0."""
    is_zero = ops.equal(denominator, 0.0)
    quotient = ops.divide(numerator, ops.where(is_zero, ops.ones_like(denominator), denominator))
    return ops.where(is_zero, ops.zeros_like(quotient), quotient)
