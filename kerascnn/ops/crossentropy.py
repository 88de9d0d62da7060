"""Cross-entropies per sample, from probabilities or from logits."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import _core, config, tracebacks, tracing
from kerascnn.ops import activation, creation, dispatch, elementwise, reduction, shaping
from kerascnn.symbolic.operation import op

__all__ = [
    "binary_crossentropy",
    "categorical_crossentropy",
    "sparse_categorical_crossentropy",
]


def _same_shape(target: Any, output: Any, name: str) -> None:
    if tuple(target.shape) != tuple(output.shape):
        raise ValueError(
            f"{name}: `target` and `output` must have the same shape. Received: "
            f"target.shape={tuple(target.shape)}, output.shape={tuple(output.shape)}"
        )


def _warn_unless_logits(output: Any, activation_name: str, function_name: str) -> None:
    """Warns where `from_logits=True` is told of what a softmax or sigmoid has just given."""
    trace = tracing.current()
    if trace is None or not isinstance(output, _core.Value):
        return
    if trace.probabilities.get(output.id) == activation_name:
        tracebacks.warn(
            f"`{function_name}` received `from_logits=True`, but its `output` was produced by "
            f"{activation_name}, so that it holds probabilities: {activation_name} is applied "
            "twice, and the model learns slowly and badly. Leave `from_logits=True` out, or the "
            "activation of the last layer."
        )


def _clip(probabilities: Any) -> Any:
    return elementwise.clip(probabilities, config.epsilon(), 1.0 - config.epsilon())


@op
def categorical_crossentropy(
    target: Any, output: Any, from_logits: bool = False, axis: int = -1
) -> Any:
    """-sum(target * log(output)) along an axis.

    Args:
        target: Probabilities (often one-hot), of the shape of `output`, to whose dtype they are
            converted.
        output: Predicted probabilities, which are made to sum to 1 and kept off 0 and 1 by
            `config.epsilon()`; or logits. Integers become `floatx`.
        from_logits: Whether `output` holds logits, of which the softmax is taken.
        axis: The axis of the classes.

    Returns:
        The loss of each sample: a tensor of the other axes in the dtype of `output`.

    Raises:
        ValueError: where the shapes differ.

    Example:

    >>> from kerascnn import ops
    >>> target, output = [[0.0, 1.0], [1.0, 0.0]], [[0.5, 0.5], [0.75, 0.25]]
    >>> print(ops.categorical_crossentropy(target, output).numpy().round(3))
    [0.693 0.288]
    """
    output = dispatch.convert_floating(output)
    target = dispatch.convert(target, output.dtype, like=output)
    _same_shape(target, output, "categorical_crossentropy")
    if from_logits:
        _warn_unless_logits(output, "softmax", "categorical_crossentropy")
        log_probabilities = activation.log_softmax(output, axis=axis)
    else:
        total = reduction.sum(output, axis, keepdims=True)
        log_probabilities = elementwise.log(_clip(elementwise.divide(output, total)))
    products = elementwise.multiply(target, log_probabilities)
    return elementwise.negative(reduction.sum(products, axis))


@op
def sparse_categorical_crossentropy(
    target: Any, output: Any, from_logits: bool = False, axis: int = -1
) -> Any:
    """As `categorical_crossentropy`, the target being the number of the class.

    Args:
        target: Integers of the shape of `output` without the axis of the classes (or with a 1
            there).
        output: Predicted probabilities, which are kept off 0 and 1 by `config.epsilon()`; or
            logits. Integers become `floatx`.
        from_logits: Whether `output` holds logits.
        axis: The axis of the classes.

    Returns:
        The loss of each sample: a tensor of the other axes in the dtype of `output`; NaN for a
        class that does not exist.

    Raises:
        ValueError: where the shapes don't fit.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.sparse_categorical_crossentropy([1], [[0.5, 0.5]]).numpy())
    [0.6931472]
    """
    output = dispatch.convert_floating(output)
    if from_logits:
        _warn_unless_logits(output, "softmax", "sparse_categorical_crossentropy")
    target = dispatch.convert(target, like=output)
    rank = len(output.shape)
    if not rank:
        raise ValueError("sparse_categorical_crossentropy: `output` needs an axis of classes.")
    axis = axis % rank
    if len(target.shape) == rank and target.shape[axis] == 1:
        target = shaping.squeeze(target, axis)
    expected = (*output.shape[:axis], *output.shape[axis + 1 :])
    if tuple(target.shape) != expected:
        raise ValueError(
            "sparse_categorical_crossentropy: `target` must have the shape of `output` without the "
            f"axis of the classes, {expected}. Received: target.shape={tuple(target.shape)}, "
            f"output.shape={tuple(output.shape)}"
        )
    if target.dtype not in ("int32", "int64"):
        target = dispatch.convert(target, "int32")
    if axis != rank - 1:
        output = shaping.moveaxis(output, axis, -1)
    rows = int(np.prod(expected, dtype=np.int64))
    if rank != 2:
        output = shaping.reshape(output, (rows, output.shape[-1]))
        target = shaping.reshape(target, (rows,))
    if from_logits:
        loss = dispatch.apply_one(
            "sparse_softmax_cross_entropy", [output, target], {"epsilon": 0.0}
        )
    else:
        loss = dispatch.apply_one(
            "sparse_cross_entropy", [output, target], {"epsilon": config.epsilon()}
        )
    return loss if rank == 2 else shaping.reshape(loss, expected)


@op
def binary_crossentropy(target: Any, output: Any, from_logits: bool = False) -> Any:
    """-(target * log(output) + (1 - target) * log(1 - output)), element by element.

    Args:
        target: From 0 to 1, of the shape of `output`, to whose dtype it is converted.
        output: Predicted probabilities, kept off 0 and 1 by `config.epsilon()`; or logits. Integers
            become `floatx`. Logarithms of 16-bit probabilities are computed in float32, where
            1 - `config.epsilon()` is not 1.
        from_logits: Whether `output` holds logits, of which the sigmoid is taken.

    Returns:
        A tensor of the shape and dtype of `output`; `ops.mean` makes one loss of it.

    Raises:
        ValueError: where the shapes differ.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.binary_crossentropy([1.0, 0.0], [0.5, 0.25]).numpy().round(3))
    [0.693 0.288]
    >>> print(ops.binary_crossentropy([1.0, 0.0], [0.0, 0.0], from_logits=True).numpy().round(3))
    [0.693 0.693]
    """
    output = dispatch.convert_floating(output)
    target = dispatch.convert(target, output.dtype, like=output)
    _same_shape(target, output, "binary_crossentropy")
    if from_logits:
        _warn_unless_logits(output, "sigmoid", "binary_crossentropy")
        return elementwise.subtract(
            activation.softplus(output), elementwise.multiply(target, output)
        )
    dtype = str(output.dtype)
    if dtype in ("float16", "bfloat16"):
        target, output = creation.cast(target, "float32"), creation.cast(output, "float32")
    output = _clip(output)
    hit = elementwise.multiply(target, elementwise.log(output))
    missed = elementwise.subtract(1.0, target)
    miss = elementwise.multiply(missed, elementwise.log(elementwise.subtract(1.0, output)))
    return creation.cast(elementwise.negative(elementwise.add(hit, miss)), dtype)
