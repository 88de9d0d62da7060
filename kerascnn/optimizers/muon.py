"""Muon: steps along orthogonalized momenta."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import ops
from kerascnn.ops import dispatch
from kerascnn.ops.matrix_products import matrix_product
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.variable import Variable


class Muon(Optimizer):
    """Muon for matrices, AdamW for all other weights (Jordan et al., 2024, "Muon: An optimizer for
    hidden layers in neural networks"; Liu et al., 2025, "Muon is Scalable for LLM Training").

    The momentum of a matrix goes through `ns_steps` Newton-Schulz iterations, which bring its
    singular values near 1, and is then the step. Output layers do better with AdamW: name them in
    `exclude_layers`.

    Args:
        learning_rate: a float, a schedule or a callable; see `Optimizer`.
        adam_beta_1, adam_beta_2, epsilon: see `Adam`, for weights that are no matrices.
        adam_weight_decay: the weight decay of those.
        weight_decay: the weight decay of matrices.
        exclude_layers: regular expressions; matrices in whose path one occurs get AdamW.
        exclude_embeddings: whether matrices with "embedding" in their path get AdamW.
        muon_a, muon_b, muon_c: coefficients of x, x**3 and x**5 in an iteration.
        adam_lr_ratio: what the learning rate is multiplied by for AdamW.
        momentum: how slowly the momentum follows.
        ns_steps: how many iterations.
        nesterov: whether to look ahead along the momentum.
        rms_rate: scales steps by this and the root of the longer side; None does not.
        clipnorm, clipvalue, global_clipnorm, use_ema, ema_momentum, ema_overwrite_frequency,
            loss_scale_factor, gradient_accumulation_steps, name: see `Optimizer`.

    Raises:
        ValueError: for arguments of a wrong form.

    >>> weight = keras.Variable(np.zeros((2, 2), "float32"))
    >>> muon = keras.optimizers.Muon(0.1, rms_rate=None)
    >>> muon.apply([np.array([[3.0, 0.0], [0.0, 3.0]], "float32")], [weight])
    >>> bool(abs(weight.numpy() + 0.1 * np.eye(2)).max() < 0.04)
    True
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        adam_beta_1: float = 0.9,
        adam_beta_2: float = 0.999,
        adam_weight_decay: float | None = 0.004,
        epsilon: float = 1e-7,
        weight_decay: float | None = 0.004,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str | None = None,
        exclude_layers: Sequence[str] | None = None,
        exclude_embeddings: bool = True,
        muon_a: float = 3.4445,
        muon_b: float = -4.775,
        muon_c: float = 2.0315,
        adam_lr_ratio: float = 1,
        momentum: float = 0.95,
        ns_steps: int = 5,
        nesterov: bool = True,
        rms_rate: float | None = 0.2,
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
        self.adam_beta_1 = adam_beta_1
        self.adam_beta_2 = adam_beta_2
        self.adam_weight_decay = adam_weight_decay
        self.epsilon = epsilon
        self.exclude_layers = exclude_layers or []
        self.exclude_embeddings = exclude_embeddings
        self.muon_a = muon_a
        self.muon_b = muon_b
        self.muon_c = muon_c
        self.adam_lr_ratio = adam_lr_ratio
        self.momentum = momentum
        self.ns_steps = ns_steps
        self.nesterov = nesterov
        self.rms_rate = rms_rate

    def _should_use_adamw(self, variable: Variable) -> bool:
        if len(variable.shape) != 2:
            return True
        if self.exclude_embeddings and "embedding" in variable.path.lower():
            return True
        return any(re.search(pattern, variable.path) for pattern in self.exclude_layers)

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self.momentums: list[Variable] = []
        self.adam_velocities: list[Variable | None] = []
        for variable in variables:
            self.momentums.append(self.add_variable_from_reference(variable, "momentum"))
            velocity = None
            if self._should_use_adamw(variable):
                velocity = self.add_variable_from_reference(variable, "velocity")
            self.adam_velocities.append(velocity)

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        place = self._get_variable_index(variable)
        m, v = self.momentums[place], self.adam_velocities[place]
        if v is None:
            self._muon_step(gradient, variable, learning_rate, m)
        else:
            self._adamw_step(gradient, variable, learning_rate * self.adam_lr_ratio, m, v)

    def _muon_step(self, gradient: Any, variable: Variable, rate: Any, m: Variable) -> None:
        momentum = self.momentum * m.value + gradient
        self.assign(m, momentum)
        direction = gradient + self.momentum * momentum if self.nesterov else momentum
        step = rate * self.zeropower_via_newtonschulz5(direction, self.ns_steps)
        self.assign_sub(variable, self.lr_adjust(step))

    def lr_adjust(self, x: Any) -> Any:
        """Returns a step of a matrix, (m, n), scaled as `rms_rate` says."""
        if self.rms_rate is None:
            return x
        return x * (math.sqrt(max(x.shape)) * self.rms_rate)

    def zeropower_via_newtonschulz5(self, x: Any, steps: int) -> Any:
        """Returns matrices with the singular vectors of x and singular values near 1.

        Args:
            x: one matrix, or several of the same shape, (..., m, n). The products have its dtype,
                so that bfloat16 makes them faster.
            steps: how many iterations.

        Raises:
            ValueError: for fewer than two axes.

        >>> muon = keras.optimizers.Muon()
        >>> x = muon.zeropower_via_newtonschulz5(keras.ops.convert_to_tensor([[2.0, 0.0]]), 5)
        >>> bool(0.6 < float(x[0, 0]) < 1.3), float(x[0, 1])
        (True, 0.0)
        """
        if len(x.shape) < 2:
            raise ValueError(
                "Expected gradient or momentum to have at least 2 dimensions. Received: "
                f"shape={tuple(x.shape)}"
            )
        tall = x.shape[-2] > x.shape[-1]
        x = x / (ops.norm(x, axis=(-2, -1), keepdims=True) + 1e-7)
        # The polynomial's linear term is part of the small matrix: x goes through products alone.
        linear = dispatch.convert(self.muon_a * np.eye(min(x.shape[-2:])), x.dtype, like=x)
        for _ in range(steps):
            square = matrix_product(x, x, turned_a=tall, turned_b=not tall)
            squared = matrix_product(square, square)
            polynomial = self.muon_c * squared + self.muon_b * square + linear
            x = matrix_product(x, polynomial) if tall else matrix_product(polynomial, x)
        return x

    def _adamw_step(
        self, gradient: Any, variable: Variable, rate: Any, m: Variable, v: Variable
    ) -> None:
        count = self._next_step(variable.dtype)
        scale = ops.sqrt(1.0 - ops.power(self.adam_beta_2, count))
        scale = rate * scale / (1.0 - ops.power(self.adam_beta_1, count))
        mean = m.value + (gradient - m.value) * (1 - self.adam_beta_1)
        square = v.value + (ops.square(gradient) - v.value) * (1 - self.adam_beta_2)
        self.assign_sub(variable, mean * scale / (ops.sqrt(square) + self.epsilon))
        self.assign(m, mean)
        self.assign(v, square)

    def _apply_weight_decay(self, variables: Sequence[Variable]) -> None:
        for variable in variables:
            adamw = self._should_use_adamw(variable)
            amount = self.adam_weight_decay if adamw else self.weight_decay
            if amount is not None and self._use_weight_decay(variable):
                self._decay(variable, amount)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "adam_beta_1": self.adam_beta_1,
            "adam_beta_2": self.adam_beta_2,
            "epsilon": self.epsilon,
            "exclude_layers": self.exclude_layers,
            "muon_a": self.muon_a,
            "muon_b": self.muon_b,
            "muon_c": self.muon_c,
            "adam_lr_ratio": self.adam_lr_ratio,
            "momentum": self.momentum,
            "ns_steps": self.ns_steps,
            "nesterov": self.nesterov,
            "exclude_embeddings": self.exclude_embeddings,
            "adam_weight_decay": self.adam_weight_decay,
            "rms_rate": self.rms_rate,
        }
