"""Measures epochs of small networks with many kinds of layers, and PyTorch's, in one process.

    OMP_NUM_THREADS=2 python tests/benchmarks/layers.py [--only gelu,group_norm] [--device gpu]

The four nets of `nets.py` only have relu and max pooling. Each network here has two blocks of
layers before a dense one. Both sides train it with Adam on the same random images in batches of 64;
PyTorch uses the channels-last layout. They take turns, and each line shows the best epochs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import kerascnn as keras
from kerascnn import layers

IMAGES, BATCH, SIZE, CHANNELS, CLASSES = 1280, 64, 32, 3, 10
WIDTHS = (32, 64)


class OverChannels(nn.Module):
    """Applies a layer of PyTorch that works on the last axis to the channels of images."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


# A block takes the numbers of input channels and filters, and returns both networks' layers.
Block = Callable[[int, int], tuple[list[Any], list[nn.Module]]]


def activated(name: str, module: Callable[[], nn.Module]) -> Block:
    def block(channels, filters):
        convolution = layers.Conv2D(filters, 3, padding="same", activation=name)
        theirs = nn.Conv2d(channels, filters, 3, padding=1)
        return [convolution, layers.MaxPooling2D()], [theirs, module(), nn.MaxPool2d(2)]

    return block


def normalized(ours: Callable[[], Any], theirs: Callable[[int], nn.Module]) -> Block:
    def block(channels, filters):
        convolution = layers.Conv2D(filters, 3, strides=2, padding="same")
        first = nn.Conv2d(channels, filters, 3, 2, 1)
        return [convolution, ours(), layers.ReLU()], [first, theirs(filters), nn.ReLU()]

    return block


def followed(ours: Callable[[], list[Any]], theirs: Callable[[int], list[nn.Module]]) -> Block:
    def block(channels, filters):
        convolution = layers.Conv2D(filters, 3, padding="same", activation="relu")
        first = nn.Conv2d(channels, filters, 3, padding=1)
        return [convolution, *ours()], [first, nn.ReLU(), *theirs(filters)]

    return block


NETWORKS: dict[str, Block] = {
    "relu": activated("relu", nn.ReLU),
    "gelu": activated("gelu", nn.GELU),
    "silu": activated("silu", nn.SiLU),
    "tanh": activated("tanh", nn.Tanh),
    "sigmoid": activated("sigmoid", nn.Sigmoid),
    "elu": activated("elu", nn.ELU),
    "softplus": activated("softplus", nn.Softplus),
    "batch_norm": normalized(layers.BatchNormalization, nn.BatchNorm2d),
    "layer_norm": normalized(
        layers.LayerNormalization, lambda filters: OverChannels(nn.LayerNorm(filters))
    ),
    "group_norm": normalized(
        lambda: layers.GroupNormalization(8), lambda filters: nn.GroupNorm(8, filters)
    ),
    "average_pooling": followed(
        lambda: [layers.AveragePooling2D(2)], lambda filters: [nn.AvgPool2d(2)]
    ),
    "overlapping_pooling": followed(
        lambda: [layers.MaxPooling2D(3, 2)], lambda filters: [nn.MaxPool2d(3, 2)]
    ),
    "dropout": followed(
        lambda: [layers.Dropout(0.2), layers.MaxPooling2D()],
        lambda filters: [nn.Dropout(0.2), nn.MaxPool2d(2)],
    ),
    "depthwise": followed(
        lambda: [layers.DepthwiseConv2D(3, padding="same"), layers.MaxPooling2D()],
        lambda filters: [
            nn.Conv2d(filters, filters, 3, padding=1, groups=filters),
            nn.MaxPool2d(2),
        ],
    ),
}


def networks(block: Block) -> tuple[keras.Sequential, nn.Sequential]:
    ours: list[Any] = [keras.Input((SIZE, SIZE, CHANNELS)), layers.Rescaling(1 / 255)]
    theirs: list[nn.Module] = []
    channels = CHANNELS
    for filters in WIDTHS:
        here, there = block(channels, filters)
        ours += here
        theirs += there
        channels = filters
    model = keras.Sequential([*ours, layers.Flatten(), layers.Dense(CLASSES)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss)
    return model, nn.Sequential(*theirs, nn.Flatten(), nn.LazyLinear(CLASSES))


def time_network(block: Block, device: str, rounds: int) -> tuple[float, float]:
    """Returns the best seconds of an epoch, here and in PyTorch."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (IMAGES, SIZE, SIZE, CHANNELS)).astype("uint8")
    y = rng.integers(0, CLASSES, IMAGES)
    model, module = networks(block)
    place = "cuda" if device == "gpu" else "cpu"
    images = torch.from_numpy(x).permute(0, 3, 1, 2).to(place, torch.float32) / 255
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.from_numpy(y).to(place)
    module(torch.zeros(2, CHANNELS, SIZE, SIZE))  # this makes the weights of the dense layer
    module = module.to(place, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(module.parameters(), 1e-3)

    def epoch_here() -> None:
        model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)

    def epoch_there() -> None:
        order = torch.randperm(IMAGES, device=place)
        for first in range(0, IMAGES, BATCH):
            batch = order[first : first + BATCH]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        if device == "gpu":
            torch.cuda.synchronize()

    best = [float("inf"), float("inf")]
    for turn in range(rounds + 1):  # the first turn warms up
        for side, epoch in enumerate((epoch_here, epoch_there)):
            start = time.perf_counter()
            epoch()
            if turn > 0:
                best[side] = min(best[side], time.perf_counter() - start)
    return best[0], best[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--only", help="networks, separated by commas")
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(NETWORKS)
    unknown = [name for name in names if name not in NETWORKS]
    if unknown:
        parser.error(f"unknown networks {', '.join(unknown)}; there are {', '.join(NETWORKS)}")
    print(f"{'':20} {'kerascnn':>11} {'PyTorch':>11} {'ratio':>6}")
    with keras.device(arguments.device):
        for name in names:
            here, there = time_network(NETWORKS[name], arguments.device, arguments.rounds)
            print(
                f"{name:20} {1e3 * here:8.1f} ms {1e3 * there:8.1f} ms {here / there:6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
