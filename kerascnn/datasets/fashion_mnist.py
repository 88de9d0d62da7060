"""Fashion-MNIST: 70,000 pictures of clothing, 28x28 pixels, in the format of MNIST."""

from __future__ import annotations

import os

from kerascnn.datasets.image_files import Arrays, read_image_set
from kerascnn.datasets.locate import DataSource, locate
from kerascnn.utils.file_utils import RemoteFile

_MIRRORS = (
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)


def _remote(name: str, size: int, sha256: str) -> RemoteFile:
    return RemoteFile(name, sha256, size, tuple(mirror + name for mirror in _MIRRORS))


_SOURCE = DataSource(
    title="Fashion-MNIST",
    cache_name="fashion-mnist",
    variable="KERASCNN_FASHION_MNIST",
    files=(
        _remote(
            "train-images-idx3-ubyte.gz",
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        _remote(
            "train-labels-idx1-ubyte.gz",
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        _remote(
            "t10k-images-idx3-ubyte.gz",
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        _remote(
            "t10k-labels-idx1-ubyte.gz",
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
)


def load_data(path: str | os.PathLike[str] = "fashion-mnist") -> tuple[Arrays, Arrays]:
    """Loads Fashion-MNIST: 60,000 training and 10,000 test pictures of clothing.

    The classes 0 to 9 are T-shirt/top, trouser, pullover, dress, coat, sandal, shirt, sneaker,
    bag and ankle boot.

    Args:
        path: a folder with the four IDX files (named as those of MNIST, plain or .gz), or an
            .npz archive with the arrays `x_train`, `y_train`, `x_test`, `y_test`. The default,
            `"fashion-mnist"`, stands for the folder named by the environment variable
            `KERASCNN_FASHION_MNIST`, else the one in the cache (`~/.kerascnn/datasets`, or
            `datasets` below `KERASCNN_HOME`), else Keras' own, else the download (31 MB), checked
            by SHA-256 and stored. Keras' function has no such argument.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: uint8 images of shape (60000, 28, 28) and
        (10000, 28, 28) with pixels 0 to 255, uint8 labels 0 to 9 of shape (60000,) and (10000,).
        The arrays are writable and C-contiguous.

    Raises:
        FileNotFoundError: `path` does not exist, or files are missing in the folder.
        ConnectionError: the data set is not on this machine and cannot be downloaded.
        ValueError: a file is truncated, damaged or holds something else.

    Source: H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking
    Machine Learning Algorithms", arXiv:1708.07747. Copyright Zalando SE, MIT licence.

    >>> import kerascnn as keras
    >>> (x_train, y_train), (x_test, y_test) = keras.datasets.fashion_mnist.load_data()
    >>> x_train.shape, y_test.shape
    ((60000, 28, 28), (10000,))
    """
    return read_image_set(locate(_SOURCE, path))
