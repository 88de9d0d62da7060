"""Layers, under the names of Keras."""

from __future__ import annotations

from typing import Any

from kerascnn import serialization
from kerascnn.layers.activation import Activation, ReLU, Softmax
from kerascnn.layers.batch_normalization import BatchNormalization
from kerascnn.layers.conv2d import Conv2D
from kerascnn.layers.dense import Dense
from kerascnn.layers.dropout import Dropout
from kerascnn.layers.flatten import Flatten
from kerascnn.layers.global_average_pooling2d import GlobalAveragePooling2D
from kerascnn.layers.input_layer import Input, InputLayer
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer
from kerascnn.layers.merge import Add, Concatenate
from kerascnn.layers.pooling2d import AveragePooling2D, MaxPooling2D
from kerascnn.layers.rescaling import Rescaling
from kerascnn.layers.reshape import Reshape

# The other names that Keras has for the same classes.
AvgPool2D = AveragePooling2D
Convolution2D = Conv2D
GlobalAvgPool2D = GlobalAveragePooling2D
MaxPool2D = MaxPooling2D


def add(inputs: list[Any], **kwargs: Any) -> Any:
    """The sum of a list of tensors, by an `Add` layer."""
    return Add(**kwargs)(inputs)


def concatenate(inputs: list[Any], axis: int = -1, **kwargs: Any) -> Any:
    """Tensors one after the other along an axis, by a `Concatenate` layer."""
    return Concatenate(axis=axis, **kwargs)(inputs)


def serialize(layer: Layer) -> Any:
    """The configuration of a layer, with its class."""
    return serialization.serialize_object(layer)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """The layer that a configuration with its class describes."""
    return serialization.deserialize_object(config, custom_objects, "kerascnn.layers")


__all__ = [
    "Activation",
    "Add",
    "AveragePooling2D",
    "AvgPool2D",
    "BatchNormalization",
    "Concatenate",
    "Conv2D",
    "Convolution2D",
    "Dense",
    "Dropout",
    "Flatten",
    "GlobalAveragePooling2D",
    "GlobalAvgPool2D",
    "Input",
    "InputLayer",
    "InputSpec",
    "Layer",
    "MaxPool2D",
    "MaxPooling2D",
    "ReLU",
    "Rescaling",
    "Reshape",
    "Softmax",
    "add",
    "concatenate",
    "deserialize",
    "serialize",
]
