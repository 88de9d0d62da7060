"""Adagrad: steps scaled by all squared gradients so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import initializers, ops
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.variable import Variable


class Adagrad(Optimizer):
    """Adagrad (Duchi et al., 2011, "Adaptive Subgradient Methods for Online Learning").

    `a += g * g`, then `w -= learning_rate * g / sqrt(a + epsilon)`.

    Args:
        learning_rate: a float, a schedule or a callable; see `Optimizer`.
        initial_accumulator_value: what the sum of squares begins with.
        epsilon: keeps the division finite.
        weight_decay, clipnorm, clipvalue, global_clipnorm, use_ema, ema_momentum,
            ema_overwrite_frequency, loss_scale_factor, gradient_accumulation_steps, name: see
            `Optimizer`.

    Raises:
        ValueError: for arguments of a wrong form.

    >>> weight = keras.Variable([1.0, 2.0])
    >>> optimizer = keras.optimizers.Adagrad(0.1, initial_accumulator_value=0.0)
    >>> optimizer.apply([np.array([3.0, -5.0], "float32")], [weight])
    >>> weight.numpy().round(4)
    array([0.9, 2.1], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        initial_accumulator_value: float = 0.1,
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
        self.initial_accumulator_value = initial_accumulator_value
        self.epsilon = epsilon

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        initial = initializers.Constant(self.initial_accumulator_value)
        self._accumulators = self.add_optimizer_variables(variables, "accumulator", initial)

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        slot = self._accumulators[self._get_variable_index(variable)]
        total = slot.value + ops.square(gradient)
        self.assign_sub(variable, learning_rate * gradient / ops.sqrt(total + self.epsilon))
        self.assign(slot, total)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "initial_accumulator_value": self.initial_accumulator_value,
            "epsilon": self.epsilon,
        }
