"""Names in the files of torchvision and timm for networks of inverted residuals.

These are MobileNet V2 and V3 and both EfficientNets: blocks that widen the maps, filter each, weigh
them, and narrow them again, each step where the network has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kerascnn.applications.torch_names import Naming, Places, renamed

_ROLES = ("expand", "depthwise", "squeeze", "project")


class _Part(NamedTuple):
    """A layer of a block: what it does there, and whether it is the second of two that do it."""

    block: str
    role: str
    is_second: bool  # a normalization behind a convolution, or what widens after squeezing


def _torchvision_part(start: str, roles: list[str], part: _Part) -> str:
    return f"{start}.{roles.index(part.role)}." + (
        ("fc2" if part.is_second else "fc1") if part.role == "squeeze" else f"{part.is_second:d}"
    )


def _mobilenet_v2_part(start: str, roles: list[str], part: _Part) -> str:
    """In torchvision's MobileNet V2 the last convolution and its normalization lie one level up."""
    if part.role == "project":
        return f"{start}.{roles.index(part.role) + part.is_second}"
    return _torchvision_part(start, roles, part)


def _timm_part(start: str, roles: list[str], part: _Part) -> str:
    if part.role == "squeeze":
        return f"{start}.se.conv_{'expand' if part.is_second else 'reduce'}"
    convolutions = [role for role in roles if role != "squeeze"]
    if part.is_second:
        return f"{start}.bn{convolutions.index(part.role) + 1}"
    names = {
        ("project",): ("conv",),
        ("expand", "project"): ("conv_exp", "conv_pwl"),
        ("depthwise", "project"): ("conv_dw", "conv_pw"),
        ("expand", "depthwise", "project"): ("conv_pw", "conv_dw", "conv_pwl"),
    }[tuple(convolutions)]
    return f"{start}.{names[convolutions.index(part.role)]}"


def _inverted(
    parse: Callable[[str], _Part | None],
    rules: dict[str, str],
    start: str,
    place_of: Callable[[str, list[str], _Part], str],
) -> Callable[[Sequence[str], Iterable[str]], Places]:
    """Names of networks of such blocks.

    Args:
        parse: From the name of a layer to its part in a block, if it is in one.
        rules: The other layers.
        start: Where block number n is: `n` counts all of them, `s` is the stage and `b` the number
            in there, as the file's names divide them.
        place_of: Where a part of a block is.
    """

    def places(names: Sequence[str], tensors: Iterable[str]) -> Places:
        found = {name: part for name in names if (part := parse(name))}
        blocks: dict[str, set[str]] = {}
        for part in found.values():
            blocks.setdefault(part.block, set()).add(part.role)
        pattern = re.escape(start).replace(r"\{s\}", r"(\d+)").replace(r"\{b\}", r"(\d+)")
        matches = [re.match(pattern, name) for name in tensors] if "{s}" in start else []
        divided = sorted({(int(m[1]), int(m[2])) for m in matches if m})
        starts = {}
        for n, block in enumerate(blocks):
            s, b = divided[n] if n < len(divided) else (-1, -1)  # which no file has
            starts[block] = start.format(n=n + 1, s=s, b=b)
        result = renamed([name for name in names if name not in found], rules)
        for name, part in found.items():
            roles = [role for role in _ROLES if role in blocks[part.block]]
            result[name] = place_of(starts[part.block], roles, part)
        if "{s}" in start and len(divided) > len(blocks):  # the last convolution counts as a block
            last = start.format(s=divided[-1][0], b=divided[-1][1])
            result.update(
                {
                    k: f"{last}.{v}"
                    for k, v in (("conv_1", "conv"), ("conv_1_bn", "bn1"))
                    if k in names
                }
            )
        return result

    return places


def _mobilenet_part(name: str) -> _Part | None:
    found = re.fullmatch(
        r"(expanded_conv(?:_\d+)?|block_\d+)_(?:(expand|depthwise|project)(_bn|_BN)?"
        r"|squeeze_excite_conv(_1)?)",
        name,
    )
    if found is None:
        return None
    return _Part(found[1], found[2] or "squeeze", bool(found[3] or found[4]))


