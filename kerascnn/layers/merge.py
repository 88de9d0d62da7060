"""Several tensors in one."""

from __future__ import annotations

from typing import Any

from kerascnn import ops
from kerascnn.layers.layer import Layer


class Merge(Layer):
    """Base of layers that are called on a list of tensors."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def build(self, input_shape: Any) -> None:
        self.compute_output_shape(self._checked(input_shape))

    def _checked(self, shapes: Any) -> list[tuple[int | None, ...]]:
        many = isinstance(shapes, (list, tuple)) and all(
            isinstance(shape, (list, tuple)) for shape in shapes
        )
        if not many or not shapes:
            raise ValueError(
                f"Layer '{self.name}' ({type(self).__name__}) must be called on a list of tensors. "
                f"Received: input_shape={shapes}"
            )
        return [tuple(shape) for shape in shapes]

    def compute_output_spec(self, inputs: Any) -> Any:
        from kerascnn.symbolic.keras_tensor import KerasTensor

        tensors = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        shape = self.compute_output_shape([x.shape for x in tensors])
        return KerasTensor(shape, self.compute_dtype)


class Add(Merge):
    """The sum of a list of tensors; sizes of 1 are repeated as in NumPy.

    Raises:
        ValueError: for shapes that don't fit together.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((2, 3))
    >>> keras.layers.Add()([x, x, x]).numpy().sum().item()
    18.0
    """

    def call(self, inputs: Any) -> Any:
        total = inputs[0]
        for x in inputs[1:]:
            total = ops.add(total, x)
        return total

    def compute_output_shape(self, input_shape: Any) -> Any:
        shapes = self._checked(input_shape)
        result = shapes[0]
        for shape in shapes[1:]:
            result = self._broadcast(result, shape, shapes)
        return result

    def _broadcast(self, a: tuple[Any, ...], b: tuple[Any, ...], shapes: Any) -> tuple[Any, ...]:
        if len(a) < len(b):
            a, b = b, a
        sizes: list[int | None] = list(a[: len(a) - len(b)])
        for m, n in zip(a[len(a) - len(b) :], b, strict=True):
            if m is not None and n is not None and m != n and 1 not in (m, n):
                raise ValueError(
                    f"Layer '{self.name}' (Add): tensors of shapes {shapes} do not fit together."
                )
            sizes.append(n if m == 1 else m if n == 1 or n == m else (m if n is None else n))
        return tuple(sizes)


class Concatenate(Merge):
    """Tensors one after the other along an axis.

    Args:
        axis: The axis; all others must have the same sizes.

    Raises:
        ValueError: for shapes that don't fit together.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((2, 3))
    >>> keras.layers.Concatenate()([x, x]).shape
    (2, 6)
    """

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def call(self, inputs: Any) -> Any:
        return ops.concatenate(inputs, self.axis)

    def compute_output_shape(self, input_shape: Any) -> Any:
        shapes = self._checked(input_shape)
        rank = len(shapes[0])
        axis = self.axis % rank if -rank <= self.axis < rank else None
        others = {tuple(n for i, n in enumerate(s) if i != axis) for s in shapes}
        fits = axis is not None and all(len(s) == rank for s in shapes)
        if not fits or not all(_compatible(a, b) for a in others for b in others):
            raise ValueError(
                f"Layer '{self.name}' (Concatenate): tensors of shapes {shapes} cannot be joined "
                f"along axis {self.axis}; their other sizes must be the same."
            )
        assert axis is not None
        sizes = [s[axis] for s in shapes]
        result = [next((s[i] for s in shapes if s[i] is not None), None) for i in range(rank)]
        result[axis] = None if None in sizes else sum(n for n in sizes if n is not None)
        return tuple(result)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "axis": self.axis}


def _compatible(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(
        m is None or n is None or m == n for m, n in zip(a, b, strict=True)
    )
