"""Products of the samples of two batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.layers.merge import Merge
from kerascnn.ops import dispatch


class Dot(Merge):
    """The product of each sample of one tensor with its like in another, summed over one axis.

    Args:
        axes: The axis of both tensors that is summed over, or one for each.
        normalize: Whether the tensors are scaled to length 1 along those axes first, so that the
            result is the cosine of the angle.

    Input: two tensors (n, ...) of 2 or more axes.

    Output: (n, other sizes of the first, other sizes of the second), or (n, 1) where there are
    none.

    Raises:
        TypeError: for `axes` that is neither an integer nor a list.
        ValueError: for a list of anything but two integers; for axes of different sizes.

    Example:

    >>> import kerascnn as keras
    >>> x, y = keras.ops.ones((4, 5, 3)), keras.ops.ones((4, 3, 2))
    >>> keras.layers.Dot(axes=(2, 1))([x, y]).shape
    (4, 5, 2)
    """

    def __init__(self, axes: int | Sequence[int], normalize: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(axes, int):
            if not isinstance(axes, (list, tuple)):
                raise TypeError(f"`axes` must be an integer or two. Received: axes={axes!r}")
            if len(axes) != 2 or not all(isinstance(axis, int) for axis in axes):
                raise ValueError(f"`axes` must be an integer or two. Received: axes={axes!r}")
        self.axes = axes
        self.normalize = normalize

    def _both_axes(self, shapes: Sequence[Sequence[int | None]]) -> list[int]:
        """Returns the axis of each tensor, counted from 1 and checked against the shapes."""
        axes = [self.axes, self.axes] if isinstance(self.axes, int) else list(self.axes)
        result = []
        for axis, shape in zip(axes, shapes, strict=True):
            rank = len(shape)
            if rank < 2 or not -rank <= axis < rank or axis % rank == 0:
                raise ValueError(
                    f"Layer '{self.name}' (Dot): axis {axis} of a tensor of shape {tuple(shape)} "
                    "cannot be summed over; axis 0 is the batch, which stays."
                )
            result.append(axis % rank)
        sizes = [shape[axis] for axis, shape in zip(result, shapes, strict=True)]
        if None not in sizes and sizes[0] != sizes[1]:
            raise ValueError(
                f"Layer '{self.name}' (Dot): the axes that are summed over have different sizes, "
                f"{sizes[0]} and {sizes[1]}. Received: input_shape={list(shapes)}, "
                f"axes={self.axes}"
            )
        return result

    def call(self, inputs: Any) -> Any:
        x, y = inputs = self._checked_inputs(inputs)
        shapes = [tuple(t.shape) for t in inputs]
        a, b = self._both_axes(shapes)
        if self.normalize:
            x, y = ops.normalize(x, a), ops.normalize(y, b)
        x, y = ops.moveaxis(x, a, -1), ops.moveaxis(y, b, -1)
        n, size = x.shape[0], x.shape[-1]
        left, right = tuple(x.shape[1:-1]), tuple(y.shape[1:-1])
        x = ops.reshape(x, (n, math.prod(left), size))
        y = ops.reshape(y, (y.shape[0], math.prod(right), size))
        attributes = {"transpose_a": False, "transpose_b": True}
        product = dispatch.apply_one("matmul", dispatch.operands(x, y), attributes)
        return ops.reshape(product, (n, *left, *right) if left or right else (n, 1))

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return None

    def compute_output_shape(self, input_shape: Any) -> Any:
        shapes = self._checked(input_shape)
        if len(shapes) != 2:
            raise ValueError(
                f"Layer '{self.name}' (Dot) must be called on exactly 2 tensors. Received: "
                f"input_shape={shapes}"
            )
        a, b = self._both_axes(shapes)
        first = [n for axis, n in enumerate(shapes[0]) if axis != a]
        second = [n for axis, n in enumerate(shapes[1]) if axis not in (0, b)]
        result = (*first, *second)
        return result if len(result) > 1 else (*result, 1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "axes": self.axes, "normalize": self.normalize}


def dot(inputs: list[Any], axes: int | Sequence[int] = -1, **kwargs: Any) -> Any:
    """The product of the samples of two tensors, by a `Dot` layer.

    Args:
        inputs: Two tensors or KerasTensors with as many samples.
        axes: The axis of both that is summed over, or one for each.
        kwargs: Other arguments of `Dot`, such as `normalize`, and of every layer.

    Returns:
        A tensor or KerasTensor: the samples, then the axes of both that are left.

    Raises:
        ValueError: for axes of several sizes, and other than two tensors.

    Example:

    >>> import kerascnn as keras
    >>> x, y = keras.ops.array([[1.0, 2.0]]), keras.ops.array([[3.0, 4.0]])
    >>> keras.layers.dot([x, y], axes=1).numpy().tolist()
    [[11.0]]
    """
    return Dot(axes=axes, **kwargs)(inputs)