def _efficientnet_part(name: str) -> _Part | None:
    found = re.fullmatch(
        r"(block\d+.)_(?:(expand|project)_(conv|bn)|(dwconv2?|bn)|se_(reduce|expand))", name
    )
    if found is None:
        return None
    if found[4]:
        return _Part(found[1], "depthwise", found[4] == "bn")
    if found[5]:
        return _Part(found[1], "squeeze", found[5] == "expand")
    return _Part(found[1], found[2], found[3] == "bn")


MOBILENET_V2 = (
    Naming(
        "torchvision",
        "features.1.conv.0.0.weight",
        _inverted(
            _mobilenet_part,
            {
                "Conv1": "features.0.0",
                "bn_Conv1": "features.0.1",
                "Conv_1": "features.18.0",
                "Conv_1_bn": "features.18.1",
                "predictions": "classifier.1",
            },
            "features.{n}.conv",
            _mobilenet_v2_part,
        ),
        ("classifier.",),
        ("torchvision", "timm"),
    ),
    Naming(
        "timm",
        "conv_stem.weight",
        _inverted(
            _mobilenet_part,
            {
                "Conv1": "conv_stem",
                "bn_Conv1": "bn1",
                "Conv_1": "conv_head",
                "Conv_1_bn": "bn2",
                "predictions": "classifier",
            },
            "blocks.{s}.{b}",
            _timm_part,
        ),
        ("classifier.",),
        ("torchvision", "timm"),
    ),
)


def _mobilenet_v3(blocks: int) -> tuple[Naming, ...]:
    last = f"features.{blocks + 1}"
    return (
        Naming(
            "torchvision",
            f"{last}.0.weight",
            _inverted(
                _mobilenet_part,
                {
                    "conv": "features.0.0",
                    "conv_bn": "features.0.1",
                    "conv_1": f"{last}.0",
                    "conv_1_bn": f"{last}.1",
                    "conv_2": "classifier.0",
                    "logits": "classifier.3",
                },
                "features.{n}.block",
                _torchvision_part,
            ),
            ("classifier.",),
            ("torchvision",),
        ),
        Naming(
            "timm",
            "conv_stem.weight",
            _inverted(
                _mobilenet_part,
                {
                    "conv": "conv_stem",
                    "conv_bn": "bn1",
                    "conv_2": "conv_head",
                    "logits": "classifier",
                },
                "blocks.{s}.{b}",
                _timm_part,
            ),
            ("conv_head.", "classifier."),
            ("keras", "timm"),
        ),
    )


MOBILENET_V3_SMALL, MOBILENET_V3_LARGE = _mobilenet_v3(11), _mobilenet_v3(15)


def efficientnet(stages: int) -> tuple[Naming, ...]:
    """The names of an EfficientNet, of both versions, with so many stages."""
    return (
        Naming(
            "torchvision",
            f"features.{stages + 1}.0.weight",
            _inverted(
                _efficientnet_part,
                {
                    "stem_conv": "features.0.0",
                    "stem_bn": "features.0.1",
                    "top_conv": f"features.{stages + 1}.0",
                    "top_bn": f"features.{stages + 1}.1",
                    "predictions": "classifier.1",
                },
                "features.{s}.{b}.block",
                _torchvision_part,
            ),
            ("classifier.",),
            ("torchvision",),
        ),
        Naming(
            "timm",
            "conv_stem.weight",
            _inverted(
                _efficientnet_part,
                {
                    "stem_conv": "conv_stem",
                    "stem_bn": "bn1",
                    "top_conv": "conv_head",
                    "top_bn": "bn2",
                    "predictions": "classifier",
                },
                "blocks.{s}.{b}",
                _timm_part,
            ),
            ("classifier.",),
            ("keras", "timm"),
        ),
    )
