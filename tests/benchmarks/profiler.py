"""Compares what the profiler finds with the time of a step without it, and measures what it costs.

    python tests/benchmarks/profiler.py [--nets A,B,C,D] [--device cuda:0] [--output FILE]

For each net it shows the time of a step of `fit` before the profiler was used, while a trace
records it, and afterwards. Then it shows what `model.profile` finds: the time of a step without the
profiler, the sum of the kernels' times (kernels that overlap share the time), the ratio of the two,
and how many rows belong to no layer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from keras_nets import build
from nets import CLASSES, IMAGE_SIZE, Case

import kerascnn as keras
from kerascnn import _core


def measure(case: Case, rounds: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (64 * case.batch_size, IMAGE_SIZE, IMAGE_SIZE, 1), np.uint8)
    y = random.integers(0, CLASSES, len(x), np.int32)
    model = build(keras, case, scaled=True)

    def step_us() -> float:
        """Returns microseconds per step of an epoch with the program that `fit` keeps."""
        start = time.perf_counter()
        model.fit(x, y, batch_size=case.batch_size, verbose=0, shuffle=False)
        _core.synchronize(keras.config.get_device())
        return (time.perf_counter() - start) / 64 * 1e6

    def traced_us() -> float:
        with keras.profiler.trace():
            step_us()  # a GPU captures its graph again in this call
            return step_us()

    for _ in range(3):
        step_us()
    before = statistics.median(step_us() for _ in range(rounds))
    traced = statistics.median(traced_us() for _ in range(rounds))
    after = statistics.median(step_us() for _ in range(rounds))
    profile = model.profile(x, y, batch_size=case.batch_size)
    return {
        "net": str(case),
        "fit_us": {"before": before, "traced": traced, "after": after},
        "step_us": profile.step_us,
        "busy_us": profile.busy_us,
        "ratio": profile.busy_us / (profile.step_us or 1.0),
        "gap_us": profile.gap_us,
        "kernels": len(profile.recording.events) / profile.steps,
        "without_layer": sum(not row["layer"] for row in profile.rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nets", default="A,B,C,D", help="A to E, or C@256; several with commas")
    parser.add_argument("--device", help="default: the first usable GPU, else cpu")
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement; default 5")
    parser.add_argument("--output", type=Path, help="file for everything as JSON")
    args = parser.parse_args()
    try:
        if args.device:
            keras.config.set_device(args.device)
        cases = [Case.parse(name) for name in args.nets.split(",")]
    except (ValueError, keras.DeviceError) as error:
        parser.error(" ".join(str(error).split()))
    print("| net | fit us, before | traced | after | step us | kernels us | ratio | no layer |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    results = []
    for case in cases:
        found = measure(case, args.rounds)
        results.append(found)
        fit = found["fit_us"]
        print(
            f"| {found['net']} | {fit['before']:.1f} | {fit['traced']:.1f} | {fit['after']:.1f} "
            f"| {found['step_us']:.1f} | {found['busy_us']:.1f} | {found['ratio']:.3f} "
            f"| {found['without_layer']} |",
            flush=True,
        )
    if args.output:
        args.output.write_text(json.dumps({"nets": results}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
