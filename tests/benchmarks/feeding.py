"""Trains a ResNet-50 on JPEG photographs, from memory, a folder, tar shards and a cache on disk.

    python tests/benchmarks/feeding.py --output FILE
    python tests/benchmarks/feeding.py --device cpu --net small --images 400 --batch 16 --size 32

The photographs are made: some thousand of 500 x 375 pixels, about 50 kB each, of smooth noise of
several scales and a fine texture; names beyond that number are links to the same files, which all
are decoded anew. Every source gives uint8 images of 224 x 224, the largest centered square resized,
and `fit` trains on them in mixed_bfloat16. It prints, as it goes, for each source:

- images/s of whole epochs behind a first one, which compiles, fills caches and is not counted;
- the ratio to `memory`, which is `fit` on an array that is on the device;
- how long `fit` waited for batches, of the time of an epoch;
- for `folder` and `tar`, what the data set gives alone, without a model: the decoders' limit, and
  the processor time of an image.

With `--decoder gpu`, `folder` and `tar` are measured a second time, with JPEG files decoded on the
GPU by nvJPEG (the extra `nvjpeg`): `folder, GPU` and `tar, GPU`.

`folder, float32` has the pixels as `image_dataset_from_directory` gives them by default. What would
begin after --limit seconds is left out, and the output says so.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import io
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CLASSES = 100
HEIGHT, WIDTH = 375, 500
_BEGUN = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - _BEGUN:6.1f} s] {text}", flush=True)


# Photographs --------------------------------------------------------------------------------------


def fields(rng: np.random.Generator) -> np.ndarray:
    """Smooth noise of several scales, larger than a photograph, of which photographs are parts."""
    height, width = 2 * HEIGHT, 2 * WIDTH
    total = np.zeros((height, width, 3), "float32")
    for scale in (4, 8, 16, 32, 64, 128):
        coarse = rng.normal(size=(height // scale + 2, width // scale + 2, 3)).astype("float32")
        planes = [
            Image.fromarray(coarse[..., c]).resize((width, height), Image.Resampling.BICUBIC)
            for c in range(3)
        ]
        total += np.stack(planes, -1) * scale**0.7
    low, high = total.min(), total.max()
    texture = rng.normal(size=total.shape).astype("float32") * 6
    return (total - low) / (high - low) * 255 + texture


@functools.cache
def _all_fields() -> list[np.ndarray]:
    return [fields(np.random.default_rng(number)) for number in range(2)]


def photograph(number: int) -> bytes:
    rng = np.random.default_rng(1000 + number)
    total = np.zeros((HEIGHT, WIDTH, 3), "float32")
    for field, share in zip(_all_fields(), (0.7, 0.3), strict=True):
        top, left = rng.integers(HEIGHT), rng.integers(WIDTH)
        total += share * field[top : top + HEIGHT, left : left + WIDTH]
    stream = io.BytesIO()
    pixels = np.clip((total - 127) * 1.3 + 127, 0, 255).astype("uint8")
    Image.fromarray(pixels).save(stream, "jpeg", quality=90)
    return stream.getvalue()


def write_photographs(root: Path, different: int, count: int) -> list[Path]:
    """Writes a folder with a subfolder for each class; returns the files."""
    for label in range(CLASSES):
        (root / f"{label:03}").mkdir(parents=True)
    # Threads of this process could hold locks that a fork would keep for ever.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(mp_context=context) as pool:
        contents = list(pool.map(photograph, range(different), chunksize=25))
    paths = [root / f"{i % CLASSES:03}" / f"{i:06}.jpg" for i in range(count)]
    for path, content in zip(paths, contents, strict=False):
        path.write_bytes(content)
    for i in range(different, count):
        os.link(paths[i % different], paths[i])
    size = statistics.mean(map(len, contents))
    say(f"{count} photographs, {different} different ones of {size / 1e3:.0f} kB")
    return paths


# Sources ------------------------------------------------------------------------------------------


class Waits:
    """Iterates over a data set as `fit` does, and notes the seconds that this took."""

    def __init__(self, dataset: Any):
        self._dataset = dataset
        self.seconds = 0.0

    def __len__(self) -> int:
        return len(self._dataset)

    def __iter__(self) -> Iterator[Any]:
        items: Any = iter(self._dataset)
        try:
            while True:
                begin = time.perf_counter()
                item = next(items, None)
                self.seconds += time.perf_counter() - begin
                if item is None:
                    return
                yield item
        finally:
            items.close()


class Sources:
    """Makes the data set of each source."""

    def __init__(self, keras: Any, args: argparse.Namespace, root: Path):
        self._keras, self._args, self._root = keras, args, root
        self._paths = write_photographs(root / "train", args.different, args.images)
        self._options = {
            "image_size": (args.size, args.size),
            "batch_size": args.batch,
            "crop_to_aspect_ratio": True,
            "seed": 0,
            "verbose": False,
        }

    def folder(self, dtype: str = "uint8", decoder: str = "cpu") -> Any:
        return self._keras.utils.image_dataset_from_directory(
            self._root / "train", dtype=dtype, decoder=decoder, **self._options
        )

    @functools.cached_property
    def shards(self) -> list[str]:
        shards = self._root / "train-%06d.tar"
        begin = time.perf_counter()
        rng = np.random.default_rng(0)
        samples = (
            {"__key__": path.stem, "jpg": path, "cls": int(path.parent.name)}
            for path in map(self._paths.__getitem__, rng.permutation(len(self._paths)))
        )
        paths = self._keras.utils.write_tar_shards(samples, shards, samples_per_shard=2000)
        say(f"{len(paths)} shards written in {time.perf_counter() - begin:.1f} s")
        return paths

    def tar(self, decoder: str = "cpu") -> Any:
        shards = self.shards
        begin = time.perf_counter()
        dataset = self._keras.utils.image_dataset_from_tar(
            shards, dtype="uint8", decoder=decoder, **self._options
        )
        say(f"{len(shards)} shards indexed in {time.perf_counter() - begin:.2f} s")
        return dataset

    def disk(self) -> Any:
        kept = self.folder().unbatch().cache(self._root / "train.cache")
        return kept.shuffle(None, seed=0).batch(self._args.batch)

    def memory(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Photographs in an array, some of them several times."""
        size = self._args.size
        x, y = next(iter(self.folder().unbatch().batch(min(count, 2 * self._args.batch))))
        repeats = -(-count // len(x))
        return np.tile(x, (repeats, 1, 1, 1))[:count].reshape(-1, size, size, 3), np.tile(
            y, repeats
        )[:count]


# Measuring ----------------------------------------------------------------------------------------


def compiled_model(keras: Any, args: argparse.Namespace) -> Any:
    keras.utils.set_random_seed(0)
    if args.net == "small":
        inner = keras.Sequential(
            [keras.layers.Conv2D(8, 3, strides=2), keras.layers.GlobalAveragePooling2D()]
        )
        outer = [inner, keras.layers.Dense(CLASSES)]
    else:
        keras.config.set_dtype_policy("mixed_bfloat16")
        outer = [
            keras.applications.ResNet50(
                weights=None,
                classes=CLASSES,
                classifier_activation=None,
                input_shape=(args.size, args.size, 3),
            ),
            keras.layers.Activation("linear", dtype="float32"),
        ]
    model = keras.Sequential(
        [
            keras.Input((args.size, args.size, 3)),
            keras.layers.Rescaling(1 / 127.5, offset=-1),
            *outer,
        ]
    )
    model.compile(
        keras.optimizers.SGD(0.01, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def measured(keras: Any, model: Any, args: argparse.Namespace, count: int, *data: Any) -> Any:
    """Fits; returns images/s of each counted epoch, and the share of them spent waiting."""
    seconds, waited = [], []

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self._waited = getattr(data[0], "seconds", 0.0)
            self._begun = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            seconds.append(time.perf_counter() - self._begun)
            waited.append(getattr(data[0], "seconds", 0.0) - self._waited)

    options = {"batch_size": args.batch} if len(data) == 2 else {}
    model.fit(*data, epochs=1 + args.epochs, verbose=0, callbacks=[Clock()], **options)
    return [count / s for s in seconds[1:]], sum(waited[1:]) / sum(seconds[1:])


def alone(dataset: Any) -> tuple[float, float]:
    """Images/s of a pass without a model, and the milliseconds of processor time of an image."""
    begin, computed, count = time.perf_counter(), time.process_time(), 0
    for images, _ in dataset:
        count += len(images)
    elapsed = time.perf_counter() - begin
    return count / elapsed, (time.process_time() - computed) / count * 1e3


class Report:
    """Prints rows and keeps them."""

    def __init__(self, limit: float):
        self.rows: dict[str, dict[str, Any]] = {}
        self._limit = limit

    def has_time(self, name: str) -> bool:
        if time.monotonic() - _BEGUN < self._limit:
            return True
        say(f"{name} is left out: the {self._limit:.0f} seconds are over")
        return False

    def fit(self, name: str, speeds: list[float], waited: float) -> None:
        speed = statistics.median(speeds)
        reference = self.rows.get("memory", {}).get("images_per_s", speed)
        self.rows[name] = {"images_per_s": speed, "all": speeds, "waited": waited}
        self.rows[name]["ratio"] = speed / reference
        shown = ", ".join(f"{s:.0f}" for s in speeds)
        say(
            f"fit from {name:16} {speed:7.0f} images/s ({shown}), {speed / reference:.2f} of "
            f"memory; waited {waited:.1%} of the time"
        )

    def alone(self, name: str, speed: float, processor_ms: float | None = None) -> None:
        self.rows[f"{name} alone"] = {"images_per_s": speed, "processor_ms": processor_ms}
        computed = "" if processor_ms is None else f", {processor_ms:.2f} ms of processor time each"
        say(f"{name} alone: {speed:.0f} images/s{computed}")


def run(keras: Any, args: argparse.Namespace, root: Path, report: Report) -> None:
    sources = Sources(keras, args, root)
    model = compiled_model(keras, args)
    x, y = sources.memory(min(args.images, args.in_memory))
    report.fit("memory", *measured(keras, model, args, len(x), x, y))
    makers: dict[str, Callable[[], Any]] = {"folder": sources.folder, "tar": sources.tar}
    if args.decoder == "gpu":
        makers = {
            "folder, GPU": functools.partial(sources.folder, decoder="gpu"),
            "tar, GPU": functools.partial(sources.tar, decoder="gpu"),
            **makers,
        }
    makers["disk cache"] = sources.disk
    for name, make in makers.items():
        if not report.has_time(name):
            continue
        dataset = make()
        if name != "disk cache":
            report.alone(name, *alone(dataset))
        report.fit(name, *measured(keras, model, args, args.images, Waits(dataset)))
    if report.has_time("folder, float32"):
        dataset = sources.folder("float32")
        report.fit("folder, float32", *measured(keras, model, args, args.images, Waits(dataset)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", help='"cpu", "cuda:0"; default: the first usable GPU, else cpu')
    parser.add_argument(
        "--decoder", choices=("cpu", "gpu"), default="cpu", help='"gpu" measures both'
    )
    parser.add_argument("--net", choices=("resnet50", "small"), default="resnet50")
    parser.add_argument("--images", type=int, default=16_384, help="of an epoch; default 16,384")
    parser.add_argument("--different", type=int, default=2000, help="photographs; default 2000")
    parser.add_argument("--in-memory", type=int, default=8192, help="default 8192")
    parser.add_argument("--batch", type=int, default=256, help="default 256")
    parser.add_argument("--size", type=int, default=224, help="default 224")
    parser.add_argument("--epochs", type=int, default=2, help="that are counted; default 2")
    parser.add_argument("--limit", type=float, default=85, help="seconds; default 85")
    parser.add_argument(
        "--folder", type=Path, help="for photographs and shards; default: temporary"
    )
    parser.add_argument("--output", type=Path, help="file for everything as JSON")
    args = parser.parse_args()
    args.different = min(args.different, args.images)
    import report as reports

    import kerascnn as keras

    if args.device:
        keras.config.set_device(args.device)
    machine = reports.machine(keras.config.get_device())
    say(f"{machine['hardware']}, {machine['cores']} cores of {machine['processor']}")
    report = Report(args.limit)
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        run(keras, args, Path(name), report)
    if args.output:
        document = {"machine": machine, "arguments": vars(args), "rows": report.rows}
        args.output.write_text(json.dumps(document, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
