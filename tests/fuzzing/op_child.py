"""Runs random calls in a process of its own: `op_child.py KIND SEED BEGIN END FOLDER [DEVICE]`.

The kind is "ops", "any", "programs", "capsules" or "interfaces". What is said is what
`child.py` says. The calls in corpus/KIND.jsonl come first.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path
from random import Random
from typing import Any

_ERRORS = (
    *(ValueError, TypeError, IndexError, OverflowError, MemoryError, NotImplementedError),
    ZeroDivisionError,  # of arange with a step of 0, as in Python and NumPy
)
_MEMORY = 64 << 20


def run_call(call: dict[str, Any]) -> tuple[str, str]:
    """Returns what came of a call, and what is wrong with it.

    Its result is NumPy's, and compiled that at once. What is refused at once may be given by a
    program, as of indexes out of range, which devices cannot check; the process goes on.
    """
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
    program = kerascnn.jit(lambda *given: op_calls.run_here(call, list(given)))
    again = refusal = None
    try:
        again = program(*[kerascnn.ops.convert_to_tensor(a) for a in arrays])
        again = _host(again)
    except _ERRORS as caught:
        refusal = caught
    if error is None:
        if refusal is not None:
            return "compiled", f"refused when it is compiled: {refusal!r}"
        fault = op_calls.results_differ(call, again, _host(ours))
        if fault:
            return "compiled", f"compiled: {fault}"
    try:
        theirs = op_calls.run_numpy(call, arrays)
    except Exception:
        return ("both refuse", "") if error is not None else (f"taken: {call['op']}", "")
    if theirs is None:
        return "large", ""
    if error is not None:
        return f"refused: {call['op']}", ""
    return "compared", op_calls.results_differ(call, _host(ours), theirs)


def _host(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_host(v) for v in value]
    return value.numpy() if hasattr(value, "numpy") else value


def run_any(call: dict[str, Any], device: str) -> tuple[str, str]:
    """A call of any op on a device: the same compiled, and that of a CPU, or errors."""
    import kerascnn
    from fuzzing import any_calls

    arrays, function = any_calls.split(call)

    def outcome(place: str, is_compiled: bool) -> Any:
        with kerascnn.device(place):
            try:
                given = [kerascnn.ops.convert_to_tensor(a) for a in arrays]
                result = (kerascnn.jit(function) if is_compiled else function)(*given)
                return any_calls.leaves(result), None
            except _ERRORS as error:
                return None, error

    eager, error = outcome(device, False)
    program, refusal = outcome(device, True)
    for caught in (error, refusal):
        if caught is not None and not str(caught) and not isinstance(caught, MemoryError):
            return "error", f"{type(caught).__name__} without a message"
    if device != "cpu" and error is None:
        expected, other = outcome("cpu", False)
        if other is not None:
            return "device", f"refused by the CPU: {other!r:.200}"
        places = ("on the CPU", f"on {device}")
        fault = any_calls.difference(expected, eager, call["op"], places)
        if fault:
            return "device", fault
    if error is not None:
        return ("both refuse", "") if refusal is not None else (f"compiled only: {call['op']}", "")
    if refusal is not None:
        return f"at once only: {call['op']}", ""
    return "compared", any_calls.difference(eager, program, call["op"])


def run_program(program: dict[str, Any], device: str) -> tuple[str, str]:
    """A program at once and compiled, in regions of all kinds too, and with its gradients."""
    import kerascnn
    from fuzzing import random_programs as programs

    def computed(function: Any, place: str, regions: str | None) -> list[Any]:
        with kerascnn.device(place):
            given = [kerascnn.ops.convert_to_tensor(a) for a in programs.inputs_of(program)]
            if regions is None:
                return _host(function(program, given))
            os.environ["KERASCNN_CPU_REGIONS"] = regions
            os.environ["KERASCNN_CUDA_REGIONS"] = "2" if regions == "1" else "0"
            return _host(kerascnn.jit(lambda *x: function(program, list(x)))(*given))

    functions = [programs.run, *([programs.gradients] if program["gradient"] else [])]
    for function in functions:
        expected = computed(function, "cpu", None)
        others = [] if device == "cpu" else [("at once", computed(function, device, None))]
        for regions in ("0", "1"):
            text = f"compiled with KERASCNN_*_REGIONS={regions}"
            others.append((text, computed(function, device, regions)))
        for text, other in others:
            fault = programs.difference(program, expected, other)
            if fault:
                return "compared", f"{function.__name__}, {text} on {device}: {fault}"
    return f"compared, {len(program['calls']) // 5 * 5} calls or more", ""


def main(kind: str, seed: int, begin: int, end: int, folder: Path, device: str = "cpu") -> None:
    import resource
    import signal

    import kerascnn
    from fuzzing import any_calls, capsules, child, op_calls, random_programs

    child.take_stdout()
    warnings.simplefilter("ignore")
    kerascnn.jit(lambda x: x + 1)(kerascnn.ops.ones(3)).numpy()
    if device == "cpu":  # CUDA reserves more than there is
        limit = child._status("VmSize:") + (1 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kept = Path(__file__).with_name("corpus") / f"{kind}.jsonl"
    calls = [json.loads(s) for s in kept.read_text().splitlines()] if kept.exists() else []
    draw, run = {
        "ops": (op_calls.draw, run_call),
        "any": (any_calls.draw, lambda call: run_any(call, device)),
        "programs": (random_programs.draw, lambda call: run_program(call, device)),
        "capsules": (capsules.draw, capsules.run),
        "interfaces": (capsules.draw_interface, capsules.run_interface),
    }[kind]
    for case in range(begin, len(calls) + end):
        number = case - len(calls)
        # A program runs while it is drawn, which may end the process too.
        child.say({"case": f"{kind} {seed} {number}", "number": case})
        signal.alarm(600)  # a call that never ends
        with kerascnn.device("cpu"):
            call = calls[case] if number < 0 else draw(Random(f"{kind} {seed} {number}"))
        # JSON has no tuples and no keys but strings
        label = json.dumps(call)
        child.say({"case": label, "number": case})
        exact = child._forget_peak()
        before = child._status("VmRSS:" if exact else "VmHWM:")
        start = time.process_time()
        try:
            outcome, fault = run(json.loads(label))
        except Exception as error:
            lines = traceback.format_exception(error)[-4:]
            outcome, fault = type(error).__name__, "".join(lines)[-2000:]
        signal.alarm(0)
        peak = child._status("VmHWM:") - before
        unbounded = kind in ("any", "programs") or outcome == "large" or child.SANITIZED
        if peak > _MEMORY and not unbounded:
            fault = fault or f"{peak} bytes of memory"
        entry = {"done": label, "outcome": outcome, "fault": fault, "peak": peak}
        child.say({**entry, "slow": time.process_time() - start})


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != here]
    sys.path.insert(0, str(here.parent))
    os.environ["OMP_NUM_THREADS"] = "1"
    arguments = sys.argv[1:]
    main(arguments[0], *(int(a) for a in arguments[1:4]), Path(arguments[4]), *arguments[5:])
