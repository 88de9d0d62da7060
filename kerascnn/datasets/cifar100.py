"""CIFAR-100: 60,000 small color photographs of 100 classes in 20 groups, 32x32 pixels."""

from __future__ import annotations

import os

from kerascnn.datasets.cifar import Layout, read_cifar
from kerascnn.datasets.image_files import Arrays
from kerascnn.datasets.locate import DataSource, locate
from kerascnn.utils.file_utils import RemoteFile

_SOURCE = DataSource(
    title="CIFAR-100",
    cache_name="cifar-100-python.tar.gz",
    variable="KERASCNN_CIFAR100",
    files=(
        RemoteFile(
            name="cifar-100-python.tar.gz",
            sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            size=169_001_437,
            urls=("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
        ),
    ),
    keras_name="cifar-100-python-target_archive",
    files_called="batch files",
    archive_called="a .tar.gz archive",
)
_LAYOUTS = {
    "fine": Layout(("train",), ("test",), b"fine_labels", 100, 2, 1),
    "coarse": Layout(("train",), ("test",), b"coarse_labels", 20, 2, 0),
}


def load_data(
    label_mode: str = "fine", path: str | os.PathLike[str] = "cifar-100-python.tar.gz"
) -> tuple[Arrays, Arrays]:
    """Loads CIFAR-100: 50,000 training and 10,000 test photographs.

    Args:
        label_mode: "fine" for the 100 classes, "coarse" for their 20 groups.
        path: a folder with the files `train` and `test` (pickles, or plain bytes with the ending
            .bin), or a .tar.gz archive with them. The default stands for what the environment
            variable `KERASCNN_CIFAR100` names, else the file in the cache (`~/.kerascnn/datasets`,
            or `datasets` below `KERASCNN_HOME`), else Keras' own, else the download (169 MB),
            checked by SHA-256 and stored. Keras' function has no such argument.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: uint8 images of shape (50000, 32, 32, 3) and
        (10000, 32, 32, 3) with pixels 0 to 255, uint8 labels of shape (50000, 1) and (10000, 1).
        With "channels_first" configured, the images are (n, 3, 32, 32).

    Raises:
        FileNotFoundError: `path` does not exist, or files are missing in it.
        ConnectionError: the data set is not on this machine and cannot be downloaded.
        ValueError: for another `label_mode`; a file is truncated, damaged or holds something else.
            Pickles are read without calling anything: they hold arrays, or are refused.

    Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.

    >>> import kerascnn as keras
    >>> (x_train, y_train), (x_test, y_test) = keras.datasets.cifar100.load_data()
    >>> x_train.shape, y_test.shape
    ((50000, 32, 32, 3), (10000, 1))
    """
    if label_mode not in _LAYOUTS:
        raise ValueError(
            f'`label_mode` must be one of `"fine"`, `"coarse"`. Received: label_mode={label_mode}.'
        )
    return read_cifar(locate(_SOURCE, path), _LAYOUTS[label_mode])
