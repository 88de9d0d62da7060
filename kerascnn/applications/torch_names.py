"""Where each layer's weights are in the files of torchvision and timm.

For each architecture a `Naming` for each library that has it: a function from the names of our
layers to the names of modules there. Files are known by a tensor that only they have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

Places = dict[str, "str | tuple[str, ...]"]
_ALL = ("keras", "torchvision", "timm")


class Naming(NamedTuple):
    """The names in one library's files of an architecture.

    Attributes:
        source: The library.
        marker: A tensor that its files have, and those of others don't.
        places: From the names of our layers that have weights, and those of the file's tensors, to
            the places of the layers' tensors. A layer that it leaves out keeps what it has.
        classifier: How the names of tensors begin that a network without a classifier leaves.
        variants: The variants of our network that compute the same as the library's.
    """

    source: str
    marker: str
    places: Callable[[Sequence[str], Iterable[str]], Places]
    classifier: tuple[str, ...]
    variants: tuple[str, ...] = _ALL


def renamed(names: Sequence[str], rules: dict[str, str]) -> Places:
    """Names by patterns that match them as a whole, the first that does.

    In a place `{1}` is the first group of the pattern, and `{1-1}` that number less one.
    """
    places: Places = {}
    for name in names:
        for pattern, place in rules.items():
            found = re.fullmatch(pattern, name)
            if found:
                places[name] = re.sub(
                    r"\{(\d)(-1)?\}",
                    lambda m, f=found: str(int(f[int(m[1])]) - 1) if m[2] else f[int(m[1])],  # type: ignore[misc]
                    place,
                )
                break
    return places


def _by_rules(
    rules: dict[str, str],
) -> Callable[[Sequence[str], Iterable[str]], Places]:
    return lambda names, _: renamed(names, rules)


# ResNet, in torchvision and timm --------------------------------------------------------------

_RESNET = {
    "conv1_conv": "conv1",
    "conv1_bn": "bn1",
    r"conv(\d)_block(\d+)_0_conv": "layer{1-1}.{2-1}.downsample.0",
    r"conv(\d)_block(\d+)_0_bn": "layer{1-1}.{2-1}.downsample.1",
    r"conv(\d)_block(\d+)_(\d)_(conv|bn)": "layer{1-1}.{2-1}.{4}{3}",
    "predictions": "fc",
}
RESNET_BASIC = (
    Naming("torchvision and timm", "layer1.0.conv1.weight", _by_rules(_RESNET), ("fc.",)),
)
RESNET = (RESNET_BASIC[0]._replace(variants=("torchvision", "timm")),)


# VGG ------------------------------------------------------------------------------------------


def _vgg(ends: dict[str, str]) -> Callable[[Sequence[str], Iterable[str]], Places]:
    def places(names: Sequence[str], _: Iterable[str]) -> Places:
        found: Places = renamed(names, ends)
        # Activations and poolings are counted too.
        convolutions = [m for name in names if (m := re.fullmatch(r"block(\d)_conv\d", name))]
        for i, match in enumerate(convolutions):
            found[match[0]] = f"features.{2 * i + int(match[1]) - 1}"
        return found

    return places


VGG = (
    Naming(
        "torchvision",
        "classifier.6.weight",
        _vgg({"fc1": "classifier.0", "fc2": "classifier.3", "predictions": "classifier.6"}),
        ("classifier.",),
    ),
    Naming(
        "timm",
        "pre_logits.fc1.weight",
        _vgg({"fc1": "pre_logits.fc1", "fc2": "pre_logits.fc2", "predictions": "head.fc"}),
        ("pre_logits.", "head."),
    ),
)


# DenseNet, in torchvision and timm ------------------------------------------------------------


def _densenet(digit: str) -> dict[str, str]:
    """Files of before torchvision 0.3 have `norm.1` in place of `norm1`."""
    layer = "features.denseblock{1-1}.denselayer{2}."
    return {
        "conv1_conv": "features.conv0",
        "conv1_bn": "features.norm0",
        r"conv(\d)_block(\d+)_0_bn": f"{layer}norm{digit}1",
        r"conv(\d)_block(\d+)_1_conv": f"{layer}conv{digit}1",
        r"conv(\d)_block(\d+)_1_bn": f"{layer}norm{digit}2",
        r"conv(\d)_block(\d+)_2_conv": f"{layer}conv{digit}2",
        r"pool(\d)_bn": "features.transition{1-1}.norm",
        r"pool(\d)_conv": "features.transition{1-1}.conv",
        "bn": "features.norm5",
        "predictions": "classifier",
    }


DENSENET = tuple(
    Naming(
        "torchvision and timm",
        f"features.denseblock1.denselayer1.norm{digit}1.weight",
        _by_rules(_densenet(digit)),
        ("classifier.",),
    )
    for digit in ("", ".")
)


# ConvNeXt -------------------------------------------------------------------------------------


def _convnext(block: str, inner: dict[str, str], outer: dict[str, str]) -> Callable[..., Places]:
    """Names of ConvNeXt's layers, which begin with the network's name.

    Args:
        block: Where a block is: `s` stands for its stage, `b` for its number in there, `f` for the
            number of the stage among torchvision's `features`.
        inner: Its layers, by the ends of their names.
        outer: The other layers, by the ends of theirs; `s` and `f` as above, of the stage behind.
    """

    def places(names: Sequence[str], _: Iterable[str]) -> Places:
        found: Places = {}
        for name in names:
            match = re.search(r"_stage_(\d)_block_(\d+)_(\w+)$", name)
            if match:
                if match[3] not in inner:  # an activation
                    continue
                stage = int(match[1])
                place = block.format(s=stage, f=2 * stage + 1, b=match[2]) + inner[match[3]]
                found[name] = (place,) if match[3] == "layer_scale" else place
                continue
            for ending, place in outer.items():
                match = re.search(rf"(?:^|[_/]){ending}$", name)
                if match:
                    stage = int(match[1]) + 1 if match.groups() else 0
                    found[name] = place.format(s=stage, f=2 * stage)
                    break
        return found

    return places


_CONVNEXT_END = r"(?:head_layernorm|layer_normalization(?:_\d+)?)"
CONVNEXT = (
    Naming(
        "torchvision",
        "features.1.0.layer_scale",
        _convnext(
            "features.{f}.{b}.",
            {
                "depthwise_conv": "block.0",
                "layernorm": "block.2",
                "pointwise_conv_1": "block.3",
                "pointwise_conv_2": "block.5",
                "layer_scale": "layer_scale",
            },
            {
                "stem_conv": "features.0.0",
                "stem_layernorm": "features.0.1",
                r"downsampling_layernorm_(\d)": "features.{f}.0",
                r"downsampling_conv_(\d)": "features.{f}.1",
                _CONVNEXT_END: "classifier.0",
                "head_dense": "classifier.2",
            },
        ),
        ("classifier.2.",),
    ),
    Naming(
        "timm",
        "stages.0.blocks.0.gamma",
        _convnext(
            "stages.{s}.blocks.{b}.",
            {
                "depthwise_conv": "conv_dw",
                "layernorm": "norm",
                "pointwise_conv_1": "mlp.fc1",
                "pointwise_conv_2": "mlp.fc2",
                "layer_scale": "gamma",
            },
            {
                "stem_conv": "stem.0",
                "stem_layernorm": "stem.1",
                r"downsampling_layernorm_(\d)": "stages.{s}.downsample.0",
                r"downsampling_conv_(\d)": "stages.{s}.downsample.1",
                _CONVNEXT_END: "head.norm",
                "head_dense": "head.fc",
            },
        ),
        ("head.fc.",),
    ),
)


# Vision transformers --------------------------------------------------------------------------


def _vit(positions: tuple[str, str], rules: dict[str, str]) -> Callable[..., Places]:
    def places(names: Sequence[str], _: Iterable[str]) -> Places:
        return {**renamed(names, rules), "positions": positions}

    return places


_ENCODER = "encoder.layers.encoder_layer_"
VIT = (
    # The published files have the names of torchvision's first version of these networks.
    *(
        Naming(
            "torchvision",
            f"{_ENCODER}0.mlp.{first}.weight",
            _vit(
                ("class_token", "encoder.pos_embedding"),
                {
                    "patches": "conv_proj",
                    r"block(\d+)_([12])_norm": f"{_ENCODER}{{1-1}}.ln_{{2}}",
                    r"block(\d+)_attention": f"{_ENCODER}{{1-1}}.self_attention",
                    r"block(\d+)_1_dense": f"{_ENCODER}{{1-1}}.mlp.{first}",
                    r"block(\d+)_2_dense": f"{_ENCODER}{{1-1}}.mlp.{second}",
                    "norm": "encoder.ln",
                    "predictions": "heads.head",
                },
            ),
            ("heads.",),
        )
        for first, second in (("linear_1", "linear_2"), ("0", "3"))
    ),
    Naming(
        "timm",
        "pos_embed",
        _vit(
            ("cls_token", "pos_embed"),
            {
                "patches": "patch_embed.proj",
                r"block(\d+)_([12])_norm": "blocks.{1-1}.norm{2}",
                r"block(\d+)_attention": "blocks.{1-1}.attn",
                r"block(\d+)_([12])_dense": "blocks.{1-1}.mlp.fc{2}",
                "norm": "norm",
                "predictions": "head",
            },
        ),
        ("head.",),
    ),
)
