"""EfficientNet V2, B0 to B3, S, M and L."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from kerascnn import layers
from kerascnn.applications.documentation import documented
from kerascnn.applications.efficient_blocks import (
    classifier,
    convolution,
    joined,
    kernels,
    normalized,
    squeezed,
    swish,
)
from kerascnn.applications.imagenet_utils import DEVIATION, MEAN, decode_predictions
from kerascnn.applications.network import Network, Shape, Weights, channel_axis, channels_of
from kerascnn.applications.pixels import unchanged as preprocess_input
from kerascnn.applications.published import weights as published_weights
from kerascnn.applications.torch_inverted_names import efficientnet as torch_names
from kerascnn.models import Model
from kerascnn.symbolic.keras_tensor import KerasTensor

__all__ = [
    "EfficientNetV2B0",
    "EfficientNetV2B1",
    "EfficientNetV2B2",
    "EfficientNetV2B3",
    "EfficientNetV2L",
    "EfficientNetV2M",
    "EfficientNetV2S",
    "decode_predictions",
    "preprocess_input",
]


class _Stage(NamedTuple):
    blocks: int
    filters: int
    expansion: int
    stride: int  # of the first block
    is_fused: bool  # whether a whole convolution does what a depthwise and a 1 x 1 one do


_B = (
    _Stage(1, 16, 1, 1, True),
    _Stage(2, 32, 4, 2, True),
    _Stage(2, 48, 4, 2, True),
    _Stage(3, 96, 4, 2, False),
    _Stage(5, 112, 6, 1, False),
    _Stage(8, 192, 6, 2, False),
)
_S = (
    _Stage(2, 24, 1, 1, True),
    _Stage(4, 48, 4, 2, True),
    _Stage(4, 64, 4, 2, True),
    _Stage(6, 128, 4, 2, False),
    _Stage(9, 160, 6, 1, False),
    _Stage(15, 256, 6, 2, False),
)
_M = (
    _Stage(3, 24, 1, 1, True),
    _Stage(5, 48, 4, 2, True),
    _Stage(5, 80, 4, 2, True),
    _Stage(7, 160, 4, 2, False),
    _Stage(14, 176, 6, 1, False),
    _Stage(18, 304, 6, 2, False),
    _Stage(5, 512, 6, 1, False),
)
_L = (
    _Stage(4, 32, 1, 1, True),
    _Stage(7, 64, 4, 2, True),
    _Stage(7, 96, 4, 2, True),
    _Stage(10, 192, 4, 2, False),
    _Stage(19, 224, 6, 1, False),
    _Stage(25, 384, 6, 2, False),
    _Stage(7, 640, 6, 1, False),
)


class _Size(NamedTuple):
    width: float  # multiplies the numbers of filters
    depth: float  # multiplies the numbers of blocks
    image: int
    stem: int
    stages: tuple[_Stage, ...]
    hashes: tuple[str, str]  # of the published weights


_SIZES = {
    "b0": _Size(
        1.0,
        1.0,
        224,
        32,
        _B,
        ("21ecbf6da12460d5c40bb2f29ceb2188", "893217f2bb855e2983157299931e43ff"),
    ),
    "b1": _Size(
        1.0,
        1.1,
        240,
        32,
        _B,
        ("069f0534ff22adf035c89e2d9547a9dc", "0e80663031ca32d657f9caa404b6ec37"),
    ),
    "b2": _Size(
        1.1,
        1.2,
        260,
        32,
        _B,
        ("424e49f28180edbde1e94797771950a7", "1dfe2e7a5d45b6632553a8961ea609eb"),
    ),
    "b3": _Size(
        1.2,
        1.4,
        300,
        32,
        _B,
        ("1f1fc43bd98a6e4fd8fdfd551e02c7a0", "f6abf7b5849ac99a89b50dd3fd532856"),
    ),
    "s": _Size(
        1.0,
        1.0,
        384,
        24,
        _S,
        ("e1d88a8495beba45748fedd0cecbe016", "af0682fb74e8c54910f2d4393339c070"),
    ),
    "m": _Size(
        1.0,
        1.0,
        480,
        24,
        _M,
        ("a3bf6aa3276309f4fc6a34aa114c95cd", "1b8dc055df72dde80d614482840fe342"),
    ),
    "l": _Size(
        1.0,
        1.0,
        480,
        32,
        _L,
        ("27e6d408b53c7ebc868fefa357689935", "b0b66b5c863aef5b46e8608fe1711615"),
    ),
}
_DROP_RATE = 0.2  # before the classifier, and in the last block; those before it drop less
_MOMENTUM = 0.9
_PAPER = (
    "M. Tan and Q. Le, EfficientNetV2: Smaller Models and Faster Training, 2021,\n"
    "    arXiv:2104.00298."
)
_OPTIONS = """
        include_preprocessing: Whether the network prepares pixels from 0 to 255 itself. Otherwise
            it takes what that gives: ImageNet's mean 0 and deviation 1 (B0 to B3), or -1 to 1."""


