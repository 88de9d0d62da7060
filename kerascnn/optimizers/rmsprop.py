"""RMSprop: steps scaled by a running mean of squared gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.variable import Variable


class RMSprop(Optimizer):
    """RMSprop (Tieleman and Hinton, 2012, lecture 6e of "Neural Networks for Machine Learning").

    `v = rho * v + (1 - rho) * g * g`, then `w -= learning_rate * g / sqrt(v + epsilon)`. With
    `centered`, the square of a running mean of the gradients is taken off v; with `momentum`, steps
    add up: `m = momentum * m + step`, `w -= m`.

    Args:
        learning_rate: a float, a schedule or a callable; see `Optimizer`.
        rho: how slowly the mean of the squared gradients follows.
        momentum: a float from 0 on.
        epsilon: keeps the division finite.
        centered: whether to estimate the variance instead of the second moment.
        weight_decay, clipnorm, clipvalue, global_clipnorm, use_ema, ema_momentum,
            ema_overwrite_frequency, loss_scale_factor, gradient_accumulation_steps, name: see
            `Optimizer`.

    Raises:
        ValueError: for arguments of a wrong form.

    >>> weight = keras.Variable([1.0, 2.0])
    >>> keras.optimizers.RMSprop(0.1, rho=0.0).apply([np.array([3.0, -5.0], "float32")], [weight])
    >>> weight.numpy().round(4)
    array([0.9, 2.1], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
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
        self.rho = rho
        self.momentum = momentum
        self.epsilon = epsilon
        self.centered = centered

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._velocities = self.add_optimizer_variables(variables, "velocity")
        self._momentums: list[Variable] = []
        if self.momentum > 0:
            self._momentums = self.add_optimizer_variables(variables, "momentum")
        self._average_gradients: list[Variable] = []
        if self.centered:
            self._average_gradients = self.add_optimizer_variables(variables, "average_gradient")

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        place = self._get_variable_index(variable)
        velocity = self._velocities[place]
        square = self.rho * velocity.value + (1 - self.rho) * ops.square(gradient)
        self.assign(velocity, square)
        denominator = square + self.epsilon
        if self.centered:
            average = self._average_gradients[place]
            mean = self.rho * average.value + (1 - self.rho) * gradient
            self.assign(average, mean)
            denominator = denominator - ops.square(mean)
        step = learning_rate * gradient * ops.rsqrt(denominator)
        if self.momentum > 0:
            slot = self._momentums[place]
            step = self.momentum * slot.value + step
            self.assign(slot, step)
        self.assign_sub(variable, step)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "rho": self.rho,
            "momentum": self.momentum,
            "epsilon": self.epsilon,
            "centered": self.centered,
        }
