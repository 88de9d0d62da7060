"""ResNet-50, 101 and 152 of Keras, and ResNet-18 and 34, which Keras lacks."""

from __future__ import annotations

from typing import Any

from kerascnn import layers
from kerascnn.applications.documentation import documented
from kerascnn.applications.imagenet_utils import decode_predictions
from kerascnn.applications.network import Network, Shape, Weights, channel_axis
from kerascnn.applications.pixels import like_caffe as preprocess_input
from kerascnn.applications.published import weights as published_weights
from kerascnn.applications.torch_names import RESNET, RESNET_BASIC
from kerascnn.models import Model
from kerascnn.symbolic.keras_tensor import KerasTensor

__all__ = [
    "ResNet18",
    "ResNet34",
    "ResNet50",
    "ResNet101",
    "ResNet152",
    "decode_predictions",
    "preprocess_input",
]

_PAPER = (
    "K. He, X. Zhang, S. Ren and J. Sun, Deep Residual Learning for Image Recognition, 2015,\n"
    "    arXiv:1512.03385."
)
_EPSILON = 1.001e-5  # of Keras' networks
_EPSILON_HERE = 1e-5  # of the others, as in torchvision
# How many blocks each of the four stages has.
_BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
_FILTERS = (64, 128, 256, 512)
_WEIGHTS = {
    50: published_weights(
        "resnet/resnet50", "2cb95161c43110f7111970584f804107", "4d473c1dd8becc155b73f8504c6f6626"
    ),
    101: published_weights(
        "resnet/resnet101", "f1aeb4b969a6efcfb50fad2f0c20cfc5", "88cf7a10940856eca736dc7b7e228a21"
    ),
    152: published_weights(
        "resnet/resnet152", "100835be76be38e30d865e96f2aaae62", "ee4c566cf9a93f14d82f913c2dc6dd0c"
    ),
}
_documented = documented(
    _PAPER,
    size=224,
    pixels="prepared by `preprocess_input`",
    options="""
        variant: "torchvision" (or "timm", the same) for the network of there, whose files of
            weights `weights` takes: the stride of a block is in its second convolution,
            convolutions have no biases, and epsilon is 1e-5. Its pixels are those of
            `imagenet_utils.preprocess_input(x, mode="torch")`.""",
)
_documented_here = documented(_PAPER, size=224, pixels="of any scale", published=False)


@_documented_here
def ResNet18(
    include_top: bool = True,
    weights: Weights = None,
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "resnet18",
) -> Model:
    """ResNet-18: 18 layers in blocks of two convolutions, 11.7 million parameters."""
    return _basic(
        18,
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


@_documented_here
def ResNet34(
    include_top: bool = True,
    weights: Weights = None,
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "resnet34",
) -> Model:
    """ResNet-34: 34 layers in blocks of two convolutions, 21.8 million parameters."""
    return _basic(
        34,
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
def ResNet50(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "resnet50",
    variant: str = "keras",
) -> Model:
    """ResNet-50: 50 layers in blocks of three convolutions, 25.6 million parameters."""
    return _bottlenecks(
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
            variant,
        ),
    )


@_documented
def ResNet101(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "resnet101",
    variant: str = "keras",
) -> Model:
    """ResNet-101: 101 layers in blocks of three convolutions, 44.7 million parameters."""
    return _bottlenecks(
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
            variant,
        ),
    )


@_documented
def ResNet152(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "resnet152",
    variant: str = "keras",
) -> Model:
    """ResNet-152: 152 layers in blocks of three convolutions, 60.4 million parameters."""
    return _bottlenecks(
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
            variant,
        ),
    )


def _basic(depth: int, network: Network) -> Model:
    x = image = network.image(224, None)
    x = _stem(x, use_bias=False, epsilon=_EPSILON_HERE)
    for stage, blocks in enumerate(_BLOCKS[depth]):
        for i in range(blocks):
            stride = 2 if stage > 0 and i == 0 else 1
            x = _basic_block(x, _FILTERS[stage], stride, f"conv{stage + 2}_block{i + 1}")
    return network.model(network.end(x), image, RESNET_BASIC)


