"""ConvNeXt, Tiny to XLarge."""

from __future__ import annotations

from typing import Any, NamedTuple

from kerascnn import layers, ops
from kerascnn.applications.documentation import documented
from kerascnn.applications.imagenet_utils import DEVIATION, MEAN, decode_predictions
from kerascnn.applications.network import (
    Network,
    Shape,
    Weights,
    require_channels_last,
)
from kerascnn.applications.parts import LayerScale
from kerascnn.applications.pixels import unchanged as preprocess_input
from kerascnn.applications.published import weights as published_weights
from kerascnn.applications.torch_names import CONVNEXT
from kerascnn.models import Model, Sequential
from kerascnn.symbolic.keras_tensor import KerasTensor

__all__ = [
    "ConvNeXtBase",
    "ConvNeXtLarge",
    "ConvNeXtSmall",
    "ConvNeXtTiny",
    "ConvNeXtXLarge",
    "decode_predictions",
    "preprocess_input",
]


class _Size(NamedTuple):
    blocks: tuple[int, ...]  # of each of the four stages
    filters: int  # of the first stage; each has twice those of the one before it
    hashes: tuple[str, str]  # of the published weights


_SIZES = {
    "tiny": _Size(
        (3, 3, 9, 3),
        96,
        (
            "8ae6e78ce2933352b1ef4008e6dd2f17bc40771563877d156bc6426c7cf503ff",
            "d547c096cabd03329d7be5562c5e14798aa39ed24b474157cef5e85ab9e49ef1",
        ),
    ),
    "small": _Size(
        (3, 3, 27, 3),
        96,
        (
            "ce1277d8f1ee5a0ef0e171469089c18f5233860ceaf9b168049cb9263fd7483c",
            "6fc8009faa2f00c1c1dfce59feea9b0745eb260a7dd11bee65c8e20843da6eab",
        ),
    ),
    "base": _Size(
        (3, 3, 27, 3),
        128,
        (
            "52cbb006d3dadd03f6e095a8ca1aca47aecdd75acb4bc74bce1f5c695d0086e6",
            "40a20c5548a5e9202f69735ecc06c990e6b7c9d2de39f0361e27baeb24cb7c45",
        ),
    ),
    "large": _Size(
        (3, 3, 27, 3),
        192,
        (
            "070c5ed9ed289581e477741d3b34beffa920db8cf590899d6d2c67fba2a198a6",
            "96f02b6f0753d4f543261bc9d09bed650f24dd6bc02ddde3066135b63d23a1cd",
        ),
    ),
    "xlarge": _Size(
        (3, 3, 27, 3),
        256,
        (
            "c1f5ccab661354fc3a79a10fa99af82f0fbf10ec65cb894a3ae0815f17a889ee",
            "de3f8a54174130e0cecdc71583354753d557fcf1f4487331558e2a16ba0cfe05",
        ),
    ),
}
_EPSILON = 1e-6
_FIRST_SCALE = 1e-6
_documented = documented(
    "Z. Liu et al., A ConvNet for the 2020s, 2022, arXiv:2201.03545.",
    size=224,
    pixels="from 0 to 255",
    features="the normalized maps",
    options="""
        include_preprocessing: Whether the network prepares pixels from 0 to 255 itself; otherwise
            it takes them with ImageNet's mean 0 and deviation 1.""",
)


@_documented
def ConvNeXtTiny(
    include_top: bool = True,
    include_preprocessing: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "convnext_tiny",
) -> Model:
    """ConvNeXt Tiny: convolutions in the shape of a transformer, 28.6 million parameters."""
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
    return _convnext("tiny", include_preprocessing, network)


@_documented
def ConvNeXtSmall(
    include_top: bool = True,
    include_preprocessing: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "convnext_small",
) -> Model:
    """ConvNeXt Small: convolutions in the shape of a transformer, 50.2 million parameters."""
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
    return _convnext("small", include_preprocessing, network)


@_documented
def ConvNeXtBase(
    include_top: bool = True,
    include_preprocessing: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "convnext_base",
) -> Model:
    """ConvNeXt Base: convolutions in the shape of a transformer, 88.6 million parameters."""
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
    return _convnext("base", include_preprocessing, network)


@_documented
def ConvNeXtLarge(
    include_top: bool = True,
    include_preprocessing: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "convnext_large",
) -> Model:
    """ConvNeXt Large: convolutions in the shape of a transformer, 197.8 million parameters."""
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
    return _convnext("large", include_preprocessing, network)


@_documented
def ConvNeXtXLarge(
    include_top: bool = True,
    include_preprocessing: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "convnext_xlarge",
) -> Model:
    """ConvNeXt XLarge: convolutions in the shape of a transformer, 350.2 million parameters."""
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
    return _convnext("xlarge", include_preprocessing, network)


def _convnext(kind: str, include_preprocessing: bool, network: Network) -> Model:
    require_channels_last("ConvNeXt")
    size, name = _SIZES[kind], network.name
    published = published_weights(f"convnext/convnext_{kind}", *size.hashes, (".h5", "_notop.h5"))
    x = image = network.image(224, published)
    if include_preprocessing and x.shape[-1] == 3:
        x = layers.Normalization(
            mean=[255 * mean for mean in MEAN],
            variance=[(255 * deviation) ** 2 for deviation in DEVIATION],
            name=f"{name}_prestem_normalization",
        )(x)
    for stage, blocks in enumerate(size.blocks):
        filters = size.filters * 2**stage
        x = _smaller(stage, filters, name)(x)
        for i in range(blocks):
            x = _block(x, filters, f"{name}_stage_{stage}_block_{i}")
    if network.include_top:
        x = layers.GlobalAveragePooling2D(name=f"{name}_head_gap")(x)
        x = layers.LayerNormalization(epsilon=_EPSILON, name=f"{name}_head_layernorm")(x)
        x = network.classified(x, name=f"{name}_head_dense")
    else:
        x = network.pooled(x, is_named=False)
        x = layers.LayerNormalization(epsilon=_EPSILON)(x)
    return network.model(x, image, CONVNEXT)


def _smaller(stage: int, filters: int, name: str) -> Sequential:
    """Before each stage: maps of a quarter of the size, and of half of it before later ones."""
    if stage == 0:
        return Sequential(
            [
                layers.Conv2D(filters, 4, strides=4, name=f"{name}_stem_conv"),
                layers.LayerNormalization(epsilon=_EPSILON, name=f"{name}_stem_layernorm"),
            ],
            name=f"{name}_stem",
        )
    start = f"{name}_downsampling"
    return Sequential(
        [
            layers.LayerNormalization(epsilon=_EPSILON, name=f"{start}_layernorm_{stage - 1}"),
            layers.Conv2D(filters, 2, strides=2, name=f"{start}_conv_{stage - 1}"),
        ],
        name=f"{start}_block_{stage - 1}",
    )


def _block(x: KerasTensor, filters: int, name: str) -> KerasTensor:
    inputs = x
    x = layers.Conv2D(filters, 7, padding="same", groups=filters, name=f"{name}_depthwise_conv")(x)
    x = layers.LayerNormalization(epsilon=_EPSILON, name=f"{name}_layernorm")(x)
    x = layers.Dense(4 * filters, name=f"{name}_pointwise_conv_1")(x)
    x = layers.Activation("gelu", name=f"{name}_gelu")(x)
    x = layers.Dense(filters, name=f"{name}_pointwise_conv_2")(x)
    x = LayerScale(_FIRST_SCALE, filters, name=f"{name}_layer_scale")(x)
    x = layers.Activation("linear", name=f"{name}_identity")(x)
    return ops.add(inputs, x)
