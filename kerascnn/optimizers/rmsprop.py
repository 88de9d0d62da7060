"""RMSprop: steps scaled by a running mean of squared gradients."""

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
        learning_rate: a float.
        rho: how slowly the mean of the squared gradients follows.
        momentum: a float from 0 on.
        epsilon: keeps the division finite.
        centered: whether to estimate the variance instead of the second moment.
        name: see `Optimizer`.

    Raises:
        ValueError: for a learning rate that is not a float.

    >>> weight = keras.Variable([1.0, 2.0])
    >>> rmsprop = keras.optimizers.RMSprop(learning_rate=0.1, rho=0.0)
    >>> rmsprop.apply([np.array([3.0, -5.0], "float32")], [weight])
    >>> weight.numpy().round(4)
    array([0.9, 2.1], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        name: str | None = None,
    ):
        super().__init__(learning_rate, name=name)
        self.rho = rho
        self.momentum = momentum
        self.epsilon = epsilon
        self.centered = centered
        self._velocities: list[Variable] = []
        self._momentums: list[Variable] = []
        self._averages: list[Variable] = []

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._velocities = self.add_optimizer_variables(variables, "velocity")
        if self.momentum > 0:
            self._momentums = self.add_optimizer_variables(variables, "momentum")
        if self.centered:
            self._averages = self.add_optimizer_variables(variables, "average_gradient")

    def update(self, grads: list[Any], variables: list[Variable]) -> None:
        rate = self.learning_rate.value
        for place, grad, variable in zip(self._index_of(variables), grads, variables, strict=True):
            step_rate = ops.cast(rate, variable.dtype)
            self._update_one(place, grad, variable, step_rate)

    def _update_one(self, place: int, grad: Any, variable: Variable, rate: Any) -> None:
        velocity = self._velocities[place]
        velocity.assign(self._running_mean(velocity, ops.square(grad)))
        denominator = velocity.value + self.epsilon
        if self.centered:
            average = self._averages[place]
            average.assign(self._running_mean(average, grad))
            denominator = denominator - ops.square(average.value)
        step = rate * grad * ops.rsqrt(denominator)
        if self.momentum > 0:
            slot = self._momentums[place]
            slot.assign(slot.value * self.momentum + step)
            step = slot.value
        variable.assign_sub(step)

    def _running_mean(self, slot: Variable, value: Any) -> Any:
        return slot.value * self.rho + value * (1 - self.rho)

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "rho": self.rho,
            "momentum": self.momentum,
            "epsilon": self.epsilon,
            "centered": self.centered,
        }
