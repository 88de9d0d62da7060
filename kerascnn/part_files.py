"""Files that are being written, beside their targets, and what dead processes have left of them."""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import socket
from pathlib import Path

_ENDING = ".part"
_numbers = itertools.count()


def beside(target: Path) -> Path:
    """A path for the new content of a file, in its folder, that nothing else has.

    Its name says which process writes there. Files beside the same target whose processes have
    died, on this machine, are removed.

    >>> import tempfile
    >>> path = beside(Path(tempfile.mkdtemp()) / "a.keras")
    >>> path.name.startswith(".a.keras."), path.name.endswith(".part")
    (True, True)
    """
    prefix, host = f".{target.name}.", socket.gethostname()[:32]
    for path in target.parent.glob(f"{glob.escape(prefix)}*{_ENDING}"):
        if _is_left(path.name[len(prefix) : -len(_ENDING)], host):
            with contextlib.suppress(OSError):
                path.unlink()
    return target.with_name(f"{prefix}{host}.{os.getpid()}.{next(_numbers)}{_ENDING}")


def _is_left(writer: str, host: str) -> bool:
    """Tells whether a process of this machine wrote a file and has died."""
    name, _, rest = writer.rpartition(".")
    name, _, process = name.rpartition(".")
    if name != host or not rest.isdecimal() or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)  # sends nothing
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