_VARIANT = """
        variant: "torchvision" or "timm" for the network of there, whose files of weights `weights`
            takes: convolutions of stride 2 have zeros on all sides, epsilon is 1e-3 or 1e-5, and
            pixels are prepared as by `imagenet_utils.preprocess_input(x, mode="torch")`. timm's
            networks whose names begin with "tf_" are those of "keras"."""


def _documented(size: str) -> Any:
    options = _OPTIONS if size.startswith("b") else _OPTIONS + _VARIANT
    return documented(_PAPER, size=_SIZES[size].image, pixels="from 0 to 255", options=options)


@_documented("b0")
def EfficientNetV2B0(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    include_preprocessing: bool = True,
    name: str = "efficientnetv2-b0",
) -> Model:
    """EfficientNet V2 B0: 7.2 million parameters."""
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
    return _efficientnet("b0", include_preprocessing, network)


@_documented("b1")
def EfficientNetV2B1(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    include_preprocessing: bool = True,
    name: str = "efficientnetv2-b1",
) -> Model:
    """EfficientNet V2 B1: 8.2 million parameters."""
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
    return _efficientnet("b1", include_preprocessing, network)


@_documented("b2")
def EfficientNetV2B2(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    include_preprocessing: bool = True,
    name: str = "efficientnetv2-b2",
) -> Model:
    """EfficientNet V2 B2: 10.2 million parameters."""
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
    return _efficientnet("b2", include_preprocessing, network)


@_documented("b3")
def EfficientNetV2B3(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    include_preprocessing: bool = True,
    name: str = "efficientnetv2-b3",
) -> Model:
    """EfficientNet V2 B3: 14.5 million parameters."""
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
    return _efficientnet("b3", include_preprocessing, network)


@_documented("s")
def EfficientNetV2S(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    include_preprocessing: bool = True,
    name: str = "efficientnetv2-s",
    variant: str = "keras",
) -> Model:
    """EfficientNet V2 S: 21.6 million parameters."""
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
    return _efficientnet("s", include_preprocessing, network)


@_documented("m")
def EfficientNetV2M(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    include_preprocessing: bool = True,
    name: str = "efficientnetv2-m",
    variant: str = "keras",
) -> Model:
    """EfficientNet V2 M: 54.4 million parameters."""
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
    return _efficientnet("m", include_preprocessing, network)


@_documented("l")
def EfficientNetV2L(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    include_preprocessing: bool = True,
    name: str = "efficientnetv2-l",
    variant: str = "keras",
) -> Model:
    """EfficientNet V2 L: 119.0 million parameters."""
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
    return _efficientnet("l", include_preprocessing, network)


