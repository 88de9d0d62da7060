"""Xception."""

from __future__ import annotations

from typing import Any

from kerascnn import layers
from kerascnn.applications.documentation import documented
from kerascnn.applications.imagenet_utils import decode_predictions
from kerascnn.applications.network import Network, Shape, Weights, last_or_first_axis
from kerascnn.applications.pixels import from_minus_one_to_one as preprocess_input
from kerascnn.applications.published import weights as published_weights
from kerascnn.models import Model
from kerascnn.symbolic.keras_tensor import KerasTensor

__all__ = ["Xception", "decode_predictions", "preprocess_input"]

_WEIGHTS = published_weights(
    "xception/xception", "0a58e3b7378bc2990ea3b43d5981f1f6", "b0042744bf5b25fce3cb969f33bebb97"
)
_documented = documented(
    "F. Chollet, Xception: Deep Learning with Depthwise Separable Convolutions, 2016,\n"
    "    arXiv:1610.02357.",
    size=299,
    smallest=71,
    pixels="prepared by `preprocess_input`",
)


@_documented
def Xception(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "xception",
) -> Model:
    """Xception: 36 mostly separable convolutions beside shortcuts, 22.9 million parameters."""
    network = Network(
        include_top,
        weights,
        input_tensor,
        input_shape,
        pooling,
        classes,
        classifier_activation,
        name,
    )
    image = network.image(299, _WEIGHTS, smallest=71)
    x = _conv(image, 32, "block1_conv1", strides=2)
    x = _conv(x, 64, "block1_conv2")
    for block, filters in ((2, 128), (3, 256), (4, 728)):
        x = _halving(x, block, (filters, filters))
    for block in range(5, 13):
        shortcut = x
        for i in (1, 2, 3):
            x = _relu(x, f"block{block}_sepconv{i}_act")
            x = _separable(x, 728, f"block{block}_sepconv{i}")
        x = layers.Add()([x, shortcut])
    x = _halving(x, 13, (728, 1024))
    for i, filters in ((1, 1536), (2, 2048)):
        x = _separable(x, filters, f"block14_sepconv{i}")
        x = _relu(x, f"block14_sepconv{i}_act")
    return network.model(network.end(x, is_named=False), image)


def _halving(x: KerasTensor, block: int, filters: tuple[int, int]) -> KerasTensor:
    """Two separable convolutions and pooling beside a projection; maps of half the size."""
    shortcut = layers.Conv2D(filters[1], 1, strides=2, padding="same", use_bias=False)(x)
    shortcut = layers.BatchNormalization(axis=last_or_first_axis())(shortcut)
    for i in (1, 2):
        if (block, i) != (2, 1):  # which follows an activation
            x = _relu(x, f"block{block}_sepconv{i}_act")
        x = _separable(x, filters[i - 1], f"block{block}_sepconv{i}")
    x = layers.MaxPooling2D(3, strides=2, padding="same", name=f"block{block}_pool")(x)
    return layers.Add()([x, shortcut])


def _separable(x: KerasTensor, filters: int, name: str) -> KerasTensor:
    x = layers.SeparableConv2D(filters, 3, padding="same", use_bias=False, name=name)(x)
    return layers.BatchNormalization(axis=last_or_first_axis(), name=f"{name}_bn")(x)


def _conv(x: KerasTensor, filters: int, name: str, strides: int = 1) -> KerasTensor:
    x = layers.Conv2D(filters, 3, strides=strides, use_bias=False, name=name)(x)
    x = layers.BatchNormalization(axis=last_or_first_axis(), name=f"{name}_bn")(x)
    return _relu(x, f"{name}_act")


def _relu(x: KerasTensor, name: str) -> KerasTensor:
    return layers.Activation("relu", name=name)(x)
