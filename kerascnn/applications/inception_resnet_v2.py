"""Inception-ResNet V2."""

from __future__ import annotations

from typing import Any

from kerascnn import layers
from kerascnn.applications.documentation import documented
from kerascnn.applications.imagenet_utils import decode_predictions
from kerascnn.applications.network import Network, Shape, Weights, channel_axis, channels_of
from kerascnn.applications.parts import CustomScaleLayer
from kerascnn.applications.pixels import from_minus_one_to_one as preprocess_input
from kerascnn.applications.published import weights as published_weights
from kerascnn.models import Model
from kerascnn.symbolic.keras_tensor import KerasTensor

__all__ = ["InceptionResNetV2", "decode_predictions", "preprocess_input"]

_WEIGHTS = published_weights(
    "inception_resnet_v2/inception_resnet_v2",
    "e693bd0210a403b3192acc6073ad2e96",
    "d19885ff4a710c122648d3b5c3b684e4",
)
# Each branch of a residual block: its convolutions, with the numbers of filters and the windows.
_BRANCHES: dict[str, list[list[tuple[int, Any]]]] = {
    "block35": [[(32, 1)], [(32, 1), (32, 3)], [(32, 1), (48, 3), (64, 3)]],
    "block17": [[(192, 1)], [(128, 1), (160, (1, 7)), (192, (7, 1))]],
    "block8": [[(192, 1)], [(192, 1), (224, (1, 3)), (256, (3, 1))]],
}
_documented = documented(
    "C. Szegedy, S. Ioffe, V. Vanhoucke and A. Alemi, Inception-v4, Inception-ResNet and the\n"
    "    Impact of Residual Connections on Learning, 2016, arXiv:1602.07261.",
    size=299,
    smallest=75,
    pixels="prepared by `preprocess_input`",
)


@_documented
def InceptionResNetV2(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "inception_resnet_v2",
) -> Model:
    """Inception-ResNet V2: Inception's branches beside shortcuts, 55.9 million parameters."""
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
    for i in range(1, 11):
        x = _block(x, "block35", i, 0.17)
    three = _conv(x, 384, 3, strides=2, padding="valid")
    twice = _conv(_conv(x, 256, 1), 256, 3)
    twice = _conv(twice, 384, 3, strides=2, padding="valid")
    x = _joined([three, twice, layers.MaxPooling2D(3, strides=2)(x)], "mixed_6a")
    for i in range(1, 21):
        x = _block(x, "block17", i, 0.1)
    x = _last_reduction(x)
    for i in range(1, 11):
        is_last = i == 10
        x = _block(x, "block8", i, 1.0 if is_last else 0.2, None if is_last else "relu")
    x = _conv(x, 1536, 1, name="conv_7b")
    return network.model(network.end(x, is_named=False), image)


def _stem(x: KerasTensor) -> KerasTensor:
    x = _conv(x, 32, 3, strides=2, padding="valid")
    x = _conv(x, 32, 3, padding="valid")
    x = _conv(x, 64, 3)
    x = layers.MaxPooling2D(3, strides=2)(x)
    x = _conv(x, 80, 1, padding="valid")
    x = _conv(x, 192, 3, padding="valid")
    x = layers.MaxPooling2D(3, strides=2)(x)
    one = _conv(x, 96, 1)
    five = _conv(_conv(x, 48, 1), 64, 5)
    three = _conv(_conv(_conv(x, 64, 1), 96, 3), 96, 3)
    mean = _conv(layers.AveragePooling2D(3, strides=1, padding="same")(x), 64, 1)
    return _joined([one, five, three, mean], "mixed_5b")


def _last_reduction(x: KerasTensor) -> KerasTensor:
    first = _conv(_conv(x, 256, 1), 384, 3, strides=2, padding="valid")
    second = _conv(_conv(x, 256, 1), 288, 3, strides=2, padding="valid")
    third = _conv(_conv(_conv(x, 256, 1), 288, 3), 320, 3, strides=2, padding="valid")
    return _joined([first, second, third, layers.MaxPooling2D(3, strides=2)(x)], "mixed_7a")


def _block(
    x: KerasTensor, kind: str, index: int, scale: float, activation: str | None = "relu"
) -> KerasTensor:
    """Adds a small multiple of what the branches found to the maps."""
    branches = []
    for convolutions in _BRANCHES[kind]:
        branch = x
        for filters, kernel_size in convolutions:
            branch = _conv(branch, filters, kernel_size)
        branches.append(branch)
    name = f"{kind}_{index}"
    found = _joined(branches, f"{name}_mixed")
    found = layers.Conv2D(channels_of(x), 1, padding="same", name=f"{name}_conv")(found)
    x = CustomScaleLayer(scale)([x, found])
    return x if activation is None else layers.Activation(activation, name=f"{name}_ac")(x)


def _conv(
    x: KerasTensor,
    filters: int,
    kernel_size: int | tuple[int, int],
    strides: int = 1,
    padding: str = "same",
    name: str | None = None,
) -> KerasTensor:
    x = layers.Conv2D(
        filters, kernel_size, strides=strides, padding=padding, use_bias=False, name=name
    )(x)
    x = layers.BatchNormalization(
        axis=channel_axis(), scale=False, name=None if name is None else f"{name}_bn"
    )(x)
    return layers.Activation("relu", name=None if name is None else f"{name}_ac")(x)


def _joined(branches: list[KerasTensor], name: str) -> KerasTensor:
    return layers.Concatenate(axis=channel_axis(), name=name)(branches)
