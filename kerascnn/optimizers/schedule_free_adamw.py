"""AdamW without a schedule: steps at an average of iterates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops, tracing
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.variable import Variable


class ScheduleFreeAdamW(Optimizer):
    """Schedule-free AdamW (Defazio et al., 2024, "The Road Less Scheduled").

    A sequence z takes Adam's steps without momentum, x is the mean of all z so far, and the weights
    are `(1 - beta_1) * z + beta_1 * x`: the mean gains what a falling learning rate would.

    Args:
        learning_rate: a float, a schedule or a callable; see `Optimizer`.
        beta_1: share of the mean in the weights.
        beta_2: how slowly the mean of the squared gradients follows.
        epsilon: keeps the division finite.
        warmup_steps: the learning rate rises linearly for so many steps.
        weight_decay, clipnorm, clipvalue, global_clipnorm, use_ema, ema_momentum,
            ema_overwrite_frequency, loss_scale_factor, gradient_accumulation_steps, name: see
            `Optimizer`.

    Raises:
        ValueError: for arguments of a wrong form.

    >>> weight = keras.Variable([1.0, 2.0])
    >>> keras.optimizers.ScheduleFreeAdamW(0.1).apply([np.array([3.0, -5.0], "float32")], [weight])
    >>> weight.numpy().round(4)
    array([0.9, 2.1], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: Any = 0.0025,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        warmup_steps: int = 0,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate,
            weight_decay,
            clipnorm,
            clipvalue,
            global_clipnorm,
            use_ema,
            ema_momentum,
            ema_overwrite_frequency,
            loss_scale_factor,
            gradient_accumulation_steps,
            name,
            **kwargs,
        )
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.warmup_steps = warmup_steps

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )
        with tracing.suspended():
            for slot, variable in zip(self._momentums, variables, strict=True):
                slot.assign(variable.value)

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        place = self._get_variable_index(variable)
        z, v = self._momentums[place], self._velocities[place]
        count = self._next_step(variable.dtype)
        if self.warmup_steps > 0:
            learning_rate = learning_rate * ops.minimum(count / self.warmup_steps, 1.0)
        square = v.value + (ops.square(gradient) - v.value) * (1.0 - self.beta_2)
        unbiased = square / (1.0 - ops.power(self.beta_2, count))
        moved = z.value - learning_rate * gradient / (ops.sqrt(unbiased) + self.epsilon)
        mean = (variable.value - (1.0 - self.beta_1) * z.value) / self.beta_1
        mean = mean + (moved - mean) / count
        self.assign(variable, (1.0 - self.beta_1) * moved + self.beta_1 * mean)
        self.assign(z, moved)
        self.assign(v, square)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "warmup_steps": self.warmup_steps,
        }
