"""Trains networks of everyday size with kerascnn, PyTorch and Keras, in turns.

    python tests/benchmarks/large.py --output FILE
    python tests/benchmarks/large.py --nets resnet50 --peers torch-compile --seconds 8 --profile
    python tests/benchmarks/large.py --nets resnet50@32,vit_s16@8x32 --policy float32

Nets are those of `large_nets.py` with their batches, or for example resnet50@32 with another batch,
and resnet50@32x64 with other images too. kerascnn and Keras train through plain `fit`. PyTorch
trains in a loop over data on the device, in channels-last layout; `torch-compile` is compiled,
`torch-reduce-overhead` and `torch-max-autotune` with that mode, and `torch` is not. With the policy
mixed_bfloat16 PyTorch uses autocast; with float32 all may use TF32.

Every library trains a net in a process of its own. The processes start one after another, each with
caches of kernels in a folder of its own. The time from the start to the end of the first batch, in
which the data also goes to the device, is that of the first step. With --starts 2 the process is
started again, with what the first start left in the caches; --caches FOLDER keeps them for another
run. Then the processes take turns, in one order in one round and in the other order in the next,
while the others wait.

Several runs of this script can share a GPU, with the same file as --gpu-lock. What is timed holds
its lock: turns, first steps, and each candidate of `torch-max-autotune`, which compiles for up to
20 minutes, mostly on one core. --compile-only lets the peers do that and ends; a run with the same
--caches takes the turns.

Images/s are medians over all epochs, with the smallest and the largest value. With --measure
fit,predict the libraries also predict the same images, from the device, in batches of 256. With
--measure predict they train nothing, and the first step is the first batch that is predicted.
Memory is the most that a library has allocated on the device in its process, including the data if
it is there. The last columns divide kerascnn's figures by those of the best peer. Libraries that
fail or are not installed are listed with the reason.

On a CPU that others use too, `--clock cpu` with OMP_NUM_THREADS=1 counts the processes' CPU time of
epochs instead of the time that passes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import kernel_kinds
import report
from gpu_lock import GpuLock
from large_nets import NETS, Case
from peer_process import OWN, PeerError, PeerProcess, environment, inner_device

import kerascnn as keras

PEERS = (
    "torch-compile",
    "torch-reduce-overhead",
    "torch-max-autotune",
    "torch",
    "keras-jax",
    "keras-tensorflow",
)
PEERS_BY_DEFAULT = "torch-compile,keras-jax"
POLICIES = ("mixed_bfloat16", "float32")
# What is measured, and the key of its figures in a row.
SPEEDS = {"fit": "images_per_s", "predict": "predicted_per_s"}
_SCRIPT = Path(__file__).resolve().parent / "peers" / "large_peer.py"
# Each library keeps compiled code in the folder that one of these variables names.
_CACHES = ("KERASCNN_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


class Comparison:
    """What is measured, and what was found."""

    def __init__(self, args: argparse.Namespace, caches: Path):
        self.args = args
        self.caches = caches
        self.rows: list[dict[str, Any]] = []
        self.versions: dict[str, dict[str, str]] = {}
        self._lock = GpuLock(args.gpu_lock)
        self._begin = time.monotonic()

    def say(self, text: str) -> None:
        elapsed = time.monotonic() - self._begin
        print(f"[{elapsed:6.1f} s] {text}", file=sys.stderr, flush=True)

    def start(self, peer: str, case: Case, policy: str) -> PeerProcess:
        device = self.args.device
        folder = self.caches / f"{peer}-{case}-{policy}"
        env = environment(device, [path for path in [self.args.path] if path])
        env |= {name: str(folder / name.lower()) for name in _CACHES}
        command = [sys.executable, str(_SCRIPT), peer, str(case), policy, inner_device(device)]
        command += [str(self.batches(case)), "--clock", self.args.clock]
        command += ["--first", self.args.measure[0], "--gpu-lock", self.args.gpu_lock]
        command += ["--compile-only"] if self.args.compile_only else []
        return PeerProcess(command, env)

    def batches(self, case: Case) -> int:
        """Returns the number of batches of an epoch."""
        return self.args.batches or (64 if case.image_size < 100 else 16)

    def first_steps(self, row: dict[str, Any], case: Case) -> PeerProcess | None:
        """Returns the process that was started last, or None if the library can't train the net."""
        process = None
        row["first_step_s"] = []
        for _ in range(self.args.starts):
            if process is not None:
                process.stop()
            begin = time.perf_counter()
            process = self.start(row["peer"], case, row["policy"])
            try:
                process.wait_until_ready(self.args.patience)
            except PeerError as error:
                row["error"] = str(error)
                process.stop()
                self.say(f"{row['peer']}: {error}")
                return None
            row["first_step_s"].append(time.perf_counter() - begin)
        assert process is not None
        row["parameters"] = process.hello["parameters"]
        row["first_loss"] = process.hello["loss"]
        self.versions[row["peer"]] = process.hello["versions"]
        first = ", ".join(f"{seconds:.1f}" for seconds in row["first_step_s"])
        self.say(f"{row['net']} {row['peer']}: first step after {first} s")
        return process

    def ask(self, row: dict[str, Any], process: PeerProcess, do: str, **more: Any) -> Any:
        """Returns the answer, or None if the library failed, which is noted."""
        if "error" in row:
            return None
        try:
            return process.ask(do, self.args.patience, **more)
        except PeerError as error:
            row["error"] = f"{do}: {error}"
            self.say(f"{row['net']} {row['peer']} failed: {row['error']}")
            return None

    def compare(self, case: Case, policy: str) -> None:
        args = self.args
        trained: list[tuple[dict[str, Any], PeerProcess]] = []
        with contextlib.ExitStack() as stack:
            for peer in args.peers if args.compile_only else [OWN, *args.peers]:
                row = {"net": str(case), "policy": policy, "peer": peer}
                self.rows.append(row)
                if (process := self.first_steps(row, case)) is not None:
                    stack.callback(process.stop)
                    trained.append((row, process))
            if args.compile_only:
                return
            with self._lock:
                self.take_turns(case, trained)
            for row, process in trained:
                if (answer := self.ask(row, process, "memory")) is not None:
                    row["peak_bytes"] = answer["bytes"]
                if args.profile and row["peer"] == OWN:
                    row["profile"] = self.ask(row, process, "profile")

    def take_turns(self, case: Case, trained: list[tuple[dict[str, Any], PeerProcess]]) -> None:
        for measured in self.args.measure:
            for turn in range(self.args.rounds):
                for row, process in trained if turn % 2 == 0 else reversed(trained):
                    self.measure(measured, row, process, case)

    def measure(self, do: str, row: dict[str, Any], process: PeerProcess, case: Case) -> None:
        duration = self.args.seconds / self.args.rounds
        answer = self.ask(row, process, do, duration=duration)
        if answer is None:
            return
        images = self.batches(case) * case.batch_size
        speeds = [images / ms * 1e3 for ms in answer["ms"]]
        row.setdefault(SPEEDS[do], []).append(speeds)
        self.say(f"{row['net']} {row['peer']}: {do} {statistics.median(speeds):.0f} images/s")

    def document(self) -> dict[str, Any]:
        return {
            "machine": report.machine(self.args.device),
            "arguments": {
                name: value
                for name, value in vars(self.args).items()
                if name not in ("nets", "path", "output", "caches", "gpu_lock")
            },
            "peers": self.versions,
            "rows": self.rows,
        }


