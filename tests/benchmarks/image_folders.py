"""Reads a folder of photographs with kerascnn, torchvision and Keras on TensorFlow, in turns.

    python tests/benchmarks/image_folders.py [--images 2000] [--workers 2] [--output FILE]

The photographs are made: 500 x 375 pixels of smooth noise of several scales with a little noise on
top, as JPEG of quality 90. Each library reads, decodes and shuffles them all and makes float32
batches of 64, of the largest centered square resized to 224 x 224: torchvision's `ImageFolder` with
`Resize`, `CenterCrop` and `ToTensor` in a `DataLoader` of processes, and
`image_dataset_from_directory` of Keras and of kerascnn. `kerascnn scaled` is the same with
`scaled_decoding=True` (which has an effect only where photographs are twice as large as needed:
--height 1500 --width 2000), `kerascnn tar` reads the same files from tar shards, and `kerascnn
cache` what `cache()` has kept of them on disk as uint8. The first pass warms up and is not counted.
What is not installed is left out.

Where other programs use the machine, `--clock cpu` counts the time that all threads and processes
of a library compute, instead of the time that passes: images/s of one core.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import report
from PIL import Image

import kerascnn

CLASSES = 10
SIZE = 224
BATCH = 64


def write_photograph(folder: Path, height: int, width: int, number: int) -> None:
    rng = np.random.default_rng(number)
    total = np.zeros((height, width, 3), "float32")
    for scale in (4, 8, 16, 32, 64, 128):
        coarse = rng.normal(size=(height // scale + 2, width // scale + 2, 3)).astype("float32")
        planes = [
            Image.fromarray(coarse[..., c]).resize((width, height), Image.Resampling.BICUBIC)
            for c in range(3)
        ]
        total += np.stack(planes, -1) * scale**0.7
    low, high = total.min(), total.max()
    total = (total - low) / (high - low) * 255 + rng.normal(size=total.shape) * 4
    image = Image.fromarray(np.clip(total, 0, 255).astype("uint8"))
    image.save(folder / f"class{number % CLASSES}" / f"{number}.jpg", quality=90)


def write_photographs(folder: Path, count: int, height: int, width: int) -> None:
    for i in range(CLASSES):
        (folder / f"class{i}").mkdir()
    write = functools.partial(write_photograph, folder, height, width)
    with concurrent.futures.ProcessPoolExecutor() as pool:
        list(pool.map(write, range(count), chunksize=16))


def of_kerascnn(folder: Path, workers: int, **options: Any) -> Iterable[Any]:
    return kerascnn.utils.image_dataset_from_directory(
        folder,
        image_size=(SIZE, SIZE),
        batch_size=BATCH,
        crop_to_aspect_ratio=True,
        seed=0,
        verbose=False,
        **options,
    )


def of_tar(folder: Path, workers: int) -> Iterable[Any]:
    files = sorted(folder.glob("class*/*.jpg"))
    samples = ({"__key__": p.stem, "jpg": p, "cls": int(p.parent.name[5:])} for p in files)
    shards = kerascnn.utils.write_tar_shards(samples, folder / "%06d.tar")
    return kerascnn.utils.image_dataset_from_tar(
        shards,
        image_size=(SIZE, SIZE),
        batch_size=BATCH,
        crop_to_aspect_ratio=True,
        seed=0,
        verbose=False,
    )


def of_cache(folder: Path, workers: int) -> Iterable[Any]:
    kept: Any = of_kerascnn(folder, workers, dtype="uint8")
    return kept.unbatch().cache(folder / "cache").shuffle(None, seed=0).batch(BATCH)


def of_torchvision(folder: Path, workers: int) -> Iterable[Any]:
    import torch
    from torchvision import datasets, transforms

    change = transforms.Compose(
        [transforms.Resize(SIZE), transforms.CenterCrop(SIZE), transforms.ToTensor()]
    )
    return torch.utils.data.DataLoader(
        datasets.ImageFolder(str(folder), change),
        batch_size=BATCH,
        shuffle=True,
        num_workers=workers,
    )


def of_keras(folder: Path, workers: int) -> Iterable[Any]:
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import keras
    import tensorflow  # noqa: F401 (Keras asks for it only when it reads)

    return keras.utils.image_dataset_from_directory(
        str(folder),
        image_size=(SIZE, SIZE),
        batch_size=BATCH,
        crop_to_aspect_ratio=True,
        seed=0,
        verbose=False,
    )


SOURCES: dict[str, Callable[..., Iterable[Any]]] = {
    "kerascnn": of_kerascnn,
    "kerascnn scaled": functools.partial(of_kerascnn, scaled_decoding=True),
    "kerascnn tar": of_tar,
    "kerascnn cache": of_cache,
    "torchvision": of_torchvision,
    "keras": of_keras,
}


def computed() -> float:
    """The seconds that this process and the processes that it has waited for have computed."""
    return sum(os.times()[:4])


CLOCKS = {"wall": time.perf_counter, "cpu": computed}


def images_per_second(source: Iterable[Any], clock: Callable[[], float]) -> float:
    begin, count = clock(), 0
    for images, _ in source:
        count += len(images)
    return count / (clock() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=2000, help="default 2000")
    parser.add_argument("--height", type=int, default=375, help="default 375")
    parser.add_argument("--width", type=int, default=500, help="default 500")
    parser.add_argument("--workers", type=int, default=2, help="of the DataLoader; default 2")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall")
    parser.add_argument("--output", type=Path, help="file for everything as JSON")
    args = parser.parse_args()
    sources, found = {}, {}
    with tempfile.TemporaryDirectory() as name:
        write_photographs(Path(name), args.images, args.height, args.width)
        for library, make in SOURCES.items():
            try:
                sources[library] = make(Path(name), args.workers)
            except (
                ImportError,
                RuntimeError,
            ) as error:  # a package that does not fit is the latter
                print(f"{library} is left out: {error}")
        for turn in range(args.rounds + 1):
            order = list(sources) if turn % 2 else list(reversed(sources))
            for library in order:
                speed = images_per_second(sources[library], CLOCKS[args.clock])
                if turn:
                    found.setdefault(library, []).append(speed)
    print(f"{os.cpu_count()} cores, {args.images} photographs of {args.width} x {args.height}")
    own = statistics.median(found["kerascnn"])
    for library, speeds in found.items():
        middle = statistics.median(speeds)
        print(f"{library:16} {middle:7.0f} images/s   kerascnn over it {own / middle:.2f}")
    if args.output:
        document = {"machine": report.machine("cpu"), "arguments": vars(args), "speeds": found}
        args.output.write_text(json.dumps(document, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
