"""How long a step of several devices takes: a model, and what it says against measurements.

    python tests/benchmarks/step_time.py predict
    python tests/benchmarks/step_time.py measure --rate 200mbit

`predict` prints what the model says of ResNet-50 on 8 to 512 GPUs. `measure` trains on 2, 4 and 8
machines, which network namespaces stand for (Linux and root), and prints what the model says beside
it. docs/distribution.md explains both. All sizes are in bytes, times in seconds.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# A packet of Ethernet has 1,514 bytes and four more, of which 1,448 are the user's.
ETHERNET = 1448 / 1518


class Link(NamedTuple):
    """What connects one device, or one machine of several, with the others."""

    latency: float  # seconds from one to another
    bandwidth: float  # bytes a second that it can send while it receives as many


def exchange(devices: int, message: float, link: Link) -> float:
    """The sum over CPU processes, as core/backend/cpu/all_reduce.cpp takes it.

    Twice each process sends one part of the message to each other one, all at once.
    """
    return 2 * (link.latency + message * (devices - 1) / devices / link.bandwidth)


def ring(devices: int, message: float, link: Link) -> float:
    """Parts go around a ring, twice: the fewest bytes, and a latency for each device."""
    steps = 2 * (devices - 1)
    return steps * (link.latency + message / devices / link.bandwidth)


def tree(devices: int, message: float, link: Link) -> float:
    """Two trees that share the message: as many bytes as a ring for many, fewer latencies."""
    return 2 * math.ceil(math.log2(devices)) * link.latency + 2 * message / link.bandwidth


def hierarchy(devices: int, message: float, inner: Link, outer: Link, per_machine: int) -> float:
    """Within machines by `inner`, between them by `outer`, which a machine's devices share.

    Each device has a part of the message, whose sums over the machines are taken at once.
    """
    within = min(devices, per_machine)
    machines = math.ceil(devices / per_machine)
    seconds = ring(within, message, inner) if within > 1 else 0.0
    if machines > 1:
        seconds += min(way(machines, message, outer) for way in (ring, tree))
    return seconds


def step(
    compute: float,
    backward: float,
    buckets: Sequence[float],
    reduce: Callable[[float], float],
    overlapped: bool = True,
) -> float:
    """The time of a step.

    Args:
        compute: What it takes on one device, with its share of the batch.
        backward: What part of that is the backward pass, at whose end the step takes nothing else.
        buckets: Sizes of messages, in the order in which the backward pass has them ready: evenly.
        reduce: The time that a message takes.
        overlapped: Whether messages go while the backward pass goes on, one after another.
    """
    if not overlapped:
        return compute + sum(map(reduce, buckets))
    done = 0.0
    ready = compute * (1 - backward)
    for size in buckets:
        ready += compute * backward * size / sum(buckets)
        done = max(done, ready) + reduce(size)
    return max(done, compute)


# What is predicted ------------------------------------------------------------------------------

COMPUTE = 0.0167  # of ResNet-50 in bfloat16 on one H200, 128 images
BACKWARD = 2 / 3
# Its gradients are 25.6 million of 4 bytes. A message has at least half of what is left, or 32 MB.
MESSAGES = [39.7e6, 31.8e6, 15.5e6, 8.9e6, 3.6e6, 1.7e6, 1.0e6]
NVLINK = Link(3e-6, 350e9)  # of one GPU, as NCCL's sums of large messages reach it
NETWORKS = {  # of one machine with 8 GPUs
    "8 x 400 Gbit/s": Link(8e-6, 8 * 50e9 * 0.9),
    "1 x 100 Gbit/s": Link(15e-6, 12.5e9 * 0.9),
    "1 x 10 Gbit/s": Link(30e-6, 1.25e9 * 0.9),
}


def resnet50(devices: int, network: Link, itemsize: int, overlapped: bool) -> float:
    def reduce(size: float) -> float:
        return hierarchy(devices, size, NVLINK, network, 8)

    messages = [size * itemsize / 4 for size in MESSAGES]
    if not overlapped:
        return step(COMPUTE, BACKWARD, [sum(messages)], reduce, overlapped=False)
    return step(COMPUTE, BACKWARD, messages, reduce)


def predict() -> None:
    ways = {
        "float32, after the backward pass": (4, False),
        "float32, beside it": (4, True),
        "16 bits, beside it": (2, True),
    }
    print("| network of a machine with 8 GPUs | gradients | 8 GPUs | 64 | 512 |")
    print("| --- | --- | --- | --- | --- |")
    for network, link in NETWORKS.items():
        for name, (itemsize, overlapped) in ways.items():
            cells = []
            for devices in (8, 64, 512):
                seconds = resnet50(devices, link, itemsize, overlapped)
                share = COMPUTE / seconds
                cells.append(f"{seconds * 1e3:.1f} ms, {share:.2f}")
            print(f"| {network} | {name} | {' | '.join(cells)} |")


# What is measured -------------------------------------------------------------------------------

SIZES = (2, 4, 8)
REPEATS = 5
STEPS = 4


def worker(megabytes: str) -> None:
    """One of the processes: prints the seconds of a sum, and those of a step that has it."""
    import time

    import numpy as np

    import kerascnn as keras
    from kerascnn.distribution import replicas

    keras.distribution.initialize()
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    engine = replicas.active().engine
    units = int(math.sqrt(float(megabytes) * 1e6 / 4))
    gradient = keras.ops.ones((units, units))

    def seconds_of(function: Callable[[], object]) -> float:
        found = []
        for _ in range(REPEATS):
            engine.gather_objects(None)
            begun = time.perf_counter()
            function()
            found.append(max(engine.gather_objects(time.perf_counter() - begun)))
        return statistics.median(found[1:])

    small = seconds_of(lambda: replicas.summed([gradient[:1, :1024]])[0].numpy())
    large = seconds_of(lambda: replicas.summed([gradient])[0].numpy())
    size = keras.distribution.num_processes()
    model = keras.Sequential([keras.Input((units,)), keras.layers.Dense(units, use_bias=False)])
    model.compile("sgd", "mse")

    def seconds_of_step(batch: int) -> float:
        """An epoch of several steps takes longer than one of one step by these."""
        x = np.ones((STEPS * batch, units), "float32")
        many = seconds_of(lambda: model.fit(x, x, batch, verbose=0))
        one = seconds_of(lambda: model.fit(x[:batch], x[:batch], batch, verbose=0))
        return (many - one) / (STEPS - 1)

    whole = seconds_of_step(8 * size)
    keras.distribution.set_distribution(None)
    own = seconds_of_step(8)
    if keras.distribution.process_id() == 0:
        print(f"measured {small} {large} {whole} {own}", flush=True)


def bytes_a_second(rate: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)([mg])bit", rate).groups()
    return float(number) * {"m": 1e6, "g": 1e9}[unit] / 8 * ETHERNET


def measure(rate: str, megabytes: float) -> None:
    from distribution.conftest import start_by_hand
    from distribution.network import VARIABLES, Network

    print(f"Each machine sends {rate}; gradients of {megabytes:g} MB. Seconds.")
    print("| machines | sum: model | measured | step: model | measured |")
    print("| --- | --- | --- | --- | --- |")
    for size in SIZES:
        with Network(size, rate) as network:
            outcome = start_by_hand(
                size,
                "worker",
                megabytes,
                script=Path(__file__).resolve(),
                before={i: network.command(i) for i in range(size)},
                address=f"{network.address(0)}:29500",
                **VARIABLES,
            )
        found = re.search(r"measured (.*)", outcome.output)
        if found is None:
            sys.exit(outcome.output)
        small, large, whole, own = map(float, found.group(1).split())
        units = int(math.sqrt(megabytes * 1e6 / 4))
        link = Link(small, bytes_a_second(rate))  # a short message is one exchange
        predicted = exchange(size, 4 * units * units, link)
        print(
            f"| {size} | {predicted:.3f} | {large:.3f} | {own + predicted:.3f} | {whole:.3f} |",
            flush=True,
        )


def main() -> None:
    if sys.argv[1:2] == ["worker"]:
        worker(sys.argv[2])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("predict", "measure"))
    parser.add_argument("--rate", default="200mbit", help="what a machine sends; default 200mbit")
    parser.add_argument("--megabytes", type=float, default=4.0, help="of gradients; default 4")
    args = parser.parse_args()
    if args.what == "predict":
        predict()
    else:
        measure(args.rate, args.megabytes)


if __name__ == "__main__":
    main()
