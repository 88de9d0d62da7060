"""MNIST: 70,000 handwritten digits, 28x28 pixels."""

from __future__ import annotations

import os

from kerascnn.datasets.image_files import Arrays, read_image_set
from kerascnn.datasets.locate import DataSource, locate
from kerascnn.utils.file_utils import RemoteFile

_SOURCE = DataSource(
    title="MNIST",
    cache_name="mnist.npz",
    variable="KERASCNN_MNIST",
    files=(
        RemoteFile(
            name="mnist.npz",
            sha256="731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
            size=11_490_434,
            urls=("https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",),
        ),
    ),
)


def load_data(path: str | os.PathLike[str] = "mnist.npz") -> tuple[Arrays, Arrays]:
    """Loads MNIST: 60,000 training and 10,000 test images of handwritten digits.

    Args:
        path: a folder with the four IDX files of MNIST (`train-images-idx3-ubyte`, ..., plain or
            .gz), or an .npz archive with the arrays `x_train`, `y_train`, `x_test`, `y_test`.
            A bare .npz name that is no file in the working folder is, as in Keras, a name in the
            cache (`~/.kerascnn/datasets`, or `datasets` below the environment variable
            `KERASCNN_HOME`): the data set is read from there, else from Keras' own cache, else
            downloaded (11 MB), checked by SHA-256 and stored. The default, `"mnist.npz"`, first
            follows the environment variable `KERASCNN_MNIST`, a folder or an archive.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: uint8 images of shape (60000, 28, 28) and
        (10000, 28, 28) with pixels 0 to 255, uint8 labels 0 to 9 of shape (60000,) and (10000,).
        The arrays are writable and C-contiguous. A folder or an archive of your own may have
        another number of images.

    Raises:
        FileNotFoundError: `path` does not exist, or files are missing in the folder.
        ConnectionError: the data set is not on this machine and cannot be downloaded.
        ValueError: a file is truncated, damaged or holds something else.

    Source: Y. LeCun, C. Cortes, C. J. C. Burges, "The MNIST database of handwritten digits".
    Licensed under CC BY-SA 3.0.

    >>> import kerascnn as keras
    >>> (x_train, y_train), (x_test, y_test) = keras.datasets.mnist.load_data()
    >>> x_train.shape, y_test.shape
    ((60000, 28, 28), (10000,))
    """
    return read_image_set(locate(_SOURCE, path))
