"""KerasTensor: the shape and dtype of a tensor that is still to come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from kerascnn import dtypes, naming

if TYPE_CHECKING:
    from kerascnn.symbolic.operation import Operation


class KerasHistory(NamedTuple):
    """Where a KerasTensor comes from: which output of which call of which operation."""

    operation: Operation
    node_index: int
    tensor_index: int


class KerasTensor:
    """A placeholder in the functional API; layers and `kerascnn.ops` take and return them.

    Args:
        shape: Sizes, None where a size is not known before data comes.
        dtype: Element type, or "string" for text.
        name: By default keras_tensor, keras_tensor_1, ...

    Example:

    >>> import kerascnn as keras
    >>> x = keras.Input((28, 28, 1))
    >>> (x * 2.0).shape
    (None, 28, 28, 1)
    """

    # Where it comes from; None for one that was made by hand, to ask for shapes only.
    _keras_history: KerasHistory | None = None
    # Which elements will count, a KerasTensor too; None for all.
    _keras_mask: Any = None

    def __init__(
        self, shape: Sequence[int | None], dtype: Any = "float32", name: str | None = None
    ) -> None:
        self.shape: tuple[int | None, ...] = tuple(shape)
        self.dtype = dtypes.standardize_symbolic_dtype(dtype)
        self.name = name or naming.auto_name("keras_tensor")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def _no_value(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has no value: it only stands for one while a model is put together. Build a "
            "model from it (keras.Model(inputs, outputs)) and call that on data; inside a layer's "
            "`call`, use kerascnn.ops in place of NumPy functions, `if`, or float()."
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        self._no_value()

    def __bool__(self) -> bool:
        self._no_value()

    def __float__(self) -> float:
        self._no_value()

    def __int__(self) -> int:
        self._no_value()

    def __iter__(self) -> Any:
        raise TypeError(f"{self!r} cannot be iterated over: its size may not be known yet.")

    def __repr__(self) -> str:
        return f"<KerasTensor shape={self.shape}, dtype={self.dtype}, name={self.name}>"
