"""Runs random calls in a process of its own: `python op_child.py KIND SEED BEGIN END FOLDER`.

The kind is "ops", "capsules" or "interfaces". What is said is what `child.py` says. The calls in
corpus/KIND.jsonl come first.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from pathlib import Path
from random import Random
from typing import Any

_ERRORS = (
    *(ValueError, TypeError, IndexError, OverflowError, MemoryError, NotImplementedError),
    ZeroDivisionError,  # of arange with a step of 0, as in Python and NumPy
)
_MEMORY = 64 << 20


def run_call(call: dict[str, Any], compiled: bool) -> tuple[str, str]:
    """Returns what came of a call, and what is wrong with it."""
    import kerascnn
    from fuzzing import op_calls

    arrays = op_calls.inputs_of(call)
    ours = error = None
    try:
        ours = op_calls.run_here(call, arrays)
    except _ERRORS as caught:
        error = caught
        if not str(error) and not isinstance(error, MemoryError):
            return "error", f"{type(error).__name__} without a message"
    try:
        theirs = op_calls.run_numpy(call, arrays)
    except Exception:
        return ("both refuse", "") if error is not None else (f"taken: {call['op']}", "")
    if theirs is None:
        return "large", ""
    if error is not None:
        return f"refused: {call['op']}", ""
    fault = op_calls.results_differ(call, _host(ours), theirs)
    if fault or not compiled or not arrays:
        return "compared", fault
    program = kerascnn.jit(lambda *given: op_calls.run_here(call, list(given)))
    again = program(*[kerascnn.ops.convert_to_tensor(a) for a in arrays])
    return "compiled", op_calls.results_differ(call, _host(again), _host(ours))


def _host(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_host(v) for v in value]
    return value.numpy() if hasattr(value, "numpy") else value


def main(kind: str, seed: int, begin: int, end: int, folder: Path) -> None:
    import resource

    import kerascnn
    from fuzzing import capsules, child, op_calls

    warnings.simplefilter("ignore")
    kerascnn.jit(lambda x: x + 1)(kerascnn.ops.ones(3)).numpy()
    limit = child._status("VmSize:") + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kept = Path(__file__).with_name("corpus") / f"{kind}.jsonl"
    calls = [json.loads(s) for s in kept.read_text().splitlines()] if kept.exists() else []
    draw = {
        "ops": op_calls.draw,
        "capsules": capsules.draw,
        "interfaces": capsules.draw_interface,
    }[kind]
    for case in range(begin, len(calls) + end):
        number = case - len(calls)
        call = calls[case] if number < 0 else draw(Random(f"{kind} {seed} {number}"))
        # JSON has no tuples and no keys but strings
        label = json.dumps(call)
        print(json.dumps({"case": label, "number": case}), flush=True)
        exact = child._forget_peak()
        before = child._status("VmRSS:" if exact else "VmHWM:")
        start = time.process_time()
        try:
            call = json.loads(label)
            if kind == "ops":
                outcome, fault = run_call(call, number < 0 or number % 4 == 0)
            else:
                run = capsules.run if kind == "capsules" else capsules.run_interface
                outcome, fault = run(call)
        except Exception as error:
            outcome, fault = type(error).__name__, f"{type(error).__name__}: {error}"
        peak = child._status("VmHWM:") - before
        if peak > _MEMORY and outcome != "large":
            fault = fault or f"{peak} bytes of memory"
        entry = {"done": label, "outcome": outcome, "fault": fault, "peak": peak}
        print(json.dumps({**entry, "slow": time.process_time() - start}), flush=True)


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != here]
    sys.path.insert(0, str(here.parent))
    os.environ["OMP_NUM_THREADS"] = "1"
    arguments = sys.argv[1:]
    main(arguments[0], *(int(a) for a in arguments[1:4]), Path(arguments[4]))
