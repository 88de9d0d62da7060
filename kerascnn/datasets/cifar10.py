"""CIFAR-10: 60,000 small color photographs of 10 classes, 32x32 pixels."""

from __future__ import annotations

import os

from kerascnn.datasets.cifar import Layout, read_cifar
from kerascnn.datasets.image_files import Arrays
from kerascnn.datasets.locate import DataSource, locate
from kerascnn.utils.file_utils import RemoteFile

_SOURCE = DataSource(
    title="CIFAR-10",
    cache_name="cifar-10-python.tar.gz",
    variable="KERASCNN_CIFAR10",
    files=(
        RemoteFile(
            name="cifar-10-python.tar.gz",
            sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            size=170_498_071,
            urls=("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
        ),
    ),
    keras_name="cifar-10-batches-py-target_archive",
    files_called="batch files",
    archive_called="a .tar.gz archive",
)
_LAYOUT = Layout(
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test=("test_batch",),
    label_key=b"labels",
    num_classes=10,
    label_bytes=1,
    label_byte=0,
)


def load_data(path: str | os.PathLike[str] = "cifar-10-python.tar.gz") -> tuple[Arrays, Arrays]:
    """Loads CIFAR-10: 50,000 training and 10,000 test photographs.

    The classes 0 to 9 are airplane, automobile, bird, cat, deer, dog, frog, horse, ship and truck.

    Args:
        path: a folder with the batch files (`data_batch_1`, ..., `test_batch`: pickles, or plain
            bytes with the ending .bin), or a .tar.gz archive with them. The default stands for
            what the environment variable `KERASCNN_CIFAR10` names, else the file in the cache
            (`~/.kerascnn/datasets`, or `datasets` below `KERASCNN_HOME`), else Keras' own, else
            the download (170 MB), checked by SHA-256 and stored. Keras' function has no such
            argument.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: uint8 images of shape (50000, 32, 32, 3) and
        (10000, 32, 32, 3) with pixels 0 to 255, uint8 labels 0 to 9 of shape (50000, 1) and
        (10000, 1). With "channels_first" configured, the images are (n, 3, 32, 32).

    Raises:
        FileNotFoundError: `path` does not exist, or files are missing in it.
        ConnectionError: the data set is not on this machine and cannot be downloaded.
        ValueError: a file is truncated, damaged or holds something else. Pickles are read without
            calling anything: they hold arrays, or are refused.

    Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.

    >>> import kerascnn as keras
    >>> (x_train, y_train), (x_test, y_test) = keras.datasets.cifar10.load_data()
    >>> x_train.shape, y_test.shape
    ((50000, 32, 32, 3), (10000, 1))
    """
    return read_cifar(locate(_SOURCE, path), _LAYOUT)
