"""What VGG-16 and VGG-19 share."""

from __future__ import annotations

from collections.abc import Sequence

from kerascnn import layers
from kerascnn.applications.network import Network
from kerascnn.applications.published import Weights
from kerascnn.applications.torch_names import VGG
from kerascnn.models import Model

PAPER = (
    "K. Simonyan and A. Zisserman, Very Deep Convolutional Networks for Large-Scale Image\n"
    "    Recognition, 2014, arXiv:1409.1556."
)
_FILTERS = (64, 128, 256, 512, 512)


def vgg(counts: Sequence[int], network: Network, published: Weights) -> Model:
    """The network with so many convolutions in each of its five blocks."""
    x = image = network.image(224, published)
    for block, (filters, count) in enumerate(zip(_FILTERS, counts, strict=True), 1):
        for i in range(1, count + 1):
            x = layers.Conv2D(
                filters, 3, padding="same", activation="relu", name=f"block{block}_conv{i}"
            )(x)
        x = layers.MaxPooling2D(2, strides=2, name=f"block{block}_pool")(x)
    if network.include_top:
        x = layers.Flatten(name="flatten")(x)
        x = layers.Dense(4096, activation="relu", name="fc1")(x)
        x = layers.Dense(4096, activation="relu", name="fc2")(x)
        x = network.classified(x)
    else:
        x = network.pooled(x, is_named=False)
    return network.model(x, image, VGG)
