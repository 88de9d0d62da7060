"""Ray Train as the engine of a training on many machines; needs `pip install 'kerascnn[ray]'`.

Ray places the processes, starts them again where one or its machine fails, and keeps checkpoints.
Between them gradients go as after any other launcher: see `docs/distribution.md`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerascnn.callbacks import BackupAndRestore
from kerascnn.distribution import replicas
from kerascnn.distribution.launch import LAUNCHERS
from kerascnn.distribution.sharded_state import saving_together
from kerascnn.saving import nested_state

try:
    import ray
    import ray.train
    from ray.train.backend import Backend, BackendConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
except ImportError as error:
    raise ImportError(
        f"kerascnn.distribution.ray_train needs Ray Train, which can't be imported: {error}. "
        "Install it in this environment: pip install 'kerascnn[ray]'."
    ) from error

__all__ = ["KerascnnConfig", "KerascnnTrainer", "ReportCheckpoint"]

_STATE = "training_state.safetensors"
_MODEL = "model.keras"


@dataclass
class KerascnnConfig(BackendConfig):
    """How Ray's workers become processes that train one model.

    For a trainer of Ray other than `KerascnnTrainer`, as its `backend_config`. Each worker finds
    its number, that of all and an address of the first in `KERAS_DISTRIBUTION_*`, by which
    `keras.distribution.initialize()` joins them, and the GPU that Ray has given it, or the CPU, in
    `KERASCNN_DEVICE`.

    >>> KerascnnConfig().backend_cls.__name__
    'KerascnnBackend'
    """

    @property
    def backend_cls(self) -> type[Backend]:
        """What Ray calls when its workers have started."""
        return KerascnnBackend


class KerascnnBackend(Backend):
    """Tells each worker of Ray its place among the others."""

    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        """Called by Ray when all workers have started, and when it has started them again."""
        address = worker_group.execute_single(0, _free_address)
        size = len(worker_group)
        ray.get(
            [
                worker_group.execute_single_async(rank, _tell, address, size, rank)
                for rank in range(size)
            ]
        )


_held: socket.socket | None = None


def _free_address() -> str:
    """An address of this machine whose port stays free until process 0, this one, listens there.

    A socket holds it: nobody else is given the port then, and as it does not listen itself, a
    server may, which has SO_REUSEADDR too.
    """
    global _held
    host = ray.util.get_node_ip_address()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if _held is not None:
        _held.close()
    _held = socket.socket(family)
    _held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _held.bind(("", 0))
    port = _held.getsockname()[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tell(address: str, size: int, rank: int) -> None:
    # A worker has the variables of whatever has started Ray on its machine, such as `srun`: they
    # number Ray's nodes, not its workers.
    for launcher in LAUNCHERS:
        for name in (launcher.rank, launcher.size, launcher.local_rank, *launcher.others):
            os.environ.pop(name or "", None)
    gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
    os.environ["KERASCNN_DEVICE"] = device_of(gpus, size, os.environ)
    os.environ["KERAS_DISTRIBUTION_JOB_ADDRESSES"] = address
    os.environ["KERAS_DISTRIBUTION_NUM_PROCESSES"] = str(size)
    os.environ["KERAS_DISTRIBUTION_PROCESS_ID"] = str(rank)


def device_of(gpus: Sequence[str], size: int, environ: Mapping[str, str]) -> str:
    """What a worker computes on, as `KERASCNN_DEVICE` names it.

    Ray shows a worker its own GPUs, those of all workers of its machine
    (`TRAIN_ENABLE_SHARE_CUDA_VISIBLE_DEVICES`), or all that there are
    (`RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES`), also where it has given it none.

    Args:
        gpus: The GPUs that Ray has given it, by Ray's names, in no order.
        size: How many workers there are.
        environ: The worker's environment, in which a device that was chosen stays.

    Raises:
        ValueError: where the worker does not see its GPU, or does not know which it is.
    """
    asked = environ.get("KERASCNN_DEVICE", "")
    if asked.lower() not in ("", "gpu", "cuda"):
        return asked
    if not gpus:
        return asked or "cpu"
    shown = environ.get("CUDA_VISIBLE_DEVICES")
    names = None if shown is None else [name.strip() for name in shown.split(",")]
    hidden = [gpu for gpu in gpus if names is not None and gpu not in names]
    if hidden:
        raise ValueError(
            f"Ray has given this worker the GPUs {sorted(gpus)}, of which it does not see "
            f"{sorted(hidden)}: CUDA_VISIBLE_DEVICES is {shown!r}. Leave that variable to Ray."
        )
    if size == 1 and len(gpus) > 1:
        return "gpu"  # one process trains on all of them
    if names is not None:
        return f"gpu:{min(names.index(gpu) for gpu in gpus)}"
    if not all(gpu.isdecimal() for gpu in gpus):
        raise ValueError(
            f"Ray has given this worker the GPUs {sorted(gpus)}, which are no numbers, and shows "
            "it all: set KERASCNN_DEVICE in its environment, or let Ray set CUDA_VISIBLE_DEVICES "
            "(without RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES)."
        )
    return f"gpu:{min(int(gpu) for gpu in gpus)}"


class KerascnnTrainer(DataParallelTrainer):
    """Trains one model on the workers of a Ray cluster.

    The function that it runs in each worker is a script for several processes as any other: it
    calls `keras.distribution.initialize()`, sets a `DataParallel` and calls `fit`. With
    `ReportCheckpoint` in it a training goes on from the last checkpoint after a worker or its
    machine has failed, as often as `FailureConfig` allows. `examples/ray_train.py` is a whole
    script.

    With `ScalingConfig(use_gpu=True)` each worker computes on the GPU that Ray has given it, and
    without it on its CPU, whatever its machine has. `KERASCNN_DEVICE` in a worker's environment
    says otherwise.

    Args:
        train_loop_per_worker: The function, without arguments or with `train_loop_config`.
        train_loop_config: A dictionary for it.
        backend_config: A `KerascnnConfig`, which is the default.
        scaling_config: How many workers, and what each needs: `ray.train.ScalingConfig`.
        run_config: Name, folder of checkpoints, restarts: `ray.train.RunConfig`.
        **kwargs: What Ray's `DataParallelTrainer` takes besides.

    Raises:
        TypeError: for a `backend_config` of another kind.

    >>> from ray.train import FailureConfig, RunConfig, ScalingConfig
    >>> def train():
    ...     keras.distribution.initialize()
    ...     keras.distribution.set_distribution(keras.distribution.DataParallel())
    ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    ...     model.compile("sgd", "mse")
    ...     x, y = np.zeros((8, 2)), np.zeros((8, 1))
    ...     model.fit(x, y, epochs=3, callbacks=[ReportCheckpoint()], verbose=0)
    >>> trainer = KerascnnTrainer(
    ...     train,
    ...     scaling_config=ScalingConfig(num_workers=2),
    ...     run_config=RunConfig(failure_config=FailureConfig(max_failures=3)),
    ... )
    >>> result = trainer.fit()  # doctest: +SKIP
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict], Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        backend_config: KerascnnConfig | None = None,
        scaling_config: Any = None,
        run_config: Any = None,
        **kwargs: Any,
    ):
        if backend_config is not None and not isinstance(backend_config, KerascnnConfig):
            raise TypeError(
                "KerascnnTrainer takes a KerascnnConfig as `backend_config`. Received: "
                f"{backend_config!r} of type {type(backend_config).__name__}"
            )
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=backend_config or KerascnnConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            **kwargs,
        )


