"""RematScope: layers whose intermediate results are computed again for their gradient."""

from __future__ import annotations

import contextvars
import math
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from kerascnn import trees

_MODES = ("full", "activations", "larger_than", "list_of_layers", None)

_current: contextvars.ContextVar[RematScope | None] = contextvars.ContextVar("remat", default=None)


class RematScope:
    """A block whose layers keep less for their gradient; see `remat`.

    It affects the layers that are made in it, whenever they are called.

    Args:
        mode: "full" for all of them but models, "activations" for the activation functions of
            layers, "larger_than" for layers whose output has more elements than
            `output_size_threshold` (an unknown batch counts once), "list_of_layers" for those
            named in `layer_names`, None for none.
        output_size_threshold: See "larger_than".
        layer_names: See "list_of_layers".

    Raises:
        ValueError: for another mode.

    Example:

    >>> import kerascnn as keras
    >>> with keras.RematScope(mode="full"):
    ...     block = keras.layers.Dense(4, activation="gelu")
    >>> block(keras.ops.ones((2, 3))).shape
    (2, 4)
    """

    def __init__(
        self,
        mode: str | None = "full",
        output_size_threshold: int = 1024,
        layer_names: Sequence[str] | None = None,
    ) -> None:
        if mode not in _MODES:
            raise ValueError(
                f"RematScope: `mode` must be one of {', '.join(map(repr, _MODES))}. "
                f"Received: mode={mode!r}"
            )
        self.mode = mode
        self.output_size_threshold = output_size_threshold
        self.layer_names = tuple(layer_names or ())
        self._tokens: list[contextvars.Token[RematScope | None]] = []

    def __enter__(self) -> RematScope:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _current.reset(self._tokens.pop())

    def compute(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs the layer's own computation in the way that the scope asks for."""
        from kerascnn.autodiff.remat import remat

        if self.mode == "activations" and getattr(layer, "activation", None) is not None:
            activation = layer.activation
            layer.activation = remat(activation)
            try:
                return layer._checked_call(args, kwargs)
            finally:
                layer.activation = activation
        if not self._takes(layer, args):
            return layer._checked_call(args, kwargs)
        return remat(layer._checked_call)(args, kwargs)

    def _takes(self, layer: Any, args: tuple[Any, ...]) -> bool:
        if self.mode == "list_of_layers":
            return layer.name in self.layer_names
        if self.mode == "larger_than":
            shapes = trees.map_structure(lambda x: tuple(x.shape), args[0])
            found = trees.flatten_shapes(layer.compute_output_shape(shapes))
            sizes = [math.prod(extent or 1 for extent in shape) for shape in found]
            return max(sizes, default=0) > self.output_size_threshold
        from kerascnn.models import Model

        return self.mode == "full" and not isinstance(layer, Model)  # its layers are enough


def current_scope() -> RematScope | None:
    """Returns the innermost open block, or None."""
    return _current.get()
