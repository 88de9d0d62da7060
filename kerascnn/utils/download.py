"""Downloads into a cache, for scripts that bring their own data.

What is only needed for downloads is imported there: `import kerascnn` loads this module.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from kerascnn.utils import file_utils
from kerascnn.utils.io_utils import print_msg

if TYPE_CHECKING:
    import tarfile

_CHUNK = 1 << 18


def get_file(
    fname: str | os.PathLike[str] | None = None,
    origin: str | None = None,
    untar: bool = False,
    md5_hash: str | None = None,
    file_hash: str | None = None,
    cache_subdir: str = "datasets",
    hash_algorithm: str = "auto",
    extract: bool = False,
    archive_format: Any = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    force_download: bool = False,
) -> str:
    """Downloads a file unless it is in the cache, and unpacks it where that is asked for.

    Args:
        fname: The file's name in the cache; by default the last part of `origin`.
        origin: The address to download from.
        untar: An older name of `extract`.
        md5_hash: An older way to give `file_hash`.
        file_hash: What the content must have, 64 hex digits of SHA-256 or 32 of MD5.
        cache_subdir: The folder in the cache.
        hash_algorithm: "sha256", "md5" or "auto" (by the length of `file_hash`).
        extract: Whether this is a tar or zip archive to be unpacked. What would land outside of
            the folder is left out with a warning.
        archive_format: "tar", "zip", a list of them, "auto" for both, None for neither.
        cache_dir: The cache; by default `KERASCNN_HOME`, else `~/.kerascnn`.
        force_download: Whether to download though the file is there.

    Returns:
        The path of the file, or of the folder with what was unpacked.

    Raises:
        ValueError: without an `origin`, for an `fname` with a folder, and for a download whose
            content is another than `file_hash` says; that is not kept.
        ConnectionError: where the address can't be reached or the transfer broke off.
        OSError: where the cache can't be written.

    Example:

    >>> import kerascnn as keras
    >>> with open("words.txt", "w") as file:
    ...     _ = file.write("one two")
    >>> from pathlib import Path
    >>> address = Path("words.txt").absolute().as_uri()  # file:///..., or an https address
    >>> path = keras.utils.get_file(origin=address, cache_dir="cache")  # doctest: +ELLIPSIS
    Downloading data from file:///...
    >>> Path(path).read_text()
    'one two'
    """
    if origin is None:
        raise ValueError("Give `origin`, the address of the file to be downloaded.")
    if md5_hash is not None and file_hash is None:
        file_hash, hash_algorithm = md5_hash, "md5"
    base = file_utils.home_folder() if cache_dir is None else Path(cache_dir).expanduser()
    folder = base / cache_subdir
    name = _file_name(fname, origin)
    target, unpacked = folder / name, None
    if extract or untar:
        if fname and "." in name:
            unpacked = folder / f"{name.partition('.')[0]}_extracted"
        else:
            target, unpacked = folder / f"{name}_archive", folder / name
    fresh = force_download or not target.exists()
    if (
        not fresh
        and file_hash is not None
        and _hash(target, hash_algorithm, file_hash) != file_hash
    ):
        print_msg(
            f"{target} does not have the {hash_algorithm} file hash {file_hash}: it is damaged or "
            "another version, and is downloaded again."
        )
        fresh = True
    if fresh:
        _download(origin, target, file_hash, hash_algorithm)
    if unpacked is None:
        return str(target)
    formats = ("tar",) if untar and archive_format == "auto" else archive_format
    if unpacked.is_dir() and not fresh:
        return str(unpacked)
    if not extract_archive(target, unpacked, formats):
        warnings.warn("Could not extract archive.", stacklevel=2)
    return str(unpacked)


def extract_archive(
    path: str | os.PathLike[str], folder: str | os.PathLike[str], archive_format: Any = "auto"
) -> bool:
    """Unpacks a tar or zip archive into a folder; whether it was one.

    Raises:
        NotImplementedError: for another format.
    """
    import shutil
    import tarfile
    import zipfile

    if archive_format is None:
        return False
    formats = ("tar", "zip") if archive_format == "auto" else archive_format
    for name in (formats,) if isinstance(formats, str) else formats:
        if name not in ("tar", "zip"):
            raise NotImplementedError(f"Archives can be 'tar' or 'zip'. Received: {name!r}")
        matches = tarfile.is_tarfile if name == "tar" else zipfile.is_zipfile
        if not matches(path):
            continue
        try:
            (_untar if name == "tar" else _unzip)(path, Path(folder))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return True
    return False


def _untar(path: Any, folder: Path) -> None:
    import tarfile

    def keep(member: tarfile.TarInfo, destination: str) -> tarfile.TarInfo | None:
        try:
            return tarfile.data_filter(member, destination)
        except tarfile.FilterError:
            _warn_of(member.name)
            return None

    with tarfile.open(path) as archive:
        archive.extractall(folder, filter=keep)


def _unzip(path: Any, folder: Path) -> None:
    import zipfile

    root = folder.resolve()
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if (root / member.filename).resolve().is_relative_to(root):
                archive.extract(member, folder)
            else:
                _warn_of(member.filename)


def _warn_of(name: str) -> None:
    warnings.warn(
        f"'{name}' was left out: it would be unpacked outside of the folder.", stacklevel=2
    )


def _file_name(fname: Any, origin: str) -> str:
    from urllib.parse import urlsplit

    if not fname:
        name = os.path.basename(urlsplit(origin).path)
        if not name:
            raise ValueError(f"'{origin}' does not end with the name of a file. Give `fname`.")
        return name
    name = os.fspath(fname)
    if os.sep in name:
        raise ValueError(
            "`fname` is the name of a file without a folder, which is what `cache_dir` and "
            f"`cache_subdir` are for. Received: fname={name}"
        )
    return name


def _hash(path: Path, algorithm: str, expected: str) -> str:
    import hashlib

    is_sha256 = algorithm == "sha256" or (algorithm == "auto" and len(expected) == 64)
    digest = hashlib.sha256() if is_sha256 else hashlib.md5()
    with open(path, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _download(origin: str, target: Path, file_hash: str | None, algorithm: str) -> None:
    from http.client import HTTPException
    from urllib.request import urlopen

    print_msg(f"Downloading data from {origin}")
    try:
        with urlopen(origin, timeout=20.0) as response, file_utils.atomic_file(target) as stream:
            _copy(response, stream, response.headers.get("Content-Length"))
            stream.flush()
            written = Path(stream.name)
            if file_hash is not None and _hash(written, algorithm, file_hash) != file_hash:
                raise ValueError(
                    f"{origin} was downloaded, but its content is not the one with the {algorithm} "
                    f"file hash {file_hash}."
                )
    except (HTTPException, ConnectionError, TimeoutError) as error:
        raise ConnectionError(f"{origin}: {error or type(error).__name__}") from error
    except OSError as error:
        if getattr(error, "url", None) is None and not hasattr(error, "reason"):
            raise
        raise ConnectionError(f"{origin}: {error}") from error


def _copy(response: Any, stream: BinaryIO, announced: str | None) -> None:
    from kerascnn.utils.progbar import Progbar

    size = int(announced) if announced else None
    bar = Progbar(size, unit_name="byte")
    seen = 0
    while chunk := response.read(_CHUNK):
        stream.write(chunk)
        seen += len(chunk)
        bar.update(seen)
    if size is None:
        bar.update(seen, finalize=True)
    elif seen < size:
        raise ConnectionError(f"broke off after {seen} of {size} bytes")
