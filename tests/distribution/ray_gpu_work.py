"""Trainings on the workers of a Ray that is started for them, with a GPU each.

    python ray_gpu_work.py gpu FOLDER

FOLDER gets the weights and losses of each training and worker, and what each start of a worker had.
With `cpu` in place of `gpu` it is the same on CPUs.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig

import kerascnn as keras
from kerascnn.distribution.ray_train import (
    KerascnnBackend,
    KerascnnConfig,
    KerascnnTrainer,
    ReportCheckpoint,
)

HERE = Path(__file__).resolve().parent
STEPS = 50  # of an epoch
SAVE_FREQ = 10
KILLED_AT = 40


def found_here():
    """What this worker has been given."""
    from kerascnn import _core

    kind, _, index = keras.config.get_device().partition(":")
    return {
        "device": keras.config.get_device(),
        "shown": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "devices": keras.distribution.list_devices(),
        "uuid": _core.gpu_uuid(int(index)) if kind == "cuda" else None,
    }


def train(config):
    import faults
    import gpu_work

    keras.distribution.initialize()
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    keras.utils.set_random_seed(7)
    folder, rank = Path(config["folder"]), keras.distribution.process_id()
    begun = len(list(folder.glob(f"start-*.{rank}.json")))
    (folder / f"start-{begun}.{rank}.json").write_text(json.dumps(found_here()))
    callbacks = [faults.Steps(begun, folder / "steps", STEPS), ReportCheckpoint(SAVE_FREQ)]
    if config["kills"] and begun == 0:
        mark = folder / "failed"
        callbacks.append(faults.FailAt(1, KILLED_AT, faults.killed, mark))
    model = gpu_work.smooth()
    model.compile(
        keras.optimizers.SGD(0.005, momentum=0.9, global_clipnorm=1.0),
        "sparse_categorical_crossentropy",
    )
    x, y = gpu_work.images(28, 1, 64)
    history = model.fit(x, y, 64, epochs=config["epochs"], callbacks=callbacks, verbose=0)
    np.savez(
        folder / f"trained.{rank}.npz",
        **gpu_work.weights_of(model),
        losses=np.array(history.history["loss"]),
    )


class SharingBackend(KerascnnBackend):
    """Each worker sees the GPUs of all."""

    share_cuda_visible_devices = True


class SharingConfig(KerascnnConfig):
    @property
    def backend_cls(self):
        return SharingBackend


def run(kind, folder, name, workers, epochs=2, kills=False, config=None):
    """Runs a training; one of the same name goes on from the last checkpoint of the one before."""
    own = folder / name
    own.mkdir(exist_ok=True)
    trainer = KerascnnTrainer(
        train,
        train_loop_config={"folder": str(own), "epochs": epochs, "kills": kills},
        backend_config=config,
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=kind == "gpu"),
        run_config=RunConfig(
            name=name,
            storage_path=str(folder / "checkpoints"),
            failure_config=FailureConfig(max_failures=int(kills)),
        ),
    )
    result = trainer.fit()
    with keras.device("cpu"):
        model = keras.models.load_model(Path(result.checkpoint.path) / "model.keras")
        weights = {f"weight_{i}": np.asarray(w) for i, w in enumerate(model.get_weights())}
    np.savez(own / "checkpoint.npz", **weights)
    print("did", name, flush=True)


def main(kind, folder):
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    folder = Path(folder)
    os.chdir(folder)  # workers look for modules here too; the project's folder has no compiled core
    ray.init(
        num_cpus=2,
        num_gpus=2 if kind == "gpu" else 0,
        include_dashboard=False,
        object_store_memory=80 << 20,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
    )
    run(kind, folder, "one", 1)
    run(kind, folder, "two", 2)
    run(kind, folder, "killed", 2, kills=True)
    run(kind, folder, "resumed", 2, epochs=1)
    run(kind, folder, "resumed", 2)
    run(kind, folder, "sharing", 2, config=SharingConfig())
    if kind == "gpu":
        run("cpu", folder, "without", 1, epochs=1)
    ray.shutdown()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
