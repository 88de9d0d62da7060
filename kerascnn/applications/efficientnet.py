"""EfficientNet B0 to B7."""

from __future__ import annotations

import functools
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
from kerascnn.applications.imagenet_utils import DEVIATION, decode_predictions
from kerascnn.applications.network import (
    Network,
    Shape,
    Weights,
    channel_axis,
    channels_of,
    multiple_of,
)
from kerascnn.applications.pixels import unchanged as preprocess_input
from kerascnn.applications.published import weights as published_weights
from kerascnn.applications.torch_inverted_names import efficientnet as torch_names
from kerascnn.models import Model
from kerascnn.symbolic.keras_tensor import KerasTensor

__all__ = [
    "EfficientNetB0",
    "EfficientNetB1",
    "EfficientNetB2",
    "EfficientNetB3",
    "EfficientNetB4",
    "EfficientNetB5",
    "EfficientNetB6",
    "EfficientNetB7",
    "decode_predictions",
    "preprocess_input",
]


class _Size(NamedTuple):
    width: float  # multiplies the numbers of filters
    depth: float  # multiplies the numbers of blocks
    image: int
    dropout: float
    hashes: tuple[str, str]  # of the published weights


_SIZES = {
    "b0": _Size(
        1.0, 1.0, 224, 0.2, ("902e53a9f72be733fc0bcb005b3ebbac", "50bc09e76180e00e4465e1a485ddc09d")
    ),
    "b1": _Size(
        1.0, 1.1, 240, 0.2, ("1d254153d4ab51201f1646940f018540", "74c4e6b3e1f6a1eea24c589628592432")
    ),
    "b2": _Size(
        1.1, 1.2, 260, 0.3, ("b15cce36ff4dcbd00b6dd88e7857a6ad", "111f8e2ac8aa800a7a99e3239f7bfb39")
    ),
    "b3": _Size(
        1.2, 1.4, 300, 0.3, ("ffd1fdc53d0ce67064dc6a9c7960ede0", "af6d107764bb5b1abb91932881670226")
    ),
    "b4": _Size(
        1.4, 1.8, 380, 0.4, ("18c95ad55216b8f92d7e70b3a046e2fc", "ebc24e6d6c33eaebbd558eafbeedf1ba")
    ),
    "b5": _Size(
        1.6, 2.2, 456, 0.4, ("ace28f2a6363774853a83a0b21b9421a", "38879255a25d3c92d5e44e04ae6cec6f")
    ),
    "b6": _Size(
        1.8, 2.6, 528, 0.5, ("165f6e37dce68623721b423839de8be5", "9ecce42647a20130c1f39a5d4cb75743")
    ),
    "b7": _Size(
        2.0, 3.1, 600, 0.5, ("8c03f828fec3ef71311cd463b6759d99", "cbcfe4450ddf6f3ad90b1b398090fe4a")
    ),
}
# The stages: window, blocks, filters, expansion, and the stride of the first block.
_STAGES = (
    (3, 1, 16, 1, 1),
    (3, 2, 24, 6, 2),
    (5, 2, 40, 6, 2),
    (3, 3, 80, 6, 2),
    (5, 3, 112, 6, 1),
    (5, 4, 192, 6, 2),
    (3, 1, 320, 6, 1),
)
_DROP_RATE = 0.2  # of the last block; those before it drop less
_PAPER = (
    "M. Tan and Q. Le, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks,\n"
    "    2019, arXiv:1905.11946."
)


def _documented(size: str) -> Any:
    return documented(
        _PAPER,
        size=_SIZES[size].image,
        pixels="from 0 to 255",
        options="""
        variant: "torchvision" or "timm" for the network of there, whose files of weights `weights`
            takes: convolutions of stride 2 have zeros on all sides, epsilon is 1e-5 (B5 to B7 in
            torchvision: 1e-3), and pixels are prepared as by PyTorch's networks. timm's networks
            whose names begin with "tf_" are those of "keras".""",
    )


