"""Files that Keras publishes: where they are, and what to do on a machine without a network."""

from __future__ import annotations

from typing import NamedTuple

from kerascnn.utils import file_utils
from kerascnn.utils.download import get_file

_FOLDER = "models"


class Published(NamedTuple):
    """A file with an address."""

    url: str
    file_hash: str | None  # of its content, MD5 or SHA-256; Keras gives none for some files
    name: str | None = None  # in the cache, where it is not the last part of the address


class Weights(NamedTuple):
    """The files of one network: with its classifier, and without."""

    top: Published
    no_top: Published


KERAS_APPLICATIONS = "https://storage.googleapis.com/tensorflow/keras-applications/"
_ENDINGS = (
    "_weights_tf_dim_ordering_tf_kernels.h5",
    "_weights_tf_dim_ordering_tf_kernels_notop.h5",
)


def weights(
    stem: str, top_hash: str, no_top_hash: str, endings: tuple[str, str] = _ENDINGS
) -> Weights:
    """The files of a network whose names differ in how they end.

    Args:
        stem: Folder and beginning of the names, below `KERAS_APPLICATIONS` or as a whole address.
        top_hash: That of the file with the classifier.
        no_top_hash: That of the file without.
        endings: How their names end.
    """
    start = stem if "://" in stem else KERAS_APPLICATIONS + stem
    return Weights(
        Published(start + endings[0], top_hash), Published(start + endings[1], no_top_hash)
    )


def fetch(file: Published, title: str, advice: str) -> str:
    """The path of a published file in the cache; it is downloaded where it is not there yet.

    Args:
        file: The file.
        title: What errors call it.
        advice: What errors advise to those who cannot download it.

    Raises:
        ConnectionError: where it is not in the cache and cannot be downloaded.
        ValueError: where the download has another hash.
    """
    name = file.name or file.url.rpartition("/")[2]
    try:
        return get_file(name, file.url, file_hash=file.file_hash, cache_subdir=_FOLDER)
    except ConnectionError as error:
        target = file_utils.home_folder() / _FOLDER / name
        raise ConnectionError(
            f"{title} can't be downloaded from {file.url} to {target}: {error}. {advice}."
        ) from error
