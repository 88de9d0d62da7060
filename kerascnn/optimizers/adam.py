"""Adam: steps scaled by running moments of the gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.ops import dispatch
from kerascnn.optimizers.optimizer import Optimizer, by_dtype
from kerascnn.variable import Variable


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2014, "Adam: A Method for Stochastic Optimization").

    In step t: `m += (g - m) * (1 - beta_1)`, `v += (g * g - v) * (1 - beta_2)` and
    `w -= learning_rate * sqrt(1 - beta_2**t) / (1 - beta_1**t) * m / (sqrt(v) + epsilon)`: the
    epsilon is the paper's "epsilon hat", as in Keras. All weights are updated together, except with
    `amsgrad`.

    Args:
        learning_rate: a float, a schedule or a callable; see `Optimizer`.
        beta_1: how slowly the mean of the gradients follows.
        beta_2: how slowly the mean of the squared gradients follows.
        epsilon: keeps the division finite.
        amsgrad: whether to divide by the greatest v so far (Reddi et al., 2018, "On the
            Convergence of Adam and Beyond").
        weight_decay, clipnorm, clipvalue, global_clipnorm, use_ema, ema_momentum,
            ema_overwrite_frequency, loss_scale_factor, gradient_accumulation_steps, name: see
            `Optimizer`.

    Raises:
        ValueError: for arguments of a wrong form.

    >>> weight = keras.Variable([1.0, 2.0])
    >>> keras.optimizers.Adam(0.1).apply([np.array([3.0, -5.0], "float32")], [weight])
    >>> weight.numpy().round(4)
    array([0.9, 2.1], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
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
        self.amsgrad = amsgrad

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )
        self._velocity_hats: list[Variable] = []
        if self.amsgrad:
            self._velocity_hats = self.add_optimizer_variables(variables, "velocity_hat")

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        if not self.amsgrad:
            self._update_together([gradient], [variable], learning_rate)
            return
        place = self._get_variable_index(variable)
        m, v, hat = self._momentums[place], self._velocities[place], self._velocity_hats[place]
        count = self._next_step(variable.dtype)
        scale = ops.sqrt(1.0 - ops.power(self.beta_2, count))
        scale = learning_rate * scale / (1.0 - ops.power(self.beta_1, count))
        mean = m.value + (gradient - m.value) * (1 - self.beta_1)
        square = v.value + (ops.square(gradient) - v.value) * (1 - self.beta_2)
        greatest = ops.maximum(hat.value, square)
        self.assign_sub(variable, mean * scale / (ops.sqrt(greatest) + self.epsilon))
        for slot, value in ((m, mean), (v, square), (hat, greatest)):
            self.assign(slot, value)

    def _backend_update_step(
        self, grads: list[Any], variables: list[Variable], learning_rate: Any
    ) -> None:
        if self.amsgrad or type(self).update_step is not Adam.update_step:
            super()._backend_update_step(grads, variables, learning_rate)
            return
        for some_grads, some_variables in by_dtype(grads, variables):
            self._update_together(some_grads, some_variables, learning_rate)

    def _update_together(
        self, grads: list[Any], variables: list[Variable], learning_rate: Any
    ) -> None:
        places = [self._get_variable_index(v) for v in variables]
        slots = [self._momentums[i] for i in places] + [self._velocities[i] for i in places]
        results = dispatch.apply(
            "adam_update",
            [ops.cast(learning_rate, "float32"), dispatch.convert(self.iterations)]
            + [v.value for v in variables]
            + list(grads)
            + [slot.value for slot in slots],
            {
                "count": len(variables),
                "beta_1": self.beta_1,
                "beta_2": self.beta_2,
                "epsilon": self.epsilon,
            },
        )
        for variable, result in zip([*variables, *slots], results, strict=True):
            self.assign(variable, result)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "amsgrad": self.amsgrad,
        }
