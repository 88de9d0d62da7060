"""Errors of the system, which say nothing about what a file holds."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator

# How the HDF5 library words that the system refused to open or to read a file.
_IN_HDF5 = re.compile(
    r"[^()]*\((?:file read failed: time = .*?, filename|unable to open file: name) = '(?P<path>.*)'"
    r", (?:file descriptor = \d+, )?errno = (?P<number>\d+), error message = '",
    re.DOTALL,
)


def is_of_system(error: BaseException) -> bool:
    """Tells whether memory, descriptors, permissions or a disk failed, whatever is in a file."""
    if isinstance(error, MemoryError):
        return True
    # Readers raise OSError without a number for what they can't read, and seek to places before 0.
    return isinstance(error, OSError) and error.errno not in (None, 0, errno.EINVAL)


def below_hdf5(error: BaseException) -> OSError | None:
    """The error of the system that the HDF5 library reports, None where it reports another.

    The library says what failed in a text, and h5py makes errors of several kinds of it.

    >>> text = "Can't read data (file read failed: time = 1, filename = 'a.h5', file descriptor = 3"
    >>> below_hdf5(OSError(text + ", errno = 5, error message = 'Input/output error', ...)"))
    OSError(5, 'Input/output error')
    """
    # A KeyError shows its text in quotes.
    text = error.args[0] if isinstance(error, KeyError) and error.args else str(error)
    found = _IN_HDF5.match(str(text))
    if found is None:
        return None
    number = int(found["number"])
    return OSError(number, os.strerror(number), found["path"])


@contextlib.contextmanager
def naming_file(
    path: str | os.PathLike[str], instead: str | os.PathLike[str] | None = None
) -> Iterator[None]:
    """In this block, errors of the system that name no file name this one.

    Args:
        path: The file.
        instead: A file whose name is replaced by that of `path` as well.
    """
    try:
        yield
    except OSError as error:
        if error.errno and error.filename in (None, *([os.fspath(instead)] if instead else [])):
            error.filename, error.filename2 = os.fspath(path), None
        raise
