"""Quantizing the layers of a model."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

from kerascnn import quantizers


def quantize_layers(
    model: Any, mode: Any, config: Any, filters: Any, type_check: bool = True, **kwargs: Any
) -> None:
    """See `Model.quantize`."""
    if kwargs:
        raise ValueError(f"`quantize` does not have the argument(s) {sorted(kwargs)}.")
    config = quantizers.resolve(mode, config)
    chosen = _filter(filters)
    left_out = []
    for layer in model._flatten_layers():
        if layer is model or not chosen(layer) or layer._sublayers():
            continue
        try:
            layer.quantize(config.mode, type_check=type_check, config=config)
        except NotImplementedError:
            if layer.weights:
                left_out.append(f"'{layer.name}' ({type(layer).__name__})")
    if left_out:
        warnings.warn(
            f"Layers of model '{model.name}' that cannot be quantized stay as they are: "
            f"{', '.join(left_out)}.",
            stacklevel=3,
        )
    model._forget_steps()


def _filter(filters: Any) -> Callable[[Any], bool]:
    if filters is None:
        return lambda layer: True
    if isinstance(filters, (str, list, tuple)):
        patterns = [filters] if isinstance(filters, str) else filters
        return lambda layer: any(re.search(pattern, layer.name) for pattern in patterns)
    if callable(filters):
        return lambda layer: bool(filters(layer))
    raise ValueError(
        "`filters` must be a regular expression, a list of such, or a function of a layer. "
        f"Received: filters={filters!r} (of type {type(filters)})"
    )
