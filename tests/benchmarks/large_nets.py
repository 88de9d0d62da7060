"""Networks of everyday size for `large.py` in Keras' API. The library is an argument.

They are those of the papers, but biases exist only where no normalization follows, and there is no
stochastic depth. `large_torch.py` has the same networks for PyTorch, with as many parameters.
Images are uint8 of shape (size, size, 3) and are scaled to [-1, 1]; the last layer gives logits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

LEARNING_RATE, MOMENTUM = 0.01, 0.9
NORM_EPSILON, NORM_MOMENTUM = 1e-5, 0.9

# (filters, number of blocks) of each stage.
RESNET18 = ((64, 2), (128, 2), (256, 2), (512, 2))
RESNET50 = ((64, 3), (128, 4), (256, 6), (512, 3))
VGG16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
CONVNEXT_T = ((96, 3), (192, 3), (384, 9), (768, 3))
CONVNEXT_BLOCK = ((96, 1),)
# (expansion, filters, number of blocks, stride of the first block, size of the kernel).
MOBILENET_V2 = (
    *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3)),
    *((6, 96, 3, 1, 3), (6, 160, 3, 2, 3), (6, 320, 1, 1, 3)),
)
EFFICIENTNET_B0 = (
    *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)),
    *((6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
)
VIT_BLOCKS, VIT_WIDTH, VIT_HEADS, VIT_PATCH = 12, 384, 6, 16
LAYER_SCALE = 1e-6  # ConvNeXt scales each branch by this at first


class Blocks:
    """Groups of layers that several networks share."""

    def __init__(self, keras: Any):
        self.keras = keras
        self.layers = keras.layers

    def normalize(self, x, activation=None):
        x = self.layers.BatchNormalization(epsilon=NORM_EPSILON, momentum=NORM_MOMENTUM)(x)
        return self.layers.Activation(activation)(x) if activation else x

    def convolve(self, x, filters, size=1, strides=1, activation=None):
        """Adds a convolution with batch normalization."""
        conv = self.layers.Conv2D(filters, size, strides, padding="same", use_bias=False)
        return self.normalize(conv(x), activation)

    def convolve_depthwise(self, x, size, strides, activation):
        conv = self.layers.DepthwiseConv2D(size, strides, padding="same", use_bias=False)
        return self.normalize(conv(x), activation)

    def add_relu(self, x, shortcut):
        return self.layers.Activation("relu")(self.layers.Add()([x, shortcut]))

    def classify(self, x, classes):
        return self.layers.Dense(classes)(self.layers.GlobalAveragePooling2D()(x))

    def normalize_channels(self, x):
        return self.layers.LayerNormalization(epsilon=1e-6)(x)

    def mlp(self, x, width):
        """Adds two dense layers with gelu between them."""
        return self.layers.Dense(width)(self.layers.Dense(4 * width, activation="gelu")(x))


def resnet18(b: Blocks, x, classes: int):
    """The first convolution is one for small images, as in the paper's experiments on CIFAR-10."""
    x = b.convolve(x, 64, 3, 1, "relu")
    for stage, (filters, blocks) in enumerate(RESNET18):
        for block in range(blocks):
            strides = 2 if stage and not block else 1
            shortcut = x if strides == 1 else b.convolve(x, filters, 1, strides)
            x = b.convolve(x, filters, 3, strides, "relu")
            x = b.add_relu(b.convolve(x, filters, 3), shortcut)
    return b.classify(x, classes)


def resnet50(b: Blocks, x, classes: int):
    """The 3 x 3 convolutions have the strides ("version 1.5")."""
    x = b.convolve(x, 64, 7, 2, "relu")
    x = b.layers.MaxPooling2D(3, 2, padding="same")(x)
    for stage, (filters, blocks) in enumerate(RESNET50):
        for block in range(blocks):
            strides = 2 if stage and not block else 1
            shortcut = x if block else b.convolve(x, 4 * filters, 1, strides)
            x = b.convolve(x, filters, 1, 1, "relu")
            x = b.convolve(x, filters, 3, strides, "relu")
            x = b.add_relu(b.convolve(x, 4 * filters), shortcut)
    return b.classify(x, classes)


def vgg16(b: Blocks, x, classes: int):
    for filters, count in VGG16:
        for _ in range(count):
            x = b.layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = b.layers.MaxPooling2D(2)(x)
    x = b.layers.Flatten()(x)
    for _ in range(2):
        x = b.layers.Dropout(0.5)(b.layers.Dense(4096, activation="relu")(x))
    return b.layers.Dense(classes)(x)


