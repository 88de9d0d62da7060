"""Trains with one GPU and with several: images a second, and how fast sums over GPUs are.

    python tests/benchmarks/scaling.py --output FILE
    python tests/benchmarks/scaling.py --libraries kerascnn --parts resnet50@128,C@64,sums
    python tests/benchmarks/scaling.py --gpus 1,2,4 --libraries torch --parts resnet50@128

A part is a net of `large_nets.py` (mixed_bfloat16) or `nets.py` (float32) with the batch of each
GPU, so that more GPUs train with larger batches. ":apart" lets the GPUs train at the same time and
sum nothing, which is as fast as several can be; ":8" lets gradients go in messages of 8 MB, and
":bfloat16" in that dtype. "sums" times sums of float32 by the size of the message: kerascnn in a
captured graph, PyTorch in a loop of calls. Bandwidth is that of NCCL's tests for all-reduce,
2 (n - 1) / n times the message over the time. PyTorch trains with DDP, compiled, in channels-last
layout with autocast, large nets only.

A library and a number of GPUs are one set of processes, which measure one part after another. They
get the variables that torchrun would set. Images/s are medians over epochs. One GPU is each of them
by itself: several are compared with their mean, since one may be slower than another.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import report

_SCRIPT = Path(__file__).resolve().parent / "peers" / "scaling_peer.py"
PARTS = "resnet50@128,resnet50@128:apart,C@64,C@128,D@64,D@128,sums"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def run(
    library: str, gpus: int, parts: list[str], patience: float, first: int = 0
) -> list[dict[str, Any]]:
    """Returns what the processes have measured, and why they ended, if they failed.

    Args:
        library: its name.
        gpus: how many processes there are, on as many GPUs.
        parts: what they measure.
        patience: how many seconds they get.
        first: the GPU of the first one.
    """
    folders = [str(_SCRIPT.parent), str(_SCRIPT.parents[1]), os.environ.get("PYTHONPATH", "")]
    shared = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    numbers = ",".join(map(str, range(first + gpus)))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", numbers).split(",")
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = []
    for rank in range(gpus):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(gpus)}
        more = {"KERASCNN_DEVICE": "gpu:0", "CUDA_VISIBLE_DEVICES": visible[first]}
        if gpus > 1:
            more = {**address, **place, "KERASCNN_DEVICE": "gpu"}
        command = [sys.executable, str(_SCRIPT), library, *parts]
        processes.append(
            subprocess.Popen(
                command, env={**shared, **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )
    rows, end = [], time.monotonic() + patience
    for process in processes:
        try:
            said, errors = process.communicate(timeout=max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            said, errors = process.communicate()
            errors += f"\nIt was killed after {patience:g} seconds.".encode()
        rows += [json.loads(line) for line in said.decode().splitlines() if line.startswith("{")]
        if process.returncode:
            failure = errors.decode(errors="replace")[-3000:]
            rows.append({"library": library, "gpus": gpus, "part": "", "error": failure})
    return rows


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Returns Markdown with a line for each measurement."""
    trained = [row for row in rows if "images_per_s" in row]
    alone: dict[tuple[str, str], list[float]] = {}
    for row in trained:
        if row["gpus"] == 1:
            speeds = alone.setdefault((row["library"], row["part"]), [])
            speeds.append(statistics.median(row["images_per_s"]))
    lines = [
        "| library | part | GPUs | images/s | us a step | over one GPU | loss | first epoch, s |",
        "| --- |" + " --- |" * 7,
    ]
    for row in trained:
        speed = statistics.median(row["images_per_s"])
        span = f"{min(row['images_per_s'])}-{max(row['images_per_s'])}"
        ones = alone.get((row["library"], row["part"].partition(":")[0]))
        ratio = f"{speed / statistics.mean(ones):.3f}" if ones else "-"
        cells = [row["library"], row["part"], row["gpus"], f"{speed:.0f} ({span})"]
        cells += [f"{row['step_us']:.1f}", ratio, f"{row['loss']:.4f}", row["first_epoch_s"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    for row in rows:
        if "sums" in row:
            lines += ["", f"Sums over {row['gpus']} GPUs, {row['library']} {row['version']}:", ""]
            lines += ["| bytes | us | GB/s |", "| --- | --- | --- |"]
            lines += [f"| {n} | {v['us']} | {v['gb_per_s']} |" for n, v in row["sums"].items()]
    failed = [row for row in rows if "error" in row]
    return lines + [f"{row['library']} on {row['gpus']} failed:\n{row['error']}" for row in failed]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=PARTS, help=f"default: {PARTS}")
    parser.add_argument("--gpus", default="1,2", help="numbers of GPUs; default 1,2")
    parser.add_argument("--libraries", default="kerascnn,torch", help="default: kerascnn,torch")
    parser.add_argument("--patience", type=float, default=240.0, help="seconds for each set")
    parser.add_argument("--output", type=Path, help="file for everything as JSON")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    most = max(map(int, args.gpus.split(",")))
    for library in args.libraries.split(","):
        for gpus in map(int, args.gpus.split(",")):
            parts = args.parts.split(",")
            if library == "torch":
                small = ("A", "B", "C", "D", "E")
                parts = [part for part in parts if part.partition("@")[0] not in small]
            if gpus == 1:
                parts = [part for part in parts if ":" not in part and part != "sums"]
            begin = time.monotonic()
            for first in range(most if gpus == 1 else 1):
                rows += run(library, gpus, parts, args.patience, first)
            seconds = time.monotonic() - begin
            print(f"{library} on {gpus}: {seconds:.0f} s", file=sys.stderr, flush=True)
            document = {"machine": report.machine("cuda:0"), "rows": rows}
            if args.output:  # after each set, so that nothing is lost
                args.output.parent.mkdir(parents=True, exist_ok=True)
                args.output.write_text(json.dumps(document, indent=1, default=str) + "\n")
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
