"""Gradients inside a step, for a custom `train_step`.

Two spellings mean the same: `keras.gradients(loss, variables)`, and that of Keras on PyTorch, where
`loss.backward()` is followed by `variable.value.grad`. Either is the gradient by all that the step
has read of a variable. What was read after an update does not depend on what was read before.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from kerascnn import _core, ops, tracing
from kerascnn.tracing import Trace
from kerascnn.training import step_gradients
from kerascnn.variable import Variable

# This holds the results of `backward` in each trace, by the core's variable.
_found: weakref.WeakKeyDictionary[Trace, dict[Any, Any]] = weakref.WeakKeyDictionary()


def current_trace() -> Trace:
    """The trace of the step that is being recorded.

    Raises:
        ValueError: outside of one.
    """
    trace = tracing.current()
    if trace is None:
        raise ValueError(
            "Gradients are taken inside a step that fit, evaluate or train_on_batch runs: call "
            "this in `train_step`. Elsewhere use keras.GradientTape or keras.grad."
        )
    return trace


def gradients(loss: Any, variables: Sequence[Variable]) -> list[Any]:
    """The gradients of a loss, for a custom `train_step`.

    Args:
        loss: a scalar.
        variables: what to differentiate by, such as `self.trainable_variables`.

    Returns:
        One gradient of the variable's shape for each of `variables`, `None` where the loss does not
        depend on it; what `optimizer.apply` takes.

    Raises:
        ValueError: outside of `train_step`, or for a loss that is no scalar.

    Example:

    >>> class Own(keras.Model):
    ...     def train_step(self, data):
    ...         x, y = data
    ...         loss = keras.ops.mean((self(x, training=True) - y) ** 2)
    ...         variables = self.trainable_variables
    ...         self.optimizer.apply(keras.gradients(loss, variables), variables)
    ...         return {"distance": loss}
    >>> inputs = keras.Input((2,))
    >>> model = Own(inputs, keras.layers.Dense(1, kernel_initializer="zeros")(inputs))
    >>> model.compile(keras.optimizers.SGD(0.5))
    >>> model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=2, verbose=0).history
    {'distance': [1.0, 4.0]}
    """
    step = step_gradients.current()
    if step is not None:
        return step.of(_scalar(loss), variables)
    trace = current_trace()
    return trace.whole.gradients([_scalar(loss)], [None], [variable.core for variable in variables])


def last_gradients(loss: Any, variables: Sequence[Variable]) -> list[Any]:
    """The same, where the step takes no others after them: a step that runs at once then need not
    record how they are computed, nor what the optimizer does with them."""
    step = step_gradients.current()
    if step is not None:
        return step.of(_scalar(loss), variables, is_last=True)
    return gradients(loss, variables)


def zero_grad(variables: Sequence[Variable]) -> None:
    """Forgets the results of `backward` for these."""
    step = step_gradients.current()
    if step is not None:
        step.forget(variables)
    trace = tracing.current()
    found = {} if trace is None else _found.get(trace, {})
    for variable in variables:
        found.pop(variable.core, None)


def _backward(loss: Any) -> None:
    """Takes the gradients of this scalar by all trained variables that the step has read.

    `variable.value.grad` has them, added to those that were there.
    """
    step = step_gradients.current()
    if step is not None:
        step.backward(_scalar(loss))
        return
    trace = current_trace()
    found = _found.setdefault(trace, {})
    cores = [core for core in trace.whole.watched_variables() if core.trainable]
    found_now = trace.whole.gradients([_scalar(loss)], [None], cores)
    for core, gradient in zip(cores, found_now, strict=True):
        if gradient is not None:
            before = found.get(core)
            found[core] = gradient if before is None else ops.add(before, gradient)


def _grad(value: Any) -> Any:
    """Returns the gradient by the variable of this reading that `backward` found, or None."""
    step = step_gradients.current()
    if step is not None:
        return step.found(value)
    trace = tracing.current()
    if trace is None or not isinstance(value, _core.Value) or value.graph is not trace.graph:
        return None
    return _found.get(trace, {}).get(trace.graph.variable_of(value))


def _scalar(loss: Any) -> Any:
    if tuple(loss.shape) != ():
        raise ValueError(
            "Gradients are taken of a loss that is a scalar: use keras.ops.mean or keras.ops.sum. "
            f"Received: shape={tuple(loss.shape)}"
        )
    return loss


_tensor: Any = _core.Tensor
_value: Any = _core.Value
for _class in (_tensor, _value):
    _class.backward = _backward
    _class.grad = property(_grad)
