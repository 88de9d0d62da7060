"""WideResNet-28-10 for small images, which Keras lacks."""

from __future__ import annotations

from typing import Any

from kerascnn import layers
from kerascnn.applications.documentation import documented
from kerascnn.applications.imagenet_utils import decode_predictions
from kerascnn.applications.network import Network, Shape, Weights, channel_axis, channels_of
from kerascnn.applications.pixels import like_torch as preprocess_input
from kerascnn.models import Model
from kerascnn.symbolic.keras_tensor import KerasTensor

__all__ = ["WideResNet28_10", "decode_predictions", "preprocess_input"]

_WIDTH = 10
_FILTERS = (16, 32, 64)  # of the stages, to be multiplied by the width
_BLOCKS = 4  # of each stage
_documented = documented(
    "S. Zagoruyko and N. Komodakis, Wide Residual Networks, 2016, arXiv:1605.07146.",
    size=32,
    smallest=8,
    pixels="of any scale",
    published=False,
    options="""
        dropout: Rate of the dropout between the convolutions of a block.""",
)


@_documented
def WideResNet28_10(
    include_top: bool = True,
    weights: Weights = None,
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 10,
    classifier_activation: Any = "softmax",
    dropout: float = 0.0,
    name: str = "wide_resnet28_10",
) -> Model:
    """WideResNet-28-10: few wide layers, for images such as CIFAR's, 36.5 million parameters."""
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
    image = network.image(32, None, smallest=8)
    x = _conv(image, 16, "conv1_conv")
    for stage, filters in enumerate(_FILTERS):
        for i in range(_BLOCKS):
            stride = 2 if stage > 0 and i == 0 else 1
            x = _block(x, _WIDTH * filters, stride, dropout, f"conv{stage + 2}_block{i + 1}")
    x = _relu(x, "post")
    return network.model(network.end(x), image)


def _block(x: KerasTensor, filters: int, stride: int, dropout: float, name: str) -> KerasTensor:
    """Two convolutions, each after a normalization, beside a shortcut."""
    before, shortcut = _relu(x, f"{name}_0"), x
    if channels_of(x) != filters:
        shortcut = layers.Conv2D(
            filters,
            1,
            strides=stride,
            use_bias=False,
            kernel_initializer="he_normal",
            name=f"{name}_0_conv",
        )(before)
    x = _relu(_conv(before, filters, f"{name}_1_conv", stride), f"{name}_1")
    if dropout > 0:
        x = layers.Dropout(dropout, name=f"{name}_drop")(x)
    x = _conv(x, filters, f"{name}_2_conv")
    return layers.Add(name=f"{name}_out")([shortcut, x])


def _conv(x: KerasTensor, filters: int, name: str, stride: int = 1) -> KerasTensor:
    """A convolution padded by one pixel on all sides."""
    x = layers.ZeroPadding2D(1, name=name.replace("_conv", "_pad"))(x)
    return layers.Conv2D(
        filters, 3, strides=stride, use_bias=False, kernel_initializer="he_normal", name=name
    )(x)


def _relu(x: KerasTensor, name: str) -> KerasTensor:
    x = layers.BatchNormalization(
        axis=channel_axis(), momentum=0.9, epsilon=1e-5, name=f"{name}_bn"
    )(x)
    return layers.Activation("relu", name=f"{name}_relu")(x)
