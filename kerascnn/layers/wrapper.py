"""The base of layers around another layer."""

from __future__ import annotations

from typing import Any

from kerascnn import serialization
from kerascnn.layers.layer import Layer


class Wrapper(Layer):
    """Base of layers that change what another layer does.

    Args:
        layer: The layer inside. It is built on what this layer is built on, and belongs to it.

    Raises:
        ValueError: for anything but a layer.

    Example:

    >>> import kerascnn as keras
    >>> class Twice(keras.layers.Wrapper):
    ...     def call(self, inputs):
    ...         return self.layer(self.layer(inputs))
    >>> Twice(keras.layers.Dense(3))(keras.ops.ones((2, 3))).shape
    (2, 3)
    """

    def __init__(self, layer: Any, **kwargs: Any) -> None:
        if not isinstance(layer, Layer):
            raise ValueError(
                f"{type(self).__name__} goes around a layer. Received: layer={layer!r} (of type "
                f"{type(layer)})"
            )
        super().__init__(**kwargs)
        self.layer = layer

    def build(self, input_shape: Any = None) -> None:
        if not self.layer.built:
            self.layer.build(input_shape)
            self.layer.built = True

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "layer": serialization.serialize_object(self.layer)}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Any:
        config = dict(config)
        layer = config.pop("layer")
        if isinstance(layer, dict):
            layer = serialization.deserialize_object(layer, custom_objects, "kerascnn.layers")
        return cls(layer, **config)
