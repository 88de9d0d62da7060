"""NASNet-A, mobile and large."""

from __future__ import annotations

from typing import Any, NamedTuple

from kerascnn import layers
from kerascnn.applications.documentation import documented
from kerascnn.applications.imagenet_utils import decode_predictions
from kerascnn.applications.network import (
    Network,
    Shape,
    Weights,
    channels_of,
    halving_padding,
    last_or_first_axis,
    require_channels_last,
)
from kerascnn.applications.pixels import from_minus_one_to_one as preprocess_input
from kerascnn.applications.published import KERAS_APPLICATIONS, Published
from kerascnn.applications.published import Weights as PublishedWeights
from kerascnn.models import Model
from kerascnn.symbolic.keras_tensor import KerasTensor

__all__ = ["NASNetLarge", "NASNetMobile", "decode_predictions", "preprocess_input"]


class _Size(NamedTuple):
    image: int
    filters: int  # of the first stage; each has twice those of the one before it
    blocks: int  # of each of the three stages
    stem: int  # filters of the first convolution
    skips_reduction: bool  # whether the cell after a reduction reads what was before the one there
    published: PublishedWeights


def _published(kind: str, top_hash: str, no_top_hash: str) -> PublishedWeights:
    start = f"{KERAS_APPLICATIONS}nasnet/NASNet-{kind}"
    return PublishedWeights(
        Published(f"{start}.h5", top_hash, f"nasnet_{kind}.h5"),
        Published(f"{start}-no-top.h5", no_top_hash, f"nasnet_{kind}_no_top.h5"),
    )


_MOBILE = _Size(
    image=224,
    filters=44,
    blocks=4,
    stem=32,
    skips_reduction=False,
    published=_published(
        "mobile", "020fb642bf7360b370c678b08e0adf61", "1ed92395b5b598bdda52abe5c0dbfd63"
    ),
)
_LARGE = _Size(
    image=331,
    filters=168,
    blocks=6,
    stem=96,
    skips_reduction=True,
    published=_published(
        "large", "11577c9a518f0070763c2b964a382f17", "d81d89dc07e6e56530c4e77faddd61b5"
    ),
)


def _documented(size: _Size) -> Any:
    return documented(
        "B. Zoph, V. Vasudevan, J. Shlens and Q. Le, Learning Transferable Architectures for\n"
        "    Scalable Image Recognition, 2017, arXiv:1707.07012.",
        size=size.image,
        pixels="prepared by `preprocess_input`",
    )


@_documented(_MOBILE)
def NASNetMobile(
    input_shape: Shape = None,
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "nasnet_mobile",
) -> Model:
    """NASNet-A, the mobile one: cells found by search, 5.3 million parameters."""
    if not include_top and input_shape is None:
        input_shape = (224, 224, 3)
    return _nasnet(
        _MOBILE,
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
    )


@_documented(_LARGE)
def NASNetLarge(
    input_shape: Shape = None,
    include_top: bool = True,
    weights: Weights = "imagenet",
    input_tensor: Any = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str = "nasnet_large",
) -> Model:
    """NASNet-A, the large one: cells found by search, 88.9 million parameters."""
    return _nasnet(
        _LARGE,
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
    )


