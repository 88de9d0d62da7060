"""The networks of `large_nets.py` and their training step as PyTorch users write them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from large_nets import (
    CONVNEXT_BLOCK,
    CONVNEXT_T,
    EFFICIENTNET_B0,
    LAYER_SCALE,
    MOBILENET_V2,
    NETS,
    NORM_EPSILON,
    NORM_MOMENTUM,
    RESNET18,
    RESNET50,
    VGG16,
    VIT_BLOCKS,
    VIT_HEADS,
    VIT_PATCH,
    VIT_WIDTH,
    Case,
)
from torch import Tensor, nn

_ACTIVATIONS = {"relu": nn.ReLU, "relu6": nn.ReLU6, "silu": nn.SiLU}


def conv_norm(
    inputs: int, outputs: int, size=1, stride=1, activation: str | None = None, groups=1
) -> nn.Sequential:
    stack: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, NORM_EPSILON, 1 - NORM_MOMENTUM),
    ]
    if activation:
        stack.append(_ACTIVATIONS[activation](inplace=True))
    return nn.Sequential(*stack)


class Residual(nn.Module):
    """Computes relu of the sum of a branch and a shortcut."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module):
        super().__init__()
        self.branch, self.shortcut = branch, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.branch(x) + self.shortcut(x), inplace=True)


def head(channels: int, classes: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


def resnet18(classes: int, size: int) -> nn.Module:
    stack: list[nn.Module] = [conv_norm(3, 64, 3, 1, "relu")]
    channels = 64
    for stage, (filters, blocks) in enumerate(RESNET18):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            branch = nn.Sequential(
                conv_norm(channels, filters, 3, stride, "relu"), conv_norm(filters, filters, 3)
            )
            same = stride == 1
            shortcut = nn.Identity() if same else conv_norm(channels, filters, 1, stride)
            stack.append(Residual(branch, shortcut))
            channels = filters
    return nn.Sequential(*stack, *head(channels, classes))


def resnet50(classes: int, size: int) -> nn.Module:
    stack: list[nn.Module] = [conv_norm(3, 64, 7, 2, "relu"), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, (filters, blocks) in enumerate(RESNET50):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            branch = nn.Sequential(
                conv_norm(channels, filters, 1, 1, "relu"),
                conv_norm(filters, filters, 3, stride, "relu"),
                conv_norm(filters, 4 * filters),
            )
            shortcut = nn.Identity() if block else conv_norm(channels, 4 * filters, 1, stride)
            stack.append(Residual(branch, shortcut))
            channels = 4 * filters
    return nn.Sequential(*stack, *head(channels, classes))


def vgg16(classes: int, size: int) -> nn.Module:
    stack: list[nn.Module] = []
    channels = 3
    for filters, count in VGG16:
        for _ in range(count):
            stack += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU(inplace=True)]
            channels = filters
        stack.append(nn.MaxPool2d(2))
        size //= 2
    stack.append(nn.Flatten())
    features = channels * size * size
    for _ in range(2):
        stack += [nn.Linear(features, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5)]
        features = 4096
    return nn.Sequential(*stack, nn.Linear(features, classes))


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, inner: int):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = F.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.expand(F.silu(self.reduce(gate))))


class Added(nn.Module):
    def __init__(self, branch: nn.Module):
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


def inverted_bottlenecks(classes: int, stages, activation: str, squeezes: bool) -> nn.Module:
    stack: list[nn.Module] = [conv_norm(3, 32, 3, 2, activation)]
    channels = 32
    for expansion, filters, blocks, first_stride, size in stages:
        for block in range(blocks):
            stride, inner = 1 if block else first_stride, expansion * channels
            parts: list[nn.Module] = []
            if expansion > 1:
                parts.append(conv_norm(channels, inner, 1, 1, activation))
            parts.append(conv_norm(inner, inner, size, stride, activation, groups=inner))
            if squeezes:
                parts.append(SqueezeExcite(inner, channels // 4))
            branch = nn.Sequential(*parts, conv_norm(inner, filters))
            is_added = stride == 1 and channels == filters
            stack.append(Added(branch) if is_added else branch)
            channels = filters
    return nn.Sequential(*stack, conv_norm(channels, 1280, 1, 1, activation), *head(1280, classes))


def mobilenet_v2(classes: int, size: int) -> nn.Module:
    return inverted_bottlenecks(classes, MOBILENET_V2, "relu6", squeezes=False)


def efficientnet_b0(classes: int, size: int) -> nn.Module:
    return inverted_bottlenecks(classes, EFFICIENTNET_B0, "silu", squeezes=True)


class ChannelNorm(nn.LayerNorm):
    """Normalizes images over their channels."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def mlp(width: int) -> list[nn.Module]:
    return [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)]


class ConvNextBlock(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.convolution = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.dense = nn.Sequential(nn.LayerNorm(width, 1e-6), *mlp(width))
        self.factors = nn.Parameter(torch.full((width,), LAYER_SCALE))

    def forward(self, x: Tensor) -> Tensor:
        h = self.dense(self.convolution(x).permute(0, 2, 3, 1)) * self.factors
        return x + h.permute(0, 3, 1, 2)


def convnext(classes: int, stages) -> nn.Module:
    stack: list[nn.Module] = []
    channels = 3
    for stage, (filters, blocks) in enumerate(stages):
        if stage:
            stack += [ChannelNorm(channels, 1e-6), nn.Conv2d(channels, filters, 2, 2)]
        else:
            stack += [nn.Conv2d(channels, filters, 4, 4), ChannelNorm(filters, 1e-6)]
        stack += [ConvNextBlock(filters) for _ in range(blocks)]
        channels = filters
    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(channels, 1e-6)]
    return nn.Sequential(*stack, *pooled, nn.Linear(channels, classes))


def convnext_t(classes: int, size: int) -> nn.Module:
    return convnext(classes, CONVNEXT_T)


def convnext_block(classes: int, size: int) -> nn.Module:
    return convnext(classes, CONVNEXT_BLOCK)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.inputs(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(*parts.unbind(0))
        return self.output(x.transpose(1, 2).flatten(2))


class VisionTransformer(nn.Module):
    def __init__(self, classes: int, size: int):
        super().__init__()
        self.patches = nn.Conv2d(3, VIT_WIDTH, VIT_PATCH, VIT_PATCH)
        self.positions = nn.Parameter(torch.empty((size // VIT_PATCH) ** 2, VIT_WIDTH))
        nn.init.normal_(self.positions, std=0.02)
        blocks: list[nn.Module] = []
        for _ in range(VIT_BLOCKS):
            attention = Attention(VIT_WIDTH, VIT_HEADS)
            blocks += [
                Added(nn.Sequential(nn.LayerNorm(VIT_WIDTH, 1e-6), attention)),
                Added(nn.Sequential(nn.LayerNorm(VIT_WIDTH, 1e-6), *mlp(VIT_WIDTH))),
            ]
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(VIT_WIDTH, 1e-6)
        self.classify = nn.Linear(VIT_WIDTH, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        return self.classify(self.norm(self.blocks(x).mean(1)))


BUILDERS = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "vgg16": vgg16,
    "mobilenet_v2": mobilenet_v2,
    "efficientnet_b0": efficientnet_b0,
    "convnext_t": convnext_t,
    "convnext_block": convnext_block,
    "vit_s16": VisionTransformer,
}


def torch_model(case: Case) -> nn.Module:
    return BUILDERS[case.net](NETS[case.net].classes, case.image_size)
