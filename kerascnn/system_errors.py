"""Errors of the system, which say nothing about what a file holds."""

from __future__ import annotations

import errno


def is_of_system(error: BaseException) -> bool:
    """Tells whether memory, descriptors, permissions or a disk failed, whatever is in a file."""
    if isinstance(error, MemoryError):
        return True
    # Readers raise OSError without a number for what they can't read, and seek to places before 0.
    return isinstance(error, OSError) and error.errno not in (None, 0, errno.EINVAL)
