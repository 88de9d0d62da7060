"""MobileNet V2."""

from __future__ import annotations

from typing import Any

from kerascnn import layers
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
    sides_of,
    warn_of_other_size,
)
from kerascnn.applications.pixels import from_minus_one_to_one as preprocess_input
from kerascnn.applications.published import KERAS_APPLICATIONS, Published
from kerascnn.applications.published import Weights as PublishedWeights
from kerascnn.applications.torch_inverted_names import MOBILENET_V2
from kerascnn.models import Model
from kerascnn.symbolic.keras_tensor import KerasTensor

__all__ = ["MobileNetV2", "decode_predictions", "preprocess_input"]

# The stages: filters, blocks, and the stride of the first block.
_STAGES = (
    *((16, 1, 1), (24, 2, 2), (32, 3, 2), (64, 4, 2)),
    *((96, 3, 1), (160, 3, 2), (320, 1, 1)),
)
_EXPANSION = 6
_SIZES = (96, 128, 160, 192, 224)
_ALPHAS = (0.35, 0.5, 0.75, 1.0, 1.3, 1.4)
_documented = documented(
    "M. Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks, 2018,\n"
    "    arXiv:1801.04381.",
    size=224,
    pixels="prepared by `preprocess_input`",
    options="""
        alpha: Multiplies the numbers of filters, except that of the last convolution below 1.
        variant: "torchvision" (or "timm", the same) for the network of there, whose files of
            weights `weights` takes: convolutions of stride 2 have zeros on all sides, and epsilon
            is 1e-5. Its pixels are those of `imagenet_utils.preprocess_input(x, mode="torch")`.""",
)


@_documented
def MobileNetV2(
    input_shape: Shape = None,
    alpha: float = 1.0,
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str | None = None,
    variant: str = "keras",
) -> Model:
    """MobileNet V2: narrow maps between blocks that widen them, 3.5 million parameters."""
    shape = input_shape
    if shape is None and input_tensor is not None:
        shape = tuple(getattr(input_tensor, "shape", (None,) * 4))[1:]
    rows, columns, size = sides_of(shape, _SIZES, 224)
    published = None
    if weights == "imagenet":
        published = _published(alpha, size)
    network = Network(
        include_top,
        weights,
        input_tensor,
        input_shape,
        pooling,
        classes,
        classifier_activation,
        name or f"mobilenetv2_{alpha:0.2f}_{rows or size}",
        variant,
    )
    image = network.image(size, published)
    if published is not None and not include_top:
        warn_of_other_size((rows, columns), _SIZES)
    x = first_convolution(network, image, multiple_of(32 * alpha), "Conv1", use_bias=False)
    x = layers.ReLU(6.0, name="Conv1_relu")(_normalized(x, "bn_Conv1", network))
    index = 0
    for filters, blocks, first_stride in _STAGES:
        for i in range(blocks):
            stride = first_stride if i == 0 else 1
            x = _block(x, multiple_of(int(filters * alpha)), stride, index, network)
            index += 1
    x = layers.Conv2D(multiple_of(1280 * max(alpha, 1.0)), 1, use_bias=False, name="Conv_1")(x)
    x = layers.ReLU(6.0, name="out_relu")(_normalized(x, "Conv_1_bn", network))
    if include_top:
        x = network.classified(layers.GlobalAveragePooling2D()(x))
    else:
        x = network.pooled(x, is_named=False)
    return network.model(x, image, MOBILENET_V2)


def _block(x: KerasTensor, filters: int, stride: int, index: int, network: Network) -> KerasTensor:
    """Widens the maps (but for the first block), filters each, and narrows them again."""
    inputs, channels = x, channels_of(x)
    name = f"block_{index}" if index else "expanded_conv"
    if index:
        x = layers.Conv2D(
            _EXPANSION * channels, 1, padding="same", use_bias=False, name=f"{name}_expand"
        )(x)
        x = layers.ReLU(6.0, name=f"{name}_expand_relu")(
            _normalized(x, f"{name}_expand_BN", network)
        )
    if stride == 2:
        x = layers.ZeroPadding2D(network.before_stride(x, 3), name=f"{name}_pad")(x)
    x = layers.DepthwiseConv2D(
        3,
        strides=stride,
        padding="same" if stride == 1 else "valid",
        use_bias=False,
        name=f"{name}_depthwise",
    )(x)
    x = _normalized(x, f"{name}_depthwise_BN", network)
    x = layers.ReLU(6.0, name=f"{name}_depthwise_relu")(x)
    x = layers.Conv2D(filters, 1, padding="same", use_bias=False, name=f"{name}_project")(x)
    x = _normalized(x, f"{name}_project_BN", network)
    if channels == filters and stride == 1:
        x = layers.Add(name=f"{name}_add")([inputs, x])
    return x


def _normalized(x: KerasTensor, name: str, network: Network) -> KerasTensor:
    epsilon = 1e-3 if network.is_of_keras else 1e-5
    return layers.BatchNormalization(
        axis=last_or_first_axis(), epsilon=epsilon, momentum=0.999, name=name
    )(x)


def _published(alpha: float, size: int) -> PublishedWeights:
    if alpha not in _ALPHAS:
        raise ValueError(
            f"MobileNetV2: there are published weights for alpha in {list(_ALPHAS)}. Received: "
            f"alpha={alpha}"
        )
    start = (
        f"{KERAS_APPLICATIONS}mobilenet_v2/mobilenet_v2_weights_tf_dim_ordering_tf_kernels_"
        f"{float(alpha)}_{size}"
    )
    return PublishedWeights(Published(f"{start}.h5", None), Published(f"{start}_no_top.h5", None))
