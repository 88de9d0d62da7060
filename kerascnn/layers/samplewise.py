"""Which layers compute each sample of a batch independently of the others."""

from __future__ import annotations

import itertools
from typing import Any

# The `call` of these layers draws no random numbers, assigns no state and does not look along the
# batch.
_DIMENSIONS = ("1D", "2D", "3D")
_FAMILIES = (
    "AveragePooling",
    "Conv",
    "Cropping",
    "GlobalAveragePooling",
    "GlobalMaxPooling",
    "MaxPooling",
    "UpSampling",
    "ZeroPadding",
)
_NAMES = {
    "Conv1DTranspose",
    "Conv2DTranspose",
    "Conv3DTranspose",
    "Dense",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
    "ELU",
    "Embedding",
    "Flatten",
    "LeakyReLU",
    "Permute",
    "ReLU",
    "RepeatVector",
    "Reshape",
    "SeparableConv1D",
    "SeparableConv2D",
    *map("".join, itertools.product(_FAMILIES, _DIMENSIONS)),
}
_RECURRENT = {"GRU", "LSTM", "SimpleRNN"}


def is_samplewise(layer: Any) -> bool:
    """Tells whether `layer.call` gives the same for samples of several batches joined to one.

    False where that is not known: of classes and activations that are not the library's own, and of
    layers that draw random numbers or keep state.
    """
    from kerascnn import layers, models

    kind = type(layer)
    if kind is models.Sequential:
        # Activity penalties are means over the batch on which a layer is called.
        return all(
            is_samplewise(each) and each.activity_regularizer is None for each in layer.layers
        )
    if kind is layers.TimeDistributed:
        return is_samplewise(layer.layer)
    if getattr(layers, kind.__name__, None) is not kind:
        return False
    if kind.__name__ in _RECURRENT:
        cell = layer.cell
        draws = cell.dropout or cell.recurrent_dropout
        names = ("activation", "recurrent_activation")
        return not layer.stateful and not draws and all(_is_ours(cell, name) for name in names)
    return kind.__name__ in _NAMES and _is_ours(layer, "activation")


def _is_ours(layer: Any, name: str) -> bool:
    activation = getattr(layer, name, None)
    return activation is None or activation.__module__ == "kerascnn.activations.functions"
