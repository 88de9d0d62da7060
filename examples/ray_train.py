"""Recognizes handwritten digits on workers of Ray, which starts those that fail again.

    pip install 'kerascnn[ray]'
    python examples/ray_train.py                                   # a Ray of two CPU processes here
    python examples/ray_train.py --address auto --workers 8 --storage /shared/runs --gpus

The weights are those of one process on the whole batches, to rounding. Each epoch's state is a
checkpoint of Ray, from which the training goes on exactly where a worker or its machine fails: kill
one and see.
"""

import argparse
from pathlib import Path

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig

import kerascnn as keras
from kerascnn import layers
from kerascnn.distribution.ray_train import KerascnnTrainer, ReportCheckpoint


def train(config):
    """What each worker does: a script for several processes as any other."""
    keras.distribution.initialize()  # joins the workers that Ray has started
    keras.utils.set_random_seed(0)
    keras.distribution.set_distribution(keras.distribution.DataParallel())

    (x_train, y_train), (x_test, y_test) = keras.datasets.digits.load_data()
    model = keras.Sequential(
        [
            keras.Input((8, 8)),
            layers.Rescaling(1 / 16),
            layers.Reshape((8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        x_train,
        y_train,
        batch_size=config["batch_size"],
        epochs=config["epochs"],
        validation_data=(x_test, y_test),
        callbacks=[ReportCheckpoint()],
        verbose=0,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", help="of a Ray cluster; default one that is started here")
    parser.add_argument("--workers", type=int, default=2, help="how many processes; default 2")
    parser.add_argument("--storage", help="a folder or bucket for checkpoints that all reach")
    parser.add_argument("--gpus", action="store_true", help="a GPU for each process")
    parser.add_argument("--epochs", type=int, default=10, help="default 10")
    parser.add_argument("--batch-size", type=int, default=64, help="of all workers; default 64")
    args = parser.parse_args()

    ray.init(
        args.address,
        num_cpus=None if args.address else args.workers,
        runtime_env={"working_dir": str(Path(__file__).parent)},  # what workers see of this machine
        log_to_driver=False,
    )
    trainer = KerascnnTrainer(
        train,
        train_loop_config={"batch_size": args.batch_size, "epochs": args.epochs},
        scaling_config=ScalingConfig(num_workers=args.workers, use_gpu=args.gpus),
        run_config=RunConfig(
            storage_path=args.storage, failure_config=FailureConfig(max_failures=3)
        ),
    )
    result = trainer.fit()
    print(f"Test accuracy {result.metrics['val_accuracy']:.4f}, by {args.workers} processes")
    print(f"The model: {result.checkpoint.path}/model.keras")