@_documented("b0")
def EfficientNetB0(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "efficientnetb0",
    variant: str = "keras",
) -> Model:
    """EfficientNet B0: the smallest, 5.3 million parameters."""
    return _efficientnet(
        "b0",
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


@_documented("b1")
def EfficientNetB1(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "efficientnetb1",
    variant: str = "keras",
) -> Model:
    """EfficientNet B1: 7.9 million parameters."""
    return _efficientnet(
        "b1",
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


@_documented("b2")
def EfficientNetB2(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "efficientnetb2",
    variant: str = "keras",
) -> Model:
    """EfficientNet B2: 9.2 million parameters."""
    return _efficientnet(
        "b2",
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


@_documented("b3")
def EfficientNetB3(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "efficientnetb3",
    variant: str = "keras",
) -> Model:
    """EfficientNet B3: 12.3 million parameters."""
    return _efficientnet(
        "b3",
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


@_documented("b4")
def EfficientNetB4(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "efficientnetb4",
    variant: str = "keras",
) -> Model:
    """EfficientNet B4: 19.5 million parameters."""
    return _efficientnet(
        "b4",
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


@_documented("b5")
def EfficientNetB5(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "efficientnetb5",
    variant: str = "keras",
) -> Model:
    """EfficientNet B5: 30.6 million parameters."""
    return _efficientnet(
        "b5",
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


@_documented("b6")
def EfficientNetB6(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "efficientnetb6",
    variant: str = "keras",
) -> Model:
    """EfficientNet B6: 43.3 million parameters."""
    return _efficientnet(
        "b6",
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


@_documented("b7")
def EfficientNetB7(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "efficientnetb7",
    variant: str = "keras",
) -> Model:
    """EfficientNet B7: 66.7 million parameters."""
    return _efficientnet(
        "b7",
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


def _efficientnet(kind: str, network: Network) -> Model:
    size = _SIZES[kind]
    norm = functools.partial(normalized, epsilon=_epsilon(kind, network))
    published = published_weights(
        f"https://storage.googleapis.com/keras-applications/efficientnet{kind}",
        *size.hashes,
        (".h5", "_notop.h5"),
    )
    image = network.image(size.image, published)
    if network.is_of_keras:
        x = layers.Normalization(axis=channel_axis())(layers.Rescaling(1 / 255)(image))
    else:
        x = network.prepared(image)
    if network.takes_imagenet:  # the published weights were trained with these factors
        x = layers.Rescaling([1 / math.sqrt(deviation) for deviation in DEVIATION])(x)
    x = layers.ZeroPadding2D(network.before_stride(x, 3), name="stem_conv_pad")(x)
    x = convolution(x, _filters(32, size), 3, "stem_conv", strides=2, padding="valid")
    x = swish(norm(x, "stem_bn"), "stem_activation")
    stages = [(*stage, math.ceil(size.depth * stage[1])) for stage in _STAGES]
    total, done = sum(stage[-1] for stage in stages), 0
    for number, (window, _, filters, expansion, first_stride, blocks) in enumerate(stages, 1):
        for i in range(blocks):
            name = f"block{number}{chr(ord('a') + i)}_"
            stride, drop = first_stride if i == 0 else 1, _DROP_RATE * done / total
            step = _Step(_filters(filters, size), window, stride, expansion, drop)
            x = _block(x, step, network, norm, name)
            done += 1
    x = convolution(x, _filters(1280, size), 1, "top_conv")
    x = swish(norm(x, "top_bn"), "top_activation")
    x = network.end(x, dropout=size.dropout, kernel_initializer=classifier())
    return network.model(x, image, torch_names(len(_STAGES)))


def _filters(filters: int, size: _Size) -> int:
    return multiple_of(filters * size.width)


def _epsilon(kind: str, network: Network) -> float:
    is_large = network.variant == "torchvision" and kind in ("b5", "b6", "b7")
    return 1e-3 if network.is_of_keras or is_large else 1e-5


class _Step(NamedTuple):
    filters: int
    window: int
    stride: int
    expansion: int
    drop: float  # the rate in training


def _block(
    x: KerasTensor, step: _Step, network: Network, norm: Callable[..., KerasTensor], name: str
) -> KerasTensor:
    """Widens the maps, filters each, weighs them, and narrows them again."""
    filters, window, stride, expansion, drop = step
    inputs, channels = x, channels_of(x)
    if expansion != 1:
        x = convolution(x, channels * expansion, 1, f"{name}expand_conv")
        x = swish(norm(x, f"{name}expand_bn"), f"{name}expand_activation")
    if stride == 2:
        x = layers.ZeroPadding2D(network.before_stride(x, window), name=f"{name}dwconv_pad")(x)
    x = layers.DepthwiseConv2D(
        window,
        strides=stride,
        padding="same" if stride == 1 else "valid",
        use_bias=False,
        depthwise_initializer=kernels(),
        name=f"{name}dwconv",
    )(x)
    x = swish(norm(x, f"{name}bn"), f"{name}activation")
    x = squeezed(x, max(1, channels // 4), name)
    x = norm(convolution(x, filters, 1, f"{name}project_conv"), f"{name}project_bn")
    if stride == 1 and channels == filters:
        x = joined(x, inputs, drop, name)
    return x