class ReportCheckpoint(BackupAndRestore):
    """Gives Ray the state of a training as a checkpoint, from which it goes on after a failure.

    It is `BackupAndRestore` with Ray's checkpoints in place of a folder: a training that goes on
    ends with the same bits as one that nothing has interrupted. A checkpoint also has the model, as
    `model.keras`, and the logs of that moment are the metrics that Ray shows. Use it in a function
    that Ray runs, in all of its workers and for one `fit`.

    Ray knows of a checkpoint when it next asks its workers, which it does every two seconds
    (`RAY_TRAIN_HEALTH_CHECK_INTERVAL_S`): what is newer is computed again.

    Args:
        save_freq: `"epoch"`, or a number of batches, after which there is a checkpoint within
            epochs too.

    Raises:
        ValueError: as `BackupAndRestore`.

    >>> callback = ReportCheckpoint(save_freq=100)
    >>> callback.save_freq
    100
    """

    def __init__(self, save_freq: str | int = "epoch") -> None:
        super().__init__("Ray's checkpoints", save_freq, delete_checkpoint=False)
        self._logs: dict[str, float] = {}

    def uses_batch_hooks(self, kind: str) -> bool:
        return kind == "train" and self._saves_in_epochs

    def on_train_begin(self, logs: dict | None = None) -> None:
        last = ray.train.get_checkpoint()
        with last.as_directory() if last is not None else contextlib.nullcontext("") as folder:
            self._path = Path(folder) / _STATE
            super().on_train_begin(logs)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._logs = dict(logs or {})
        super().on_epoch_end(epoch, logs)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._logs = dict(logs or {})
        super().on_train_batch_end(batch, logs)

    def _save(self) -> None:
        state = self._training.state()
        metrics = {name: float(value) for name, value in self._logs.items()}
        with tempfile.TemporaryDirectory(prefix="kerascnn_checkpoint_") as folder:
            checkpoint = None
            with saving_together(self.model):
                if replicas.is_first():
                    nested_state.write(Path(folder) / _STATE, state)
                    self.model.save(Path(folder) / _MODEL)
                    checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report(metrics, checkpoint=checkpoint)
