"""Schedules that decay by powers, fractions and steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import config, ops
from kerascnn.ops import dispatch
from kerascnn.optimizers.schedules.learning_rate_schedule import (
    LearningRateSchedule,
    as_floating,
    check_positive,
)


class ExponentialDecay(LearningRateSchedule):
    """`initial_learning_rate * decay_rate ** (step / decay_steps)`.

    Args:
        initial_learning_rate: the rate at step 0.
        decay_steps: after how many steps `decay_rate` has come in once.
        decay_rate: a factor.
        staircase: whether the exponent is a whole number, so that the rate falls in stairs.
        name: kept for Keras' signature.

    Raises:
        ValueError: where `decay_steps` is not positive.

    >>> schedule = keras.optimizers.schedules.ExponentialDecay(1.0, 10, 0.5)
    >>> float(schedule(20))
    0.25
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        decay_rate: float,
        staircase: bool = False,
        name: str = "ExponentialDecay",
    ) -> None:
        check_positive("ExponentialDecay", "decay_steps", decay_steps)
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.decay_rate = decay_rate
        self.staircase = staircase
        self.name = name

    def __call__(self, step: Any) -> Any:
        times = as_floating(step) / self.decay_steps
        if self.staircase:
            times = ops.floor(times)
        return self.initial_learning_rate * ops.power(float(self.decay_rate), times)

    def get_config(self) -> dict[str, Any]:
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "decay_steps": self.decay_steps,
            "decay_rate": self.decay_rate,
            "staircase": self.staircase,
            "name": self.name,
        }


class InverseTimeDecay(LearningRateSchedule):
    """`initial_learning_rate / (1 + decay_rate * step / decay_steps)`.

    Args:
        initial_learning_rate: the rate at step 0.
        decay_steps: see the formula.
        decay_rate: see the formula.
        staircase: whether `step / decay_steps` is rounded down.
        name: kept for Keras' signature.

    Raises:
        ValueError: where `decay_steps` is not positive.

    >>> schedule = keras.optimizers.schedules.InverseTimeDecay(1.0, 10, 0.5)
    >>> float(schedule(20))
    0.5
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        decay_rate: float,
        staircase: bool = False,
        name: str = "InverseTimeDecay",
    ) -> None:
        check_positive("InverseTimeDecay", "decay_steps", decay_steps)
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.decay_rate = decay_rate
        self.staircase = staircase
        self.name = name

    def __call__(self, step: Any) -> Any:
        times = as_floating(step) / self.decay_steps
        if self.staircase:
            times = ops.floor(times)
        return self.initial_learning_rate / (1.0 + self.decay_rate * times)

    def get_config(self) -> dict[str, Any]:
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "decay_steps": self.decay_steps,
            "decay_rate": self.decay_rate,
            "staircase": self.staircase,
            "name": self.name,
        }


class PolynomialDecay(LearningRateSchedule):
    """Falls from one rate to another along a power: with power 1 a straight line.

    `(initial - end) * (1 - step / decay_steps) ** power + end`, and the end rate from there on.

    Args:
        initial_learning_rate: the rate at step 0.
        decay_steps: when the end rate is reached.
        end_learning_rate: the rate from then on.
        power: of the polynomial.
        cycle: whether to take the next multiple of `decay_steps` for it once that has passed, so
            that the rate rises again.
        name: kept for Keras' signature.

    Raises:
        ValueError: where `decay_steps` is not positive.

    >>> schedule = keras.optimizers.schedules.PolynomialDecay(1.0, 10, end_learning_rate=0.0)
    >>> float(schedule(5)), float(schedule(20))
    (0.5, 0.0)
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        name: str = "PolynomialDecay",
    ) -> None:
        check_positive("PolynomialDecay", "decay_steps", decay_steps)
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.end_learning_rate = end_learning_rate
        self.power = power
        self.cycle = cycle
        self.name = name

    def __call__(self, step: Any) -> Any:
        step = as_floating(step)
        if self.cycle:
            periods = ops.maximum(ops.ceil(step / self.decay_steps), 1.0)
            done = step / (periods * float(self.decay_steps))
        else:
            done = ops.minimum(step, float(self.decay_steps)) / self.decay_steps
        span = float(self.initial_learning_rate) - self.end_learning_rate
        return span * ops.power(1.0 - done, float(self.power)) + self.end_learning_rate

    def get_config(self) -> dict[str, Any]:
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "decay_steps": self.decay_steps,
            "end_learning_rate": self.end_learning_rate,
            "power": self.power,
            "cycle": self.cycle,
            "name": self.name,
        }


class PiecewiseConstantDecay(LearningRateSchedule):
    """One rate up to each boundary, and a last one from there on.

    Args:
        boundaries: steps in increasing order; at a boundary the rate before it still holds.
        values: rates, one more than boundaries.
        name: kept for Keras' signature.

    Raises:
        ValueError: where there is not one rate more than boundaries.

    >>> schedule = keras.optimizers.schedules.PiecewiseConstantDecay([10, 20], [1.0, 0.5, 0.25])
    >>> [float(schedule(step)) for step in (10, 11, 21)]
    [1.0, 0.5, 0.25]
    """

    def __init__(
        self,
        boundaries: Sequence[float],
        values: Sequence[float],
        name: str = "PiecewiseConstant",
    ) -> None:
        if len(boundaries) != len(values) - 1:
            raise ValueError(
                "PiecewiseConstantDecay needs one value more than boundaries. Received: "
                f"boundaries={boundaries} and values={values}"
            )
        self.boundaries = boundaries
        self.values = values
        self.name = name

    def __call__(self, step: Any) -> Any:
        step = dispatch.convert(step)
        # Boundaries have the dtype of the step: with integer steps, their fractions are lost.
        rate = ops.cast(step, config.floatx()) * 0.0 + float(self.values[0])
        for boundary, value in zip(self.boundaries, self.values[1:], strict=True):
            passed = ops.greater(step, ops.cast(float(boundary), step.dtype))
            rate = ops.where(passed, float(value), rate)
        return rate

    def get_config(self) -> dict[str, Any]:
        return {"boundaries": self.boundaries, "values": self.values, "name": self.name}
