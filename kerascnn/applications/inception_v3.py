"""Inception V3."""

from __future__ import annotations

from typing import Any

from kerascnn import layers
from kerascnn.applications.documentation import documented
from kerascnn.applications.imagenet_utils import decode_predictions
from kerascnn.applications.network import Network, Shape, Weights, channel_axis
from kerascnn.applications.pixels import from_minus_one_to_one as preprocess_input
from kerascnn.applications.published import weights as published_weights
from kerascnn.models import Model
from kerascnn.symbolic.keras_tensor import KerasTensor

__all__ = ["InceptionV3", "decode_predictions", "preprocess_input"]

_WEIGHTS = published_weights(
    "inception_v3/inception_v3",
    "9a0d58056eeedaa3f26cb7ebd46da564",
    "bcbd6486424b2319ff4ef7d526e38f63",
)
_documented = documented(
    "C. Szegedy et al., Rethinking the Inception Architecture for Computer Vision, 2015,\n"
    "    arXiv:1512.00567.",
    size=299,
    smallest=75,
    pixels="prepared by `preprocess_input`",
)


@_documented
def InceptionV3(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "inception_v3",
) -> Model:
    """Inception V3: branches of small and of split convolutions, 23.9 million parameters."""
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
    image = network.image(299, _WEIGHTS, smallest=75)
    x = _stem(image)
    for i, filters in enumerate((32, 64, 64)):
        x = _joined(_small(x, filters), f"mixed{i}")
    x = _joined(_first_reduction(x), "mixed3")
    for i, filters in enumerate((128, 160, 160, 192), 4):
        x = _joined(_split(x, filters), f"mixed{i}")
    x = _joined(_second_reduction(x), "mixed8")
    for i in range(2):
        x = _joined(_wide(x, f"mixed9_{i}"), f"mixed{9 + i}")
    return network.model(network.end(x, is_named=False), image)


def _stem(x: KerasTensor) -> KerasTensor:
    x = _conv(x, 32, 3, strides=2, padding="valid")
    x = _conv(x, 32, 3, padding="valid")
    x = _conv(x, 64, 3)
    x = layers.MaxPooling2D(3, strides=2)(x)
    x = _conv(x, 80, 1, padding="valid")
    x = _conv(x, 192, 3, padding="valid")
    return layers.MaxPooling2D(3, strides=2)(x)


def _small(x: KerasTensor, pool_filters: int) -> list[KerasTensor]:
    """Windows of 1, 5 and twice 3 pixels, and a mean."""
    return [
        _conv(x, 64, 1),
        _conv(_conv(x, 48, 1), 64, 5),
        _conv(_conv(_conv(x, 64, 1), 96, 3), 96, 3),
        _conv(_mean(x), pool_filters, 1),
    ]


def _first_reduction(x: KerasTensor) -> list[KerasTensor]:
    return [
        _conv(x, 384, 3, strides=2, padding="valid"),
        _conv(_conv(_conv(x, 64, 1), 96, 3), 96, 3, strides=2, padding="valid"),
        layers.MaxPooling2D(3, strides=2)(x),
    ]


def _split(x: KerasTensor, filters: int) -> list[KerasTensor]:
    """Windows of 7 x 7 pixels as rows and columns of 7."""
    one = _conv(x, 192, 1)
    seven = _conv(x, filters, 1)
    seven = _conv(_conv(seven, filters, (1, 7)), 192, (7, 1))
    twice = _conv(x, filters, 1)
    twice = _conv(_conv(twice, filters, (7, 1)), filters, (1, 7))
    twice = _conv(_conv(twice, filters, (7, 1)), 192, (1, 7))
    return [one, seven, twice, _conv(_mean(x), 192, 1)]


def _second_reduction(x: KerasTensor) -> list[KerasTensor]:
    three = _conv(_conv(x, 192, 1), 320, 3, strides=2, padding="valid")
    seven = _conv(_conv(_conv(x, 192, 1), 192, (1, 7)), 192, (7, 1))
    seven = _conv(seven, 192, 3, strides=2, padding="valid")
    return [three, seven, layers.MaxPooling2D(3, strides=2)(x)]


def _wide(x: KerasTensor, name: str) -> list[KerasTensor]:
    """Rows and columns of 3 side by side."""
    one = _conv(x, 320, 1)
    three = _conv(x, 384, 1)
    three = _joined([_conv(three, 384, (1, 3)), _conv(three, 384, (3, 1))], name)
    twice = _conv(_conv(x, 448, 1), 384, 3)
    twice = _joined([_conv(twice, 384, (1, 3)), _conv(twice, 384, (3, 1))], None)
    return [one, three, twice, _conv(_mean(x), 192, 1)]


def _conv(
    x: KerasTensor,
    filters: int,
    kernel_size: int | tuple[int, int],
    strides: int = 1,
    padding: str = "same",
) -> KerasTensor:
    x = layers.Conv2D(filters, kernel_size, strides=strides, padding=padding, use_bias=False)(x)
    x = layers.BatchNormalization(axis=channel_axis(), scale=False)(x)
    return layers.Activation("relu")(x)


def _mean(x: KerasTensor) -> KerasTensor:
    return layers.AveragePooling2D(3, strides=1, padding="same")(x)


def _joined(branches: list[KerasTensor], name: str | None) -> KerasTensor:
    return layers.Concatenate(axis=channel_axis(), name=name)(branches)
