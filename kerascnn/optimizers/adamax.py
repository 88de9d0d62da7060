"""Adamax: Adam by the greatest gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.variable import Variable


class Adamax(Optimizer):
    """Adamax (Kingma and Ba, 2014, "Adam: A Method for Stochastic Optimization", section 7.1).

    In step t: `m += (g - m) * (1 - beta_1)`, `u = max(beta_2 * u, |g|)` and
    `w -= learning_rate / (1 - beta_1**t) * m / (u + epsilon)`.

    Args:
        learning_rate: a float, a schedule or a callable; see `Optimizer`.
        beta_1: how slowly the mean of the gradients follows.
        beta_2: how slowly the greatest gradient is forgotten.
        epsilon: keeps the division finite.
        weight_decay, clipnorm, clipvalue, global_clipnorm, use_ema, ema_momentum,
            ema_overwrite_frequency, loss_scale_factor, gradient_accumulation_steps, name: see
            `Optimizer`.

    Raises:
        ValueError: for arguments of a wrong form.

    >>> weight = keras.Variable([1.0, 2.0])
    >>> keras.optimizers.Adamax(0.1).apply([np.array([3.0, -5.0], "float32")], [weight])
    >>> weight.numpy().round(4)
    array([0.9, 2.1], dtype=float32)
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
        self._m, self._u = self.add_optimizer_variables(variables, ["momentum", "norm"])

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        place = self._get_variable_index(variable)
        m, u = self._m[place], self._u[place]
        mean = m.value + (gradient - m.value) * (1 - self.beta_1)
        greatest = ops.maximum(self.beta_2 * u.value, ops.absolute(gradient))
        correction = 1.0 - ops.power(self.beta_1, self._next_step(variable.dtype))
        self.assign_sub(variable, learning_rate * mean / (correction * (greatest + self.epsilon)))
        self.assign(m, mean)
        self.assign(u, greatest)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }
