"""Calls everything that `kerascnn._core` has with arguments drawn from a list of odd values.

    python tests/api/core_calls.py SEED CALLS

Each function and method is called CALLS times in a process of its own. Errors are what it is for;
what ends a process before its calls are made is printed, with the last call, and makes the exit
status 1.
"""

import contextlib
import os
import random
import signal
import sys
import tempfile
import warnings

import numpy as np

from kerascnn import _core

# A type or function that these keep would change what Python's code does afterwards.
KEEPS_ITS_ARGUMENT = {"set_variable_type", "set_fallback"}
NOT_METHODS = {"__class__", "__new__", "__subclasshook__", "__init_subclass__"}
RECORDED = 800  # bytes of a call's text


def never_initialized(name):
    kind = getattr(_core, name)
    return kind.__new__(kind)


def odd_values():
    def ones(*shape):
        return _core.from_numpy(np.ones(shape, "float32"), "cpu")

    graph = _core.Graph()
    x = graph.input("x", (2, 3), "float32")
    y = graph.apply("relu", [x], {})[0]
    return [
        *(0, 1, -1, 2, 3, 7, 64, 2**31, 2**62, 2**63 - 8, -(2**63), 2**64, True, False, None),
        *(0.5, float("nan"), float("inf"), "", "a", "cpu", "cuda:0", "float32", "float7", b"abc"),
        *("relu", "add", "conv2d", "reduce_sum", object, int, lambda *_: None, [], {}, (), [None]),
        *((2,), (1, 2, 3), (-1,), (0,), (2**62, 8), (0, 2**62, 8), (1,) * 1000, [1], [[1]]),
        *({"axes": [0]}, {"axes": [-9], "keepdims": False}, {"shape": [-1, 2**32, 2**32]}),
        *(ones(), ones(3), ones(2, 3), ones(0, 4), [ones(2, 3)], [ones(2, 3)] * 2, (ones(3),)),
        *(np.ones(3), np.ones((2, 0)), np.ones(3, object), {"a": ones(2)}),
        _core.Tape(False, False),
        *(graph, x, y, [x], [y], _core.Program.compile(graph, [y], "cpu")),
        *(_core.Variable("v", ones(3)), [never_initialized("Tensor")]),
        *(never_initialized(name) for name in ("Tensor", "Variable", "Graph", "Program", "Value")),
    ]


def callables():
    """Yields the name of a class, or None, and of what it or the module has."""
    for name in sorted(dir(_core)):
        thing = getattr(_core, name)
        if isinstance(thing, type) and not issubclass(thing, BaseException):
            yield from ((name, method) for method in sorted(set(dir(thing)) - NOT_METHODS))
        if callable(thing) and name not in KEEPS_ITS_ARGUMENT:
            yield None, name


def find(owner, name, values, rng):
    if owner is None:
        return getattr(_core, name)
    kind = getattr(_core, owner)
    objects = [value for value in values if isinstance(value, kind)] or [never_initialized(owner)]
    return getattr(rng.choice([*objects, kind]), name)


def text_of(argument):
    """Returns type and value; what was never initialized has no text."""
    try:
        return type(argument).__name__, str(argument)[:40]
    except TypeError:
        return type(argument).__name__, "never initialized"


def call_often(owner, name, values, rng, calls, record):
    for _ in range(calls):
        arguments = [rng.choice(values) for _ in range(rng.randrange(6))]
        text = f"{owner}.{name} with {[text_of(a) for a in arguments]}"
        os.pwrite(record, text.encode()[:RECORDED].ljust(RECORDED), 0)
        # Any error will do, SystemExit and the like included.
        with contextlib.suppress(BaseException):
            find(owner, name, values, rng)(*arguments)


def call_in_a_process(owner, name, values, rng, calls, record):
    """Makes the calls in a child of this process and returns how that ended."""
    child = os.fork()
    if child == 0:
        try:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nowhere, stream)
            signal.alarm(1000)  # no call takes that long, on however busy a machine
            call_often(owner, name, values, rng, calls, record)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def main(seed, calls):
    warnings.simplefilter("ignore")
    values = odd_values()
    ended = 0
    with tempfile.TemporaryFile() as file:
        record = file.fileno()
        for number, (owner, name) in enumerate(callables()):
            rng = random.Random(f"{seed} {number}")
            status = call_in_a_process(owner, name, values, rng, calls, record)
            if status != 0:
                ended += 1
                what = os.pread(record, RECORDED, 0).decode(errors="replace").strip()
                how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
                print(f"{how} from {what}", flush=True)
        print(f"{number + 1} functions and methods, {ended} of which ended their process")
    return int(ended > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
