"""Adadelta: steps in the unit of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.variable import Variable


class Adadelta(Optimizer):
    """Adadelta (Zeiler, 2012, "ADADELTA: An Adaptive Learning Rate Method").

    `a = rho * a + (1 - rho) * g * g`, `s = g * sqrt(d + epsilon) / sqrt(a + epsilon)`,
    `d = rho * d + (1 - rho) * s * s`, then `w -= learning_rate * s`. The paper's own learning rate
    is 1.

    Args:
        learning_rate: a float, a schedule or a callable; see `Optimizer`.
        rho: how slowly the means of the squares follow.
        epsilon: keeps the division finite.
        weight_decay, clipnorm, clipvalue, global_clipnorm, use_ema, ema_momentum,
            ema_overwrite_frequency, loss_scale_factor, gradient_accumulation_steps, name: see
            `Optimizer`.

    Raises:
        ValueError: for arguments of a wrong form.

    >>> weight = keras.Variable([1.0, 2.0])
    >>> optimizer = keras.optimizers.Adadelta(1.0, rho=0.0, epsilon=1.0)
    >>> optimizer.apply([np.array([3.0, -5.0], "float32")], [weight])
    >>> weight.numpy().round(4)
    array([0.0513, 2.9806], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.95,
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
        self.rho = rho
        self.epsilon = epsilon

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._accumulated_grads, self._accumulated_delta_vars = self.add_optimizer_variables(
            variables, ["accumulated_grad", "accumulated_delta_var"]
        )

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        place = self._get_variable_index(variable)
        gradients, steps = self._accumulated_grads[place], self._accumulated_delta_vars[place]
        new = self.rho * gradients.value + (1 - self.rho) * ops.square(gradient)
        scale = ops.sqrt(steps.value + self.epsilon) / ops.sqrt(new + self.epsilon)
        step = scale * gradient
        self.assign(gradients, new)
        self.assign(steps, self.rho * steps.value + (1 - self.rho) * ops.square(step))
        self.assign_sub(variable, learning_rate * step)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "rho": self.rho,
            "epsilon": self.epsilon,
        }