def _bottlenecks(depth: int, network: Network) -> Model:
    x = image = network.image(224, _WEIGHTS[depth])
    block = _block if network.is_of_keras else _block_of_torch
    x = _stem(x, network.is_of_keras, _EPSILON if network.is_of_keras else _EPSILON_HERE)
    for stage, blocks in enumerate(_BLOCKS[depth]):
        for i in range(blocks):
            stride = 2 if stage > 0 and i == 0 else 1
            x = block(x, _FILTERS[stage], stride, i == 0, f"conv{stage + 2}_block{i + 1}")
    return network.model(network.end(x), image, RESNET)


def _stem(x: KerasTensor, use_bias: bool, epsilon: float) -> KerasTensor:
    x = layers.ZeroPadding2D(3, name="conv1_pad")(x)
    x = layers.Conv2D(64, 7, strides=2, use_bias=use_bias, name="conv1_conv")(x)
    x = _normalized(x, "conv1_bn", epsilon)
    x = layers.Activation("relu", name="conv1_relu")(x)
    x = layers.ZeroPadding2D(1, name="pool1_pad")(x)
    return layers.MaxPooling2D(3, strides=2, name="pool1_pool")(x)


def _block(x: KerasTensor, filters: int, stride: int, is_first: bool, name: str) -> KerasTensor:
    """Three convolutions beside a shortcut, which the first block of a stage projects."""
    shortcut = x
    if is_first:
        shortcut = layers.Conv2D(4 * filters, 1, strides=stride, name=f"{name}_0_conv")(x)
        shortcut = _normalized(shortcut, f"{name}_0_bn")
    x = layers.Conv2D(filters, 1, strides=stride, name=f"{name}_1_conv")(x)
    x = _normalized(x, f"{name}_1_bn")
    x = layers.Activation("relu", name=f"{name}_1_relu")(x)
    x = layers.Conv2D(filters, 3, padding="same", name=f"{name}_2_conv")(x)
    x = _normalized(x, f"{name}_2_bn")
    x = layers.Activation("relu", name=f"{name}_2_relu")(x)
    x = layers.Conv2D(4 * filters, 1, name=f"{name}_3_conv")(x)
    x = _normalized(x, f"{name}_3_bn")
    x = layers.Add(name=f"{name}_add")([shortcut, x])
    return layers.Activation("relu", name=f"{name}_out")(x)


def _block_of_torch(
    x: KerasTensor, filters: int, stride: int, is_first: bool, name: str
) -> KerasTensor:
    """The same with the stride in the second convolution, and without biases."""
    shortcut = x
    if is_first:
        shortcut = _without_bias(x, 4 * filters, 1, stride, f"{name}_0")
    x = layers.Activation("relu", name=f"{name}_1_relu")(
        _without_bias(x, filters, 1, 1, f"{name}_1")
    )
    x = layers.ZeroPadding2D(1, name=f"{name}_2_pad")(x)
    x = layers.Activation("relu", name=f"{name}_2_relu")(
        _without_bias(x, filters, 3, stride, f"{name}_2")
    )
    x = _without_bias(x, 4 * filters, 1, 1, f"{name}_3")
    x = layers.Add(name=f"{name}_add")([shortcut, x])
    return layers.Activation("relu", name=f"{name}_out")(x)


def _without_bias(
    x: KerasTensor, filters: int, kernel_size: int, stride: int, name: str
) -> KerasTensor:
    """A convolution and its normalization, as in torchvision."""
    x = layers.Conv2D(filters, kernel_size, strides=stride, use_bias=False, name=f"{name}_conv")(x)
    return _normalized(x, f"{name}_bn", _EPSILON_HERE)


def _basic_block(x: KerasTensor, filters: int, stride: int, name: str) -> KerasTensor:
    """Two convolutions without biases, padded by one pixel on all sides, as in torchvision."""
    shortcut = x
    if stride != 1:
        shortcut = _without_bias(x, filters, 1, stride, f"{name}_0")
    for i, step in ((1, stride), (2, 1)):
        x = layers.ZeroPadding2D(1, name=f"{name}_{i}_pad")(x)
        x = _without_bias(x, filters, 3, step, f"{name}_{i}")
        if i == 1:
            x = layers.Activation("relu", name=f"{name}_1_relu")(x)
    x = layers.Add(name=f"{name}_add")([shortcut, x])
    return layers.Activation("relu", name=f"{name}_out")(x)


def _normalized(x: KerasTensor, name: str, epsilon: float = _EPSILON) -> KerasTensor:
    return layers.BatchNormalization(axis=channel_axis(), epsilon=epsilon, name=name)(x)
