"""Vision transformers with patches of 16 x 16 pixels, which Keras lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from kerascnn import layers
from kerascnn.applications.documentation import documented
from kerascnn.applications.imagenet_utils import decode_predictions
from kerascnn.applications.network import Network, Shape, Weights, require_channels_last
from kerascnn.applications.parts import ClassTokenAndPositions
from kerascnn.applications.pixels import from_minus_one_to_one as preprocess_input
from kerascnn.applications.torch_names import VIT
from kerascnn.models import Model
from kerascnn.symbolic.keras_tensor import KerasTensor

__all__ = ["ViTB16", "ViTL16", "ViTS16", "ViTTi16", "decode_predictions", "preprocess_input"]


class _Size(NamedTuple):
    width: int
    depth: int
    heads: int


_SIZES = {
    "Ti": _Size(192, 12, 3),
    "S": _Size(384, 12, 6),
    "B": _Size(768, 12, 12),
    "L": _Size(1024, 24, 16),
}
_PATCH = 16
_EPSILON = 1e-6
_documented = documented(
    "A. Dosovitskiy et al., An Image is Worth 16x16 Words: Transformers for Image Recognition at\n"
    "    Scale, 2020, arXiv:2010.11929; the sizes Ti and S are those of H. Touvron et al., 2020,\n"
    "    arXiv:2012.12877.",
    size=224,
    smallest=16,
    sizes=" on, in multiples of 16",
    pixels="of any scale",
    published=False,
    features="all tokens,\n            (n, 1 + number of patches, width)",
    default="known",
    options="""
        dropout: Rate of the dropouts in the blocks and after the positions.""",
)


@_documented
def ViTTi16(
    include_top: bool = True,
    weights: Weights = None,
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    dropout: float = 0.0,
    name: str = "vit_ti16",
) -> Model:
    """ViT-Ti/16: a transformer of patches, 5.7 million parameters."""
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
    return _vit("Ti", dropout, network)


@_documented
def ViTS16(
    include_top: bool = True,
    weights: Weights = None,
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    dropout: float = 0.0,
    name: str = "vit_s16",
) -> Model:
    """ViT-S/16: a transformer of patches, 22.1 million parameters."""
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
    return _vit("S", dropout, network)


@_documented
def ViTB16(
    include_top: bool = True,
    weights: Weights = None,
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    dropout: float = 0.0,
    name: str = "vit_b16",
) -> Model:
    """ViT-B/16: a transformer of patches, 86.6 million parameters."""
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
    return _vit("B", dropout, network)


@_documented
def ViTL16(
    include_top: bool = True,
    weights: Weights = None,
    input_tensor: Any = None,
    input_shape: Shape = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    dropout: float = 0.0,
    name: str = "vit_l16",
) -> Model:
    """ViT-L/16: a transformer of patches, 304.3 million parameters."""
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
    return _vit("L", dropout, network)


def _vit(kind: str, dropout: float, network: Network) -> Model:
    require_channels_last("ViT")
    size = _SIZES[kind]
    if network.input_shape is None and network.input_tensor is None:
        network = replace(network, input_shape=(224, 224, 3))
    image = network.image(224, None, smallest=_PATCH)
    sides = [side or 0 for side in image.shape[1:3]]  # 0 where it is not known
    if any(side == 0 or side % _PATCH for side in sides):
        raise ValueError(
            f"{network.name}: images are divided into patches of {_PATCH} x {_PATCH} pixels, so "
            f"that their sides are known multiples of {_PATCH}. Received: images of shape "
            f"{tuple(image.shape[1:])}"
        )
    x = layers.Conv2D(size.width, _PATCH, strides=_PATCH, name="patches")(image)
    x = layers.Reshape((sides[0] * sides[1] // _PATCH**2, size.width), name="sequence")(x)
    x = ClassTokenAndPositions(name="positions")(x)
    x = _dropped(x, dropout, "positions_drop")
    for i in range(1, size.depth + 1):
        x = _block(x, size, dropout, f"block{i}")
    x = layers.LayerNormalization(epsilon=_EPSILON, name="norm")(x)
    if network.include_top:
        x = network.classified(x[:, 0])
    elif network.pooling == "avg":
        x = layers.GlobalAveragePooling1D(name="avg_pool")(x[:, 1:])
    elif network.pooling == "max":
        x = layers.GlobalMaxPooling1D(name="max_pool")(x[:, 1:])
    return network.model(x, image, VIT)


def _block(x: KerasTensor, size: _Size, dropout: float, name: str) -> KerasTensor:
    """Attention between tokens, then a small network for each; both beside shortcuts."""
    inputs = x
    x = layers.LayerNormalization(epsilon=_EPSILON, name=f"{name}_1_norm")(x)
    x = layers.MultiHeadAttention(
        size.heads, size.width // size.heads, dropout=dropout, name=f"{name}_attention"
    )(x, x)
    x = inputs = layers.Add(name=f"{name}_1_add")([inputs, _dropped(x, dropout, f"{name}_1_drop")])
    x = layers.LayerNormalization(epsilon=_EPSILON, name=f"{name}_2_norm")(x)
    x = layers.Dense(4 * size.width, activation="gelu", name=f"{name}_1_dense")(x)
    x = _dropped(x, dropout, f"{name}_2_drop")
    x = layers.Dense(size.width, name=f"{name}_2_dense")(x)
    return layers.Add(name=f"{name}_2_add")([inputs, _dropped(x, dropout, f"{name}_3_drop")])


def _dropped(x: KerasTensor, rate: float, name: str) -> KerasTensor:
    return layers.Dropout(rate, name=name)(x) if rate > 0 else x
