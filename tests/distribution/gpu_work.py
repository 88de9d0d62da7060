"""Trainings that the tests start with one GPU and with several, the same script in all of them.

    torchrun --nproc-per-node 2 gpu_work.py FOLDER JOB...

Each process writes what each job returned, arrays by name, to FOLDER/JOB.RANK.npz.
KERASCNN_TEST_DEVICES=gpu:0,gpu:1 names several devices of one process.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import numpy as np

import kerascnn as keras
from kerascnn import _core
from kerascnn.distribution import replicas
from kerascnn.tracing import Trace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from keras_nets import build
from large_nets import Blocks, resnet18
from nets import Case

STEPS = 50


class Losses(keras.callbacks.Callback):
    """Notes the loss of each step, over the samples of all processes."""

    def on_epoch_begin(self, epoch, logs=None):
        self.seen, self._sum = [], 0.0

    def on_train_batch_end(self, batch, logs=None):
        # Logs are means over the epoch so far.
        total = logs["loss"] * (batch + 1)
        self.seen.append(total - self._sum)
        self._sum = total


def images(size, channels, batch_size):
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (STEPS * batch_size, size, size, channels), np.uint8)
    return x, (x[:, :4, :4, 0].mean(axis=(1, 2)) // 32).astype(np.int32)


def weights_of(model):
    return {f"weight_{i}": np.asarray(w, np.float32) for i, w in enumerate(model.get_weights())}


def trained(model, x, y, batch_size):
    losses = Losses()
    model.fit(x, y, batch_size, epochs=1, callbacks=[losses], verbose=0)
    return {**weights_of(model), "losses": np.array(losses.seen)}


def net_c():
    """Net C of the benchmarks, plain SGD."""
    model = build(keras, Case.parse("C"), scaled=True)
    return trained(model, *images(28, 1, 64), 64)


def net_c_at_once():
    """The same without hooks of batches: many steps for each launch."""
    model = build(keras, Case.parse("C"), scaled=True)
    x, y = images(28, 1, 64)
    history = model.fit(x, y, 64, epochs=2, verbose=0)
    return {**weights_of(model), "losses": np.array(history.history["loss"])}


class WholeBatch(Blocks):
    """Blocks that normalize by the statistics of the whole batch."""

    def normalize(self, x, activation=None):
        x = self.layers.BatchNormalization(synchronized=True)(x)
        return self.layers.Activation(activation)(x) if activation else x


def small_resnet():
    """ResNet-18 on images of 32 x 32, its batch normalization over all processes."""
    inputs = keras.Input((32, 32, 3))
    x = keras.layers.Rescaling(1 / 127.5, offset=-1)(inputs)
    model = keras.Model(inputs, resnet18(WholeBatch(keras), x, 10))
    model.compile(
        # Small steps: with ten times larger ones differences of rounding grow by half in each.
        keras.optimizers.SGD(0.0001, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return trained(model, *images(32, 3, 32), 32)


def mixed():
    """Net D, which has dropout, in bfloat16."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = build(keras, Case.parse("D"), scaled=True)
        return trained(model, *images(28, 1, 64), 64)
    finally:
        keras.config.set_dtype_policy("float32")


def sums():
    """all_reduce by itself: all dtypes, scales and sizes, at once and in a program."""
    size, rank = keras.distribution.num_processes(), keras.distribution.process_id()
    found = {}
    for dtype in ("float32", "float64", "bfloat16", "float16"):
        for case, (scale, factor) in enumerate(((1.0, 1.0), (1.0, 1.0 / size), (rank, 0.5))):
            # Small ones are brought together, more than one launch of that takes.
            arrays = [np.arange(n) % 7 + rank for n in (1, 0, 5, 70_001, 4_100, *[3] * 125)]
            tensors = [keras.ops.convert_to_tensor(a, dtype) for a in arrays]
            attributes = {"processes": size, "scale": float(scale), "factor": factor}
            at_once = _core.apply("all_reduce", tensors, attributes)
            with Trace(keras.config.get_device()) as trace:
                inputs = [
                    trace.graph.input(f"x{i}", list(t.shape), dtype) for i, t in enumerate(tensors)
                ]
                traced = trace.graph.apply("all_reduce", inputs, attributes)
            program = _core.Program.compile(trace.graph, traced, keras.config.get_device())
            program.run(tensors, 5)
            for way, results in (("at_once", at_once), ("program", program.outputs())):
                for i, result in enumerate(results):
                    found[f"{dtype} {case} {way} {i}"] = np.asarray(result.numpy(), np.float64)
    return found


@contextlib.contextmanager
def small_buckets(num_bytes=1 << 16):
    before, replicas._BUCKET_BYTES = replicas._BUCKET_BYTES, num_bytes
    try:
        yield
    finally:
        replicas._BUCKET_BYTES = before


def net_c_in_buckets():
    """Many sums in a step."""
    with small_buckets():
        return net_c_at_once()


def with_optimizer(optimizer, epochs=2, model=None):
    """Net C, or another model."""
    model = model or build(keras, Case.parse("C"), scaled=True)
    model.compile(optimizer, "sparse_categorical_crossentropy")
    x, y = images(28, 1, 64)
    history = model.fit(x, y, 64, epochs=epochs, verbose=0)
    return {**weights_of(model), "losses": np.array(history.history["loss"])}


def net_c_gathering():
    """Updates of every fourth step: 50 steps an epoch, so that one ends between two of them."""
    return with_optimizer(keras.optimizers.SGD(0.01, gradient_accumulation_steps=4), 3)


def smooth():
    """Returns net C without its edges: rounding decides nothing in it.

    Where a number near 0 meets relu, or two meet in a maximum, a rounding decides what a whole
    sample adds to a gradient. Weights of net C end 1e-3 and more apart by the order of samples.
    """
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(16, 5, activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Conv2D(32, 3, activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.Dense(64, activation="tanh"),
            layers.Dense(10, activation="softmax"),
        ]
    )


def smooth_gathered():
    optimizer = keras.optimizers.SGD(0.003, momentum=0.5, gradient_accumulation_steps=4)
    return with_optimizer(optimizer, model=smooth())


def smooth_momentum():
    """With state, and gradients that are shortened together."""
    optimizer = keras.optimizers.SGD(0.005, momentum=0.9, global_clipnorm=1.0)
    return with_optimizer(optimizer, model=smooth())


def net_c_adam():
    return with_optimizer(keras.optimizers.Adam(1e-4))


def sharing(job):
    """Each process has the state of its own weights: one of them has no weight of some message."""
    with keras.distribution.DataParallel(shard_optimizer_state=True).scope():
        return job()


def smooth_momentum_sharing():
    return sharing(smooth_momentum)


def net_c_adam_sharing():
    return sharing(net_c_adam)


def smooth_gathered_sharing():
    return sharing(smooth_gathered)


def main(folder, *jobs):
    keras.distribution.initialize()
    named = os.environ.get("KERASCNN_TEST_DEVICES")
    devices = named.split(",") if named else None
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    for name in jobs:
        keras.utils.set_random_seed(7)
        found = globals()[name]()
        np.savez(Path(folder) / f"{name}.{keras.distribution.process_id()}.npz", **found)
        print("did", name, keras.distribution.process_id(), flush=True)
    print("finished", keras.distribution.process_id(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
