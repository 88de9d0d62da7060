"""Layers that merge several tensors, element by element or along an axis."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from kerascnn import masks, ops
from kerascnn.layers.layer import Layer
from kerascnn.symbolic.keras_tensor import KerasTensor

Shape = tuple[int | None, ...]


class Merge(Layer):
    """Base of layers that are called on a list of tensors.

    A custom layer implements `_merge_function(inputs)`, which gets tensors of equal rank whose
    sizes are equal or 1.
    """

    _supports_masking = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def build(self, input_shape: Any) -> None:
        self.compute_output_shape(input_shape)

    def _merge_function(self, inputs: Sequence[Any]) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not implement `_merge_function`.")

    def call(self, inputs: Any) -> Any:
        inputs = self._checked_inputs(inputs)
        rank = max(len(x.shape) for x in inputs)
        return self._merge_function([self._of_rank(x, rank) for x in inputs])

    def _of_rank(self, x: Any, rank: int) -> Any:
        """Inserts axes of size 1 after the batch until there are `rank` axes."""
        missing = rank - len(x.shape)
        return ops.expand_dims(x, tuple(range(1, 1 + missing))) if missing else x

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """A place counts if it counts in any of the inputs; None if one of them has no mask."""
        given = self._checked_masks(inputs, mask)
        if not given or any(own is None for own in given):
            return None
        return functools.reduce(ops.logical_or, given)

    def _checked_masks(self, inputs: Any, mask: Any) -> list[Any]:
        """Returns the masks of the inputs, or an empty list."""
        if mask is None:
            return []
        if not isinstance(mask, (list, tuple)) or not isinstance(inputs, (list, tuple)):
            raise ValueError(
                f"Layer '{self.name}' ({type(self).__name__}): `inputs` and `mask` must be lists. "
                f"Received: inputs={inputs}, mask={mask}"
            )
        if len(mask) != len(inputs):
            raise ValueError(
                f"Layer '{self.name}' ({type(self).__name__}): `mask` must have one entry for each "
                f"of the {len(inputs)} inputs. Received: {len(mask)}"
            )
        return [] if all(m is None for m in mask) else list(mask)

    def _checked_inputs(self, inputs: Any) -> list[Any]:
        if not isinstance(inputs, (list, tuple)):
            raise ValueError(
                f"Layer '{self.name}' ({type(self).__name__}) must be called on a list of tensors. "
                f"Received: {inputs}"
            )
        return list(inputs)

    def _checked(self, shapes: Any) -> list[Shape]:
        many = isinstance(shapes, (list, tuple)) and all(
            isinstance(shape, (list, tuple)) for shape in shapes
        )
        if not many or not shapes:
            raise ValueError(
                f"Layer '{self.name}' ({type(self).__name__}) must be called on a list of tensors. "
                f"Received: input_shape={shapes}"
            )
        return [tuple(shape) for shape in shapes]

    def compute_output_shape(self, input_shape: Any) -> Any:
        shapes = self._checked(input_shape)
        batches = {shape[0] for shape in shapes if shape} - {None}
        if len(batches) > 1:
            raise ValueError(
                f"Layer '{self.name}' ({type(self).__name__}): tensors of shapes {shapes} differ "
                "in the size of their batch."
            )
        result = shapes[0][1:]
        for shape in shapes[1:]:
            result = self._broadcast(result, shape[1:], shapes)
        return (batches.pop() if batches else None, *result)

    def _broadcast(self, a: Shape, b: Shape, shapes: Any) -> Shape:
        if len(a) < len(b):
            a, b = b, a
        sizes: list[int | None] = list(a[: len(a) - len(b)])
        for m, n in zip(a[len(a) - len(b) :], b, strict=True):
            if m is not None and n is not None and m != n and 1 not in (m, n):
                raise ValueError(
                    f"Layer '{self.name}' ({type(self).__name__}): tensors of shapes {shapes} do "
                    "not fit together."
                )
            sizes.append(None if None in (m, n) else n if m == 1 else m)
        return tuple(sizes)

    def compute_output_spec(self, inputs: Any) -> Any:
        shapes = [x.shape for x in self._checked_inputs(inputs)]
        return KerasTensor(self.compute_output_shape(shapes), self.compute_dtype)


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

    def _merge_function(self, inputs: Sequence[Any]) -> Any:
        total = inputs[0]
        for x in inputs[1:]:
            total = ops.add(total, x)
        return total


class Subtract(Merge):
    """The first of two tensors without the second; sizes of 1 are repeated as in NumPy.

    Raises:
        ValueError: for more or less than two tensors, and for shapes that don't fit together.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((2, 3))
    >>> keras.layers.Subtract()([x, x]).numpy().sum().item()
    0.0
    """

    def compute_output_shape(self, input_shape: Any) -> Any:
        shapes = self._checked(input_shape)
        if len(shapes) != 2:
            raise ValueError(
                f"Layer '{self.name}' (Subtract) must be called on exactly 2 tensors. Received: "
                f"input_shape={shapes}"
            )
        return super().compute_output_shape(shapes)

    def _merge_function(self, inputs: Sequence[Any]) -> Any:
        if len(inputs) != 2:
            raise ValueError(
                f"Layer '{self.name}' (Subtract) must be called on exactly 2 tensors. Received: "
                f"{len(inputs)}"
            )
        return ops.subtract(inputs[0], inputs[1])


class Multiply(Merge):
    """The product of a list of tensors, element by element; sizes of 1 are repeated as in NumPy.

    Raises:
        ValueError: for shapes that don't fit together.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.full((2, 3), 2.0)
    >>> keras.layers.Multiply()([x, x, x]).numpy().max().item()
    8.0
    """

    def _merge_function(self, inputs: Sequence[Any]) -> Any:
        given = [_whole_mask(x) for x in inputs]
        # A masked element becomes a factor of 1.
        pairs = zip(inputs, given, strict=True)
        factors = [x if mask is None else ops.where(mask, x, 1) for x, mask in pairs]
        product = functools.reduce(ops.multiply, factors)
        if any(mask is None for mask in given):
            return product
        return ops.where(functools.reduce(ops.logical_or, given), product, 0)


class Average(Add):
    """The mean of a list of tensors, element by element; sizes of 1 are repeated as in NumPy.

    Raises:
        ValueError: for shapes that don't fit together.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Average()([keras.ops.zeros((2, 3)), keras.ops.ones((2, 3))]).numpy().max()
    np.float32(0.5)
    """

    def _merge_function(self, inputs: Sequence[Any]) -> Any:
        return ops.divide(super()._merge_function(inputs), len(inputs))


class Maximum(Merge):
    """The largest of a list of tensors, element by element; sizes of 1 are repeated as in NumPy.

    Raises:
        ValueError: for shapes that don't fit together.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Maximum()([keras.ops.zeros((2, 3)), keras.ops.ones((2, 3))]).numpy().min()
    np.float32(1.0)
    """

    def _merge_function(self, inputs: Sequence[Any]) -> Any:
        return _extreme(ops.maximum, inputs)


class Minimum(Merge):
    """The smallest of a list of tensors, element by element; sizes of 1 are repeated as in NumPy.

    Raises:
        ValueError: for shapes that don't fit together.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Minimum()([keras.ops.zeros((2, 3)), keras.ops.ones((2, 3))]).numpy().max()
    np.float32(0.0)
    """

    def _merge_function(self, inputs: Sequence[Any]) -> Any:
        return _extreme(ops.minimum, inputs)


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
        return ops.concatenate(self._checked_inputs(inputs), self.axis)

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

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """The masks one after the other too; without a mask all of an input counts."""
        given = self._checked_masks(inputs, mask)
        if not given:
            return None
        whole = []
        for x, own in zip(inputs, given, strict=True):
            if own is None:
                own = ops.ones_like(x, dtype="bool")
            elif len(own.shape) < len(x.shape):
                # Keras does it this way, and functional configurations contain it
                zeros = ops.zeros_like(x, dtype="bool")
                own = ops.logical_or(ops.expand_dims(own, -1), zeros)
            whole.append(own)
        return ops.any(ops.concatenate(whole, self.axis), axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "axis": self.axis}


def _compatible(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(
        m is None or n is None or m == n for m, n in zip(a, b, strict=True)
    )


def _whole_mask(x: Any) -> Any:
    """Expands the mask of a tensor, which has all axes but the last, to the last one."""
    mask = masks.mask_of(x)
    if mask is None:
        return None
    return ops.broadcast_to(ops.expand_dims(ops.cast(mask, "bool"), -1), tuple(x.shape))


def _extreme(of_two: Callable[[Any, Any], Any], inputs: Sequence[Any]) -> Any:
    """Returns the largest or smallest of the inputs that count at each place."""
    result: Any = None
    result_mask: Any = None
    for x in inputs:
        mask = _whole_mask(x)
        if result is None:
            result, result_mask = x, mask
            continue
        x = x if mask is None else ops.where(mask, x, result)
        if result_mask is not None:
            result = ops.where(result_mask, result, x)
        both = mask is not None and result_mask is not None
        result_mask = ops.logical_or(result_mask, mask) if both else None
        result = of_two(result, x)
    return result


def add(inputs: list[Any], **kwargs: Any) -> Any:
    """The sum of a list of tensors, element by element, by an `Add` layer.

    Args:
        inputs: One or more tensors or KerasTensors, whose shapes broadcast.
        kwargs: Arguments of every layer, such as `name` and `dtype`.

    Returns:
        A tensor or KerasTensor of the broadcast shape.

    Raises:
        ValueError: for shapes that don't broadcast, and no tensors.

    Example:

    >>> import kerascnn as keras
    >>> x, y = keras.ops.array([[1.0, 2.0]]), keras.ops.array([[3.0, 5.0]])
    >>> keras.layers.add([x, y]).numpy().tolist()
    [[4.0, 7.0]]
    """
    return Add(**kwargs)(inputs)


def subtract(inputs: list[Any], **kwargs: Any) -> Any:
    """The difference of two tensors, element by element, by a `Subtract` layer.

    Args:
        inputs: Two tensors or KerasTensors, whose shapes broadcast.
        kwargs: Arguments of every layer, such as `name` and `dtype`.

    Returns:
        A tensor or KerasTensor of the broadcast shape.

    Raises:
        ValueError: for shapes that don't broadcast, and other than two tensors.

    Example:

    >>> import kerascnn as keras
    >>> x, y = keras.ops.array([[3.0, 5.0]]), keras.ops.array([[1.0, 2.0]])
    >>> keras.layers.subtract([x, y]).numpy().tolist()
    [[2.0, 3.0]]
    """
    return Subtract(**kwargs)(inputs)


def multiply(inputs: list[Any], **kwargs: Any) -> Any:
    """The product of a list of tensors, element by element, by a `Multiply` layer.

    Args:
        inputs: One or more tensors or KerasTensors, whose shapes broadcast.
        kwargs: Arguments of every layer, such as `name` and `dtype`.

    Returns:
        A tensor or KerasTensor of the broadcast shape.

    Raises:
        ValueError: for shapes that don't broadcast, and no tensors.

    Example:

    >>> import kerascnn as keras
    >>> x, y = keras.ops.array([[1.0, 2.0]]), keras.ops.array([[3.0, 5.0]])
    >>> keras.layers.multiply([x, y]).numpy().tolist()
    [[3.0, 10.0]]
    """
    return Multiply(**kwargs)(inputs)


def average(inputs: list[Any], **kwargs: Any) -> Any:
    """The mean of a list of tensors, element by element, by an `Average` layer.

    Args:
        inputs: One or more tensors or KerasTensors, whose shapes broadcast.
        kwargs: Arguments of every layer, such as `name` and `dtype`.

    Returns:
        A tensor or KerasTensor of the broadcast shape.

    Raises:
        ValueError: for shapes that don't broadcast, and no tensors.

    Example:

    >>> import kerascnn as keras
    >>> x, y = keras.ops.array([[1.0, 2.0]]), keras.ops.array([[3.0, 6.0]])
    >>> keras.layers.average([x, y]).numpy().tolist()
    [[2.0, 4.0]]
    """
    return Average(**kwargs)(inputs)


def maximum(inputs: list[Any], **kwargs: Any) -> Any:
    """The largest elements of a list of tensors, element by element, by a `Maximum` layer.

    Args:
        inputs: One or more tensors or KerasTensors, whose shapes broadcast.
        kwargs: Arguments of every layer, such as `name` and `dtype`.

    Returns:
        A tensor or KerasTensor of the broadcast shape.

    Raises:
        ValueError: for shapes that don't broadcast, and no tensors.

    Example:

    >>> import kerascnn as keras
    >>> x, y = keras.ops.array([[1.0, 6.0]]), keras.ops.array([[3.0, 5.0]])
    >>> keras.layers.maximum([x, y]).numpy().tolist()
    [[3.0, 6.0]]
    """
    return Maximum(**kwargs)(inputs)


def minimum(inputs: list[Any], **kwargs: Any) -> Any:
    """The smallest elements of a list of tensors, element by element, by a `Minimum` layer.

    Args:
        inputs: One or more tensors or KerasTensors, whose shapes broadcast.
        kwargs: Arguments of every layer, such as `name` and `dtype`.

    Returns:
        A tensor or KerasTensor of the broadcast shape.

    Raises:
        ValueError: for shapes that don't broadcast, and no tensors.

    Example:

    >>> import kerascnn as keras
    >>> x, y = keras.ops.array([[1.0, 6.0]]), keras.ops.array([[3.0, 5.0]])
    >>> keras.layers.minimum([x, y]).numpy().tolist()
    [[1.0, 5.0]]
    """
    return Minimum(**kwargs)(inputs)


def concatenate(inputs: list[Any], axis: int = -1, **kwargs: Any) -> Any:
    """Tensors one after the other along an axis, by a `Concatenate` layer.

    Args:
        inputs: Tensors or KerasTensors whose shapes agree but for the size of `axis`.
        axis: Along which they are joined; a negative one counts from the end.
        kwargs: Arguments of every layer, such as `name` and `dtype`.

    Returns:
        A tensor or KerasTensor.

    Raises:
        ValueError: for other shapes, and for no tensors.

    Example:

    >>> import kerascnn as keras
    >>> x, y = keras.ops.ones((2, 3)), keras.ops.zeros((2, 5))
    >>> keras.layers.concatenate([x, y]).shape
    (2, 8)
    """
    return Concatenate(axis=axis, **kwargs)(inputs)
