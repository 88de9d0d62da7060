"""One process of `scaling.py`, with the variables of torchrun where there are several.

It measures one part after another and prints a line of JSON for each, in the first process, or in
all where they train apart.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
from typing import Any

import large_nets
import nets
import numpy as np
from keras_nets import build, epoch_times

RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
# Steps of an epoch, and epochs after the first, in which all is made ready.
LARGE_STEPS, LARGE_EPOCHS = 64, 4
SMALL_STEPS, SMALL_EPOCHS = 2000, 12
MESSAGES = [1 << power for power in range(10, 29, 2)]  # bytes
MESSAGE_STEPS = 64


class Part:
    """What is measured: "C@64", "resnet50@128:apart", "resnet50@128:8", ":bfloat16", "sums"."""

    def __init__(self, text: str):
        name, _, self.variant = text.partition(":")
        self.text = text
        self.is_sums = name == "sums"
        self.is_large = name.partition("@")[0] in large_nets.NETS
        if not self.is_sums:
            kind = large_nets.Case if self.is_large else nets.Case
            self.case = kind.parse(name)

    def data(self, copies: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws images for an epoch of so many processes."""
        if self.is_large:
            return self.case.data(LARGE_STEPS * copies)
        rng = np.random.default_rng(0)
        samples = SMALL_STEPS * copies * self.case.batch_size
        images = rng.integers(0, 256, (samples, nets.IMAGE_SIZE, nets.IMAGE_SIZE, 1), np.uint8)
        return images, rng.integers(0, nets.CLASSES, samples, np.int32)

    def row(self, milliseconds: list[float], **more: Any) -> dict[str, Any]:
        steps = LARGE_STEPS if self.is_large else SMALL_STEPS
        images = SIZE * steps * self.case.batch_size
        speeds = [images / ms * 1e3 for ms in milliseconds]
        step_us = statistics.median(milliseconds) * 1e3 / steps
        return {"images_per_s": [round(speed) for speed in speeds], "step_us": step_us, **more}


