"""MobileNet V3, small and large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kerascnn import layers, ops
from kerascnn.applications.documentation import documented
from kerascnn.applications.imagenet_utils import decode_predictions
from kerascnn.applications.network import (
    Network,
    Shape,
    Weights,
    channels_of,
    first_convolution,
    last_or_first_axis,
    multiple_of,
)
from kerascnn.applications.pixels import unchanged as preprocess_input
from kerascnn.applications.published import Weights as PublishedWeights
from kerascnn.applications.published import weights as published_weights
from kerascnn.applications.torch_inverted_names import MOBILENET_V3_LARGE, MOBILENET_V3_SMALL
from kerascnn.models import Model
from kerascnn.symbolic.keras_tensor import KerasTensor

__all__ = ["MobileNetV3Large", "MobileNetV3Small", "decode_predictions", "preprocess_input"]


class _Block(NamedTuple):
    expansion: float
    filters: int
    kernel_size: int
    stride: int
    is_squeezed: bool  # whether channels are weighed by what they hold on average
    is_hard_swish: bool  # rather than relu


_SMALL = (
    _Block(1, 16, 3, 2, True, False),
    _Block(72 / 16, 24, 3, 2, False, False),
    _Block(88 / 24, 24, 3, 1, False, False),
    _Block(4, 40, 5, 2, True, True),
    _Block(6, 40, 5, 1, True, True),
    _Block(6, 40, 5, 1, True, True),
    _Block(3, 48, 5, 1, True, True),
    _Block(3, 48, 5, 1, True, True),
    _Block(6, 96, 5, 2, True, True),
    _Block(6, 96, 5, 1, True, True),
    _Block(6, 96, 5, 1, True, True),
)
_LARGE = (
    _Block(1, 16, 3, 1, False, False),
    _Block(4, 24, 3, 2, False, False),
    _Block(3, 24, 3, 1, False, False),
    _Block(3, 40, 5, 2, True, False),
    _Block(3, 40, 5, 1, True, False),
    _Block(3, 40, 5, 1, True, False),
    _Block(6, 80, 3, 2, False, True),
    _Block(2.5, 80, 3, 1, False, True),
    _Block(2.3, 80, 3, 1, False, True),
    _Block(2.3, 80, 3, 1, False, True),
    _Block(6, 112, 3, 1, True, True),
    _Block(6, 112, 3, 1, True, True),
    _Block(6, 160, 5, 2, True, True),
    _Block(6, 160, 5, 1, True, True),
    _Block(6, 160, 5, 1, True, True),
)
_HASHES = {
    "large_224_0.75": ("765b44a33ad4005b3ac83185abf1d0eb", "40af19a13ebea4e2ee0c676887f69a2e"),
    "large_224_1.0": ("59e551e166be033d707958cf9e29a6a7", "07fb09a5933dd0c8eaafa16978110389"),
    "large_minimalistic_224_1.0": (
        "675e7b876c45c57e9e63e6d90a36599c",
        "ec5221f64a2f6d1ef965a614bdae7973",
    ),
    "small_224_0.75": ("cb65d4e5be93758266aa0a7f2c6708b7", "ebdb5cc8e0b497cd13a7c275d475c819"),
    "small_224_1.0": ("8768d4c2e7dee89b9d02b2d03d65d862", "d3e8ec802a04aa4fc771ee12a9a9b836"),
    "small_minimalistic_224_1.0": (
        "99cd97fb2fcdad2bf028eb838de69e37",
        "cde8136e733e811080d9fcd8a252f7e4",
    ),
}
_documented = documented(
    "A. Howard et al., Searching for MobileNetV3, 2019, arXiv:1905.02244.",
    size=224,
    sizes=", also of unknown ones",
    pixels="from 0 to 255",
    options="""
        alpha: Multiplies the numbers of filters.
        minimalistic: Whether to leave out what devices are slow at: windows of 5 pixels, hard
            swish, and weights for channels.
        dropout_rate: Rate of the dropout before the classifier.
        include_preprocessing: Whether pixels are from 0 to 255; otherwise from -1 to 1.
        variant: "torchvision" or "timm" for the network of there, whose files of weights `weights`
            takes: convolutions of stride 2 have zeros on all sides, epsilon is 1e-3 or 1e-5, and
            pixels are prepared, or were, as by `imagenet_utils.preprocess_input(x, mode="torch")`.
            timm's networks whose names begin with "tf_" are those of "keras".""",
)


@_documented
def MobileNetV3Small(
    input_shape: Shape = None,
    alpha: float = 1.0,
    minimalistic: bool = False,
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    classes: int = 1000,
    pooling: str | None = None,
    dropout_rate: float = 0.2,
    classifier_activation: Any = "softmax",
    include_preprocessing: bool = True,
    name: str = "MobileNetV3Small",
    variant: str = "keras",
) -> Model:
    """MobileNet V3, the small one: blocks found by search, 2.6 million parameters."""
    network = Network(
        include_top,
        weights,
        input_tensor,
        input_shape,
        pooling,
        classes,
        classifier_activation,
        name,
        variant,
    )
    options = _Options(alpha, minimalistic, dropout_rate, include_preprocessing)
    return _mobilenet("small", _SMALL, 1024, options, network)


@_documented
def MobileNetV3Large(
    input_shape: Shape = None,
    alpha: float = 1.0,
    minimalistic: bool = False,
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    classes: int = 1000,
    pooling: str | None = None,
    dropout_rate: float = 0.2,
    classifier_activation: Any = "softmax",
    include_preprocessing: bool = True,
    name: str = "MobileNetV3Large",
    variant: str = "keras",
) -> Model:
    """MobileNet V3, the large one: blocks found by search, 5.5 million parameters."""
    network = Network(
        include_top,
        weights,
        input_tensor,
        input_shape,
        pooling,
        classes,
        classifier_activation,
        name,
        variant,
    )
    options = _Options(alpha, minimalistic, dropout_rate, include_preprocessing)
    return _mobilenet("large", _LARGE, 1280, options, network)


