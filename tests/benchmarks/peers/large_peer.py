"""Trains one large network with one library for `large.py`; requests are lines of JSON.

The library is "kerascnn", "keras-jax", "keras-tensorflow", "torch" (channels-last layout and
autocast), "torch-compile" (the same, compiled), "torch-reduce-overhead" or "torch-max-autotune"
(compiled in that mode). It trains one batch before it says that it is ready, or, with `--first
predict`, predicts one and trains nothing. With `--gpu-lock FILE` it holds the lock of that file
while it times kernels, and with `--compile-only` it ends when it is ready.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import time
from typing import Any

import numpy as np
from gpu_lock import GpuLock
from keras_nets import epoch_times
from large_nets import LEARNING_RATE, MOMENTUM, Case, keras_model
from max_autotune import SharedGpu
from worker import say, serve, take_standard_output, timed_epochs

PREDICTION_BATCH = 256
# What times epochs.
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
# Arguments of `torch.compile`.
COMPILED: dict[str, dict[str, Any]] = {
    "torch-compile": {},
    "torch-reduce-overhead": {"mode": "reduce-overhead"},
    "torch-max-autotune": {"mode": "max-autotune"},
}


class KerasTraining:
    """Trains with plain `fit` of kerascnn or of Keras."""

    def __init__(self, library: str, case: Case, policy: str, device: str, clock: str = "wall"):
        self._is_own, self._clock = library == "kerascnn", clock
        self._backend = library.removeprefix("keras-")
        if not self._is_own:
            os.environ["KERAS_BACKEND"] = self._backend
            self._check_backend(device)
        self._keras = keras = importlib.import_module("kerascnn" if self._is_own else "keras")
        if self._is_own:
            keras.config.set_device(device)
        keras.config.set_dtype_policy(policy)
        keras.utils.set_random_seed(0)
        self._case = case
        self._model = keras_model(keras, case)
        self.parameters = sum(int(np.prod(v.shape)) for v in self._model.trainable_variables)

    def _check_backend(self, device: str) -> None:
        backend = importlib.import_module(self._backend)
        if device == "cpu":
            return
        has_gpu = (
            backend.default_backend() == "gpu"
            if self._backend == "jax"
            else bool(backend.config.list_physical_devices("GPU"))
        )
        if not has_gpu:
            raise RuntimeError(f"{self._backend} {backend.__version__} finds no GPU")

    def versions(self) -> dict[str, str]:
        found = {self._keras.__name__: self._keras.__version__}
        if not self._is_own:
            found[self._backend] = importlib.import_module(self._backend).__version__
        return found

    def epochs(self, x: np.ndarray, y: np.ndarray, count: int) -> list[float]:
        """Returns milliseconds of the epochs after one in which the data goes to the device."""
        times = epoch_times(self._keras, CLOCKS[self._clock])
        self._fit(x, y, count + 1, callbacks=[times])
        return times.milliseconds[1:]

    def first_step(self, x: np.ndarray, y: np.ndarray) -> float:
        """Returns the loss of one batch, given all data, so that epochs run the same program."""
        return float(self._fit(x, y, 1, steps_per_epoch=1).history["loss"][0])

    def first_prediction(self, x: np.ndarray, y: np.ndarray) -> None:
        self._model.predict(x[:PREDICTION_BATCH], batch_size=PREDICTION_BATCH, verbose=0)

    def predictions(self, x: np.ndarray, count: int) -> list[float]:
        """Returns milliseconds of predicting all images, which are on the device, each time."""
        images = self._keras.ops.convert_to_tensor(x)
        return timed_epochs(
            lambda: self._model.predict(images, batch_size=PREDICTION_BATCH, verbose=0), count
        )

    def _fit(self, x: np.ndarray, y: np.ndarray, epochs: int, **options: Any) -> Any:
        size = self._case.batch_size
        return self._model.fit(x, y, batch_size=size, epochs=epochs, verbose=0, **options)

    def peak_bytes(self) -> int | None:
        if self._is_own:
            return self._keras.config.memory_stats()["peak"]
        if self._backend != "jax":
            return None
        stats = importlib.import_module("jax").local_devices()[0].memory_stats() or {}
        return stats.get("peak_bytes_in_use")

    def profile(self, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
        if not self._is_own:
            raise RuntimeError("only kerascnn's step can be profiled")
        found = self._model.profile(x, y, batch_size=self._case.batch_size)
        return {"step_us": found.step_us, "memory": found.memory, "rows": found.rows}


class TorchTraining:
    """Trains with a plain PyTorch loop over data on the device."""

    def __init__(self, library: str, case: Case, policy: str, device: str, clock: str = "wall"):
        self._torch, self._clock = importlib.import_module("torch"), clock
        torch = self._torch
        nets = importlib.import_module("large_torch")
        if device != "cpu" and not torch.cuda.is_available():
            raise RuntimeError(f"torch {torch.__version__} finds no GPU")
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
        # cuDNN's convolutions use TF32 anyway. Those that a compiled model generates ask this.
        torch.backends.cudnn.fp32_precision = "tf32"
        torch.manual_seed(0)
        self._case, self._device = case, torch.device(device)
        self._mixed = policy == "mixed_bfloat16"
        self._model = nets.torch_model(case).to(self._device).train()
        self._model = self._model.to(memory_format=torch.channels_last)
        self._optimizer = torch.optim.SGD(
            self._model.parameters(), LEARNING_RATE, MOMENTUM, fused=device != "cpu"
        )
        self._score, self._predict = self._loss, self._logits
        if library in COMPILED:
            self._score = torch.compile(self._loss, **COMPILED[library])
            self._predict = torch.compile(self._logits, **COMPILED[library])
        self.parameters = sum(p.numel() for p in self._model.parameters())
        self._data: tuple[Any, Any] | None = None

    def versions(self) -> dict[str, str]:
        return {"torch": self._torch.__version__}

    def _autocast(self) -> Any:
        return self._torch.autocast(self._device.type, self._torch.bfloat16, enabled=self._mixed)

    def _logits(self, x: Any) -> Any:
        images = x.permute(0, 3, 1, 2).float() / 127.5 - 1
        with self._autocast():
            return self._model(images)

    def _loss(self, x: Any, y: Any) -> tuple[Any, Any]:
        logits = self._logits(x)
        with self._autocast():
            loss = self._torch.nn.functional.cross_entropy(logits, y)
        return loss, (logits.argmax(1) == y).sum()

    def _epoch(self, x: Any, y: Any, steps: int) -> float:
        """Returns the mean loss. It also computes the accuracy, as `fit` does."""
        torch, size = self._torch, self._case.batch_size
        order = torch.randperm(len(x), device=self._device)
        total, right = (torch.zeros((), device=self._device) for _ in range(2))
        for step in range(steps):
            batch = order[step * size : (step + 1) * size]
            loss, hits = self._score(x[batch], y[batch])
            loss.backward()
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
            total += loss.detach()
            right += hits
        return total.item() / steps  # this waits for the device

    def _take(self, x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
        torch = self._torch
        images = torch.tensor(x, device=self._device)
        self._data = images, torch.tensor(y, device=self._device, dtype=torch.long)
        return self._data

    def first_step(self, x: np.ndarray, y: np.ndarray) -> float:
        return self._epoch(*self._take(x, y), 1)

    def first_prediction(self, x: np.ndarray, y: np.ndarray) -> None:
        self._predicted(self._take(x, y)[0][:PREDICTION_BATCH], 1)

    def epochs(self, x: np.ndarray, y: np.ndarray, count: int) -> list[float]:
        assert self._data is not None
        data, steps = self._data, len(x) // self._case.batch_size
        return timed_epochs(lambda: self._epoch(*data, steps), count, CLOCKS[self._clock])

    def predictions(self, x: np.ndarray, count: int) -> list[float]:
        """Returns milliseconds of predicting all images, which are on the device, each time."""
        assert self._data is not None
        return self._predicted(self._data[0], count)

    def _predicted(self, images: Any, count: int) -> list[float]:
        torch = self._torch

        def run() -> object:
            parts = images.split(PREDICTION_BATCH)
            return torch.cat([self._predict(part).clone() for part in parts]).float().cpu()

        self._model.eval()
        with torch.inference_mode():
            times = timed_epochs(run, count)
        self._model.train()
        return times

    def peak_bytes(self) -> int | None:
        cuda = self._torch.cuda
        return cuda.max_memory_allocated() if self._device.type == "cuda" else None

    def profile(self, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
        raise RuntimeError("only kerascnn's step can be profiled")


class Worker:
    """Answers the requests."""

    def __init__(self, training: KerasTraining | TorchTraining, x: np.ndarray, y: np.ndarray):
        self._training, self._x, self._y = training, x, y
        self._epoch_ms = 0.0

    def fit(self, duration: float) -> dict[str, Any]:
        """Trains for about so many seconds; before the first time it warms up for two epochs."""
        if self._epoch_ms == 0.0:
            self._epoch_ms = self._training.epochs(self._x, self._y, 2)[-1]
        count = min(100, max(2, round(duration * 1e3 / self._epoch_ms)))
        times = self._training.epochs(self._x, self._y, count)
        self._epoch_ms = float(np.median(times))
        return {"ms": times}

    def predict(self, duration: float) -> dict[str, Any]:
        """Predicts for about so many seconds, after two times that warm up."""
        one_ms = self._training.predictions(self._x, 2)[-1]
        count = min(100, max(2, round(duration * 1e3 / one_ms)))
        return {"ms": self._training.predictions(self._x, count)}

    def memory(self) -> dict[str, Any]:
        return {"bytes": self._training.peak_bytes()}

    def profile(self) -> dict[str, Any]:
        return self._training.profile(self._x, self._y)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("case")
    parser.add_argument("policy")
    parser.add_argument("device")
    parser.add_argument("batches", type=int, help="of an epoch")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="what times epochs")
    parser.add_argument("--first", choices=("fit", "predict"), default="fit", help="batch")
    parser.add_argument("--gpu-lock", default="", metavar="FILE", help="for what is timed")
    parser.add_argument("--compile-only", action="store_true", help="end when it is ready")
    args = parser.parse_args()
    answers = take_standard_output()
    case = Case.parse(args.case)
    lock = GpuLock(args.gpu_lock)
    shared = None
    if args.gpu_lock and args.library == "torch-max-autotune":
        shared = SharedGpu(lock, args.compile_only)
    kind = TorchTraining if args.library.startswith("torch") else KerasTraining
    training = kind(args.library, case, args.policy, args.device, args.clock)
    x, y = case.data(args.batches)
    first = training.first_step if args.first == "fit" else training.first_prediction
    if shared is not None:
        loss = first(x, y)
        shared.is_ready()
    else:
        with lock:
            loss = first(x, y)
    versions = {"python": platform.python_version(), **training.versions()}
    say({"versions": versions, "parameters": training.parameters, "loss": loss}, answers)
    if args.compile_only:
        return
    serve(Worker(training, x, y), answers)


if __name__ == "__main__":
    main()
