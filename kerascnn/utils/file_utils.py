"""Finding, checking, downloading and storing files.

Everything here works on files only: no array, no model. The heavier modules (urllib, rich) are
imported where they are used, because this module is loaded by `import kerascnn`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from kerascnn import part_files

_CHUNK = 1 << 18
# This is the limit for connecting and for each read, not for the whole transfer: slow connections
# are fine, dead ones are not.
_TIMEOUT_SECONDS = 20.0


class RemoteFile(NamedTuple):
    """A file of known content: where it can be had, and how to tell that it is the right one."""

    name: str
    sha256: str
    size: int
    urls: tuple[str, ...]


def home_folder() -> Path:
    """The folder where kerascnn keeps files: `KERASCNN_HOME`, by default `~/.kerascnn`."""
    return Path(os.environ.get("KERASCNN_HOME") or "~/.kerascnn").expanduser()


def dataset_folder() -> Path:
    """The folder where downloaded data sets are kept, `datasets` below `home_folder()`."""
    return home_folder() / "datasets"


def file_sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's content, as 64 lower-case hex digits.

    Raises:
        OSError: the file cannot be read.
    """
    import hashlib

    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def is_intact(path: Path, remote: RemoteFile) -> bool:
    """Tells whether `path` is a readable file with exactly the content of `remote`."""
    try:
        return path.stat().st_size == remote.size and file_sha256(path) == remote.sha256
    except OSError:
        return False


@contextmanager
def atomic_file(target: Path) -> Iterator[BinaryIO]:
    """Opens a file for writing that appears as `target` only when the block ends without error.

    The bytes go to a file of another name in the same folder, which is renamed at the end and
    removed after an error or Ctrl-C. Readers and other processes that write the same target see
    either the old file or the whole new one.

    Raises:
        OSError: the folder cannot be created or written; the message names `KERASCNN_HOME`.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = part_files.beside(target)
        stream = open(temporary, "xb")  # noqa: SIM115 - closed below, before the rename
    except OSError as error:
        # OSError picks the subclass (PermissionError, ...) from the number.
        raise OSError(
            error.errno,
            f"cannot store {target.name} ({error.strerror}); give this user write access to the "
            "folder, or set the environment variable KERASCNN_HOME to a folder that has it",
            str(target.parent),
        ) from error
    try:
        with stream:
            yield stream
            # Without this, a power failure could leave the new name with old or no content.
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def download(remote: RemoteFile, target: Path) -> None:
    """Downloads `remote` to `target`, checks its SHA-256 and stores it atomically.

    The addresses are tried in order. A progress bar is drawn on a terminal's standard error;
    elsewhere it is one line of text.

    Raises:
        ConnectionError: no address could be reached, or the transfer broke off.
        ValueError: an address answered with another content than the known one.
        OSError: the file could not be stored.
    """
    failures: list[str] = []
    wrong_content = False
    for url in remote.urls:
        try:
            _download_from(url, remote, target)
            return
        except ConnectionError as error:
            failures.append(str(error))
        except ValueError as error:
            wrong_content = True
            failures.append(str(error))
    message = f"{remote.name} could not be downloaded. " + "; ".join(failures)
    raise ValueError(message) if wrong_content else ConnectionError(message)


def _download_from(url: str, remote: RemoteFile, target: Path) -> None:
    import hashlib
    from http.client import HTTPException
    from urllib.request import urlopen

    try:
        response = urlopen(url, timeout=_TIMEOUT_SECONDS)
    except (OSError, HTTPException) as error:
        raise ConnectionError(f"{url}: {_reason(error)}") from error

    digest = hashlib.sha256()
    received = 0
    # The connection is opened first, so that a machine without network gets no empty folders.
    with response, atomic_file(target) as stream, _progress(remote, url) as advance:
        while True:
            try:
                chunk = response.read(_CHUNK)
            except (OSError, HTTPException) as error:
                raise ConnectionError(
                    f"{url}: broke off after {received} of {remote.size} bytes: {_reason(error)}"
                ) from error
            if not chunk:
                break
            received += len(chunk)
            if received > remote.size:
                raise ValueError(f"{url}: expected {remote.size} bytes, received more")
            stream.write(chunk)
            digest.update(chunk)
            advance(len(chunk))
        announced = response.headers.get("Content-Length")
        if received < remote.size and announced == str(remote.size):
            raise ConnectionError(f"{url}: broke off after {received} of {remote.size} bytes")
        if digest.hexdigest() != remote.sha256:
            raise ValueError(
                f"{url}: expected {remote.size} bytes with SHA-256 {remote.sha256}, received "
                f"{received} bytes with SHA-256 {digest.hexdigest()}"
            )


def _reason(error: BaseException) -> str:
    reason = getattr(error, "reason", None)
    text = str(reason if isinstance(reason, BaseException) else error)
    return text or type(error).__name__


@contextmanager
def _progress(remote: RemoteFile, url: str) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    console.print(
        f"Downloading {remote.name} ({remote.size / 1e6:.1f} MB) from {url}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(remote.name, total=remote.size)
        yield lambda count: bar.advance(task, count)
