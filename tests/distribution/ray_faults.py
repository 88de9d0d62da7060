"""The training of faults.py on the workers of a Ray that is started for it.

    python ray_faults.py WORKERS PLAN FOLDER

Ray starts the workers again after each fault of the plan. Its checkpoints are in FOLDER/ray.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig

from kerascnn.distribution.ray_train import KerascnnTrainer, ReportCheckpoint

HERE = str(Path(__file__).parent)


def train(config):
    import faults

    faults.train(config["plan"], config["folder"], ReportCheckpoint(save_freq=2))


def main(workers, plan, folder):
    os.environ["PYTHONPATH"] = os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")])
    ray.init(
        num_cpus=int(workers),
        include_dashboard=False,
        object_store_memory=80 << 20,
        log_to_driver=False,
    )
    trainer = KerascnnTrainer(
        train,
        train_loop_config={"plan": plan, "folder": folder},
        scaling_config=ScalingConfig(num_workers=int(workers)),
        run_config=RunConfig(
            name="ray",
            storage_path=folder,
            failure_config=FailureConfig(max_failures=len(plan.split(","))),
        ),
    )
    result = trainer.fit()
    files = sorted(path.name for path in Path(result.checkpoint.path).iterdir())
    print("checkpoint:", *files, "loss:", result.metrics["loss"], flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
