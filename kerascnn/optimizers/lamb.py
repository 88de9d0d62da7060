"""Lamb: Adam whose steps are as long as the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.variable import Variable


class Lamb(Optimizer):
    """LAMB (You et al., 2019, "Large Batch Optimization for Deep Learning: Training BERT in 76
    minutes").

    Adam's step s (with unbiased moments), taken as `w -= learning_rate * |w| / |s| * s` for the
    lengths of w and s as vectors; where either is 0, as `w -= learning_rate * s`.

    Args:
        learning_rate: a float, a schedule or a callable; see `Optimizer`.
        beta_1: how slowly the mean of the gradients follows.
        beta_2: how slowly the mean of the squared gradients follows.
        epsilon: keeps the division finite.
        weight_decay, clipnorm, clipvalue, global_clipnorm, use_ema, ema_momentum,
            ema_overwrite_frequency, loss_scale_factor, gradient_accumulation_steps, name: see
            `Optimizer`.

    Raises:
        ValueError: for arguments of a wrong form.

    >>> weight = keras.Variable([1.0, 2.0])
    >>> keras.optimizers.Lamb(0.1).apply([np.array([3.0, -5.0], "float32")], [weight])
    >>> weight.numpy().round(4)
    array([0.8419, 2.1581], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
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

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        place = self._get_variable_index(variable)
        m, v = self._momentums[place], self._velocities[place]
        count = self._next_step(variable.dtype)
        mean = m.value + (gradient - m.value) * (1 - self.beta_1)
        square = v.value + (ops.square(gradient) - v.value) * (1 - self.beta_2)
        spread = ops.sqrt(square / (1.0 - ops.power(self.beta_2, count))) + self.epsilon
        step = mean / (1.0 - ops.power(self.beta_1, count)) / spread
        length, step_length = ops.norm(variable.value), ops.norm(step)
        both = ops.logical_and(ops.greater(length, 0.0), ops.greater(step_length, 0.0))
        ratio = ops.where(both, length / step_length, 1.0)
        self.assign_sub(variable, ratio * learning_rate * step)
        self.assign(m, mean)
        self.assign(v, square)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }
