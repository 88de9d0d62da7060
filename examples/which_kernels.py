"""Which kernels forward, backward and update of a network call: their names, times and layers.

    python examples/which_kernels.py [--device gpu] [--html kernels.html] [--trace kernels.json]
    python examples/which_kernels.py --policy mixed_bfloat16 --batch-size 1024 --rows rows.json

The network is the MNIST net with two convolutions of 32 and 64 filters. Random images do: which
kernels run depends on shapes and dtypes, not on what is in the images.
"""

import argparse
import datetime
import json
from pathlib import Path

import numpy as np
from common import set_up, stop
from rich.console import Console

import kerascnn as keras
from kerascnn import layers

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--device", help="cpu, gpu or gpu:1; default the first usable GPU")
parser.add_argument("--batch-size", type=int, default=64, help="default 64")
parser.add_argument("--seed", type=int, default=0, help="of images and weights; default 0")
parser.add_argument("--by", choices=["kernel", "layer", "phase"], default="kernel")
parser.add_argument("--policy", default="float32", help="of dtypes; default float32")
parser.add_argument("--html", help="file for a page with a chart")
parser.add_argument("--trace", help="file for ui.perfetto.dev")
parser.add_argument("--rows", help="file for all rows, date and hardware as JSON")
args = parser.parse_args()
set_up(args)
try:
    keras.config.set_dtype_policy(args.policy)
except ValueError as error:
    stop("--policy", error)

options = {"activation": "relu", "kernel_initializer": "he_normal"}
model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        layers.Rescaling(1 / 255),
        layers.Conv2D(32, 3, padding="same", **options),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, padding="same", **options),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(128, **options),
        layers.Dense(10, activation="softmax"),
    ]
)
model.compile(keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])

rng = np.random.default_rng(args.seed)
images = rng.integers(0, 256, (args.batch_size, 28, 28, 1), np.uint8)
labels = rng.integers(0, 10, args.batch_size)
profile = model.profile(images, labels, batch_size=args.batch_size)

console = Console()
if not console.is_terminal:
    console = Console(width=160)
console.print(profile.table(args.by))
for phase in ("forward", "backward", "update"):
    names = {f"{row['library']} {row['kernel']}" for row in profile.rows if phase in row["phase"]}
    print(f"\n{phase} calls:", *sorted(names), sep="\n  ")
if args.html:
    profile.save_html(args.html)
if args.trace:
    profile.save_trace(args.trace)
if args.rows:
    described = {name: text for name, _, text in keras.config.list_devices()}
    document = {
        "date": datetime.date.today().isoformat(),
        "hardware": described[keras.config.get_device()],
        "kerascnn": keras.__version__,
        "policy": args.policy,
        "batch_size": args.batch_size,
        "rows": profile.rows,
    }
    Path(args.rows).write_text(json.dumps(document, indent=1) + "\n")
