"""Sums a profile's rows by the kind of kernel, so that a step of 500 kernels fits on a page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_CONVOLUTIONS = ("conv", "depthwise")
_PRODUCTS = ("matmul", "dense", "einsum", "product")
_COPIES = ("transpose", "pad", "concatenate", "slice", "broadcast", "gather", "take_batch", "copy")
_NORMALIZATIONS = ("batch_norm", "layer_norm", "rms_norm", "group_norm", "column_moments")


def kind_of(row: dict[str, Any]) -> str:
    """Returns one or two words for a row of a profile."""
    op, kernel, planned = row["op"], row["kernel"], row["implementation"]
    ops = op.split("+")
    if row["phase"] == "update":
        return "update"
    if any(name in op for name in _CONVOLUTIONS):
        return "convolution"
    if "attention" in op:
        return "attention"
    if any(name in op for name in _PRODUCTS):
        return "product"
    if all(name == "cast" for name in ops):
        return "cast alone"
    if planned.startswith("generated"):
        return "generated region"
    if kernel.startswith("interpret_") or planned.startswith("elementwise"):
        return "interpreter"
    if "pool" in op:
        return "pooling"
    if any(name in op for name in _NORMALIZATIONS):
        return "normalization"
    if any(name.startswith("reduce_") for name in ops):
        return "reduction"
    if op == "" or any(name in op for name in _COPIES):
        return "copy"
    return "other"


def summed(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the kernels, time, bytes and operations of each kind, the longest first."""
    kinds: dict[str, dict[str, Any]] = {}
    for row in rows:
        zeros = {"calls": 0.0, "busy_us": 0.0, "bytes": 0.0, "flop": 0.0}
        total = kinds.setdefault(kind_of(row), zeros)
        for name in total:
            total[name] += row[name]
    ordered = sorted(kinds.items(), key=lambda item: -item[1]["busy_us"])
    return [{"kind": kind, **total} for kind, total in ordered]


def longest(rows: Iterable[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Returns the ops and kernels that take longest, over all layers."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = (row["op"], row["kernel"])
        start = {"kind": kind_of(row), "op": row["op"], "kernel": row["kernel"]}
        total = found.setdefault(key, start | {"calls": 0.0, "busy_us": 0.0, "bytes": 0.0})
        for name in ("calls", "busy_us", "bytes"):
            total[name] += row[name]
    return sorted(found.values(), key=lambda row: -row["busy_us"])[:count]


def text(profile: dict[str, Any], most: int = 12) -> str:
    """Returns Markdown tables of a step's kinds of kernels, and of what takes longest."""
    rows = profile["rows"]
    busy = sum(row["busy_us"] for row in rows) or 1.0
    memory = ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in profile["memory"].items())
    lines = [
        f"step {profile['step_us'] / 1e3:.2f} ms, kernels {busy / 1e3:.2f} ms; {memory}",
        "",
        "| kind | ms | share | kernels | GB | GB/s | Gflop |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in summed(rows):
        rate = row["bytes"] / 1e3 / row["busy_us"] if row["busy_us"] else 0.0
        lines.append(
            f"| {row['kind']} | {row['busy_us'] / 1e3:.3f} | {row['busy_us'] / busy:.1%} "
            f"| {row['calls']:.0f} | {row['bytes'] / 1e9:.3f} | {rate:.0f} "
            f"| {row['flop'] / 1e9:.1f} |"
        )
    lines += ["", "| longest | kernel | kind | ms | kernels | GB |", "| --- |" + " --- |" * 5]
    for row in longest(rows, most):
        lines.append(
            f"| {row['op'][:70]} | {row['kernel'][:50]} | {row['kind']} "
            f"| {row['busy_us'] / 1e3:.3f} | {row['calls']:.0f} | {row['bytes'] / 1e9:.3f} |"
        )
    return "\n".join(lines)
