"""Layers that compute on the host, since a device has no text and no tables of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import _core, trees
from kerascnn.layers.layer import Layer
from kerascnn.layers.text import as_text, is_text
from kerascnn.ops import dispatch
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.symbolic.operation import any_symbolic


class HostLayer(Layer):
    """Base of the layers whose `call` gets NumPy arrays, of text or numbers, and no tensors.

    Called at once, or in a data set's `map`, they take text, lists and arrays of it. In a
    functional model or `Sequential` they run before the compiled step, as far as only such layers
    lie before them, or after the steps of `predict`; see `kerascnn.models.host_stage`.
    """

    runs_on_host = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._build_at_init()

    def build(self, input_shape: Any = None) -> None:
        """Does nothing: there are no weights."""

    def _build_at_init(self) -> None:
        self.built = type(self).build is HostLayer.build

    def _on_host(self, value: Any) -> Any:
        """Converts the first argument of `call` to NumPy arrays."""
        if isinstance(value, (list, tuple)) and any(map(_core_tensor, value)):
            value = [np.asarray(x) for x in value]
        if is_text(value):
            return as_text(value)
        array = np.asarray(value)
        return as_text(array) if array.dtype.kind in "USO" else array

    def _convert_inputs(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if any_symbolic(args, kwargs):
            return args, kwargs
        if any(isinstance(x, _core.Value) for x in trees.leaves((args, kwargs))):
            raise ValueError(
                f"The layer '{self.name}' ({type(self).__name__}) works on the host and can't be "
                "part of a compiled step behind layers that learn, or inside the `call` of a "
                "subclassed model. Map it over the data set first, dataset.map(lambda x, y: "
                "(layer(x), y)), or put it at the beginning of a functional model."
            )
        return tuple(self._on_host(x) for x in args), kwargs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return trees.map_structure(_as_tensor, super().__call__(*args, **kwargs))


def _core_tensor(x: Any) -> bool:
    return isinstance(x, _core.Tensor)


def _as_tensor(x: Any) -> Any:
    if isinstance(x, KerasTensor) or dispatch.is_tensor(x) or is_text(x) or x.dtype.kind == "O":
        return x
    return dispatch.convert(x)