def _efficientnet(kind: str, include_preprocessing: bool, network: Network) -> Model:
    size = _SIZES[kind]
    published = published_weights(
        f"efficientnet_v2/efficientnetv2-{kind}", *size.hashes, (".h5", "_notop.h5")
    )
    x = image = network.image(size.image, published)
    if include_preprocessing:
        x = _prepared(x, kind) if network.is_of_keras else network.prepared(x)
    x = _windows(x, convolution, _filters(size.stem, size), 2, "stem_conv", network)
    x = swish(_normalized(x, "stem_bn", network), "stem_activation")
    # Keras counts the blocks of the table here, and not those of deeper networks.
    total, done = sum(stage.blocks for stage in size.stages), 0
    for number, stage in enumerate(size.stages, 1):
        stage = stage._replace(filters=_filters(stage.filters, size))
        for i in range(math.ceil(size.depth * stage.blocks)):
            block = _fused_block if stage.is_fused else _block
            name = f"block{number}{chr(ord('a') + i)}_"
            x = block(x, stage, _DROP_RATE * done / total, name, network)
            stage = stage._replace(stride=1)
            done += 1
    x = convolution(x, _filters(1280, size), 1, "top_conv")
    x = swish(_normalized(x, "top_bn", network), "top_activation")
    x = network.end(x, dropout=_DROP_RATE, kernel_initializer=classifier())
    return network.model(x, image, torch_names(len(size.stages)))


def _prepared(x: KerasTensor, kind: str) -> KerasTensor:
    if kind.startswith("b") and x.shape[channel_axis()] == 3:
        x = layers.Rescaling(1 / 255)(x)
        variance = [deviation**2 for deviation in DEVIATION]
        return layers.Normalization(mean=MEAN, variance=variance, axis=channel_axis())(x)
    return layers.Rescaling(1 / 128, offset=-1)(x)


def _filters(filters: int, size: _Size) -> int:
    """The nearest multiple of 8, which may be more than a tenth smaller."""
    return max(8, int(filters * size.width + 4) // 8 * 8)


def _windows(
    x: KerasTensor,
    convolve: Callable[..., KerasTensor],
    filters: int,
    stride: int,
    name: str,
    network: Network,
) -> KerasTensor:
    """A convolution with a window of 3 pixels, padded as the variant has it."""
    if stride == 1 or network.is_of_keras:
        return convolve(x, filters, 3, name, strides=stride)
    x = layers.ZeroPadding2D(network.before_stride(x, 3), name=f"{name}_pad")(x)
    return convolve(x, filters, 3, name, strides=stride, padding="valid")


def _depthwise(x: KerasTensor, _: int, window: int, name: str, **options: Any) -> KerasTensor:
    settings: dict[str, Any] = {"padding": "same", "use_bias": False, **options}
    return layers.DepthwiseConv2D(window, depthwise_initializer=kernels(), name=name, **settings)(x)


def _normalized(x: KerasTensor, name: str, network: Network) -> KerasTensor:
    return normalized(x, name, _MOMENTUM, 1e-5 if network.variant == "timm" else 1e-3)


def _block(x: KerasTensor, stage: _Stage, drop: float, name: str, network: Network) -> KerasTensor:
    """Widens the maps, filters each, weighs them, and narrows them again."""
    inputs, channels = x, channels_of(x)
    x = convolution(x, channels * stage.expansion, 1, f"{name}expand_conv")
    x = swish(_normalized(x, f"{name}expand_bn", network), f"{name}expand_activation")
    x = _windows(x, _depthwise, 0, stage.stride, f"{name}dwconv2", network)
    x = swish(_normalized(x, f"{name}bn", network), f"{name}activation")
    x = squeezed(x, max(1, channels // 4), name)
    x = convolution(x, stage.filters, 1, f"{name}project_conv")
    x = _normalized(x, f"{name}project_bn", network)
    if stage.stride == 1 and channels == stage.filters:
        x = joined(x, inputs, drop, name)
    return x


def _fused_block(
    x: KerasTensor, stage: _Stage, drop: float, name: str, network: Network
) -> KerasTensor:
    """Widens and filters the maps at once, and narrows them again."""
    inputs, channels = x, channels_of(x)
    if stage.expansion == 1:
        x = _windows(x, convolution, stage.filters, stage.stride, f"{name}project_conv", network)
        x = swish(_normalized(x, f"{name}project_bn", network), f"{name}project_activation")
    else:
        width = channels * stage.expansion
        x = _windows(x, convolution, width, stage.stride, f"{name}expand_conv", network)
        x = swish(_normalized(x, f"{name}expand_bn", network), f"{name}expand_activation")
        x = convolution(x, stage.filters, 1, f"{name}project_conv")
        x = _normalized(x, f"{name}project_bn", network)
    if stage.stride == 1 and channels == stage.filters:
        x = joined(x, inputs, drop, name)
    return x
