"""Adafactor: second moments kept as rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.variable import Variable


class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern, 2018, "Adafactor: Adaptive Learning Rates with Sublinear
    Memory Cost").

    The mean of the squared gradients of a matrix is the product of its rows' and columns' means, so
    that a step is planned with little memory; the step is proportional to the size of the weights.

    Args:
        learning_rate: a float, a schedule or a callable; see `Optimizer`.
        beta_2_decay: the means follow by `1 - t**beta_2_decay` in step t.
        epsilon_1: added to squared gradients.
        epsilon_2: the least size of weights that steps are made for.
        clip_threshold: the greatest root mean square of a step before it is scaled.
        relative_step: whether the learning rate is at most `1 / sqrt(t)`.
        weight_decay, clipnorm, clipvalue, global_clipnorm, use_ema, ema_momentum,
            ema_overwrite_frequency, loss_scale_factor, gradient_accumulation_steps, name: see
            `Optimizer`.

    Raises:
        ValueError: for arguments of a wrong form.

    >>> weight = keras.Variable([1.0, 2.0])
    >>> keras.optimizers.Adafactor(0.1).apply([np.array([3.0, -5.0], "float32")], [weight])
    >>> weight.numpy().round(4)
    array([0.8419, 2.1581], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_2_decay: float = -0.8,
        epsilon_1: float = 1e-30,
        epsilon_2: float = 1e-3,
        clip_threshold: float = 1.0,
        relative_step: bool = True,
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
        self.beta_2_decay = beta_2_decay
        self.epsilon_1 = epsilon_1
        self.epsilon_2 = epsilon_2
        self.clip_threshold = clip_threshold
        self.relative_step = relative_step

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._r: list[Variable] = []
        self._c: list[Variable] = []
        self._v: list[Variable] = []
        for variable in variables:
            shape, dtype = variable.shape, variable.dtype
            # Vectors have no rows and columns; Keras stores two numbers instead.
            matrix = len(shape) >= 2
            rows, columns = (shape[:-1], (*shape[:-2], shape[-1])) if matrix else ((), ())
            kind = dtype if matrix else "int32"
            self._r.append(self._add_slot(rows, "zeros", kind, variable.name, variable))
            self._c.append(self._add_slot(columns, "zeros", kind, variable.name, variable))
            self._v.append(self.add_variable_from_reference(variable, "velocity"))

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        place = self._get_variable_index(variable)
        count = self._next_step(variable.dtype)
        rate = ops.minimum(learning_rate, ops.rsqrt(count))
        size = ops.maximum(_root_mean_square(variable.value), self.epsilon_2)
        keep = 1.0 - ops.power(count, self.beta_2_decay)
        square = ops.square(gradient) + self.epsilon_1
        slot = self._v[place]
        if len(variable.shape) >= 2:
            r, c = self._r[place], self._c[place]
            rows = keep * r.value + (1.0 - keep) * ops.mean(square, axis=-1)
            columns = keep * c.value + (1.0 - keep) * ops.mean(square, axis=-2)
            shares = rows / ops.mean(rows, axis=-1, keepdims=True)
            mean = ops.expand_dims(shares, -1) * ops.expand_dims(columns, -2)
            self.assign(r, rows)
            self.assign(c, columns)
        else:
            mean = keep * slot.value + (1.0 - keep) * square
        step = gradient / ops.sqrt(mean)
        step = step / ops.maximum(_root_mean_square(step) / self.clip_threshold, 1.0)
        self.assign(slot, mean)
        self.assign_sub(variable, rate * size * step)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "beta_2_decay": self.beta_2_decay,
            "epsilon_1": self.epsilon_1,
            "epsilon_2": self.epsilon_2,
            "clip_threshold": self.clip_threshold,
            "relative_step": self.relative_step,
        }


def _root_mean_square(x: Any) -> Any:
    return ops.sqrt(ops.mean(ops.square(x)))
