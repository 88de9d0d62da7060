"""Milliseconds per MNIST epoch of plain ``model.fit`` on the four reference networks, and of peers.

    python tests/benchmarks/mnist_fit.py DATA [--device cpu] [--nets A,B,C,D]
                                              [--peer NAME=COMMAND ...]

DATA is a folder with the four IDX files (or an .npz). A peer's COMMAND is run by a shell as a
process of its own, with ``{net}`` replaced by the network's letter; it prints one JSON object per
line with the keys ``net``, ``ms_epoch`` and, optionally, ``variant`` and ``acc``. kerascnn and the
peers take turns network by network, so a drift of the machine's speed meets all of them. Times are
medians over epochs after the first.

``--output FILE`` writes everything as JSON: date, hardware, versions, raw times.
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time

import kerascnn as keras
from kerascnn import _core, layers

#        convolutions (filters, kernel, padding), bias, hidden units, dropout, batch size
NETS = {
    "A": ([(16, 3, "same")], False, [], 0.0, 64),
    "B": ([(6, 5, "valid"), (16, 5, "valid")], True, [120], 0.0, 64),
    "C": ([(32, 3, "same"), (64, 3, "same")], True, [128], 0.0, 64),
    "D": ([(32, 3, "valid"), (64, 3, "valid")], True, [], 0.5, 128),
}


def build(net: str) -> keras.Model:
    """The compiled network `net`; inputs are uint8 images of shape (28, 28, 1)."""
    convolutions, bias, hidden, dropout, _ = NETS[net]
    # He initialization, made for relu, where plain SGD trains; D is Keras' example as it is.
    initializer = "glorot_uniform" if net == "D" else "he_normal"
    stack = [keras.Input((28, 28, 1)), layers.Rescaling(1 / 255)]
    for filters, size, padding in convolutions:
        stack += [
            layers.Conv2D(
                filters,
                size,
                padding=padding,
                activation="relu",
                use_bias=bias,
                kernel_initializer=initializer,
            ),
            layers.MaxPooling2D(),
        ]
    stack.append(layers.Flatten())
    if dropout:
        stack.append(layers.Dropout(dropout))
    stack += [layers.Dense(units, activation="relu") for units in hidden]
    stack.append(layers.Dense(10, activation="softmax", use_bias=bias))
    model = keras.Sequential(stack)
    optimizer = keras.optimizers.Adam(1e-3) if net == "D" else keras.optimizers.SGD(0.01)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


class EpochTimes(keras.callbacks.Callback):
    """Wall-clock time of each epoch, in milliseconds."""

    def __init__(self):
        super().__init__()
        self.milliseconds = []

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.milliseconds.append((time.perf_counter() - self._start) * 1e3)


def measure(net: str, data, epochs: int) -> dict:
    (x_train, y_train), (x_test, y_test) = data
    keras.utils.set_random_seed(0)
    start = time.perf_counter()
    model = build(net)
    times = EpochTimes()
    x = x_train[..., None]
    model.fit(x, y_train, batch_size=NETS[net][-1], epochs=epochs, verbose=0, callbacks=[times])
    total = time.perf_counter() - start
    _, accuracy = model.evaluate(x_test[..., None], y_test, verbose=0)
    return {
        "library": "kerascnn",
        "net": net,
        "variant": "fit",
        "ms_epoch": statistics.median(times.milliseconds[1:]),
        "raw_ms": times.milliseconds,
        "total_s": total,
        "acc": float(accuracy),
        "epochs": epochs,
    }


def measure_peer(name: str, command: str, net: str) -> list[dict]:
    # Peers must not inherit this process' thread settings but those that the user gave.
    done = subprocess.run(
        command.replace("{net}", net), shell=True, text=True, capture_output=True, check=False
    )
    results = []
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            result = json.loads(line)
            results.append({"library": name, **result})
    if done.returncode != 0 or not results:
        print(f"{name} on net {net} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
    return results


def versions(device: str) -> dict[str, str]:
    """Of what takes part: this library's own dependencies and every peer that is installed."""
    found = {}
    for name in ("numpy", "keras", "torch", "jax", "tensorflow"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    if device.startswith("cuda"):
        found["cuda"] = _core.cuda_versions()
    return found


def machine(device: str) -> dict:
    described = {name: text for name, _, text in keras.config.list_devices()}
    return {
        "date": datetime.date.today().isoformat(),
        "device": device,
        "hardware": described.get(device, device),
        "processor": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "kerascnn": keras.__version__,
        "versions": versions(device),
    }


def table(results: list[dict], nets: list[str]) -> str:
    rows = {}
    for result in results:
        if "ms_epoch" in result:
            label = f"{result['library']} {result.get('variant', '')}".strip()
            rows.setdefault(label, {})[result["net"]] = result["ms_epoch"]
    lines = ["| ms per epoch | " + " | ".join(nets) + " |", "| --- |" + " --- |" * len(nets)]
    for label, times in rows.items():
        cells = [f"{times[net]:.1f}" if net in times else "-" for net in nets]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    ratios = []
    for net in nets:
        peers = [t[net] for label, t in rows.items() if net in t and label != "kerascnn fit"]
        own = rows["kerascnn fit"][net]
        ratios.append(f"{own / min(peers):.2f}" if peers else "-")
    lines.append("| kerascnn / best other | " + " | ".join(ratios) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder with MNIST's IDX files, or an .npz")
    parser.add_argument("--device", help='"cpu", "cuda:0"; default: the first usable GPU, else cpu')
    parser.add_argument("--nets", default="A,B,C,D")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--output", help="file for the results as JSON")
    args = parser.parse_args()
    if args.device:
        keras.config.set_device(args.device)
    data = keras.datasets.mnist.load_data(args.data)
    nets = args.nets.split(",")
    results = []
    for net in nets:
        results.append(measure(net, data, args.epochs))
        print(json.dumps(results[-1]), flush=True)
        for peer in args.peer:
            name, command = peer.split("=", 1)
            for result in measure_peer(name, command, net):
                results.append(result)
                print(json.dumps(result), flush=True)
    print(table(results, nets))
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(
                {"machine": machine(keras.config.get_device()), "results": results}, file, indent=1
            )


if __name__ == "__main__":
    main()
