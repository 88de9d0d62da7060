"""Nadam: Adam that looks ahead along its momentum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.variable import Variable


class Nadam(Optimizer):
    """Nadam (Dozat, 2016, "Incorporating Nesterov Momentum into Adam").

    The momentum's weight in step t is `beta_1 * (1 - 0.5 * 0.96**t)`, as in the paper's schedule.

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
    >>> keras.optimizers.Nadam(0.1).apply([np.array([3.0, -5.0], "float32")], [weight])
    >>> weight.numpy().round(4)
    array([0.8937, 2.1063], dtype=float32)
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
        self._u_product = self.add_variable(
            (), "ones", variables[0].dtype if variables else None, name="u_product"
        )

    def _backend_update_step(
        self, grads: list[Any], variables: list[Variable], learning_rate: Any
    ) -> None:
        weight = self._momentum_weight(self._next_step(self._u_product.dtype))
        self.assign(self._u_product, self._u_product.value * weight)
        super()._backend_update_step(grads, variables, learning_rate)

    def _momentum_weight(self, step: Any) -> Any:
        return self.beta_1 * (1.0 - 0.5 * ops.power(0.96, step))

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        place = self._get_variable_index(variable)
        m, v = self._momentums[place], self._velocities[place]
        step = self._next_step(variable.dtype)
        weight, next_weight = self._momentum_weight(step), self._momentum_weight(step + 1.0)
        product = ops.cast(self._u_product.value, variable.dtype)
        mean = m.value + (gradient - m.value) * (1 - self.beta_1)
        square = v.value + (ops.square(gradient) - v.value) * (1 - self.beta_2)
        ahead = next_weight / (1.0 - product * next_weight) * mean
        ahead = ahead + (1.0 - weight) / (1.0 - product) * gradient
        unbiased = square / (1.0 - ops.power(self.beta_2, step))
        self.assign_sub(variable, learning_rate * ahead / (ops.sqrt(unbiased) + self.epsilon))
        self.assign(m, mean)
        self.assign(v, square)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }
