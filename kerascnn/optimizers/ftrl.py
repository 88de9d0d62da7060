"""FTRL-Proximal: sparse weights from online learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import initializers, ops
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.variable import Variable


class Ftrl(Optimizer):
    """FTRL (McMahan et al., 2013, "Ad Click Prediction: a View from the Trenches"), with the
    shrinkage of its L2 variant.

    Args:
        learning_rate: a float, a schedule or a callable; see `Optimizer`.
        learning_rate_power: how the rate falls with the sum of squares, up to 0; 0 keeps it.
        initial_accumulator_value: what the sum of squares begins with, from 0 on.
        l1_regularization_strength: from 0 on; sets small weights to 0.
        l2_regularization_strength: from 0 on; a penalty that holds the weights near 0.
        l2_shrinkage_regularization_strength: from 0 on; as the other, but on the gradient.
        beta: the paper's beta, which lowers the rates of rarely seen weights.
        weight_decay, clipnorm, clipvalue, global_clipnorm, use_ema, ema_momentum,
            ema_overwrite_frequency, loss_scale_factor, gradient_accumulation_steps, name: see
            `Optimizer`.

    Raises:
        ValueError: for arguments of a wrong form.

    >>> weight = keras.Variable([1.0, 2.0])
    >>> optimizer = keras.optimizers.Ftrl(0.1, initial_accumulator_value=0.0)
    >>> optimizer.apply([np.array([3.0, -5.0], "float32")], [weight])
    >>> weight.numpy().round(4)
    array([0.9, 2.1], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float = 0.0,
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
        for key, value in (
            ("initial_accumulator_value", initial_accumulator_value),
            ("learning_rate_power", -learning_rate_power),
            ("l1_regularization_strength", l1_regularization_strength),
            ("l2_regularization_strength", l2_regularization_strength),
            ("l2_shrinkage_regularization_strength", l2_shrinkage_regularization_strength),
        ):
            if value < 0.0:
                sign, shown = ("negative", -value) if "power" in key else ("positive", value)
                raise ValueError(f"Ftrl: `{key}` must be {sign} or zero. Received: {key}={shown}")
        self.learning_rate_power = learning_rate_power
        self.initial_accumulator_value = initial_accumulator_value
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength
        self.l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self.beta = beta

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        initial = initializers.Constant(self.initial_accumulator_value)
        self._accumulators, self._linears = self.add_optimizer_variables(
            variables, ["accumulator", "linear"], initializer=[initial, "zeros"]
        )

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        place = self._get_variable_index(variable)
        accumulator, linear = self._accumulators[place], self._linears[place]
        w, power, l1 = variable.value, -self.learning_rate_power, self.l1_regularization_strength
        shrunk = gradient + 2.0 * self.l2_shrinkage_regularization_strength * w
        total = accumulator.value + ops.square(gradient)
        new, old = ops.power(total, power), ops.power(accumulator.value, power)
        z = linear.value + shrunk - (new - old) / learning_rate * w
        l2 = self.l2_regularization_strength + self.beta / (2.0 * learning_rate)
        self.assign(variable, (ops.clip(z, -l1, l1) - z) / (new / learning_rate + 2.0 * l2))
        self.assign(linear, z)
        self.assign(accumulator, total)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "learning_rate_power": self.learning_rate_power,
            "initial_accumulator_value": self.initial_accumulator_value,
            "l1_regularization_strength": self.l1_regularization_strength,
            "l2_regularization_strength": self.l2_regularization_strength,
            "l2_shrinkage_regularization_strength": self.l2_shrinkage_regularization_strength,
            "beta": self.beta,
        }