class Kerascnn:
    def __init__(self) -> None:
        self._keras = keras = importlib.import_module("kerascnn")
        keras.distribution.initialize()
        self.version = keras.__version__
        if SIZE > 1:
            processes = importlib.import_module("kerascnn.distribution.processes")
            self.version += f" with {processes.engine().name}"

    def train(self, part: Part) -> dict[str, Any]:
        keras = self._keras
        begin = time.perf_counter()
        apart = part.variant == "apart"
        replicas = importlib.import_module("kerascnn.distribution.replicas")
        usual = replicas._BUCKET_BYTES
        if part.variant.isdigit():
            replicas._BUCKET_BYTES = int(part.variant) << 20
        reduce_dtype = "bfloat16" if part.variant.startswith("bfloat16") else None
        together = keras.distribution.DataParallel(reduce_dtype=reduce_dtype)
        keras.distribution.set_distribution(None if apart else together)
        keras.config.set_dtype_policy("mixed_bfloat16" if part.is_large else "float32")
        keras.utils.set_random_seed(0)
        copies = 1 if apart else SIZE
        x, y = part.data(copies)
        if part.is_large:
            model = large_nets.keras_model(keras, part.case)
        else:
            model = build(keras, part.case, scaled=True)
        times = epoch_times(keras)
        epochs = 1 + (LARGE_EPOCHS if part.is_large else SMALL_EPOCHS)
        size = copies * part.case.batch_size
        history = model.fit(x, y, size, epochs=epochs, verbose=0, callbacks=[times])
        replicas._BUCKET_BYTES = usual
        first = time.perf_counter() - begin - sum(times.milliseconds[1:]) / 1e3
        loss = float(history.history["loss"][-1])
        return part.row(times.milliseconds[1:], loss=loss, first_epoch_s=round(first, 1))

    def sum(self, num_bytes: int) -> float:
        """Returns the seconds of a sum of float32 over all processes, many in one graph."""
        core = importlib.import_module("kerascnn._core")
        trace_kind = importlib.import_module("kerascnn.tracing").Trace
        device = self._keras.config.get_device()
        attributes = {"processes": SIZE, "scale": 1.0, "factor": 1.0}
        with trace_kind(device) as trace:
            x = trace.graph.input("x", [num_bytes // 4], "float32")
            outputs = trace.graph.apply("all_reduce", [x], attributes)
        program = core.Program.compile(trace.graph, outputs, device)
        x = self._keras.ops.zeros((num_bytes // 4,), "float32")
        times = []
        for _ in range(4):
            core.synchronize(device)
            begin = time.perf_counter()
            program.run([x], MESSAGE_STEPS)
            core.synchronize(device)
            times.append((time.perf_counter() - begin) / MESSAGE_STEPS)
        return statistics.median(times[1:])


class Torch:
    """A plain loop with DDP: compiled, channels-last, autocast."""

    def __init__(self) -> None:
        self._torch = torch = importlib.import_module("torch")
        torch.cuda.set_device(RANK)
        self._distributed = importlib.import_module("torch.distributed")
        if SIZE > 1:
            self._distributed.init_process_group("nccl")
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        self.version = f"{torch.__version__} with NCCL {nccl}"

    def train(self, part: Part) -> dict[str, Any]:
        if not part.is_large:
            raise ValueError(f"{part.text}: PyTorch trains the large nets only")
        torch, begin = self._torch, time.perf_counter()
        torch.manual_seed(0)
        model = importlib.import_module("large_torch").torch_model(part.case).cuda().train()
        model = model.to(memory_format=torch.channels_last)
        rate, momentum = large_nets.LEARNING_RATE, large_nets.MOMENTUM
        optimizer = torch.optim.SGD(model.parameters(), rate, momentum, fused=True)
        if SIZE > 1 and part.variant != "apart":
            parallel = torch.nn.parallel.DistributedDataParallel
            model = parallel(model, device_ids=[RANK], gradient_as_bucket_view=True)

        @torch.compile
        def score(images: Any, labels: Any) -> Any:
            images = images.permute(0, 3, 1, 2).float() / 127.5 - 1
            with torch.autocast("cuda", torch.bfloat16):
                return torch.nn.functional.cross_entropy(model(images), labels)

        size = part.case.batch_size
        x, y = (torch.tensor(array).cuda() for array in part.data(1))
        y = y.long()

        def epoch() -> float:
            torch.cuda.synchronize()
            start = time.perf_counter()
            total = torch.zeros((), device="cuda")
            for first in range(0, len(x), size):
                loss = score(x[first : first + size], y[first : first + size])
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                total += loss.detach()
            self.loss = total.item() / LARGE_STEPS
            return (time.perf_counter() - start) * 1e3

        for _ in range(2):
            epoch()
        first = time.perf_counter() - begin
        times = [epoch() for _ in range(LARGE_EPOCHS)]
        return part.row(times, loss=self.loss, first_epoch_s=round(first, 1))

    def sum(self, num_bytes: int) -> float:
        torch = self._torch
        x = torch.zeros(num_bytes // 4, device="cuda")
        times = []
        for _ in range(4):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(MESSAGE_STEPS):
                self._distributed.all_reduce(x)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) / MESSAGE_STEPS)
        return statistics.median(times[1:])

    def __del__(self) -> None:
        if SIZE > 1:
            self._distributed.destroy_process_group()


def sums(library: Kerascnn | Torch) -> dict[str, Any]:
    """Returns the microseconds and the bus bandwidth in GB/s of sums, by bytes of the message."""
    found = {}
    for num_bytes in MESSAGES:
        seconds = library.sum(num_bytes)
        bus = 2 * (SIZE - 1) / SIZE * num_bytes / seconds / 1e9
        found[str(num_bytes)] = {"us": round(seconds * 1e6, 2), "gb_per_s": round(bus, 2)}
    return {"sums": found}


def main(name: str, *parts: str) -> None:
    library: Kerascnn | Torch = {"kerascnn": Kerascnn, "torch": Torch}[name]()
    for part in map(Part, parts):
        if part.is_sums and SIZE == 1:
            continue
        row = {"library": name, "gpus": SIZE, "part": part.text, "version": library.version}
        row |= sums(library) if part.is_sums else library.train(part)
        if RANK == 0 or part.variant == "apart":  # with sums all take the same time
            print(json.dumps({**row, "rank": RANK}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