# Text ---------------------------------------------------------------------------------------------


def speeds(row: dict[str, Any], measured: str) -> list[float]:
    return [value for turn in row.get(SPEEDS[measured], []) for value in turn]


def speed_of(row: dict[str, Any], measured: str = "fit") -> float | None:
    values = speeds(row, measured)
    return statistics.median(values) if values else None


def speed_text(row: dict[str, Any], measured: str) -> str:
    values = speeds(row, measured)
    if not values:
        return "-"
    return f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


def over_best(rows: list[dict[str, Any]], figure: Any, best: Any) -> float | None:
    """Returns kerascnn's figure over the best one of the peers."""
    own = [figure(row) for row in rows if row["peer"] == OWN and figure(row)]
    peers = [figure(row) for row in rows if row["peer"] != OWN and figure(row)]
    return own[0] / best(peers) if own and peers else None


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Returns Markdown with a line for each library, net and policy."""
    predicts = any(speeds(row, "predict") for row in rows)
    titles = [
        "net",
        "policy",
        "library",
        "images/s",
        "first step, s",
        "peak MiB",
        "speed",
        "memory",
    ]
    titles += ["predicted images/s", "speed"] if predicts else []
    lines = ["| " + " | ".join(titles) + " |", "| --- |" + " --- |" * (len(titles) - 1)]
    for row in rows:
        of_net = [r for r in rows if (r["net"], r["policy"]) == (row["net"], row["policy"])]
        figures = [
            (speed_of, max),
            (lambda r: r.get("peak_bytes"), min),
            (lambda r: speed_of(r, "predict"), max),
        ]
        ratios = ["", "", ""]
        if row["peer"] == OWN:
            found = [over_best(of_net, figure, best) for figure, best in figures]
            ratios = ["-" if value is None else f"{value:.3f}" for value in found]
        first, peak = "-", "-"
        if row.get("first_step_s"):
            first = ", ".join(f"{seconds:.1f}" for seconds in row["first_step_s"])
        if row.get("peak_bytes"):
            peak = f"{row['peak_bytes'] / 2**20:.0f}"
        cells = [row["net"], row["policy"], row["peer"], speed_text(row, "fit"), first, peak]
        cells += ratios[:2]
        cells += [speed_text(row, "predict"), ratios[2]] if predicts else []
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def text(document: dict[str, Any]) -> str:
    about = document["machine"]
    lines = [
        f"{about['date']}, {about['hardware']}, {about['cores']} cores of {about['processor']}"
    ]
    lines += [f"{name}: {report.describe(found)}" for name, found in document["peers"].items()]
    lines += ["", *table(document["rows"])]
    for row in document["rows"]:
        if "error" in row:
            lines.append(f"{row['net']} {row['policy']}, {row['peer']} failed: {row['error']}")
    for row in document["rows"]:
        if row.get("profile"):
            lines += ["", f"{row['net']}, {row['policy']}: " + kernel_kinds.text(row["profile"])]
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", help="default: the first usable GPU, else cpu")
    parser.add_argument("--nets", default=",".join(NETS), help="default: all")
    parser.add_argument("--peers", default=PEERS_BY_DEFAULT, help=f"none, or of {', '.join(PEERS)}")
    parser.add_argument("--policy", default="mixed_bfloat16", help=f"of {', '.join(POLICIES)}")
    parser.add_argument("--measure", default="fit", help=f"of {', '.join(SPEEDS)}; default fit")
    parser.add_argument("--seconds", type=float, default=8.0, help="of training, each; default 8")
    parser.add_argument("--rounds", type=int, default=2, help="of turns; default 2")
    parser.add_argument("--starts", type=int, default=1, help="of each process; default 1")
    parser.add_argument("--caches", type=Path, help="folder of caches; default: empty ones")
    parser.add_argument("--gpu-lock", default="", metavar="FILE", help="for what is timed")
    parser.add_argument("--compile-only", action="store_true", help="fill the peers' caches")
    parser.add_argument("--batches", type=int, help="of an epoch; default 16, 64 of small images")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="of epochs")
    parser.add_argument("--profile", action="store_true", help="also kerascnn's kernels by kind")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds for one answer")
    parser.add_argument("--path", metavar="FOLDER", help="an import path of all processes")
    parser.add_argument("--output", type=Path, help="file for everything as JSON")
    args = parser.parse_args()
    try:
        if args.device:
            keras.config.set_device(args.device)
        args.device = keras.config.get_device()
        args.nets = [Case.parse(name) for name in args.nets.split(",")]
    except (ValueError, keras.DeviceError) as error:
        parser.error(" ".join(str(error).split()))
    args.peers = [] if args.peers == "none" else args.peers.split(",")
    args.policy, args.measure = args.policy.split(","), args.measure.split(",")
    for given, known in ((args.peers, PEERS), (args.policy, POLICIES), (args.measure, SPEEDS)):
        for name in given:
            if name not in known:
                parser.error(f"{name!r} is none of {', '.join(known)}")
    if args.compile_only and not args.caches:
        parser.error("--compile-only needs --caches, the folder for another run")
    for name in ("rounds", "starts"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return args


def write(document: dict[str, Any], output: Path | None) -> None:
    """Writes the results, also after each net: a run that is cut off loses the last one alone."""
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(document, indent=1, default=str) + "\n")


def main() -> None:
    args = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(args, args.caches or Path(folder))
        with contextlib.suppress(KeyboardInterrupt):
            for case in args.nets:
                for policy in args.policy:
                    comparison.compare(case, policy)
                    write(comparison.document(), args.output)
    document = comparison.document()
    print(text(document))
    write(document, args.output)


if __name__ == "__main__":
    main()
