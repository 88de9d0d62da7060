"""Times epochs alone and beside busy processes, to see whether threads wait for one another.

    taskset -c 0,1 python tests/benchmarks/busy_cores.py --nets A,C,resnet18@32
    taskset -c 0,1 python tests/benchmarks/busy_cores.py --busy 2 --threads 1 --output FILE

Where as many processes as there are cores compute all the time, a training with a thread for each
core gets half of each core: its fair share is twice the time. It takes longer where its threads
wait for one of them that has no core. The busy processes live all the time; they are stopped while
an epoch is timed alone, so that epochs of both kinds take turns. Nets A to E are those of
`nets.py`, on random images; resnet18 and other nets of `large_nets.py` train on one batch.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nets", default="A,C,resnet18@16")
    parser.add_argument("--busy", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--threads", type=int, help="KERASCNN_NUM_THREADS; default: as it is")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--samples", type=int, default=4096, help="images of an epoch of A to E")
    parser.add_argument("--output", type=Path, help="file for everything as JSON")
    return parser.parse_args()


def epoch_of(name: str, samples: int) -> Any:
    """Returns a function that trains one epoch of the net."""
    import keras_nets
    import large_nets
    import nets
    import numpy as np

    import kerascnn as keras

    keras.config.set_device("cpu")
    random = np.random.default_rng(0)
    if name.partition("@")[0] in nets.NETS:
        case = nets.Case.parse(name)
        model = keras_nets.build(keras, case, scaled=True)
        size, classes, channels, batch = nets.IMAGE_SIZE, nets.CLASSES, 1, case.batch_size
    else:
        large = large_nets.Case.parse(name)
        model = large_nets.keras_model(keras, large)
        size, channels, batch = large.image_size, 3, large.batch_size
        classes, samples = large_nets.NETS[large.net].classes, batch
    x = random.integers(0, 256, (samples, size, size, channels), np.uint8)
    y = random.integers(0, classes, samples, np.int32)
    model.fit(x, y, batch_size=batch, epochs=2, verbose=0)

    def epoch() -> float:
        start = time.perf_counter()
        model.fit(x, y, batch_size=batch, epochs=1, verbose=0)
        return time.perf_counter() - start

    return epoch


def main() -> None:
    arguments = parse_arguments()
    if arguments.threads:
        os.environ["KERASCNN_NUM_THREADS"] = str(arguments.threads)
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)
    ]

    def tell(number: signal.Signals) -> None:
        for process in busy:
            process.send_signal(number)
        time.sleep(0.05)

    rows = []
    try:
        tell(signal.SIGSTOP)
        for name in arguments.nets.split(","):
            epoch = epoch_of(name, arguments.samples)
            alone, beside = [], []
            for _ in range(arguments.rounds):
                alone.append(epoch())
                tell(signal.SIGCONT)
                beside.append(epoch())
                tell(signal.SIGSTOP)
            row = {"net": name, "alone": alone, "beside": beside}
            rows.append(row)
            one, other = statistics.median(alone), statistics.median(beside)
            print(
                f"{name}: alone {1e3 * one:.1f} ms, beside {arguments.busy} busy processes "
                f"{1e3 * other:.1f} ms ({1e3 * min(beside):.1f} to {1e3 * max(beside):.1f}): "
                f"{other / one:.2f} times as long",
                flush=True,
            )
    finally:
        for process in busy:
            process.kill()
            process.wait()
    if arguments.output:
        import report

        document = {**report.machine("cpu"), "busy": arguments.busy, "rows": rows}
        arguments.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
