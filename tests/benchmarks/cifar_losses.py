"""Compares the losses of bfloat16, float32 and Keras in the first steps of ResNet-18 on CIFAR-10.

    python tests/benchmarks/cifar_losses.py DATA --output FILE

DATA is what `keras.datasets.cifar10.load_data` takes. For each seed all trainings start from the
same weights and see the same batches: kerascnn in mixed_bfloat16, kerascnn in float32, and Keras in
float32, each in a process of its own. The network and its SGD are those of `large_nets.py`; the
batch is part of its name, as in resnet18@64, and resnet18@64x16 sees every second pixel.

Small differences of rounding grow from step to step, so that two trainings never stay the same.
What can be asked is whether they differ by more than trainings from different seeds do. So the
table has two losses, the mean over the last steps and that on test images after them, and for each
their mean and standard deviation over the seeds. The last two columns are about the differences to
kerascnn in float32, seed by seed: their mean, and whether that is within that standard deviation.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import report
from large_nets import Case, keras_model
from peer_process import OWN, PeerError, PeerProcess, environment, inner_device

import kerascnn as keras

FULL = "float32"
BACKENDS = ("torch", "jax", "tensorflow")
_SCRIPT = Path(__file__).resolve().parent / "peers" / "losses_peer.py"
_TEST_IMAGES = 2000


def write_inputs(args: argparse.Namespace, folder: Path) -> None:
    """Writes the images, and for each seed the first weights and the order of the images."""
    (x, y), (x_test, y_test) = args.data
    stride = 32 // args.net.image_size
    arrays = {"x": x, "x_test": x_test[:_TEST_IMAGES]}
    arrays = {name: images[:, ::stride, ::stride] for name, images in arrays.items()}
    labels = {"y": y.ravel(), "y_test": y_test.ravel()[:_TEST_IMAGES]}
    np.savez(folder / "data.npz", **arrays, **labels)
    for seed in range(args.seeds):
        keras.utils.set_random_seed(seed)
        np.savez(folder / f"weights_{seed}.npz", *keras_model(keras, args.net).get_weights())
        rng = np.random.default_rng(seed)
        wanted = args.steps * args.net.batch_size
        passes = [rng.permutation(len(x)) for _ in range(-(-wanted // len(x)))]
        np.save(folder / f"order_{seed}.npy", np.concatenate(passes)[:wanted])


def train(args: argparse.Namespace, library: str, policy: str, folder: Path) -> dict[str, Any]:
    """Returns what one library reached from each seed, or why it did not."""
    row: dict[str, Any] = {"library": library, "policy": policy, "seeds": []}
    command = [sys.executable, str(_SCRIPT), library, str(args.net), policy]
    command += [inner_device(args.device), str(folder / "data.npz")]
    process = PeerProcess(command, environment(args.device, []))
    try:
        process.wait_until_ready(args.patience)
        row["versions"] = process.hello["versions"]
        for seed in range(args.seeds):
            files = {
                "weights": str(folder / f"weights_{seed}.npz"),
                "order": str(folder / f"order_{seed}.npy"),
            }
            steps = {"steps": args.steps, "window": args.window}
            found = process.ask("train", args.patience, **files, **steps)
            row["seeds"].append(found)
            print(f"{library} {policy}, seed {seed}: {found['losses'][-1]:.4f}", file=sys.stderr)
    except PeerError as error:
        row["error"] = str(error)
    finally:
        process.stop()
    return row


# Text ---------------------------------------------------------------------------------------------


def losses(row: dict[str, Any]) -> dict[str, list[float]]:
    """Returns both losses that are compared, for each seed."""
    return {
        "last steps": [found["losses"][-1] for found in row["seeds"]],
        "test": [found["test_loss"] for found in row["seeds"]],
    }


def deviation(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def comparisons(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the figures of each row, beside those of kerascnn in float32."""
    complete = [row for row in rows if "error" not in row]
    full = next((r for r in complete if (r["library"], r["policy"]) == (OWN, FULL)), None)
    found = []
    for row in complete:
        for name, values in losses(row).items():
            figures = {
                "library": row["library"],
                "policy": row["policy"],
                "loss": name,
                "mean": statistics.mean(values),
                "deviation": deviation(values),
            }
            if full is not None and row is not full:
                expected = losses(full)[name]
                differences = [a - b for a, b in zip(values, expected, strict=True)]
                figures["difference"] = statistics.mean(differences)
                figures["within"] = abs(figures["difference"]) <= deviation(expected)
            found.append(figures)
    return found


def text(document: dict[str, Any]) -> str:
    about = document["machine"]
    lines = [f"{about['date']}, {about['hardware']}"]
    for row in document["rows"]:
        if "versions" in row:
            lines.append(f"{row['library']} {row['policy']}: {report.describe(row['versions'])}")
    lines += ["", "| library | policy | loss | mean | deviation | difference | within |"]
    lines.append("| --- |" + " --- |" * 6)
    for figures in document["comparisons"]:
        cells = [figures["library"], figures["policy"], figures["loss"]]
        cells += [f"{figures['mean']:.4f}", f"{figures['deviation']:.4f}"]
        if "difference" in figures:
            cells += [f"{figures['difference']:+.4f}", "yes" if figures["within"] else "no"]
        else:
            cells += ["", ""]
        lines.append("| " + " | ".join(cells) + " |")
    errors = [row for row in document["rows"] if "error" in row]
    lines += [f"{row['library']} {row['policy']} failed: {row['error']}" for row in errors]
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="folder with CIFAR-10's batch files, or a .tar.gz archive")
    parser.add_argument("--device", help="default: the first usable GPU, else cpu")
    parser.add_argument("--net", default="resnet18@128", help="default resnet18@128")
    parser.add_argument("--backend", default="torch", help=f"of Keras: {', '.join(BACKENDS)}, none")
    parser.add_argument("--seeds", type=int, default=5, help="default 5")
    parser.add_argument("--steps", type=int, default=200, help="default 200")
    parser.add_argument("--window", type=int, default=20, help="steps in a mean; default 20")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds for one answer")
    parser.add_argument("--output", type=Path, help="file for everything as JSON")
    args = parser.parse_args()
    try:
        if args.device:
            keras.config.set_device(args.device)
        args.device = keras.config.get_device()
        args.net = Case.parse(args.net)
        args.data = keras.datasets.cifar10.load_data(args.data)
    except (OSError, ValueError, keras.DeviceError) as error:
        parser.error(" ".join(str(error).split()))
    if args.backend not in (*BACKENDS, "none"):
        parser.error(f"--backend: {args.backend!r} is none of {', '.join(BACKENDS)}, none")
    if min(args.seeds, args.steps, args.window) < 1 or args.steps % args.window:
        parser.error("--seeds, --steps and --window must be at least 1, --steps whole windows")
    if args.net.image_size > 32 or 32 % args.net.image_size:
        parser.error(f"--net: images of CIFAR-10 cannot become {args.net.image_size} pixels wide")
    return args


def main() -> None:
    args = parse_arguments()
    trainings = [(OWN, FULL), (OWN, "mixed_bfloat16")]
    if args.backend != "none":
        trainings.append((f"keras-{args.backend}", FULL))
    with tempfile.TemporaryDirectory() as name:
        write_inputs(args, Path(name))
        rows = [train(args, *training, Path(name)) for training in trainings]
    document = {
        "machine": report.machine(args.device),
        "arguments": {
            name: str(getattr(args, name)) for name in ("net", "seeds", "steps", "window")
        },
        "rows": rows,
        "comparisons": comparisons(rows),
    }
    print(text(document))
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
