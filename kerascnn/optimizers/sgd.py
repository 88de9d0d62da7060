"""Stochastic gradient descent."""

from collections.abc import Sequence
from typing import Any

from kerascnn.ops import dispatch
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.variable import Variable


class SGD(Optimizer):
    """Gradient descent, with momentum where asked for.

    For a weight w with gradient g: `w -= learning_rate * g`. With momentum:
    `m = momentum * m - learning_rate * g`, then `w += m`, or with `nesterov`
    `w += momentum * m - learning_rate * g`.

    Args:
        learning_rate: a float.
        momentum: a float from 0 to 1.
        nesterov: whether to look ahead along the momentum (Sutskever et al., 2013, "On the
            importance of initialization and momentum in deep learning").
        name: see `Optimizer`.

    Raises:
        ValueError: for a learning rate or momentum that is not a float, or momentum outside of
            0 to 1.

    >>> weight = keras.Variable([1.0, 2.0])
    >>> keras.optimizers.SGD(learning_rate=0.1).apply([np.array([1.0, -1.0], "float32")], [weight])
    >>> weight.numpy()
    array([0.9, 2.1], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: float = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        name: str | None = None,
    ):
        super().__init__(learning_rate, name=name)
        if not isinstance(momentum, float) or not 0 <= momentum <= 1:
            raise ValueError(
                f"SGD expects `momentum` to be a float from 0 to 1. Received: momentum={momentum!r}"
            )
        self.momentum = momentum
        self.nesterov = nesterov
        self.momentums: list[Variable] = []

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        if self.momentum:
            self.momentums = self.add_optimizer_variables(variables, "momentum")

    def update(self, grads: list[Any], variables: list[Variable]) -> None:
        slots = [self.momentums[i] for i in self._index_of(variables)] if self.momentum else []
        results = dispatch.apply(
            "sgd_update",
            [self.learning_rate.value, *[v.value for v in variables], *grads]
            + [m.value for m in slots],
            {"count": len(variables), "momentum": self.momentum, "nesterov": self.nesterov},
        )
        for variable, result in zip([*variables, *slots], results, strict=True):
            variable.assign(result)

    def get_config(self) -> dict:
        return {**super().get_config(), "momentum": self.momentum, "nesterov": self.nesterov}
