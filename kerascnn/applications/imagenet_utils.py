"""Pixels as the networks of ImageNet expect them, and their predictions as names of classes."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np

from kerascnn import config, dtypes, ops
from kerascnn.applications.published import Published, fetch
from kerascnn.symbolic.keras_tensor import KerasTensor

CLASS_INDEX = Published(
    "https://storage.googleapis.com/download.tensorflow.org/data/imagenet_class_index.json",
    "c2c37ea517e94d9795004a39431a14cb",
)
_CLASSES = 1000
_GIVE_LIST = "Put a copy of that file there by hand"
# The mean and the standard deviation of ImageNet's pixels, red, green and blue.
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
# Caffe's networks take blue, green and red, from 0 to 255 less the mean.
_CAFFE_MEAN = (103.939, 116.779, 123.68)


def preprocess_input(x: Any, data_format: str | None = None, mode: str = "caffe") -> Any:
    """Pixels from 0 to 255 as a network was trained to see them.

    Each module of `keras.applications` has this function with the mode of its networks.

    Args:
        x: One image or a batch of shape (n, height, width, 3), or with the channels before the
            height; an array or a tensor, also a symbolic one.
        data_format: "channels_last", "channels_first" or None for what is configured.
        mode: "caffe": blue, green, red, each less its mean over ImageNet. "tf": from -1 to 1.
            "torch": from 0 to 1, then less ImageNet's mean, over its standard deviation.

    Returns:
        What `x` is, array or tensor, of the same shape and dtype; integers become `floatx`. `x`
        itself stays as it is.

    Raises:
        ValueError: for another `mode` or `data_format`, and for an image without three channels
            unless the mode is "tf".

    Source: the preprocessing with which the networks were trained in Caffe, TensorFlow and PyTorch.

    >>> import kerascnn as keras
    >>> image = np.full((2, 2, 3), 255, "uint8")
    >>> print(keras.applications.imagenet_utils.preprocess_input(image, mode="tf")[0, 0])
    [1. 1. 1.]
    """
    if mode not in ("caffe", "tf", "torch"):
        raise ValueError(f"`mode` can be 'caffe', 'tf' or 'torch'. Received: mode={mode!r}")
    data_format = config.standardize_data_format(data_format)
    is_array = isinstance(x, np.ndarray)
    if not is_array and not isinstance(x, KerasTensor):
        x = ops.convert_to_tensor(x)
    if not dtypes.is_float(dtypes.standardize_dtype(x.dtype)):
        x = x.astype(config.floatx()) if is_array else ops.cast(x, config.floatx())
    if mode == "tf":
        return x / 127.5 - 1.0
    axis = len(x.shape) - (1 if data_format == "channels_last" else 3)
    if len(x.shape) not in (3, 4) or x.shape[axis] != 3:
        raise ValueError(
            f"mode='{mode}' takes an image or a batch of images with 3 channels. Received: an "
            f"input of shape {tuple(x.shape)} with data_format='{data_format}'"
        )

    def of_channels(values: Any) -> Any:
        numbers = np.reshape(values, (3,) + (1,) * (len(x.shape) - 1 - axis))
        if is_array:
            return numbers.astype(x.dtype)
        return ops.convert_to_tensor(numbers.tolist(), dtype=x.dtype)

    if mode == "torch":
        return (x / 255.0 - of_channels(MEAN)) / of_channels(DEVIATION)
    backwards = np.flip(x, axis) if is_array else ops.flip(x, axis)
    return backwards - of_channels(_CAFFE_MEAN)


def decode_predictions(preds: Any, top: int = 5) -> list[list[tuple[str, str, float]]]:
    """The most likely classes of ImageNet in predictions, by name.

    The names come from `imagenet_class_index.json`, which is downloaded once into `models` in the
    cache (`~/.kerascnn`, or what `KERASCNN_HOME` names).

    Args:
        preds: What a network with 1000 classes predicted, an array or tensor of shape (n, 1000).
        top: How many classes to return for each image.

    Returns:
        For each image a list of `(number in WordNet, name, prediction)`, the largest prediction
        first.

    Raises:
        ValueError: for predictions of another shape, and for a list of classes with another
            content than the published one.
        ConnectionError: where the list is not in the cache and cannot be downloaded.

    Source: the synsets of ImageNet, https://image-net.org

    >>> import kerascnn as keras
    >>> predictions = np.eye(1000, dtype="float32")[207:208]
    >>> keras.applications.imagenet_utils.decode_predictions(predictions, top=1)
    [[('n02099601', 'golden_retriever', 1.0)]]
    """
    shape = tuple(getattr(preds, "shape", np.shape(preds)))
    if len(shape) != 2 or shape[1] != _CLASSES:
        raise ValueError(
            f"Predictions of ImageNet's classes have the shape (n, {_CLASSES}). Received: an array "
            f"of shape {shape}. A network with other `classes` needs its own list of names."
        )
    if isinstance(top, bool) or not isinstance(top, int) or not 1 <= top <= _CLASSES:
        raise ValueError(f"`top` is a number of classes from 1 to {_CLASSES}. Received: top={top}")
    names = _class_names(fetch(CLASS_INDEX, "The list of ImageNet's classes", _GIVE_LIST))
    rows = np.asarray(ops.convert_to_numpy(preds))
    # Among equal predictions the later class comes first, as in Keras.
    largest = np.argsort(rows, axis=1)[:, : -top - 1 : -1]
    return [
        [(*names[i], float(row[i])) for i in best] for row, best in zip(rows, largest, strict=True)
    ]


@cache
def _class_names(path: str) -> list[tuple[str, str]]:
    with open(path, encoding="utf-8") as file:
        index = json.load(file)
    return [(index[str(i)][0], index[str(i)][1]) for i in range(_CLASSES)]
