"""MobileNet."""

from __future__ import annotations

from typing import Any

from kerascnn import layers
from kerascnn.applications.documentation import documented
from kerascnn.applications.imagenet_utils import decode_predictions
from kerascnn.applications.network import (
    Network,
    Shape,
    Weights,
    last_or_first_axis,
    sides_of,
    warn_of_other_size,
)
from kerascnn.applications.pixels import from_minus_one_to_one as preprocess_input
from kerascnn.applications.published import KERAS_APPLICATIONS, Published
from kerascnn.applications.published import Weights as PublishedWeights
from kerascnn.models import Model
from kerascnn.symbolic.keras_tensor import KerasTensor

__all__ = ["MobileNet", "decode_predictions", "preprocess_input"]

# The blocks: their numbers of filters and strides.
_BLOCKS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1)),
)
# Weights are published for these sizes and multiples; their files are named by the latter so.
_SIZES = (128, 160, 192, 224)
_ALPHAS = {0.25: "2_5", 0.5: "5_0", 0.75: "7_5", 1.0: "1_0"}
_documented = documented(
    "A. Howard et al., MobileNets: Efficient Convolutional Neural Networks for Mobile Vision\n"
    "    Applications, 2017, arXiv:1704.04861.",
    size=224,
    pixels="prepared by `preprocess_input`",
    options="""
        alpha: Multiplies the numbers of filters.
        depth_multiplier: Filters for each channel in depthwise convolutions.
        dropout: Rate of the dropout before the classifier.""",
)


@_documented
def MobileNet(
    input_shape: Shape = None,
    alpha: float = 1.0,
    depth_multiplier: int = 1,
    dropout: float = 0.001,
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str | None = None,
) -> Model:
    """MobileNet: depthwise and 1 x 1 convolutions by turns, 4.3 million parameters."""
    rows, columns, size = sides_of(input_shape, _SIZES, 224)
    published = None
    if weights == "imagenet":
        published = _published(alpha, depth_multiplier, size)
    network = Network(
        include_top,
        weights,
        input_tensor,
        input_shape,
        pooling,
        classes,
        classifier_activation,
        name or f"mobilenet_{alpha:0.2f}_{rows or size}",
    )
    image = network.image(size, published)
    if published is not None and not include_top:
        warn_of_other_size((rows, columns), _SIZES)
    x = layers.Conv2D(int(32 * alpha), 3, strides=2, padding="same", use_bias=False, name="conv1")(
        image
    )
    x = _relu(x, "conv1")
    for i, (filters, stride) in enumerate(_BLOCKS, 1):
        x = _block(x, int(filters * alpha), depth_multiplier, stride, i)
    if include_top:
        x = layers.GlobalAveragePooling2D(keepdims=True)(x)
        x = layers.Dropout(dropout, name="dropout")(x)
        x = layers.Conv2D(classes, 1, padding="same", name="conv_preds")(x)
        x = layers.Reshape((classes,), name="reshape_2")(x)
        x = layers.Activation(network.checked_activation(), name="predictions")(x)
    else:
        x = network.pooled(x, is_named=False)
    return network.model(x, image)


def _block(
    x: KerasTensor, filters: int, depth_multiplier: int, stride: int, index: int
) -> KerasTensor:
    if stride == 2:
        x = layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"conv_pad_{index}")(x)
    x = layers.DepthwiseConv2D(
        3,
        strides=stride,
        padding="same" if stride == 1 else "valid",
        depth_multiplier=depth_multiplier,
        use_bias=False,
        name=f"conv_dw_{index}",
    )(x)
    x = _relu(x, f"conv_dw_{index}")
    x = layers.Conv2D(filters, 1, padding="same", use_bias=False, name=f"conv_pw_{index}")(x)
    return _relu(x, f"conv_pw_{index}")


def _relu(x: KerasTensor, name: str) -> KerasTensor:
    x = layers.BatchNormalization(axis=last_or_first_axis(), name=f"{name}_bn")(x)
    return layers.ReLU(6.0, name=f"{name}_relu")(x)


def _published(alpha: float, depth_multiplier: int, size: int) -> PublishedWeights:
    if depth_multiplier != 1 or alpha not in _ALPHAS:
        raise ValueError(
            f"MobileNet: there are published weights for depth_multiplier=1 and alpha in "
            f"{sorted(_ALPHAS)}. Received: depth_multiplier={depth_multiplier}, alpha={alpha}"
        )
    start = f"{KERAS_APPLICATIONS}mobilenet/mobilenet_{_ALPHAS[alpha]}_{size}_tf"
    return PublishedWeights(Published(f"{start}.h5", None), Published(f"{start}_no_top.h5", None))