def _nasnet(size: _Size, network: Network) -> Model:
    require_channels_last("NASNet")
    image = network.image(size.image, size.published)
    x = layers.Conv2D(
        size.stem,
        3,
        strides=2,
        use_bias=False,
        name="stem_conv1",
        kernel_initializer="he_normal",
    )(image)
    x = _normalized(x, "stem_bn1")
    x, before = _reduction_cell(x, None, size.filters // 4, "stem_1")
    x, before = _reduction_cell(x, before, size.filters // 2, "stem_2")
    for stage in range(3):
        filters = size.filters * 2**stage
        if stage > 0:
            x, last = _reduction_cell(x, before, filters, f"reduce_{stage * size.blocks}")
            before = before if size.skips_reduction else last
        for i in range(size.blocks):
            x, before = _normal_cell(x, before, filters, f"{stage * size.blocks + (stage > 0) + i}")
    x = layers.Activation("relu")(x)
    if network.include_top:
        x = network.classified(layers.GlobalAveragePooling2D()(x))
    else:
        x = network.pooled(x, is_named=False)
    return network.model(x, image)


def _normal_cell(
    x: KerasTensor, before: KerasTensor, filters: int, name: str
) -> tuple[KerasTensor, KerasTensor]:
    """New maps of the same size from the last two cells; and what the next cell reads as well."""
    p = _adjusted(before, x, filters, name)
    h = _projected(x, filters, f"normal_conv_1_{name}", f"normal_bn_1_{name}")
    left = _separable(h, filters, 5, f"normal_left1_{name}")
    right = _separable(p, filters, 3, f"normal_right1_{name}")
    x1 = layers.Add(name=f"normal_add_1_{name}")([left, right])
    left = _separable(p, filters, 5, f"normal_left2_{name}")
    right = _separable(p, filters, 3, f"normal_right2_{name}")
    x2 = layers.Add(name=f"normal_add_2_{name}")([left, right])
    x3 = layers.Add(name=f"normal_add_3_{name}")([_mean(h, f"normal_left3_{name}"), p])
    left, right = _mean(p, f"normal_left4_{name}"), _mean(p, f"normal_right4_{name}")
    x4 = layers.Add(name=f"normal_add_4_{name}")([left, right])
    left = _separable(h, filters, 3, f"normal_left5_{name}")
    x5 = layers.Add(name=f"normal_add_5_{name}")([left, h])
    return _joined([p, x1, x2, x3, x4, x5], f"normal_concat_{name}"), x


def _reduction_cell(
    x: KerasTensor, before: KerasTensor | None, filters: int, name: str
) -> tuple[KerasTensor, KerasTensor]:
    """The same for maps of half the size."""
    p = _adjusted(before, x, filters, name)
    h = _projected(x, filters, f"reduction_conv_1_{name}", f"reduction_bn_1_{name}")
    padded = layers.ZeroPadding2D(halving_padding(h, 3), name=f"reduction_pad_1_{name}")(h)
    left = _separable(h, filters, 5, f"reduction_left1_{name}", 2)
    right = _separable(p, filters, 7, f"reduction_right1_{name}", 2)
    x1 = layers.Add(name=f"reduction_add_1_{name}")([left, right])
    left = layers.MaxPooling2D(3, strides=2, name=f"reduction_left2_{name}")(padded)
    right = _separable(p, filters, 7, f"reduction_right2_{name}", 2)
    x2 = layers.Add(name=f"reduction_add_2_{name}")([left, right])
    left = layers.AveragePooling2D(3, strides=2, name=f"reduction_left3_{name}")(padded)
    right = _separable(p, filters, 5, f"reduction_right3_{name}", 2)
    x3 = layers.Add(name=f"reduction_add3_{name}")([left, right])
    x4 = layers.Add()([x2, _mean(x1, f"reduction_left4_{name}")])
    left = _separable(x1, filters, 3, f"reduction_left4_{name}")
    right = layers.MaxPooling2D(3, strides=2, name=f"reduction_right5_{name}")(padded)
    x5 = layers.Add(name=f"reduction_add4_{name}")([left, right])
    return _joined([x2, x3, x4, x5], f"reduction_concat_{name}"), x


def _adjusted(before: KerasTensor | None, x: KerasTensor, filters: int, name: str) -> KerasTensor:
    """What the last cell but one returned, in the size of the last one and with `filters` maps."""
    if before is None:
        return x
    if before.shape[2] != x.shape[2]:
        return _halved(before, filters, name)
    if channels_of(before) != filters:
        return _projected(before, filters, f"adjust_conv_projection_{name}", f"adjust_bn_{name}")
    return before


def _halved(x: KerasTensor, filters: int, name: str) -> KerasTensor:
    """Half of the maps from every other pixel, the other half from those right below."""
    x = layers.Activation("relu", name=f"adjust_relu_1_{name}")(x)
    shifted = layers.ZeroPadding2D(((0, 1), (0, 1)))(x)
    shifted = layers.Cropping2D(((1, 0), (1, 0)))(shifted)
    halves = []
    for i, half in enumerate((x, shifted), 1):
        half = layers.AveragePooling2D(1, strides=2, name=f"adjust_avg_pool_{i}_{name}")(half)
        half = layers.Conv2D(
            filters // 2,
            1,
            padding="same",
            use_bias=False,
            name=f"adjust_conv_{i}_{name}",
            kernel_initializer="he_normal",
        )(half)
        halves.append(half)
    return _normalized(_joined(halves, None), f"adjust_bn_{name}")


def _projected(x: KerasTensor, filters: int, name: str, normalization: str) -> KerasTensor:
    x = layers.Activation("relu")(x)
    x = layers.Conv2D(
        filters,
        1,
        padding="same",
        use_bias=False,
        name=name,
        kernel_initializer="he_normal",
    )(x)
    return _normalized(x, normalization)


def _separable(
    x: KerasTensor, filters: int, kernel_size: int, name: str, strides: int = 1
) -> KerasTensor:
    """Two separable convolutions, of which the first may halve the maps."""
    x = layers.Activation("relu")(x)
    padding = "same"
    if strides == 2:
        zeros = halving_padding(x, kernel_size)
        x = layers.ZeroPadding2D(zeros, name=f"separable_conv_1_pad_{name}")(x)
        padding = "valid"
    x = layers.SeparableConv2D(
        filters,
        kernel_size,
        strides=strides,
        padding=padding,
        use_bias=False,
        name=f"separable_conv_1_{name}",
    )(x)
    x = _normalized(x, f"separable_conv_1_bn_{name}")
    x = layers.Activation("relu")(x)
    x = layers.SeparableConv2D(
        filters, kernel_size, padding="same", use_bias=False, name=f"separable_conv_2_{name}"
    )(x)
    return _normalized(x, f"separable_conv_2_bn_{name}")


def _mean(x: KerasTensor, name: str) -> KerasTensor:
    return layers.AveragePooling2D(3, strides=1, padding="same", name=name)(x)


def _normalized(x: KerasTensor, name: str) -> KerasTensor:
    return layers.BatchNormalization(
        axis=last_or_first_axis(), momentum=0.9997, epsilon=1e-3, name=name
    )(x)


def _joined(branches: list[KerasTensor], name: str | None) -> KerasTensor:
    return layers.Concatenate(axis=last_or_first_axis(), name=name)(branches)
