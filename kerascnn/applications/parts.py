"""Layers that only these architectures have."""

from __future__ import annotations

from typing import Any

from kerascnn import initializers, ops
from kerascnn.layers.layer import Layer


class CustomScaleLayer(Layer):
    """The sum of the first input and a multiple of the second, in InceptionResNetV2.

    Args:
        scale: The factor of the second input.
        kwargs: `name`, `dtype` and `trainable` of all layers.

    >>> layer = CustomScaleLayer(0.5)
    >>> layer([ops.ones((2,)), ops.ones((2,))]).numpy()
    array([1.5, 1.5], dtype=float32)
    """

    _module_in_configs = "keras.src.applications.inception_resnet_v2"

    def __init__(self, scale: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = scale

    def call(self, inputs: Any) -> Any:
        return inputs[0] + inputs[1] * self.scale

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape[0]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scale": self.scale}


class LayerScale(Layer):
    """A learned factor for each channel, in ConvNeXt (H. Touvron et al., arXiv:2103.17239).

    Args:
        init_values: What all factors begin with.
        projection_dim: The number of channels, which is the size of the last axis.
        kwargs: `name`, `dtype` and `trainable` of all layers.

    >>> LayerScale(0.5, 2)(ops.ones((1, 2))).numpy()
    array([[0.5, 0.5]], dtype=float32)
    """

    _module_in_configs = "keras.src.applications.convnext"

    def __init__(self, init_values: float, projection_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.init_values = init_values
        self.projection_dim = projection_dim

    def build(self, input_shape: Any) -> None:
        self.gamma = self.add_weight(
            shape=(self.projection_dim,),
            initializer=initializers.Constant(self.init_values),
            name="gamma",
        )
        self.built = True

    def call(self, inputs: Any) -> Any:
        return inputs * self.gamma

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "init_values": self.init_values,
            "projection_dim": self.projection_dim,
        }


class ClassTokenAndPositions(Layer):
    """Puts a learned token before each sequence and adds a learned vector for each place.

    In vision transformers (A. Dosovitskiy et al., arXiv:2010.11929). The input is of shape
    (n, length, size), the output of shape (n, 1 + length, size).

    Args:
        kwargs: `name`, `dtype` and `trainable` of all layers.

    >>> ClassTokenAndPositions()(ops.ones((2, 9, 4))).shape
    (2, 10, 4)
    """

    _module_in_configs = "kerascnn.applications.parts"

    def build(self, input_shape: Any) -> None:
        _, length, size = input_shape
        self.token = self.add_weight(shape=(1, 1, size), initializer="zeros", name="token")
        self.positions = self.add_weight(
            shape=(1, 1 + length, size),
            initializer=initializers.TruncatedNormal(stddev=0.02),
            name="positions",
        )
        self.built = True

    def call(self, inputs: Any) -> Any:
        shape: Any = (ops.shape(inputs)[0], 1, inputs.shape[-1])
        token = ops.cast(ops.broadcast_to(self.token, shape), inputs.dtype)
        return ops.concatenate([token, inputs], axis=1) + self.positions

    def compute_output_shape(self, input_shape: Any) -> Any:
        n, length, size = input_shape
        return (n, None if length is None else length + 1, size)
