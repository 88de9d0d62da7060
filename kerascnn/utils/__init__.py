"""Helpers: seeds, one-hot labels, progress bars, downloads, clean starts."""

from __future__ import annotations

import gc
import random as _python_random
from typing import Any

import numpy as np

from kerascnn import former_names
from kerascnn.config import (
    disable_interactive_logging,
    enable_interactive_logging,
    is_interactive_logging_enabled,
)
from kerascnn.dtypes import standardize_dtype
from kerascnn.registration import (
    CustomObjectScope,
    custom_object_scope,
    get_custom_objects,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
)
from kerascnn.serialization import deserialize_keras_object, serialize_keras_object
from kerascnn.utils import bounding_boxes, legacy
from kerascnn.utils.audio_dataset import audio_dataset_from_directory
from kerascnn.utils.batch_parts import pack_x_y_sample_weight, unpack_x_y_sample_weight
from kerascnn.utils.config import Config
from kerascnn.utils.dataset_utils import split_dataset
from kerascnn.utils.download import get_file
from kerascnn.utils.image_dataset import image_dataset_from_directory
from kerascnn.utils.image_utils import array_to_img, img_to_array, load_img, save_img
from kerascnn.utils.model_visualization import model_to_dot, plot_model
from kerascnn.utils.numerical_utils import normalize
from kerascnn.utils.progbar import Progbar
from kerascnn.utils.py_dataset import PyDataset, Sequence
from kerascnn.utils.sequence_utils import pad_sequences, timeseries_dataset_from_array
from kerascnn.utils.tar_dataset import image_dataset_from_tar
from kerascnn.utils.tar_writer import write_tar_shards
from kerascnn.utils.text_dataset import text_dataset_from_directory

__all__ = [
    "Config",
    "CustomObjectScope",
    "FeatureSpace",
    "Progbar",
    "PyDataset",
    "Sequence",
    "array_to_img",
    "audio_dataset_from_directory",
    "bounding_boxes",
    "clear_session",
    "custom_object_scope",
    "deserialize_keras_object",
    "disable_interactive_logging",
    "enable_interactive_logging",
    "get_custom_objects",
    "get_file",
    "get_registered_name",
    "get_registered_object",
    "get_source_inputs",
    "image_dataset_from_directory",
    "image_dataset_from_tar",
    "img_to_array",
    "is_interactive_logging_enabled",
    "is_keras_tensor",
    "legacy",
    "load_img",
    "model_to_dot",
    "normalize",
    "pack_x_y_sample_weight",
    "pad_sequences",
    "plot_model",
    "register_keras_serializable",
    "save_img",
    "serialize_keras_object",
    "set_random_seed",
    "split_dataset",
    "standardize_dtype",
    "text_dataset_from_directory",
    "timeseries_dataset_from_array",
    "to_categorical",
    "unpack_x_y_sample_weight",
    "write_tar_shards",
]


def set_random_seed(seed: int) -> None:
    """Makes everything that is random repeatable: Python's, NumPy's and kerascnn's generators.

    Args:
        seed: From 0 to 2**32 - 1.

    Raises:
        ValueError: for anything else.

    Example:

    >>> import kerascnn as keras
    >>> keras.utils.set_random_seed(1)
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
        raise ValueError(f"A seed must be an integer from 0 to 2**32 - 1. Received: seed={seed!r}")
    from kerascnn import seed_generators

    _python_random.seed(int(seed))
    np.random.seed(int(seed))  # noqa: NPY002 (the one that users' scripts draw from)
    seed_generators.reset_global_generator(int(seed))


def clear_session(free_memory: bool = True) -> None:
    """Starts automatic names anew, and forgets the dtype policy and how messages are shown.

    Args:
        free_memory: Whether to collect what nobody refers to any more, and to give the memory that
            is kept for reuse on devices back.

    Example:

    >>> import kerascnn as keras
    >>> keras.utils.clear_session()
    >>> keras.layers.Dense(2).name, keras.layers.Dense(2).name
    ('dense', 'dense_1')
    """
    from kerascnn import config, dtype_policies, naming

    naming.reset()
    dtype_policies.reset()
    config.enable_interactive_logging()
    if not free_memory:
        return
    gc.collect()
    for name, usable, _ in config.list_devices():
        if usable:
            config.release_cached_memory(name)


def is_keras_tensor(x: Any) -> bool:
    """Tells whether `x` is symbolic: a `keras.Input` or what layers made of one.

    Args:
        x: Anything.

    Returns:
        True or False.

    Example:

    >>> import kerascnn as keras
    >>> keras.utils.is_keras_tensor(keras.Input((4,)))
    True
    >>> keras.utils.is_keras_tensor(keras.ops.ones((4,)))
    False
    """
    from kerascnn.symbolic.keras_tensor import KerasTensor

    return isinstance(x, KerasTensor)


def get_source_inputs(tensor: Any) -> Any:
    """The `keras.Input`s that a symbolic tensor is computed from, as a list.

    Args:
        tensor: What layers returned; anything that is not symbolic comes back as it is.

    Returns:
        A list of KerasTensors.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.Input((4,), name="x")
    >>> [source.name for source in keras.utils.get_source_inputs(keras.layers.Dense(2)(x))]
    ['x']
    """
    from kerascnn.symbolic.operation import node_of

    if not is_keras_tensor(tensor):
        return tensor
    if tensor._keras_history is None:
        return [tensor]
    node = node_of(tensor)
    if node.is_input:
        return list(node.output_tensors)
    found = (source for x in node.input_tensors for source in get_source_inputs(x))
    return list({id(source): source for source in found}.values())


def to_categorical(x: Any, num_classes: int | None = None) -> Any:
    """Class numbers as rows with one 1.

    Args:
        x: Integers of any shape from 0 on; a last axis of size 1 is left out.
        num_classes: By default the largest number plus 1; needed where `x` is a tensor.

    Returns:
        float32 of the shape of x with an axis of `num_classes` at the end: an array, or a tensor
        where x is one.

    Raises:
        ValueError: for a number that is negative or not below num_classes.

    Example:

    >>> from kerascnn.utils import to_categorical
    >>> to_categorical([0, 2], 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    from kerascnn import ops
    from kerascnn.ops import dispatch

    if dispatch.is_tensor(x) and num_classes:
        squeezed = ops.squeeze(x, -1) if len(x.shape) > 1 and x.shape[-1] == 1 else x
        return ops.one_hot(squeezed, num_classes)
    labels = np.asarray(x, dtype="int64")
    if labels.ndim > 1 and labels.shape[-1] == 1:
        labels = labels[..., 0]
    largest = int(labels.max()) if labels.size else -1
    classes = int(num_classes) if num_classes else largest + 1
    if labels.size and (labels.min() < 0 or largest >= classes):
        raise ValueError(
            f"Class numbers must be from 0 to {classes - 1}. Received: from {labels.min()} to "
            f"{largest}"
        )
    return np.eye(classes, dtype="float32")[labels]


# These names existed in older versions.
_former_name = former_names.module_getattr(__name__)


def __getattr__(name: str) -> Any:
    if name == "FeatureSpace":  # it consists of layers, which import this package
        from kerascnn.utils.feature_space import FeatureSpace

        return FeatureSpace
    return _former_name(name)
