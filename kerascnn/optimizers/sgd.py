"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.ops import dispatch
from kerascnn.optimizers.optimizer import Optimizer, by_dtype
from kerascnn.variable import Variable


class SGD(Optimizer):
    """Gradient descent, with momentum where asked for.

    For a weight w with gradient g: `w -= learning_rate * g`. With momentum:
    `m = momentum * m - learning_rate * g`, then `w += m`, or with `nesterov`
    `w += momentum * m - learning_rate * g`. All weights are updated together.

    Args:
        learning_rate: a float, a schedule or a callable; see `Optimizer`.
        momentum: a float from 0 to 1.
        nesterov: whether to look ahead along the momentum (Sutskever et al., 2013, "On the
            importance of initialization and momentum in deep learning").
        weight_decay, clipnorm, clipvalue, global_clipnorm, use_ema, ema_momentum,
            ema_overwrite_frequency, loss_scale_factor, gradient_accumulation_steps, name: see
            `Optimizer`.

    Raises:
        ValueError: for arguments of a wrong form.

    >>> weight = keras.Variable([1.0, 2.0])
    >>> keras.optimizers.SGD(0.1).apply([np.array([3.0, -5.0], "float32")], [weight])
    >>> weight.numpy().round(4)
    array([0.7, 2.5], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
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
        if not isinstance(momentum, float) or not 0 <= momentum <= 1:
            raise ValueError(
                f"SGD expects `momentum` to be a float from 0 to 1. Received: momentum={momentum!r}"
            )
        self.momentum = momentum
        self.nesterov = nesterov

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self.momentums: list[Variable] = []
        if self.momentum != 0:
            self.momentums = self.add_optimizer_variables(variables, "momentum")

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        self._update_together([gradient], [variable], learning_rate)

    def _backend_update_step(
        self, grads: list[Any], variables: list[Variable], learning_rate: Any
    ) -> None:
        if type(self).update_step is not SGD.update_step:
            super()._backend_update_step(grads, variables, learning_rate)
            return
        for some_grads, some_variables in by_dtype(grads, variables):
            self._update_together(some_grads, some_variables, learning_rate)

    def _update_together(
        self, grads: list[Any], variables: list[Variable], learning_rate: Any
    ) -> None:
        slots: list[Variable] = []
        if self.momentum:
            slots = [self.momentums[self._get_variable_index(v)] for v in variables]
        results = dispatch.apply(
            "sgd_update",
            [ops.cast(learning_rate, "float32"), *[v.value for v in variables], *grads]
            + [m.value for m in slots],
            {"count": len(variables), "momentum": self.momentum, "nesterov": self.nesterov},
        )
        for variable, result in zip([*variables, *slots], results, strict=True):
            self.assign(variable, result)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "momentum": self.momentum,
            "nesterov": self.nesterov,
        }
