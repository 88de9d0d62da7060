"""AdamW: Adam with weight decay beside the gradients."""

from __future__ import annotations

from typing import Any

from kerascnn.optimizers.adam import Adam


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019, "Decoupled Weight Decay
    Regularization").

    Before Adam's step, `w -= w * weight_decay * learning_rate`;
    `exclude_from_weight_decay` leaves weights out of it.

    Args:
        learning_rate: a float, a schedule or a callable; see `Optimizer`.
        weight_decay: a float.
        beta_1, beta_2, epsilon, amsgrad: see `Adam`.
        clipnorm, clipvalue, global_clipnorm, use_ema, ema_momentum, ema_overwrite_frequency,
            loss_scale_factor, gradient_accumulation_steps, name: see `Optimizer`.

    Raises:
        ValueError: for arguments of a wrong form.

    >>> weight = keras.Variable([1.0, 2.0])
    >>> adam = keras.optimizers.AdamW(0.1, weight_decay=0.5)
    >>> adam.apply([np.array([3.0, -5.0], "float32")], [weight])
    >>> weight.numpy().round(4)
    array([0.85, 2.  ], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: float | None = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
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
            beta_1,
            beta_2,
            epsilon,
            amsgrad,
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
        if self.weight_decay is None:
            raise ValueError("AdamW needs a float as `weight_decay`. Received: weight_decay=None")
