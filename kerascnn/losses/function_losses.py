"""Losses made of functions: the wrapper of any function, and the base of losses with names."""

from collections.abc import Callable
from typing import Any, ClassVar

from kerascnn import ops, serialization, trees
from kerascnn.losses.loss import Loss, squeeze_or_expand_to_same_rank

_Function = Callable[..., Any]
_label_functions: list[_Function] = []


def takes_labels(fn: _Function) -> _Function:
    """Marks a loss whose targets are class numbers, which losses keep as integers.

    As floats they would lose exactness above 2**24 and cost a conversion in every step.
    """
    _label_functions.append(fn)
    return fn


def as_labels(y_true: Any) -> Any:
    """Converts class numbers to a tensor of integers, of 32 bits unless they have 64."""
    y_true = ops.convert_to_tensor(y_true)
    return y_true if str(y_true.dtype) in ("int32", "int64") else ops.cast(y_true, "int32")


class LossFunctionWrapper(Loss):
    """A loss made from a function of `(y_true, y_pred)` that returns one value per sample.

    Args:
        fn: the function.
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.
        **kwargs: passed on to the function.

    Example:

    >>> def gap(y_true, y_pred, power=1):
    ...     return keras.ops.mean(keras.ops.abs(y_pred - y_true) ** power, axis=-1)
    >>> loss = keras.losses.LossFunctionWrapper(gap, power=2)
    >>> float(loss(np.zeros((2, 1)), np.array([[1.0], [3.0]])))
    5.0
    """

    def __init__(
        self,
        fn: Callable,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.fn = fn
        self._fn_kwargs = kwargs

    def call(self, y_true: Any, y_pred: Any) -> Any:
        if hasattr(y_true, "shape") and hasattr(y_pred, "shape"):
            y_true, y_pred = squeeze_or_expand_to_same_rank(y_true, y_pred)
        elif isinstance(y_pred, (list, tuple, dict)):  # the predictions are several outputs
            pairs = [
                squeeze_or_expand_to_same_rank(*pair)
                for pair in zip(trees.flatten(y_true), trees.flatten(y_pred), strict=True)
            ]
            y_true = trees.pack_as(y_true, [pair[0] for pair in pairs])
            y_pred = trees.pack_as(y_pred, [pair[1] for pair in pairs])
        return self.fn(y_true, y_pred, **self._fn_kwargs)

    def _convert_target(self, y_true: Any) -> Any:
        if any(self.fn is fn for fn in _label_functions):
            return as_labels(y_true)
        return super()._convert_target(y_true)

    def get_config(self) -> dict:
        own = {"fn": self.fn, **self._fn_kwargs}
        return {**super().get_config(), **serialization.serialize_object(own)}

    @classmethod
    def from_config(cls, config: dict) -> "Loss":
        if "fn" in config:
            from kerascnn import losses

            config = {**config, "fn": losses.get(config["fn"])}
        return cls(**config)

    def __repr__(self) -> str:
        name = getattr(self.fn, "__name__", self.fn)
        return f"<{type(self).__name__} {name}, kwargs={self._fn_kwargs}>"


class NamedLoss(LossFunctionWrapper):
    """A wrapper whose configuration holds the arguments of its own constructor."""

    # These are arguments, and their defaults, that Keras loses since it leaves them out of the
    # configuration. Here they are in it if they are not the default.
    _left_out: ClassVar[dict[str, Any]] = {}

    def __init__(self, fn: Callable, **kwargs: Any):
        super().__init__(fn, **kwargs)
        for name, value in self._fn_kwargs.items():
            setattr(self, name, value)

    def get_config(self) -> dict:
        arguments = {
            name: value
            for name, value in self._fn_kwargs.items()
            if name not in self._left_out or value != self._left_out[name]
        }
        return {**Loss.get_config(self), **arguments}
