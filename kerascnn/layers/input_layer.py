"""Input: where a model's data comes in."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from kerascnn import dtypes
from kerascnn.layers.layer import Layer
from kerascnn.symbolic.keras_tensor import KerasTensor, check_dense
from kerascnn.symbolic.operation import Node


class InputLayer(Layer):
    """The layer that `Input` makes.

    Args:
        shape: Shape of one sample; None for sizes that are not known.
        batch_size: Size of the batch where it is fixed.
        dtype: What data is converted to, by default `floatx`; "string" for text.
        sparse: Only None and False.
        ragged: Only None and False.
        batch_shape: Shape with the batch, in place of `shape` and `batch_size`.
        input_tensor: A KerasTensor to stand for, in place of a new one.
        optional: Whether None may be passed for it.
        name: By default input_layer, input_layer_1, ...

    Raises:
        ValueError: where neither or both of the shapes are given, and for an `input_tensor` that
            is no KerasTensor or not what the other arguments say.

    Example:

    >>> import kerascnn as keras
    >>> model = keras.Sequential([keras.layers.InputLayer((8,)), keras.layers.Dense(1)])
    >>> model.input_shape
    (None, 8)
    """

    def __init__(
        self,
        shape: Sequence[int | None] | None = None,
        batch_size: int | None = None,
        dtype: Any = None,
        sparse: bool | None = None,
        ragged: bool | None = None,
        batch_shape: Sequence[int | None] | None = None,
        input_tensor: KerasTensor | None = None,
        optional: bool = False,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if "input_shape" in kwargs:
            warnings.warn("`input_shape` is now called `shape`.", stacklevel=2)
            shape = kwargs.pop("input_shape")
        if "batch_input_shape" in kwargs:
            batch_shape = kwargs.pop("batch_input_shape")
        super().__init__(name=name, **kwargs)
        check_dense(f"Input '{self.name}'", sparse, ragged)
        if input_tensor is not None:
            self._check_tensor(input_tensor, shape, batch_size, batch_shape, dtype)
            batch_shape, dtype = input_tensor.shape, input_tensor.dtype
        elif batch_size is not None and batch_shape is not None:
            raise ValueError(
                f"Give `batch_size` or `batch_shape`, not both. Received: batch_size={batch_size}, "
                f"batch_shape={batch_shape}"
            )
        elif shape is not None and batch_shape is not None:
            raise ValueError(
                f"Give `shape` or `batch_shape`, not both. Received: shape={shape}, "
                f"batch_shape={batch_shape}"
            )
        elif shape is not None:
            batch_shape = (batch_size, *_checked_shape(shape))
        elif batch_shape is None:
            raise ValueError("An input needs its `shape`: that of one sample, without the batch.")
        self.batch_shape = _checked_shape(batch_shape)
        self.optional = optional
        self._dtype = dtypes.standardize_symbolic_dtype(dtype)
        self.built = True
        output = input_tensor
        if output is None:
            output = KerasTensor(self.batch_shape, self._dtype, name=self.name)
        Node(self, (), {}, output)

    def _check_tensor(
        self, tensor: Any, shape: Any, batch_size: Any, batch_shape: Any, dtype: Any
    ) -> None:
        if not isinstance(tensor, KerasTensor):
            raise ValueError(
                f"`input_tensor` must be a KerasTensor. Received: {tensor!r} (of type "
                f"{type(tensor)})"
            )
        says = {
            "batch_size": (batch_size, tensor.shape[0] if tensor.shape else None),
            "shape": (None if shape is None else tuple(shape), tensor.shape[1:]),
            "batch_shape": (None if batch_shape is None else tuple(batch_shape), tensor.shape),
            "dtype": (
                None if dtype is None else dtypes.standardize_symbolic_dtype(dtype),
                tensor.dtype,
            ),
        }
        for name, (given, own) in says.items():
            if given is not None and given != own:
                raise ValueError(
                    f"`{name}` is not that of `input_tensor`. Received: {name}={given}, the "
                    f"tensor has {own}"
                )

    @property
    def dtype(self) -> str:
        return self._dtype

    @property
    def sparse(self) -> bool:
        """False: tensors are dense."""
        return False

    @property
    def ragged(self) -> bool:
        """False."""
        return False

    def call(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"The input '{self.name}' is not to be called: pass data to the model.")

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        return self.batch_shape

    def get_config(self) -> dict[str, Any]:
        return {
            "batch_shape": self.batch_shape,
            "dtype": self.dtype,
            "sparse": False,
            "ragged": False,
            "name": self.name,
            "optional": self.optional,
        }


def _checked_shape(shape: Any) -> tuple[int | None, ...]:
    if not isinstance(shape, (list, tuple)):
        raise ValueError(
            f"A shape is a tuple of sizes, such as (28, 28, 1). Received: {shape!r}"
            + (f"; did you mean ({shape},)?" if isinstance(shape, int) else "")
        )
    for n in shape:
        is_part = isinstance(n, float) and not n.is_integer()  # infinity and NaN too
        is_number = isinstance(n, (int, float)) or hasattr(n, "__index__")
        if n is not None and (
            not is_number or isinstance(n, bool) or is_part or int(n) != n or n < 0
        ):
            raise ValueError(f"A size is None or an integer from 0 on. Received: shape={shape}")
    return tuple(None if n is None else int(n) for n in shape)


def Input(
    shape: Sequence[int | None] | None = None,
    batch_size: int | None = None,
    dtype: Any = None,
    sparse: bool | None = None,
    ragged: bool | None = None,
    batch_shape: Sequence[int | None] | None = None,
    name: str | None = None,
    tensor: KerasTensor | None = None,
    optional: bool = False,
) -> KerasTensor:
    """Makes an input of a model; layers can be called on it.

    Args:
        shape: Shape of one sample, such as (28, 28, 1); None for sizes that are not known.
        batch_size: Size of the batch where it is fixed.
        dtype: What data is converted to, by default `floatx`; "string" for text.
        sparse: Only None and False.
        ragged: Only None and False.
        batch_shape: Shape with the batch, in place of `shape` and `batch_size`.
        name: Name of the input, and its key where data comes as a dictionary.
        tensor: A KerasTensor to stand for, in place of a new one.
        optional: Whether None may be passed for it.

    Returns:
        A KerasTensor, which stands for a batch and has no values.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.Input((8,))
    >>> y = keras.layers.Dense(2)(x)
    >>> keras.Model(x, y).count_params()
    18
    """
    layer = InputLayer(
        shape=shape,
        batch_size=batch_size,
        dtype=dtype,
        sparse=sparse,
        ragged=ragged,
        batch_shape=batch_shape,
        input_tensor=tensor,
        optional=optional,
        name=name,
    )
    return layer.output
