"""ResNet-50, 101 and 152 in their second form, with the normalization before convolutions."""

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

__all__ = ["ResNet50V2", "ResNet101V2", "ResNet152V2", "decode_predictions", "preprocess_input"]

# How many blocks each of the four stages has.
_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_FILTERS = (64, 128, 256, 512)
_WEIGHTS = {
    50: published_weights(
        "resnet/resnet50v2", "3ef43a0b657b3be2300d5770ece849e0", "fac2f116257151a9d068a22e544a4917"
    ),
    101: published_weights(
        "resnet/resnet101v2", "6343647c601c52e1368623803854d971", "c0ed64b8031c3730f411d2eb4eea35b5"
    ),
    152: published_weights(
        "resnet/resnet152v2", "a49b44d1979771252814e80f8ec446f9", "ed17cf2e0169df9d443503ef94b23b33"
    ),
}
_documented = documented(
    "K. He, X. Zhang, S. Ren and J. Sun, Identity Mappings in Deep Residual Networks, 2016,\n"
    "    arXiv:1603.05027.",
    size=224,
    pixels="prepared by `preprocess_input`",
)


@_documented
def ResNet50V2(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "resnet50v2",
) -> Model:
    """ResNet-50 V2: 50 layers, normalized before each convolution, 25.6 million parameters."""
    return _resnet(
        50,
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
def ResNet101V2(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "resnet101v2",
) -> Model:
    """ResNet-101 V2: 101 layers, normalized before each convolution, 44.7 million parameters."""
    return _resnet(
        101,
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
def ResNet152V2(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "resnet152v2",
) -> Model:
    """ResNet-152 V2: 152 layers, normalized before each convolution, 60.4 million parameters."""
    return _resnet(
        152,
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


def _resnet(depth: int, network: Network) -> Model:
    x = image = network.image(224, _WEIGHTS[depth])
    x = layers.ZeroPadding2D(3, name="conv1_pad")(x)
    x = layers.Conv2D(64, 7, strides=2, name="conv1_conv")(x)
    x = layers.ZeroPadding2D(1, name="pool1_pad")(x)
    x = layers.MaxPooling2D(3, strides=2, name="pool1_pool")(x)
    for stage, blocks in enumerate(_BLOCKS[depth]):
        for i in range(blocks):
            # A stage halves its maps at its end, the last one not at all.
            stride = 2 if stage < 3 and i == blocks - 1 else 1
            x = _block(x, _FILTERS[stage], stride, i == 0, f"conv{stage + 2}_block{i + 1}")
    x = _normalized(x, "post_bn")
    x = layers.Activation("relu", name="post_relu")(x)
    return network.model(network.end(x), image)


def _block(x: KerasTensor, filters: int, stride: int, is_first: bool, name: str) -> KerasTensor:
    """Three convolutions beside a shortcut, which the first block of a stage projects."""
    before = _normalized(x, f"{name}_preact_bn")
    before = layers.Activation("relu", name=f"{name}_preact_relu")(before)
    shortcut = x
    if is_first:
        shortcut = layers.Conv2D(4 * filters, 1, strides=stride, name=f"{name}_0_conv")(before)
    elif stride > 1:
        shortcut = layers.MaxPooling2D(1, strides=stride)(x)
    x = layers.Conv2D(filters, 1, use_bias=False, name=f"{name}_1_conv")(before)
    x = _normalized(x, f"{name}_1_bn")
    x = layers.Activation("relu", name=f"{name}_1_relu")(x)
    x = layers.ZeroPadding2D(1, name=f"{name}_2_pad")(x)
    x = layers.Conv2D(filters, 3, strides=stride, use_bias=False, name=f"{name}_2_conv")(x)
    x = _normalized(x, f"{name}_2_bn")
    x = layers.Activation("relu", name=f"{name}_2_relu")(x)
    x = layers.Conv2D(4 * filters, 1, name=f"{name}_3_conv")(x)
    return layers.Add(name=f"{name}_out")([shortcut, x])


def _normalized(x: KerasTensor, name: str) -> KerasTensor:
    return layers.BatchNormalization(axis=channel_axis(), epsilon=1.001e-5, name=name)(x)
