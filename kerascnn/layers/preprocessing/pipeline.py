"""Layers one after the other, as one layer."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from kerascnn import masks, serialization
from kerascnn.layers.layer import Layer


class Pipeline(Layer):
    """Applies layers one after the other: a `Sequential` that is no model.

    Args:
        layers: The layers, in their order.
        name: By default pipeline, pipeline_1, ...

    Example:

    >>> import kerascnn as keras
    >>> layers = keras.layers
    >>> augmentation = layers.Pipeline([layers.RandomFlip("horizontal"), layers.RandomZoom(0.1)])
    >>> augmentation(keras.ops.ones((2, 8, 8, 3)), training=True).shape
    (2, 8, 8, 3)
    """

    _notes_all_calls = True

    def __init__(self, layers: Sequence[Layer], name: str | None = None) -> None:
        super().__init__(name=name)
        self._pipeline_layers = layers

    @property
    def layers(self) -> Sequence[Layer]:
        """The layers, in their order."""
        return self._pipeline_layers

    def call(self, inputs: Any, training: bool = True, mask: Any = None) -> Any:
        for layer in self._pipeline_layers:
            parameters = inspect.signature(layer.call).parameters
            known = {"training": training, "mask": mask}
            inputs = layer(inputs, **{key: known[key] for key in known if key in parameters})
            mask = masks.mask_of(inputs)
        return inputs

    def get_config(self) -> dict[str, Any]:
        layers = [serialization.serialize_object(layer) for layer in self._pipeline_layers]
        return {"layers": layers, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        layers = config.get("layers")
        if not isinstance(layers, (list, tuple)):
            raise ValueError(
                "`Pipeline` config must contain a `layers` key mapping to a list of serialized "
                f"layers. Received config with layers={layers}."
            )
        made = [serialization.deserialize_object(layer) for layer in layers]
        return cls(**{**config, "layers": made})
