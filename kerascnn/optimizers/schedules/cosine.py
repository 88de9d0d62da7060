"""Schedules that fall along half a wave of a cosine."""

from __future__ import annotations

import math
from typing import Any

from kerascnn import ops
from kerascnn.optimizers.schedules.learning_rate_schedule import (
    LearningRateSchedule,
    as_floating,
    check_positive,
)


def half_wave(done: Any) -> Any:
    """Returns 0.5 * (1 + cos(pi * done)), which falls from 1 to 0 for `done` from 0 to 1."""
    return 0.5 * (1.0 + ops.cos(done * math.pi))


class CosineDecay(LearningRateSchedule):
    """Falls along half a wave of a cosine, after a linear rise where asked for.

    During the `warmup_steps` first steps the rate rises from `initial_learning_rate` to
    `warmup_target`; then it falls from there to `alpha` times that within `decay_steps`.

    Args:
        initial_learning_rate: the rate at step 0.
        decay_steps: how many steps it falls for.
        alpha: the rate at the end, as a share of the rate that it fell from.
        name: kept for Keras' signature.
        warmup_target: the rate after the rise; None to begin with the fall.
        warmup_steps: how many steps it rises for.

    Raises:
        ValueError: where `decay_steps` is not positive.

    Source: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017.

    >>> CosineDecay = keras.optimizers.schedules.CosineDecay
    >>> schedule = CosineDecay(0.0, 100, warmup_target=1.0, warmup_steps=10)
    >>> [round(float(schedule(step)), 4) for step in (5, 10, 60, 110)]
    [0.5, 1.0, 0.5, 0.0]
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        alpha: float = 0.0,
        name: str = "CosineDecay",
        warmup_target: float | None = None,
        warmup_steps: int = 0,
    ) -> None:
        check_positive("CosineDecay", "decay_steps", decay_steps)
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.alpha = alpha
        self.name = name
        self.warmup_target = warmup_target
        self.warmup_steps = warmup_steps

    def __call__(self, step: Any) -> Any:
        step = as_floating(step)
        start = float(self.initial_learning_rate)
        if self.warmup_target is None:
            return self._fall(step, start)
        peak = float(self.warmup_target)
        fallen = self._fall(step - float(self.warmup_steps), peak)
        if not self.warmup_steps:
            return fallen
        risen = (peak - start) * (step / self.warmup_steps) + start
        return ops.where(ops.less(step, float(self.warmup_steps)), risen, fallen)

    def _fall(self, step: Any, start: float) -> Any:
        done = ops.clip(step, 0.0, float(self.decay_steps)) / self.decay_steps
        return start * ((1.0 - self.alpha) * half_wave(done) + self.alpha)

    def get_config(self) -> dict[str, Any]:
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "decay_steps": self.decay_steps,
            "alpha": self.alpha,
            "name": self.name,
            "warmup_target": self.warmup_target,
            "warmup_steps": self.warmup_steps,
        }


class CosineDecayRestarts(LearningRateSchedule):
    """Falls along half a wave of a cosine again and again.

    Args:
        initial_learning_rate: the rate at step 0.
        first_decay_steps: how many steps the first fall takes.
        t_mul: how many times as long the next fall is.
        m_mul: how many times as high the next fall begins.
        alpha: the rate at the end of a fall, as a share of `initial_learning_rate`.
        name: kept for Keras' signature.

    Raises:
        ValueError: where `first_decay_steps` is not positive.

    Source: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017.

    >>> schedule = keras.optimizers.schedules.CosineDecayRestarts(1.0, 10, t_mul=2.0, m_mul=0.5)
    >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 20, 30)]
    [1.0, 0.5, 0.5, 0.25, 0.25]
    """

    def __init__(
        self,
        initial_learning_rate: float,
        first_decay_steps: int,
        t_mul: float = 2.0,
        m_mul: float = 1.0,
        alpha: float = 0.0,
        name: str = "SGDRDecay",
    ) -> None:
        check_positive("CosineDecayRestarts", "first_decay_steps", first_decay_steps)
        self.initial_learning_rate = initial_learning_rate
        self.first_decay_steps = first_decay_steps
        self._t_mul = t_mul
        self._m_mul = m_mul
        self.alpha = alpha
        self.name = name

    def __call__(self, step: Any) -> Any:
        done = as_floating(step) / self.first_decay_steps
        t_mul = float(self._t_mul)
        if t_mul == 1.0:
            restarts = ops.floor(done)
            done = done - restarts
        else:
            # Together, the falls so far took 1 + t + ... + t**(n-1) = (1 - t**n) / (1 - t) times
            # the first one.
            restarts = ops.floor(ops.log(1.0 - done * (1.0 - t_mul)) / math.log(t_mul))
            length = ops.power(t_mul, restarts)
            done = (done - (1.0 - length) / (1.0 - t_mul)) / length
        height = ops.power(float(self._m_mul), restarts) * half_wave(done)
        return float(self.initial_learning_rate) * ((1.0 - self.alpha) * height + self.alpha)

    def get_config(self) -> dict[str, Any]:
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "first_decay_steps": self.first_decay_steps,
            "t_mul": self._t_mul,
            "m_mul": self._m_mul,
            "alpha": self.alpha,
            "name": self.name,
        }
