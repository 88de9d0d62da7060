"""Times kerascnn and every installed peer on the reference networks, in turns, on one device.

    python tests/benchmarks/compare.py DATA [--device cuda:0] [--output FILE]
    python tests/benchmarks/compare.py DATA --peers best --nets A,B,C,D --seconds 200
    python tests/benchmarks/compare.py DATA --measure fit,predict,evaluate,memory,startup

DATA is what `kerascnn.datasets.mnist.load_data` takes: a folder with MNIST's IDX files, or an .npz.
Nets are A to E with their batch sizes, or for example C@256 with another one.

Every peer is a process of its own with its data on the device. Each process is started and asked
for its versions. Then the peers take turns net by net, in one order in one round and in the other
order in the next, while all others wait. The first turn of a net warms up (compiles, tunes) before
it is timed. This is measured:

fit       milliseconds of an epoch, shuffled, until the device has finished it
predict   milliseconds for all test images, from uint8 to probabilities, both as NumPy arrays
evaluate  milliseconds for all test images, to loss and accuracy
memory    peak bytes on the device while two epochs are trained, data included, in a fresh process
startup   seconds from the start of a Python process to its end after 5 epochs of net D: for a first
          run, which fills caches, and for later ones

Figures are medians with the smallest and the largest value. The last rows of a table divide
kerascnn's figure by that of the best peer, and by that of the best Keras. The report lists peers
that can't run, with the reason, and what did not fit into the time (--seconds).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import report
from nets import NETS, Case, Data
from peer_process import (
    BEST,
    KINDS,
    OWN,
    PeerError,
    PeerProcess,
    command,
    device_type,
    environment,
    time_of_whole_process,
    usual_peers,
)

import kerascnn as keras

NETS_BY_DEFAULT = "A,B,C,D,C@16,C@256,C@1024"
MEASUREMENTS = ("fit", "predict", "evaluate", "memory", "startup")
# An epoch that takes longer is timed only once a turn.
SLOW_MS = 1500.0
NO_SETTINGS = ("nets", "data", "path", "output")  # results do not depend on these arguments
STARTUP_NET, STARTUP_EPOCHS = "D", 5


class Comparison:
    """The peers, what they are asked, and what they answered."""

    def __init__(self, args: argparse.Namespace, data: Path, samples: int):
        self.args = args
        self.samples = samples
        self.data = data
        self.folders = folders_by_peer(args.path)
        self.deadline = time.monotonic() + args.seconds
        self.peers: dict[str, dict[str, Any]] = {}
        self.processes: dict[str, PeerProcess] = {}
        self.rows: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.left_out: collections.Counter[str] = collections.Counter()

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{self.args.seconds - self.left:6.1f} s] {text}", file=sys.stderr, flush=True)

    def leave_out(self, text: str) -> None:
        self.left_out[f"{text}: no time left"] += 1

    def start(self, names: list[str]) -> dict[str, PeerProcess]:
        """Starts those peers that can run, and notes for the others why they can't."""
        device = self.args.device
        made = {
            name: PeerProcess(
                command(name, self.data, device), environment(device, self.folders(name))
            )
            for name in names
        }
        for name, process in list(made.items()):
            try:
                process.wait_until_ready(self.args.patience)
                self.peers.setdefault(name, {"versions": process.hello["versions"]})
            except PeerError as error:
                self.peers[name] = {"missing": str(error)}
                self.say(f"{name}: {error}")
                del made[name]
        return made

    def row(self, what: str, peer: str, case: str) -> dict[str, Any]:
        key = (what, peer, case)
        if key not in self.rows:
            self.rows[key] = {"what": what, "peer": peer, "net": case}
        return self.rows[key]

    def turns(self, cases: list[str]) -> Iterator[tuple[str, str, int]]:
        """Yields (case, peer, round); the order of the peers is reversed in every other round."""
        for turn in range(self.args.rounds):
            names = list(self.processes)
            for case in cases:
                for name in names if turn % 2 == 0 else reversed(names):
                    yield case, name, turn

    def ask(self, row: dict[str, Any], do: str, expected_s: float = 0.0, **more: Any) -> Any:
        """Returns the answer, or None if the peer failed or no time is left, which is noted."""
        what, name, case = row["what"], row["peer"], row["net"]
        if "error" in row:
            return None
        if self.left < expected_s:
            self.leave_out(f"{what} of {name} on net {case}")
            return None
        try:
            seconds = min(self.args.patience, max(1.0, self.left + 30))
            return self.processes[name].ask(do, seconds, case=case, **more)
        except PeerError as error:
            row["error"] = str(error)
            self.say(f"{what} of {name} on net {case} failed: {error}")
            return None

    def fit(self, cases: list[str]) -> None:
        for case, name, _ in self.turns(cases):
            row = self.row("fit", name, case)
            last = row["ms"][-1][-1] if "ms" in row else 0.0
            epochs = 1 if last > SLOW_MS else self.args.epochs
            expected_s = epochs * last / 1e3
            answer = self.ask(row, "fit", expected_s, epochs=epochs, slow_ms=SLOW_MS)
            if answer is None:
                continue
            row.setdefault("warm_up_ms", answer["warm_up_ms"])
            row.setdefault("ms", []).append(answer["ms"])
            row.setdefault("cpu_ms", []).append(answer["cpu_ms"])
            self.say(f"{case:7} {name:30} {min(answer['ms']):9.1f} ms per epoch")
        for row in self.rows.values():
            if "ms" in row and (answer := self.ask(row, "accuracy")) is not None:
                row["accuracy"] = answer["accuracy"]

    def test(self, what: str, cases: list[str]) -> None:
        for batch_size in self.args.test_batch_sizes:
            label = f"{what}@{batch_size}"
            for case, name, _ in self.turns(cases):
                row = self.row(label, name, case)
                last = row["ms"][-1][-1] if "ms" in row else 0.0
                expected_s = self.args.epochs * last / 1e3
                answer = self.ask(
                    row,
                    "test",
                    expected_s,
                    what=what,
                    batch_size=batch_size,
                    repeats=self.args.epochs,
                )
                if answer is not None:
                    row.setdefault("ms", []).append(answer["ms"])
                    self.say(f"{label} {case:7} {name:30} {min(answer['ms']):9.1f} ms")

    def memory(self, cases: list[str], peers: list[str]) -> None:
        """Measures kerascnn and PyTorch, which both count what they allocate."""
        if device_type(self.args.device) == "cpu":
            self.left_out["memory: only counted on GPUs"] = 1
            return
        names = [OWN, *dict.fromkeys(["torch", *(p for p in peers if p.startswith("torch"))])]
        running, self.processes = self.processes, self.start(names)
        for case in cases:
            for name in self.processes:
                row = self.row("memory", name, case)
                if (answer := self.ask(row, "memory")) is not None:
                    row["bytes"] = answer["bytes"]
                    self.say(f"memory {case} {name}: {answer['bytes'] / 2**20:.1f} MiB")
        self.stop()
        self.processes = running

    def startup(self, peers: list[str]) -> None:
        names = [OWN, *(name for name in peers if name.startswith("keras-"))]
        for _ in range(self.args.rounds + 1):
            for name in names:
                row = self.row("startup", name, STARTUP_NET)
                if "error" in row or "missing" in self.peers.get(name, {}):
                    continue
                if self.left < row.get("seconds", [0.0])[-1]:
                    self.leave_out(f"startup of {name}")
                    continue
                try:
                    seconds = time_of_whole_process(
                        name,
                        self.data,
                        self.args.device,
                        self.folders(name),
                        STARTUP_NET,
                        STARTUP_EPOCHS,
                        min(self.args.patience, max(1.0, self.left + 30)),
                    )
                except PeerError as error:
                    row["error"] = str(error)
                    continue
                row.setdefault("seconds", []).append(seconds)
                self.say(f"startup {name}: {seconds:.2f} s")

    def stop(self) -> None:
        for process in self.processes.values():
            process.stop()

    def run(self) -> None:
        args = self.args
        names = [OWN, *args.peers]
        measures_fit = {"fit", "predict", "evaluate"} & set(args.measure)
        self.say(f"starting {', '.join(names)}")
        self.processes = self.start(names) if measures_fit else {}
        cases = [str(case) for case in args.nets]
        if "fit" in args.measure:
            self.fit(cases)
        for what in ("predict", "evaluate"):
            if what in args.measure:
                self.test(what, [str(c) for c in args.nets if c.batch_size == usual_batch(c)])
        if "memory" in args.measure:
            self.memory(cases, args.peers)
        if "startup" in args.measure:
            self.startup(args.peers)

    def document(self) -> dict[str, Any]:
        return {
            "machine": report.machine(self.args.device),
            "arguments": {k: v for k, v in vars(self.args).items() if k not in NO_SETTINGS},
            "samples": self.samples,
            "nets": [str(case) for case in self.args.nets],
            "peers": self.peers,
            "rows": list(self.rows.values()),
            "left_out": [
                text if count == 1 else f"{text}, {count} times"
                for text, count in self.left_out.items()
            ],
        }


