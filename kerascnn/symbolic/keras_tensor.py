"""KerasTensor: the shape and dtype of a future tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kerascnn import dtypes, file_budget, naming
from kerascnn.symbolic import no_value

if TYPE_CHECKING:
    from kerascnn.symbolic.operation import Operation


class KerasHistory(NamedTuple):
    """The origin of a KerasTensor: which output of which call of which operation."""

    operation: Operation
    node_index: int
    tensor_index: int


def check_dense(what: str, sparse: bool | None, ragged: bool | None) -> None:
    """Raises a ValueError for kinds of tensors that do not exist here."""
    for name, value, way_out in (
        ("sparse", sparse, "pass dense arrays, for example matrix.toarray() of a SciPy matrix"),
        ("ragged", ragged, "pad sequences to one length (utils.pad_sequences) and mask the rest"),
    ):
        if value:
            raise ValueError(
                f"{what}: {name}=True is not supported, since tensors are dense; {way_out}. "
                f"Received: {name}={value!r}"
            )


class KerasTensor:
    """A placeholder in the functional API; layers and `kerascnn.ops` take and return them.

    Args:
        shape: Sizes, None where a size is not known before data comes.
        dtype: Element type, or "string" for text.
        sparse: Only False and None: tensors are dense.
        ragged: Only False and None.
        record_history: Whether what is computed from it knows where it comes from, for a model.
        name: By default keras_tensor, keras_tensor_1, ...

    Raises:
        ValueError: for `sparse` or `ragged` True.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.Input((28, 28, 1))
    >>> (x * 2.0).shape
    (None, 28, 28, 1)
    """

    # This is its origin, or None if it was made by hand, only to infer shapes.
    _keras_history: KerasHistory | None = None
    # This tells which elements will count (a KerasTensor too); None means all.
    _keras_mask: Any = None

    def __init__(
        self,
        shape: Sequence[int | None],
        dtype: Any = "float32",
        sparse: bool | None = False,
        ragged: bool | None = False,
        record_history: bool = True,
        name: str | None = None,
    ) -> None:
        check_dense("KerasTensor", sparse, ragged)
        self.shape: tuple[int | None, ...] = tuple(shape)
        for n in self.shape:
            file_budget.check_positions(n or 0, f"an axis of shape {self.shape}")
        self.dtype = dtypes.standardize_symbolic_dtype(dtype)
        self.record_history = record_history
        self.name = name or naming.auto_name("keras_tensor")

    @property
    def sparse(self) -> bool:
        """False."""
        return False

    @property
    def ragged(self) -> bool:
        """False."""
        return False

    @property
    def ndim(self) -> int:
        """The number of axes, that of the batch among them."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"<KerasTensor shape={self.shape}, dtype={self.dtype}, name={self.name}>"


no_value.install(
    KerasTensor,
    "has no value: it only stands for one while a model is put together.",
    ", or build a model from it (keras.Model(inputs, outputs)) and call that on data",
)
