"""What a process holds of its system, which must not grow and must not be left over."""

import gc
import os
import re
import time
from collections import Counter
from pathlib import Path

# Threads and processes that were told to end may need a moment. No drill depends on how long.
PATIENCE = 600


def holdings():
    """Counts the threads, open files and children of this process, by kind."""
    gc.collect()
    found = Counter()
    for task in Path("/proc/self/task").iterdir():
        found["thread " + _text(task / "comm")] += 1
        found.update(f"child {child}" for child in _text(task / "children").split())
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # that of the list itself
            continue
        found["descriptor of " + re.sub(r"[0-9]+\]", "]", target)] += 1
    found["mapping of a device"] = sum("/dev/" in line for line in _lines("/proc/self/maps"))
    return found


def check_nothing_is_left(before):
    """Fails where this process holds more than before, and goes on to do so."""
    end = time.monotonic() + PATIENCE
    while left := holdings() - before:
        assert time.monotonic() < end, left
        time.sleep(0.01)


def resident_bytes():
    """How much memory of the machine the process has."""
    return int(_text("/proc/self/statm").split()[1]) * os.sysconf("SC_PAGESIZE")


def address_bytes():
    """How many addresses the process has given out, which `RLIMIT_AS` limits."""
    return int(_text("/proc/self/statm").split()[0]) * os.sysconf("SC_PAGESIZE")


def _text(path):
    try:
        return Path(path).read_text().strip()
    except (FileNotFoundError, ProcessLookupError):  # a thread that has just ended
        return ""


def _lines(path):
    return _text(path).splitlines()
