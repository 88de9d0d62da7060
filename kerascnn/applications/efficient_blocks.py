"""What both versions of EfficientNet share."""

from __future__ import annotations

from typing import Any

from kerascnn import initializers, layers
from kerascnn.applications.network import channel_axis, channels_of
from kerascnn.symbolic.keras_tensor import KerasTensor


def kernels() -> Any:
    """Initializes convolutions."""
    return initializers.VarianceScaling(2.0, mode="fan_out", distribution="truncated_normal")


def classifier() -> Any:
    """Initializes the classifier."""
    return initializers.VarianceScaling(1 / 3, mode="fan_out", distribution="uniform")


def normalized(
    x: KerasTensor, name: str, momentum: float = 0.99, epsilon: float = 1e-3
) -> KerasTensor:
    """Batch normalization over the channels."""
    return layers.BatchNormalization(
        axis=channel_axis(), momentum=momentum, epsilon=epsilon, name=name
    )(x)


def swish(x: KerasTensor, name: str) -> KerasTensor:
    """The activation of both versions."""
    return layers.Activation("swish", name=name)(x)


def convolution(x: KerasTensor, filters: int, kernel_size: int, name: str, **options: Any) -> Any:
    """A convolution without biases."""
    settings: dict[str, Any] = {"padding": "same", "use_bias": False, **options}
    return layers.Conv2D(filters, kernel_size, kernel_initializer=kernels(), name=name, **settings)(
        x
    )


def squeezed(x: KerasTensor, filters: int, name: str) -> KerasTensor:
    """Weighs the channels by a small network of their means.

    Args:
        x: The maps.
        filters: The width of that network.
        name: The beginning of its layers' names.
    """
    axis = channel_axis()
    channels = channels_of(x)
    weight = layers.GlobalAveragePooling2D(name=f"{name}se_squeeze")(x)
    shape = (channels, 1, 1) if axis == 1 else (1, 1, channels)
    weight = layers.Reshape(shape, name=f"{name}se_reshape")(weight)
    weight = convolution(weight, filters, 1, f"{name}se_reduce", use_bias=True, activation="swish")
    weight = convolution(
        weight, channels, 1, f"{name}se_expand", use_bias=True, activation="sigmoid"
    )
    return layers.Multiply(name=f"{name}se_excite")([x, weight])


def joined(x: KerasTensor, inputs: KerasTensor, drop: float, name: str) -> KerasTensor:
    """Adds what a block computed to its input; in training, at times for no image of the batch."""
    if drop > 0:
        x = layers.Dropout(drop, noise_shape=(None, 1, 1, 1), name=f"{name}drop")(x)
    return layers.Add(name=f"{name}add")([x, inputs])