class _Options(NamedTuple):
    alpha: float
    minimalistic: bool
    dropout_rate: float
    include_preprocessing: bool


def _mobilenet(
    kind: str, blocks: tuple[_Block, ...], features: int, options: _Options, network: Network
) -> Model:
    alpha = options.alpha
    namings = MOBILENET_V3_SMALL if kind == "small" else MOBILENET_V3_LARGE
    published = _published(kind, options, network) if network.takes_imagenet else None
    # Its classifier is a convolution, so that it has no need of known sizes.
    x = image = network.image(224, published, needs_sizes=False)
    activation = _relu if options.minimalistic else _hard_swish
    if options.include_preprocessing:
        rescaling = layers.Rescaling(scale=1 / 127.5, offset=-1.0)
        x = rescaling(x) if network.is_of_keras else network.prepared(x)
    x = first_convolution(network, x, 16, "conv", use_bias=False)
    x = activation(_normalized(x, "conv_bn", network))
    for index, block in enumerate(blocks):
        if options.minimalistic:
            block = block._replace(kernel_size=3, is_squeezed=False, is_hard_swish=False)
        x = _inverted(x, block, multiple_of(block.filters * alpha), index, network)
    filters = multiple_of(channels_of(x) * 6)
    x = layers.Conv2D(filters, 1, padding="same", use_bias=False, name="conv_1")(x)
    x = activation(_normalized(x, "conv_1_bn", network))
    if not network.include_top:
        return network.model(network.pooled(x), image, namings)
    if alpha > 1:
        features = multiple_of(features * alpha)
    x = layers.GlobalAveragePooling2D(keepdims=True)(x)
    x = activation(layers.Conv2D(features, 1, padding="same", name="conv_2")(x))
    if options.dropout_rate > 0:
        x = layers.Dropout(options.dropout_rate)(x)
    x = layers.Conv2D(network.classes, 1, padding="same", name="logits")(x)
    x = layers.Flatten()(x)
    x = layers.Activation(network.checked_activation(), name="predictions")(x)
    return network.model(x, image, namings)


def _inverted(
    x: KerasTensor, block: _Block, filters: int, index: int, network: Network
) -> KerasTensor:
    inputs, channels = x, channels_of(x)
    activation: Callable[[KerasTensor], KerasTensor]
    activation = _hard_swish if block.is_hard_swish else _relu
    name = f"expanded_conv_{index}" if index else "expanded_conv"
    width = multiple_of(channels * block.expansion)
    if index:
        x = layers.Conv2D(width, 1, padding="same", use_bias=False, name=f"{name}_expand")(x)
        x = activation(_normalized(x, f"{name}_expand_bn", network))
    if block.stride == 2:
        padding = network.before_stride(x, block.kernel_size)
        x = layers.ZeroPadding2D(padding, name=f"{name}_depthwise_pad")(x)
    x = layers.DepthwiseConv2D(
        block.kernel_size,
        strides=block.stride,
        padding="same" if block.stride == 1 else "valid",
        use_bias=False,
        name=f"{name}_depthwise",
    )(x)
    x = activation(_normalized(x, f"{name}_depthwise_bn", network))
    if block.is_squeezed:
        x = _squeezed(x, width, f"{name}_squeeze_excite")
    x = layers.Conv2D(filters, 1, padding="same", use_bias=False, name=f"{name}_project")(x)
    x = _normalized(x, f"{name}_project_bn", network)
    if block.stride == 1 and channels == filters:
        x = layers.Add(name=f"{name}_add")([inputs, x])
    return x


def _squeezed(x: KerasTensor, filters: int, name: str) -> KerasTensor:
    """Weighs the channels by a small network of their means."""
    weight = layers.GlobalAveragePooling2D(keepdims=True, name=f"{name}_avg_pool")(x)
    weight = layers.Conv2D(multiple_of(filters * 0.25), 1, padding="same", name=f"{name}_conv")(
        weight
    )
    weight = layers.ReLU(name=f"{name}_relu")(weight)
    weight = layers.Conv2D(filters, 1, padding="same", name=f"{name}_conv_1")(weight)
    weight = ops.multiply(layers.ReLU(6.0)(ops.add(weight, 3.0)), 1 / 6)
    return layers.Multiply(name=f"{name}_mul")([x, weight])


def _normalized(x: KerasTensor, name: str, network: Network) -> KerasTensor:
    epsilon = 1e-5 if network.variant == "timm" else 1e-3
    return layers.BatchNormalization(
        axis=last_or_first_axis(), epsilon=epsilon, momentum=0.999, name=name
    )(x)


def _relu(x: KerasTensor) -> KerasTensor:
    return layers.ReLU()(x)


def _hard_swish(x: KerasTensor) -> KerasTensor:
    return layers.Activation("hard_swish")(x)


def _published(kind: str, options: _Options, network: Network) -> PublishedWeights:
    key = f"{kind}{'_minimalistic' if options.minimalistic else ''}_224_{float(options.alpha)}"
    if key not in _HASHES:
        raise ValueError(
            f"{network.name}: there are published weights for alpha=1.0, and for alpha=0.75 unless "
            f"`minimalistic`. Received: alpha={options.alpha}, minimalistic={options.minimalistic}"
        )
    return published_weights(
        f"mobilenet_v3/weights_mobilenet_v3_{key}_float", *_HASHES[key], (".h5", "_no_top_v2.h5")
    )
