"""`preprocess_input` of each module: pixels as its networks were trained to see them."""

from __future__ import annotations

from typing import Any

from kerascnn.applications import imagenet_utils


def like_caffe(x: Any, data_format: str | None = None) -> Any:
    """Pixels from 0 to 255 in the order blue, green, red, each less its mean over ImageNet.

    Args:
        x: One image or a batch of shape (n, height, width, 3), or with the channels before the
            height; an array or a tensor, also a symbolic one.
        data_format: "channels_last", "channels_first" or None for what is configured.

    Returns:
        What `x` is, array or tensor, of the same shape and dtype; integers become `floatx`.

    Raises:
        ValueError: for another `data_format`, and for images without three channels.

    Source: the networks of Caffe, whose weights VGG (arXiv:1409.1556) and ResNet (arXiv:1512.03385)
    are.

    >>> import kerascnn as keras
    >>> keras.applications.resnet.preprocess_input(np.zeros((1, 1, 3))).round(1).tolist()
    [[[-103.9, -116.8, -123.7]]]
    """
    return imagenet_utils.preprocess_input(x, data_format, "caffe")


def from_minus_one_to_one(x: Any, data_format: str | None = None) -> Any:
    """Pixels from 0 to 255 as numbers from -1 to 1.

    Args:
        x: Images of any shape; an array or a tensor, also a symbolic one.
        data_format: "channels_last", "channels_first" or None; it changes nothing.

    Returns:
        What `x` is, array or tensor, of the same shape and dtype; integers become `floatx`.

    Raises:
        ValueError: for another `data_format`.

    Source: the networks of TensorFlow, such as Inception (arXiv:1512.00567).

    >>> import kerascnn as keras
    >>> keras.applications.mobilenet.preprocess_input(np.array([0.0, 127.5, 255.0])).tolist()
    [-1.0, 0.0, 1.0]
    """
    return imagenet_utils.preprocess_input(x, data_format, "tf")


def like_torch(x: Any, data_format: str | None = None) -> Any:
    """Pixels from 0 to 255 as numbers of mean 0 and deviation 1 over ImageNet, for each channel.

    Args:
        x: One image or a batch of shape (n, height, width, 3), or with the channels before the
            height; an array or a tensor, also a symbolic one.
        data_format: "channels_last", "channels_first" or None for what is configured.

    Returns:
        What `x` is, array or tensor, of the same shape and dtype; integers become `floatx`.

    Raises:
        ValueError: for another `data_format`, and for images without three channels.

    Source: the networks of PyTorch, whose weights DenseNet (arXiv:1608.06993) took over.

    >>> import kerascnn as keras
    >>> keras.applications.densenet.preprocess_input(np.zeros((1, 1, 3))).round(2).tolist()
    [[[-2.12, -2.04, -1.8]]]
    """
    return imagenet_utils.preprocess_input(x, data_format, "torch")


def unchanged(x: Any, data_format: str | None = None) -> Any:
    """Returns its argument: these networks take pixels from 0 to 255, and prepare them themselves.

    Args:
        x: Anything.
        data_format: Anything; it changes nothing.

    Returns:
        `x`

    Source: EfficientNet (arXiv:1905.11946) and others, whose first layers rescale.

    >>> import kerascnn as keras
    >>> keras.applications.efficientnet.preprocess_input(255)
    255
    """
    return x
