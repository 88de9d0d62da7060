"""An optimizer around another one, which scales the loss for half precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import device, ops, serialization, tracing
from kerascnn.distribution.sharded_state import Elsewhere
from kerascnn.optimizers.conditional import assign_where
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.variable import Variable

_INNER_ONLY = {
    "weight_decay": None,
    "clipnorm": None,
    "global_clipnorm": None,
    "clipvalue": None,
    "use_ema": False,
    "ema_momentum": 0.99,
    "ema_overwrite_frequency": None,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
}


class LossScaleOptimizer(Optimizer):
    """Multiplies the loss, so that small gradients do not underflow in float16, and divides the
    gradients by the same (Micikevicius et al., 2018, "Mixed Precision Training").

    Where a gradient is not finite nothing but the scale changes in that step: it is halved. After
    `dynamic_growth_steps` steps without such it is doubled. All of this happens on the device.

    Args:
        inner_optimizer: the optimizer that updates the weights.
        initial_scale: what the loss is multiplied by at first.
        dynamic_growth_steps: how many good steps double the scale.
        name: see `Optimizer`.

    Raises:
        ValueError: for other arguments: they belong to `inner_optimizer`.

    >>> sgd = keras.optimizers.SGD(0.5)
    >>> optimizer = keras.optimizers.LossScaleOptimizer(sgd, initial_scale=4.0)
    >>> weight = keras.Variable([1.0])
    >>> optimizer.apply([np.array([8.0], "float32")], [weight])
    >>> optimizer.apply([np.array([np.inf], "float32")], [weight])
    >>> float(weight.numpy()[0]), float(optimizer.dynamic_scale.numpy())
    (0.0, 2.0)
    """

    def __init__(
        self,
        inner_optimizer: Optimizer,
        initial_scale: float = 2.0**15,
        dynamic_growth_steps: int = 2000,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not kwargs.pop("dynamic", True):
            raise ValueError(
                "LossScaleOptimizer is always dynamic. For a fixed scale, give the optimizer a "
                "`loss_scale_factor` and use it by itself."
            )
        for key, default in _INNER_ONLY.items():
            if kwargs.pop(key, default) != default:
                raise ValueError(
                    f"LossScaleOptimizer does not take `{key}`; give it to `inner_optimizer`."
                )
        super().__init__(0.0, name=name, **kwargs)
        self.inner_optimizer = inner_optimizer
        self.initial_scale = initial_scale
        self.dynamic_growth_steps = dynamic_growth_steps
        inner_optimizer.loss_scale_factor = None  # otherwise gradients would be divided twice
        inner_optimizer._averages_gradients = False  # all processes skip a step, or none
        self.step_counter: Any = None
        self.dynamic_scale: Any = None

    def _make_scale(self, device_name: str) -> None:
        # The variable exists before `build` too: a compiled step that scales its loss first must
        # not hold the scale as a constant.
        self._make_scalars(device_name)
        if self.dynamic_scale is None or self.dynamic_scale.device != device_name:
            old = (self.step_counter, self.dynamic_scale)
            self._variables = [v for v in self._variables if all(v is not o for o in old)]
            self.step_counter = self.add_variable((), "zeros", "int64", name="step_counter")
            first = lambda shape, dtype=None: ops.full(shape, self.initial_scale, dtype)  # noqa: E731
            self.dynamic_scale = self.add_variable((), first, "float32", name="dynamic_scale")

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        self._make_scale(variables[0].device if variables else device.current())
        self.inner_optimizer.build(variables)
        super().build(variables)
        self._shards = None  # it has no state of weights itself
        # The device counts the updates, since a skipped step must not count.
        self.inner_optimizer._reads_iterations = True

    def _whole_state(self) -> list[Variable | Elsewhere]:
        return [*super()._whole_state(), *self.inner_optimizer._whole_state()]

    def _owned_state(self) -> list[tuple[Variable | Elsewhere, int | None]]:
        own = [(variable, None) for variable in super()._whole_state()]
        return [*own, *self.inner_optimizer._owned_state()]

    def _inner(self) -> list[Optimizer]:
        return [self.inner_optimizer]

    def _own_slots(self) -> list[Variable]:
        return [*super()._own_slots(), *self.inner_optimizer._own_slots()]

    @property
    def learning_rate(self) -> Any:
        """The learning rate of the inner optimizer."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.inner_optimizer.learning_rate = value

    @property
    def iterations(self) -> Any:
        """The number of updates of the inner optimizer."""
        return self.inner_optimizer.iterations

    def scale_loss(self, loss: Any) -> Any:
        """The loss, a tensor or a number, times the scale of now."""
        if self.dynamic_scale is None:
            trace = tracing.current()
            self._make_scale(device.current() if trace is None else trace.device)
        loss = ops.convert_to_tensor(loss)
        return loss * ops.cast(self.dynamic_scale.value, loss.dtype)

    def check_finite(self, grads: Sequence[Any]) -> Any:
        """Tells whether all elements of all gradients are finite, as a bool of shape ()."""
        finite = [ops.all(ops.isfinite(g)) for g in grads if g is not None]
        together = finite[0]
        for one in finite[1:]:
            together = ops.logical_and(together, one)
        return together

    def _all_finite(self, grads: Sequence[Any], variables: Sequence[Variable]) -> Any:
        """Tells it of averaged gradients, of which several processes may have a part each."""
        shards = self.inner_optimizer._current_shards()
        if shards is None:
            return self.check_finite(grads)
        owned = self.inner_optimizer._is_own(variables)
        own = [g for g, is_own in zip(grads, owned, strict=True) if is_own]
        return shards.all_of_them(self.check_finite(own) if own else ops.equal(0, 0))

    def apply(
        self, grads: Sequence[Any], trainable_variables: Sequence[Variable] | None = None
    ) -> None:
        """As `Optimizer.apply`, for gradients of the scaled loss."""
        grads = list(grads)
        if not grads:
            return
        given = self._trainable_variables if trainable_variables is None else trainable_variables
        variables = list(given)
        if not self.built:
            self.build(variables)
        self._check_apply(grads, variables)
        grads, variables = self._filter_empty_gradients(grads, variables)
        grads = self.inner_optimizer._mean_gradients(grads, variables)
        is_finite = self._all_finite(grads, variables)

        def update() -> None:
            scale = self.dynamic_scale.value
            self.inner_optimizer.apply([g / ops.cast(scale, g.dtype) for g in grads], variables)
            grown = ops.equal(self.step_counter.value, self.dynamic_growth_steps - 1)
            doubled = ops.where(grown, scale * 2.0, scale)
            counted = ops.where(grown, 0, self.step_counter.value + 1)
            self.step_counter.assign(counted)
            self.dynamic_scale.assign(doubled)

        def leave_out() -> None:
            self.step_counter.assign(0)
            self.dynamic_scale.assign(self.dynamic_scale.value * 0.5)

        state = [*self._trainable_variables, *self._own_slots()]
        with tracing.scope(self.name, phase="update"):
            assign_where(is_finite, state, update, leave_out)

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        self.inner_optimizer.finalize_variable_values(var_list)

    @property
    def trace_key(self) -> tuple:
        return (*super().trace_key, *self.inner_optimizer.trace_key)

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "inner_optimizer": serialization.serialize_object(self.inner_optimizer),
            "initial_scale": self.initial_scale,
            "dynamic_growth_steps": self.dynamic_growth_steps,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> LossScaleOptimizer:
        from kerascnn.optimizers import deserialize

        config = dict(config)
        inner = deserialize(config.pop("inner_optimizer"), custom_objects)
        return cls(inner, **config)
