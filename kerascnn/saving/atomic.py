"""Files that are written completely or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from kerascnn import part_files
from kerascnn.system_errors import naming_file


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; what is there at the end of the block takes its place.

    After an error in the block, or a crash, `path` is what it was before.

    Raises:
        OSError: where it can't be written, on a full disk for example; names `path`.
    """
    beside = part_files.beside(path)
    try:
        with naming_file(path, instead=beside):
            yield beside
            with open(beside, "rb") as file:
                os.fsync(file.fileno())
            os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
