"""Runs cases of one target in a process of its own: `python child.py TARGET SEED BEGIN END FOLDER`.

The files of the target's corpus come first, then mutations. What is printed are lines of JSON:
{"case": ...} before each case, so that the case that ends the process is known, and {"done": ...}
with what it took and what was wrong with it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from random import Random
from typing import Any

# The bounds that the documentation states.
MEGABYTE = 1 << 20
MEMORY, MEMORY_PER_BYTE = 64 * MEGABYTE, 4
SECONDS, SECONDS_PER_BYTE = 1.0, 1.0 / MEGABYTE
# Processor time also grows where other processes take caches and the clock; a fault is this much.
PATIENCE = 5
# The address sanitizer is slow, and keeps what was freed: neither bound says anything then.
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
_ROOM = 1 << 30


_said = sys.stdout


def take_stdout() -> None:
    """Keeps what is said apart from what calls print, which goes to stderr from now on."""
    global _said
    _said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)


def say(entry: dict[str, Any]) -> None:
    """Writes a line for the process that started this one."""
    print(json.dumps(entry), file=_said, flush=True)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def _forget_peak() -> bool:
    """Lets the kernel begin anew with the peak of this process' memory."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def run_case(target: Any, content: bytes, path: Path, guard: Any) -> dict[str, Any]:
    """Reads one content. Returns what it took, and under "fault" what was wrong with it."""
    path.write_bytes(content)
    exact = _forget_peak()
    before = _status("VmRSS:" if exact else "VmHWM:")
    guard.seen.clear()
    begin = time.process_time()
    outcome, fault = "read", ""
    guard.active = True
    try:
        target.read(path)
    except target.errors as error:
        outcome = type(error).__name__
        if not str(error) and not isinstance(error, MemoryError):
            fault = "an error without a message"
        chain: BaseException | None = error
        while chain is not None:
            if not target.bounded:
                break
            if isinstance(chain, MemoryError) or "bad_alloc" in str(chain):
                fault = f"memory ran out: {chain!r:.300}"
            chain = chain.__cause__ or chain.__context__
    except BaseException as error:
        outcome = type(error).__name__
        fault = "".join(traceback.format_exception(error)[-6:])[-3000:]
    guard.active = False
    seconds, peak = time.process_time() - begin, _status("VmHWM:") - before
    if guard.seen:
        fault = f"not for a reader to do: {guard.seen[:5]}"
    size = len(content)
    slow = seconds / (SECONDS + SECONDS_PER_BYTE * size)
    bounded = target.bounded and not SANITIZED
    if bounded and peak > MEMORY + MEMORY_PER_BYTE * size:
        fault = fault or f"{peak} bytes of memory for a file of {size}"
    if bounded and slow > PATIENCE:
        fault = fault or f"{seconds:.1f} s for a file of {size} bytes"
    return {
        "outcome": outcome,
        "fault": fault,
        "seconds": round(seconds, 4),
        "slow": round(slow, 3),
        "peak": peak,
        "size": size,
    }


def main(name: str, seed: int, begin: int, end: int, folder: Path) -> None:
    import kerascnn
    from fuzzing import file_targets, guard

    take_stdout()
    warnings.simplefilter("ignore")
    target = file_targets.TARGETS[name]
    watch = guard.Guard(folder)
    few = end < 1000  # good contents of every kind take longer to make than so many cases
    good = file_targets.good_contents(name, folder, Random(seed) if few else None)
    path = folder / f"case{target.ending}"
    unreadable = set()
    for content in dict.fromkeys(good):  # what is imported late is imported here
        path.write_bytes(content)
        try:
            target.read(path)
        except ValueError:
            unreadable.add(content)
    good = [content for content in good if content not in unreadable]
    kerascnn.ops.convert_to_tensor([1.0]).numpy()
    limit = _status("VmSize:") + _ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kept = Path(__file__).with_name("corpus") / name
    files = sorted(kept.iterdir()) if kept.is_dir() else []
    for case in range(begin, len(files) + end):
        label = files[case].name if case < len(files) else case - len(files)
        if case < len(files):
            content = files[case].read_bytes()
        else:
            content = file_targets.mutated(name, seed, case - len(files), good)
        found = folder / f"{name}-{seed}-{label}"
        found.write_bytes(content)  # it stays there if it ends the process
        say({"case": str(found), "number": case})
        signal.alarm(600)  # a reader that never ends
        result = run_case(target, content, path, watch)
        signal.alarm(0)
        label = str(found)
        if not result["fault"]:
            found.unlink()
        say({"done": label, **result})


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.path[:] = [
        p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent
    ]
    os.environ["OMP_NUM_THREADS"] = "1"
    arguments = sys.argv[1:]
    main(arguments[0], *(int(a) for a in arguments[1:4]), Path(arguments[4]))
