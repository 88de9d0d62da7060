"""Code that the peers' processes share. Requests and answers are lines of JSON.

`compare.py` starts them with its own folder on PYTHONPATH.

A peer makes, for a network and a batch size, an object with

    run_epochs(count)            trains so long and returns each epoch's milliseconds
    predict(x, batch_size)       probabilities for uint8 images, from and to NumPy
    evaluate(x, y, batch_size)   loss and accuracy
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from nets import Case, Data

# A first epoch compiles and tunes. Two more follow if epochs are short.
_SHORT_MS = 500.0


class Trained(Protocol):
    def run_epochs(self, count: int) -> list[float]: ...

    def predict(self, x: Any, batch_size: int) -> Any: ...

    def evaluate(self, x: Any, y: Any, batch_size: int) -> tuple[float, float]: ...


class Peer(Protocol):
    def __init__(self, variant: str, data: Data, device: str): ...

    def versions(self) -> dict[str, str]: ...

    def make(self, case: Case) -> Trained: ...

    # This returns the most bytes on the device since `reset_peak`, or None if nobody counts them.
    def peak_bytes(self) -> int | None: ...

    def reset_peak(self) -> None: ...


def timed_epochs(
    run: Callable[[], object], count: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Returns the milliseconds of each of `count` calls of `run`, which waits for the device."""
    times = []
    for _ in range(count):
        start = clock()
        run()
        times.append((clock() - start) * 1e3)
    return times


class Worker:
    def __init__(self, peer: Peer, data: Data):
        self._peer = peer
        self._data = data
        self._trained: dict[str, Trained] = {}

    def fit(self, case: str, epochs: int, slow_ms: float) -> dict[str, Any]:
        """Goes on training; the first call for a case warms up, and stops after a slow epoch."""
        warm_up: list[float] = []
        is_new = case not in self._trained
        if is_new:
            start = time.perf_counter()
            self._trained[case] = self._peer.make(Case.parse(case))
            self._trained[case].run_epochs(1)
            warm_up.append((time.perf_counter() - start) * 1e3)
            for _ in range(2):
                if len(warm_up) == 1 or warm_up[-1] < _SHORT_MS:
                    warm_up += self._trained[case].run_epochs(1)
        cpu = time.process_time()
        times = self._trained[case].run_epochs(1 if is_new else epochs)
        if len(times) < epochs and times[-1] < slow_ms:
            times += self._trained[case].run_epochs(epochs - 1)
        cpu_ms = (time.process_time() - cpu) * 1e3 / len(times)
        return {"warm_up_ms": warm_up, "ms": times, "cpu_ms": cpu_ms}

    def accuracy(self, case: str) -> dict[str, Any]:
        x, y = self._data.x_test, self._data.y_test
        return {"accuracy": self._trained[case].evaluate(x, y, min(1000, len(x)))[1]}

    def test(self, case: str, what: str, batch_size: int, repeats: int) -> dict[str, Any]:
        """Returns times of `predict` or `evaluate` on all test images, from NumPy to NumPy."""
        if case not in self._trained:
            self._trained[case] = self._peer.make(Case.parse(case))
            self._trained[case].run_epochs(1)
        trained, (x, y) = self._trained[case], self._data[2:]

        def run() -> None:
            if what == "predict":
                trained.predict(x, batch_size)
            else:
                trained.evaluate(x, y, batch_size)

        warm_up = timed_epochs(run, 3)
        return {"warm_up_ms": warm_up, "ms": timed_epochs(run, repeats)}

    def memory(self, case: str) -> dict[str, Any]:
        """Returns the most bytes on the device while a new model trains, its data included."""
        self._trained.clear()
        gc.collect()
        self._peer.reset_peak()
        self._peer.make(Case.parse(case)).run_epochs(2)
        return {"bytes": self._peer.peak_bytes()}


def take_standard_output() -> Any:
    """Returns a file for the answers; what libraries print goes to standard error instead."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def say(answer: dict[str, Any], answers: Any) -> None:
    print(json.dumps(answer), file=answers, flush=True)


def serve(worker: Any, answers: Any) -> None:
    """Calls the worker's methods that the requests name, with their arguments."""
    for line in sys.stdin:
        request = json.loads(line)
        do = request.pop("do")
        try:
            answer = getattr(worker, do)(**request)
        except Exception as error:  # the next request may still work
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        say(answer, answers)


def main(peer_class: type[Peer]) -> None:
    """Serves requests until standard input ends; with --once it only trains, for timing that."""
    parser = argparse.ArgumentParser()
    parser.add_argument("variant")
    parser.add_argument("data", help=".npz")
    parser.add_argument("device")
    parser.add_argument("--once", metavar="NET", help="train this and end")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    answers = take_standard_output()
    data = Data.load(args.data)
    peer = peer_class(args.variant, data, args.device)
    if args.once:
        peer.make(Case.parse(args.once)).run_epochs(args.epochs)
        return
    say({"versions": {"python": platform.python_version(), **peer.versions()}}, answers)
    serve(Worker(peer, data), answers)
