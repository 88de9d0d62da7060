"""VGG-19."""

from __future__ import annotations

from typing import Any

from kerascnn.applications.documentation import documented
from kerascnn.applications.imagenet_utils import decode_predictions
from kerascnn.applications.network import Network, Shape, Weights
from kerascnn.applications.pixels import like_caffe as preprocess_input
from kerascnn.applications.published import weights as published_weights
from kerascnn.applications.vgg import PAPER, vgg
from kerascnn.models import Model

__all__ = ["VGG19", "decode_predictions", "preprocess_input"]

_WEIGHTS = published_weights(
    "vgg19/vgg19", "cbe5617147190e668d6c5d5026f83318", "253f8cb515780f3b799900260a226db6"
)


@documented(PAPER, size=224, pixels="prepared by `preprocess_input`")
def VGG19(
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "vgg19",
) -> Model:
    """VGG-19: 16 convolutions of 3 x 3 and three dense layers, 143.7 million parameters."""
    return vgg(
        (2, 2, 4, 4, 4),
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
