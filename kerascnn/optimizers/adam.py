"""Adam: steps scaled by running moments of the gradients."""

from collections.abc import Sequence
from typing import Any

from kerascnn.ops import dispatch
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.variable import Variable


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2014, "Adam: A Method for Stochastic Optimization").

    In step t: `m += (g - m) * (1 - beta_1)`, `v += (g * g - v) * (1 - beta_2)` and
    `w -= learning_rate * sqrt(1 - beta_2**t) / (1 - beta_1**t) * m / (sqrt(v) + epsilon)`: the
    epsilon is the paper's "epsilon hat", as in Keras.

    Args:
        learning_rate: a float.
        beta_1: how slowly the mean of the gradients follows.
        beta_2: how slowly the mean of the squared gradients follows.
        epsilon: keeps the division finite.
        name: see `Optimizer`.

    Raises:
        ValueError: for a learning rate that is not a float.

    >>> weight = keras.Variable([1.0, 2.0])
    >>> keras.optimizers.Adam(learning_rate=0.1).apply([np.array([3.0, -5.0], "float32")], [weight])
    >>> weight.numpy().round(4)
    array([0.9, 2.1], dtype=float32)
    """

    _reads_iterations = True

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        name: str | None = None,
    ):
        super().__init__(learning_rate, name=name)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self._momentums: list[Variable] = []
        self._velocities: list[Variable] = []

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._momentums = self.add_optimizer_variables(variables, "momentum")
        self._velocities = self.add_optimizer_variables(variables, "velocity")

    def update(self, grads: list[Any], variables: list[Variable]) -> None:
        places = self._index_of(variables)
        slots = [self._momentums[i] for i in places] + [self._velocities[i] for i in places]
        results = dispatch.apply(
            "adam_update",
            [self.learning_rate.value, self.iterations.value]
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
            variable.assign(result)

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }
