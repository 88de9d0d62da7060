"""KerasTensor: the shape and dtype of a tensor that is still to come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kerascnn import dtypes, naming
from kerascnn.symbolic import no_value

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

    def __repr__(self) -> str:
        return f"<KerasTensor shape={self.shape}, dtype={self.dtype}, name={self.name}>"


no_value.install(
    KerasTensor,
    "has no value: it only stands for one while a model is put together.",
    ", or build a model from it (keras.Model(inputs, outputs)) and call that on data",
)
