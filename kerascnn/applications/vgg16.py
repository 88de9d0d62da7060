"""VGG-16."""

from __future__ import annotations

from typing import Any

from kerascnn.applications.documentation import documented
from kerascnn.applications.imagenet_utils import decode_predictions
from kerascnn.applications.network import Network, Shape, Weights
from kerascnn.applications.pixels import like_caffe as preprocess_input
from kerascnn.applications.published import weights as published_weights
from kerascnn.applications.vgg import PAPER, vgg
from kerascnn.models import Model

__all__ = ["VGG16", "decode_predictions", "preprocess_input"]

_WEIGHTS = published_weights(
    "vgg16/vgg16", "64373286793e3c8b2b4e3219cbf3544b", "6d6bbae143d832006294945121d1f1fc"
)


@documented(PAPER, size=224, pixels="prepared by `preprocess_input`")
def VGG16(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "vgg16",
) -> Model:
    """VGG-16: 13 convolutions of 3 x 3 and three dense layers, 138.4 million parameters."""
    return vgg(
        (2, 2, 3, 3, 3),
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
        _WEIGHTS,
    )