def inverted_bottlenecks(b: Blocks, x, classes: int, stages, activation: str, squeezes: bool):
    x = b.convolve(x, 32, 3, 2, activation)
    for expansion, filters, blocks, first_strides, size in stages:
        for block in range(blocks):
            strides, channels = 1 if block else first_strides, x.shape[-1]
            h = b.convolve(x, expansion * channels, 1, 1, activation) if expansion > 1 else x
            h = b.convolve_depthwise(h, size, strides, activation)
            if squeezes:
                h = squeeze_excite(b, h, channels // 4)
            h = b.convolve(h, filters)
            x = b.layers.Add()([x, h]) if strides == 1 and channels == filters else h
    return b.classify(b.convolve(x, 1280, 1, 1, activation), classes)


def squeeze_excite(b: Blocks, x, channels: int):
    gate = b.layers.GlobalAveragePooling2D(keepdims=True)(x)
    gate = b.layers.Conv2D(channels, 1, activation="silu")(gate)
    gate = b.layers.Conv2D(x.shape[-1], 1, activation="sigmoid")(gate)
    return b.layers.Multiply()([x, gate])


def mobilenet_v2(b: Blocks, x, classes: int):
    return inverted_bottlenecks(b, x, classes, MOBILENET_V2, "relu6", squeezes=False)


def efficientnet_b0(b: Blocks, x, classes: int):
    return inverted_bottlenecks(b, x, classes, EFFICIENTNET_B0, "silu", squeezes=True)


def layer_scale(keras: Any):
    class LayerScale(keras.layers.Layer):
        """Multiplies each channel by a factor."""

        def build(self, input_shape):
            self.factors = self.add_weight(
                shape=(input_shape[-1],), initializer=keras.initializers.Constant(LAYER_SCALE)
            )

        def call(self, x):
            return x * self.factors

    return LayerScale


def convnext(b: Blocks, x, classes: int, stages):
    scale = layer_scale(b.keras)
    for stage, (filters, blocks) in enumerate(stages):
        if stage:
            x = b.layers.Conv2D(filters, 2, 2)(b.normalize_channels(x))
        else:
            x = b.normalize_channels(b.layers.Conv2D(filters, 4, 4)(x))
        for _ in range(blocks):
            h = b.layers.DepthwiseConv2D(7, padding="same")(x)
            h = b.mlp(b.normalize_channels(h), filters)
            x = b.layers.Add()([x, scale()(h)])
    x = b.normalize_channels(b.layers.GlobalAveragePooling2D()(x))
    return b.layers.Dense(classes)(x)


def convnext_t(b: Blocks, x, classes: int):
    return convnext(b, x, classes, CONVNEXT_T)


def convnext_block(b: Blocks, x, classes: int):
    """One block of ConvNeXt-T's first stage, for measurements on CPUs."""
    return convnext(b, x, classes, CONVNEXT_BLOCK)


def positions(keras: Any):
    class Positions(keras.layers.Layer):
        """Adds a vector for each position of a sequence."""

        def build(self, input_shape):
            self.vectors = self.add_weight(
                shape=tuple(input_shape[1:]),
                initializer=keras.initializers.RandomNormal(stddev=0.02),
            )

        def call(self, x):
            return x + self.vectors

    return Positions


def vit_s16(b: Blocks, x, classes: int):
    """There is no class token: the mean over all patches is classified."""
    x = b.layers.Conv2D(VIT_WIDTH, VIT_PATCH, VIT_PATCH)(x)
    x = b.layers.Reshape((-1, VIT_WIDTH))(x)
    x = positions(b.keras)()(x)
    for _ in range(VIT_BLOCKS):
        h = b.normalize_channels(x)
        h = b.layers.MultiHeadAttention(VIT_HEADS, VIT_WIDTH // VIT_HEADS)(h, h)
        x = b.layers.Add()([x, h])
        x = b.layers.Add()([x, b.mlp(b.normalize_channels(x), VIT_WIDTH)])
    x = b.layers.GlobalAveragePooling1D()(x)
    return b.layers.Dense(classes)(b.normalize_channels(x))


class Net(NamedTuple):
    build: Callable[[Blocks, Any, int], Any]
    batch_size: int
    image_size: int = 224
    classes: int = 1000


NETS = {
    "resnet18": Net(resnet18, 512, 32, 10),
    "resnet50": Net(resnet50, 128),
    "vgg16": Net(vgg16, 64),
    "mobilenet_v2": Net(mobilenet_v2, 128),
    "efficientnet_b0": Net(efficientnet_b0, 128),
    "convnext_t": Net(convnext_t, 64),
    "convnext_block": Net(convnext_block, 16, 112, 10),
    "vit_s16": Net(vit_s16, 128),
}


class Case(NamedTuple):
    """A network with its own or other batches and images: "vit_s16", "vit_s16@8x32"."""

    net: str
    batch_size: int
    image_size: int

    @classmethod
    def parse(cls, text: str) -> Case:
        found = re.fullmatch(r"(\w+)(?:@([1-9]\d*)(?:x([1-9]\d*))?)?", text)
        if found is None or found[1] not in NETS:
            raise ValueError(
                f"{text!r} is no net: write one of {', '.join(NETS)}, or for example "
                "resnet50@32 for batches of 32, resnet50@32x64 for images of 64 x 64"
            )
        net = NETS[found[1]]
        return cls(found[1], int(found[2] or net.batch_size), int(found[3] or net.image_size))

    def __str__(self) -> str:
        net = NETS[self.net]
        size = "" if self.image_size == net.image_size else f"x{self.image_size}"
        batch = "" if self.batch_size == net.batch_size and not size else f"@{self.batch_size}"
        return self.net + batch + size

    def data(self, batches: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws labels, and images for one batch that all batches repeat, which takes less time."""
        rng = np.random.default_rng(0)
        size = self.image_size
        images = rng.integers(0, 256, (self.batch_size, size, size, 3), np.uint8)
        labels = rng.integers(0, NETS[self.net].classes, batches * self.batch_size, np.int32)
        return np.tile(images, (batches, 1, 1, 1)), labels


def keras_model(keras: Any, case: Case):
    """Returns the compiled model."""
    net = NETS[case.net]
    images = keras.Input((case.image_size, case.image_size, 3))
    x = keras.layers.Rescaling(1 / 127.5, offset=-1)(images)
    model = keras.Model(images, net.build(Blocks(keras), x, net.classes))
    model.compile(
        keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model
