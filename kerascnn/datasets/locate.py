"""Finds a data set: given by the caller or the environment, cached, or downloaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from kerascnn.utils import file_utils
from kerascnn.utils.file_utils import RemoteFile


class DataSource(NamedTuple):
    """A published data set of one .npz archive or a folder of files.

    Attributes:
        title: its name in messages.
        cache_name: its name in the cache, which is the default of `load_data(path=...)`.
        variable: the environment variable that says where a copy lies.
        files: its files; for an archive the one file, otherwise the content of the folder.
        keras_name: its name in Keras' cache, by default `cache_name`.
        files_called: how messages call the files of a folder.
        archive_called: how messages call the one file.
    """

    title: str
    cache_name: str
    variable: str
    files: tuple[RemoteFile, ...]
    keras_name: str | None = None
    files_called: str = "four IDX files"
    archive_called: str = "an .npz archive"

    @property
    def is_archive(self) -> bool:
        return self.cache_name.endswith((".npz", ".tar.gz"))


def locate(source: DataSource, path: str | os.PathLike[str]) -> Path:
    """The folder or archive to read for `load_data(path)`, downloaded first if need be.

    Tried in this order: for the default path the environment variable `source.variable`; `path`
    itself; the cache; Keras' own cache; the download.

    Raises:
        FileNotFoundError: `path`, or what the environment variable names, does not exist.
        ConnectionError: the download failed; the message says what else can be done.
        ValueError: the download had a wrong content.
    """
    given = Path(path).expanduser()
    if str(given) == source.cache_name and (named := os.environ.get(source.variable)):
        if not Path(named).expanduser().exists():
            raise FileNotFoundError(
                f"The environment variable {source.variable} names {named}, which does not exist. "
                f"Correct it to the folder or file of {source.title}, or unset it."
            )
        return Path(named).expanduser()
    if given.exists():
        return given
    names_the_cache = str(given) == source.cache_name or (
        source.is_archive
        and given.suffix == Path(source.cache_name).suffix
        and given.name == str(given)
    )
    if not names_the_cache:
        raise FileNotFoundError(
            f"{given} does not exist. Expected a folder with the {source.files_called} of "
            f"{source.title}, {source.archive_called}, or {source.cache_name!r}, which stands for "
            f"the copy in the cache, {file_utils.dataset_folder()}."
        )
    return _cached_or_downloaded(source, given)


def _cached_or_downloaded(source: DataSource, name: Path) -> Path:
    cached = file_utils.dataset_folder() / name
    keras_home = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    for place in (cached, keras_home / "datasets" / (source.keras_name or source.cache_name)):
        if all(file_utils.is_intact(_file_in(source, place, file), file) for file in source.files):
            return place
    for file in source.files:
        target = _file_in(source, cached, file)
        if file_utils.is_intact(target, file):
            continue
        try:
            file_utils.download(file, target)
        except (ConnectionError, ValueError) as error:
            kind = ValueError if isinstance(error, ValueError) else ConnectionError
            raise kind(_no_download(source, target, error)) from error
    return cached


def _file_in(source: DataSource, place: Path, file: RemoteFile) -> Path:
    return place if source.is_archive else place / file.name


def _no_download(source: DataSource, target: Path, error: Exception) -> str:
    damaged = ", and the copy there is damaged" if target.exists() else ""
    return (
        f"{source.title} is not in the cache ({target}{damaged}) and was not obtained: {error}. "
        f"Without network: pass path= a folder with the {source.files_called} or "
        f"{source.archive_called}, or name it in the environment variable {source.variable}; or "
        "set KERASCNN_HOME to the folder of a machine that has the data set; or use "
        "kerascnn.datasets.digits, which ships with the package."
    )
