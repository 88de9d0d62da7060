"""Saving and loading models in Keras 3's files, configurations, and custom objects."""

from kerascnn.registration import (
    CustomObjectScope,
    custom_object_scope,
    get_custom_objects,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
)
from kerascnn.saving.api import load_model, load_weights, save_model, save_weights
from kerascnn.saving.file_editor import KerasFileEditor
from kerascnn.saving.pretrained import save_pretrained
from kerascnn.serialization import deserialize_keras_object, serialize_keras_object
from kerascnn.torch_files.loading import load_torch_weights
from kerascnn.torch_files.reading import read_torch_weights

__all__ = [
    "CustomObjectScope",
    "KerasFileEditor",
    "custom_object_scope",
    "deserialize_keras_object",
    "get_custom_objects",
    "get_registered_name",
    "get_registered_object",
    "load_model",
    "load_torch_weights",
    "load_weights",
    "read_torch_weights",
    "register_keras_serializable",
    "save_model",
    "save_pretrained",
    "save_weights",
    "serialize_keras_object",
]