def usual_batch(case: Case) -> int:
    return NETS[case.net].batch_size


def folders_by_peer(options: list[str]):
    """Returns a function from a peer to its import paths; a path without a name is for all."""
    pairs = [option.partition("=") for option in options]

    def folders(name: str) -> list[str]:
        found = [path for peer, _, path in pairs if path and name == peer]
        return found + [peer for peer, _, path in pairs if not path]

    return folders


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="folder with MNIST's IDX files, or an .npz")
    parser.add_argument("--device", help="default: the first usable GPU, else cpu")
    parser.add_argument("--nets", default=NETS_BY_DEFAULT, help=f"default {NETS_BY_DEFAULT}")
    parser.add_argument("--peers", default="all", help=f"all, best, or of {', '.join(KINDS)}")
    parser.add_argument("--measure", default="fit", help=f"of {', '.join(MEASUREMENTS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3, help="timed in each turn; default 3")
    parser.add_argument("--test-batch-sizes", default="1000", help="of predict and evaluate")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing after that time")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds for one answer")
    parser.add_argument("--path", action="append", default=[], metavar="[PEER=]FOLDER")
    parser.add_argument("--output", type=Path, help="file for everything as JSON")
    args = parser.parse_args()
    try:
        if args.device:
            keras.config.set_device(args.device)
        args.device = keras.config.get_device()
        args.nets = [Case.parse(text) for text in args.nets.split(",")]
    except (ValueError, keras.DeviceError) as error:
        parser.error(" ".join(str(error).split()))
    sets = {"all": usual_peers(args.device), "best": BEST[device_type(args.device)]}
    chosen = [sets.get(name, [name]) for name in args.peers.split(",")]
    args.peers = list(dict.fromkeys(name for names in chosen for name in names))
    args.measure = args.measure.split(",")
    args.test_batch_sizes = [int(size) for size in args.test_batch_sizes.split(",")]
    for given, known in ((args.peers, KINDS), (args.measure, MEASUREMENTS)):
        for name in given:
            if name not in known:
                parser.error(f"{name!r} is none of {', '.join(known)}")
    return args


def main() -> None:
    args = parse_arguments()
    (x_train, y_train), (x_test, y_test) = keras.datasets.mnist.load_data(args.data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        Data(x_train, y_train, x_test, y_test).save(path)
        comparison = Comparison(args, path, len(x_train))
        with contextlib.ExitStack() as stack:
            stack.callback(comparison.stop)
            with contextlib.suppress(KeyboardInterrupt):
                comparison.run()
    document = comparison.document()
    print(report.text(document))
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(document, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
