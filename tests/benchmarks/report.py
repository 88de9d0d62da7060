"""The results of a comparison as text, and the machine that it ran on."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peer_process import OWN

import kerascnn as keras
from kerascnn import _core


def machine(device: str) -> dict[str, Any]:
    """Returns the date, the hardware and the versions."""
    described = {name: text for name, _, text in keras.config.list_devices()}
    return {
        "date": datetime.date.today().isoformat(),
        "device": device,
        "hardware": described.get(device, device),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "kerascnn": keras.__version__,
        "versions": {
            "numpy": importlib.metadata.version("numpy"),
            "cuda": _core.cuda_versions() if device != "cpu" else "",
        },
    }


def processor() -> str:
    """Returns the processor's name, where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def is_peer(name: str) -> bool:
    return not name.startswith(OWN)


def values_of(row: dict[str, Any]) -> list[float]:
    """Returns all measured values of a row; the first start of a process only fills caches."""
    if "ms" in row:
        return [value for turn in row["ms"] for value in turn]
    if "seconds" in row:
        return row["seconds"][1:] or row["seconds"]
    return [row["bytes"] / 2**20] if row.get("bytes") else []


def medians(document: dict[str, Any], what: str) -> dict[str, dict[str, float]]:
    """Returns medians by peer and net."""
    found: dict[str, dict[str, float]] = {}
    for row in document["rows"]:
        values = values_of(row)
        if row["what"] == what and values:
            found.setdefault(row["peer"], {})[row["net"]] = statistics.median(values)
    return found


def ratio(
    found: dict[str, dict[str, float]], net: str, counts: Callable[[str], bool]
) -> float | None:
    """Returns kerascnn's figure over the smallest one of the peers that count."""
    peers = [nets[net] for name, nets in found.items() if net in nets and counts(name)]
    own = found.get(OWN, {}).get(net)
    return own / min(peers) if peers and own is not None else None


UNITS = {"memory": "MiB", "startup": "s"}


def text(document: dict[str, Any]) -> str:
    about = document["machine"]
    lines = [
        f"{about['date']}, {about['hardware']}, {about['cores']} cores of {about['processor']}"
    ]
    for name, peer in document["peers"].items():
        lines.append(f"{name}: {peer.get('missing') or describe(peer['versions'])}")
    for what in dict.fromkeys(row["what"] for row in document["rows"] if values_of(row)):
        lines += ["", *table(document, what)]
    errors = [row for row in document["rows"] if "error" in row]
    lines += [f"{r['what']} of {r['peer']} on net {r['net']} failed: {r['error']}" for r in errors]
    return "\n".join(lines + document["left_out"])


def describe(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def table(document: dict[str, Any], what: str) -> list[str]:
    """Returns Markdown: medians with smallest and largest value, and ratios to the best peer."""
    rows = [row for row in document["rows"] if row["what"] == what and values_of(row)]
    nets = list(dict.fromkeys(row["net"] for row in rows))
    title = f"{what}, {UNITS.get(what, 'ms')}"
    lines = [f"| {title} | " + " | ".join(nets) + " |", "| --- |" + " --- |" * len(nets)]
    for name in dict.fromkeys(row["peer"] for row in rows):
        cells = {row["net"]: cell(values_of(row)) for row in rows if row["peer"] == name}
        lines.append(f"| {name} | " + " | ".join(cells.get(net, "-") for net in nets) + " |")
    found = medians(document, what)
    for label, counts in (
        ("kerascnn / best peer", is_peer),
        ("kerascnn / best Keras", lambda name: name.startswith("keras-")),
    ):
        ratios = [ratio(found, net, counts) for net in nets]
        cells = ["-" if value is None else f"{value:.3f}" for value in ratios]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    if what == "fit":
        lines += ["", *fit_notes(rows)]
    return lines


def cell(values: list[float]) -> str:
    digits = 1 if statistics.median(values) >= 10 else 2
    middle = f"{statistics.median(values):.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def fit_notes(rows: list[dict[str, Any]]) -> list[str]:
    """Returns the test accuracy, which shows that all learn the same, and the host's share."""
    lines = []
    for row in rows:
        accuracy = f"{row['accuracy']:.4f}" if "accuracy" in row else "-"
        epochs = len(row["warm_up_ms"]) + sum(len(turn) for turn in row["ms"])
        share = statistics.median(row["cpu_ms"]) / statistics.median(values_of(row))
        lines.append(
            f"{row['peer']:30} {row['net']:7} test accuracy {accuracy} after {epochs} epochs, "
            f"first {row['warm_up_ms'][0] / 1e3:.1f} s, host time {share:.0%} of an epoch"
        )
    return lines
