"""DenseNet-121, 169 and 201."""

from __future__ import annotations

from typing import Any

from kerascnn import layers
from kerascnn.applications.documentation import documented
from kerascnn.applications.imagenet_utils import decode_predictions
from kerascnn.applications.network import (
    Network,
    Shape,
    Weights,
    channel_axis,
    channels_of,
    require_channels_last,
)
from kerascnn.applications.pixels import like_torch as preprocess_input
from kerascnn.applications.published import weights as published_weights
from kerascnn.applications.torch_names import DENSENET
from kerascnn.models import Model
from kerascnn.symbolic.keras_tensor import KerasTensor

__all__ = ["DenseNet121", "DenseNet169", "DenseNet201", "decode_predictions", "preprocess_input"]

# How many blocks each of the four stages has.
_BLOCKS = {121: (6, 12, 24, 16), 169: (6, 12, 32, 32), 201: (6, 12, 48, 32)}
_GROWTH = 32
_WEIGHTS = {
    121: published_weights(
        "densenet/densenet121",
        "9d60b8095a5708f2dcce2bca79d332c7",
        "30ee3e1110167f948a6b9946edeeb738",
    ),
    169: published_weights(
        "densenet/densenet169",
        "d699b8f76981ab1b30698df4c175e90b",
        "b8c4d4c20dd625c148057b9ff1c1176b",
    ),
    201: published_weights(
        "densenet/densenet201",
        "1ceb130c1ea1b78c3bf6114dbdfd8807",
        "c13680b51ded0fb44dff2d8f86ac8bb1",
    ),
}
_documented = documented(
    "G. Huang, Z. Liu, L. van der Maaten and K. Weinberger, Densely Connected Convolutional\n"
    "    Networks, 2016, arXiv:1608.06993.",
    size=224,
    pixels="prepared by `preprocess_input`",
)


@_documented
def DenseNet121(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "densenet121",
) -> Model:
    """DenseNet-121: 121 layers that read all before them in a stage, 8.1 million parameters."""
    return _densenet(
        121,
        Network(
            include_top,
            weights,
            input_tensor,
            input_shape,
            pooling,
            classes,
            classifier_activation,
            name,
        ),
    )


@_documented
def DenseNet169(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "densenet169",
) -> Model:
    """DenseNet-169: 169 layers that read all before them in a stage, 14.3 million parameters."""
    return _densenet(
        169,
        Network(
            include_top,
            weights,
            input_tensor,
            input_shape,
            pooling,
            classes,
            classifier_activation,
            name,
        ),
    )


@_documented
def DenseNet201(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "densenet201",
) -> Model:
    """DenseNet-201: 201 layers that read all before them in a stage, 20.2 million parameters."""
    return _densenet(
        201,
        Network(
            include_top,
            weights,
            input_tensor,
            input_shape,
            pooling,
            classes,
            classifier_activation,
            name,
        ),
    )


def _densenet(depth: int, network: Network) -> Model:
    require_channels_last("DenseNet")
    x = image = network.image(224, _WEIGHTS[depth])
    x = layers.ZeroPadding2D(3)(x)
    x = layers.Conv2D(64, 7, strides=2, use_bias=False, name="conv1_conv")(x)
    x = _relu(x, "conv1_bn", "conv1_relu")
    x = layers.ZeroPadding2D(1)(x)
    x = layers.MaxPooling2D(3, strides=2, name="pool1")(x)
    for stage, blocks in enumerate(_BLOCKS[depth], 2):
        for i in range(1, blocks + 1):
            x = _block(x, f"conv{stage}_block{i}")
        if stage < 5:
            x = _transition(x, f"pool{stage}")
    x = _relu(x, "bn", "relu")
    return network.model(network.end(x), image, DENSENET)


def _block(x: KerasTensor, name: str) -> KerasTensor:
    """Puts new maps beside those there are."""
    new = _relu(x, f"{name}_0_bn", f"{name}_0_relu")
    new = layers.Conv2D(4 * _GROWTH, 1, use_bias=False, name=f"{name}_1_conv")(new)
    new = _relu(new, f"{name}_1_bn", f"{name}_1_relu")
    new = layers.Conv2D(_GROWTH, 3, padding="same", use_bias=False, name=f"{name}_2_conv")(new)
    return layers.Concatenate(axis=channel_axis(), name=f"{name}_concat")([x, new])


def _transition(x: KerasTensor, name: str) -> KerasTensor:
    """Half as many maps of half the size."""
    x = _relu(x, f"{name}_bn", f"{name}_relu")
    half = channels_of(x) // 2
    x = layers.Conv2D(half, 1, use_bias=False, name=f"{name}_conv")(x)
    return layers.AveragePooling2D(2, strides=2, name=f"{name}_pool")(x)


def _relu(x: KerasTensor, normalization: str, activation: str) -> KerasTensor:
    x = layers.BatchNormalization(axis=channel_axis(), epsilon=1.001e-5, name=normalization)(x)
    return layers.Activation("relu", name=activation)(x)
