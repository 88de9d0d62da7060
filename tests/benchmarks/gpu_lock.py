"""A lock for what may have a GPU alone while several processes use it."""

from __future__ import annotations

import fcntl
from types import TracebackType


class GpuLock:
    """A lock of a file that processes hold in turn; one that ends gives it back.

    One that holds it may take it again, and gives it back as often. Without a file it is no lock.

    Args:
        file: its path, or "". It is open until `close`.
    """

    def __init__(self, file: str = ""):
        self._file = open(file, "a") if file else None  # noqa: SIM115
        self.depth = 0

    def __enter__(self) -> GpuLock:
        if self._file and self.depth == 0:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self.depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.depth -= 1
        if self._file and self.depth == 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._file:
            self._file.close()
