"""The base class of schedules."""

from __future__ import annotations

from typing import Any

from kerascnn import config, dtypes, ops
from kerascnn.ops import dispatch


class LearningRateSchedule:
    """A learning rate that is a function of the count of steps.

    A subclass implements `__call__(step)` and `get_config`. With `kerascnn.ops` alone it is traced
    once inside of `fit`, and then computed by the compiled step from the optimizer's counter. Where
    it asks for the number of the step (`if`, `float()`, NumPy), Python computes the rates of the
    steps that are about to run; functions of `keras.jit` then raise a TypeError.

    >>> class Halve(keras.optimizers.schedules.LearningRateSchedule):
    ...     def __call__(self, step):
    ...         return 0.5 ** keras.ops.cast(step, "float32")
    >>> optimizer = keras.optimizers.SGD(Halve())
    >>> weight = keras.Variable([0.0])
    >>> for _ in range(3):
    ...     optimizer.apply([np.ones(1, "float32")], [weight])
    >>> weight.numpy()
    array([-1.75], dtype=float32)
    """

    def __call__(self, step: Any) -> Any:
        """The learning rate, of shape ().

        Args:
            step: how many steps were taken, an integer of shape ().
        """
        raise NotImplementedError(f"{type(self).__name__} must implement __call__(step).")

    def get_config(self) -> dict[str, Any]:
        """The arguments that make another schedule like this one."""
        raise NotImplementedError(
            f"{type(self).__name__} must implement get_config to be put into a configuration."
        )

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LearningRateSchedule:
        """Makes one of what `get_config` returned.

        Args:
            config: The dictionary.
        """
        return cls(**config)


def as_floating(step: Any) -> Any:
    """Converts a number of steps to `floatx`, in which schedules compute."""
    return ops.cast(dispatch.convert(step), dtypes.standardize_dtype(config.floatx()))


def check_positive(cls: str, name: str, value: Any) -> None:
    """Raises a ValueError if a number of steps is not positive."""
    if value <= 0:
        raise ValueError(f"{cls}: `{name}` must be greater than 0. Received: {name}={value}")
