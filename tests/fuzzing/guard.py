"""Notes what a reader does beside reading: code that runs, files, programs, connections."""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_NEVER = (
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.kill"),
    *("subprocess.Popen", "pty.spawn", "ctypes.dlopen", "ctypes.dlsym", "os.putenv", "os.chmod"),
    *("socket.connect", "socket.bind", "socket.getaddrinfo", "urllib.Request", "webbrowser.open"),
)
_PATHS = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.symlink", "os.link", "os.truncate")
# Modules that are imported late, and those that make functions, compile source of their own.
_COMPILERS = (
    *("<frozen importlib._bootstrap", "dataclasses.py", "collections/__init__.py"),
    *("/typing.py", "/enum.py"),
)


class Guard:
    """An audit hook; hooks stay for the rest of the process.

    Attributes:
        seen: What was noted since it was emptied.
        active: Whether events are noted.
    """

    def __init__(self, folder: Path) -> None:
        self.seen: list[str] = []
        self.active = False
        self._folders = (str(folder), tempfile.gettempdir() + "/kerascnn-")
        paths = sysconfig.get_paths()
        self._readable = (
            *(paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]),
            *(sys.prefix, sys.base_prefix, "/proc/self", "/sys", "/usr/share", "/etc/mime.types"),
            *(p for p in sys.path if p),
        )
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event in _NEVER:
            self.seen.append(f"{event} {args!r:.200}")
        elif event == "open":
            self._check_open(*args)
        elif event in _PATHS:
            for path in args[:2]:
                if isinstance(path, (str, bytes)) and not self._is_own(os.fsdecode(path)):
                    self.seen.append(f"{event} {args!r:.200}")
        elif event in ("exec", "compile"):
            self._check_code(event, args)

    def _is_own(self, path: str) -> bool:
        return os.path.abspath(path).startswith(self._folders) or not os.path.isabs(path)

    def _check_open(self, path: Any, mode: Any, flags: int) -> None:
        if isinstance(path, int):
            return
        name = os.fsdecode(path)
        if self._is_own(name):
            return
        if flags & _WRITES or not os.path.abspath(name).startswith(self._readable):
            self.seen.append(f"open {name!r:.200} mode={mode} flags={flags}")

    def _check_code(self, event: str, args: tuple[Any, ...]) -> None:
        # `ast.literal_eval`, by which NumPy reads headers, parses under this name and runs nothing
        if event == "compile" and args[1] in ("<unknown>", None):
            return
        frame = sys._getframe(2)
        for _ in range(3):
            if frame is None:
                break
            if any(part in frame.f_code.co_filename for part in _COMPILERS):
                return
            frame = frame.f_back  # type: ignore[assignment]
        self.seen.append(f"{event} {args!r:.200}")
