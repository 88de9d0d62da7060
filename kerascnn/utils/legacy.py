"""Configurations as Keras 2 wrote them; the same as `keras.legacy.saving`."""

from kerascnn.legacy.saving import deserialize_keras_object, serialize_keras_object

__all__ = ["deserialize_keras_object", "serialize_keras_object"]
