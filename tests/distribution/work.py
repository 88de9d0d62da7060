"""Trainings that the tests start in one process and in several, the same script in all of them.

    mpirun -n 3 python work.py FOLDER JOB...

Each process writes what each job returned, arrays by name, to FOLDER/JOB.RANK.npz.
KERASCNN_TEST_DEVICES=gpu:0,gpu:1 names several devices of one process.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import sys
from pathlib import Path

import numpy as np

import kerascnn as keras

SAMPLES = 50  # of batches of 16 the last has 2 samples, fewer than some tests have processes


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def labelled(samples=SAMPLES, features=6, classes=3):
    x = numbers(samples, features)
    labels = np.argmax(x[:, :classes] + 0.1 * numbers(samples, classes, seed=1), axis=1)
    return x.astype(keras.config.floatx()), labels


def classifier(features=6, classes=3, **compiled):
    model = keras.Sequential(
        [
            keras.Input((features,)),
            keras.layers.Dense(
                8, activation="tanh", kernel_regularizer=keras.regularizers.L2(0.01)
            ),
            keras.layers.Dense(classes, activation="softmax"),
        ]
    )
    arguments = {
        "optimizer": keras.optimizers.Adam(0.01),
        "loss": "sparse_categorical_crossentropy",
        "metrics": ["accuracy"],
        **compiled,
    }
    model.compile(**arguments)
    return model


def outcome(model, history=None, **more):
    """The weights and logs, by name."""
    found = {f"weight_{i}": w for i, w in enumerate(model.get_weights())}
    for name, values in ({} if history is None else history.history).items():
        found[f"log_{name}"] = np.array(values)
    return {**found, **{name: np.asarray(value) for name, value in more.items()}}


def arrays():
    """Shuffled arrays, a last batch that is shorter, penalties, metrics, validation."""
    x, y = labelled()
    top = keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top")
    model = classifier(metrics=["accuracy", top])
    history = model.fit(x, y, 16, epochs=3, validation_split=0.2, verbose=0)
    evaluated = model.evaluate(x, y, 16, verbose=0)
    predicted = model.predict(x, 16, verbose=0)
    return outcome(model, history, evaluated=evaluated, predicted=predicted)


def metrics():
    """Metrics of all kinds of state, and batches of which a process has no sample."""
    x, _ = labelled(17)
    y = (x[:, :1] > 0).astype("float64")
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1, activation="sigmoid")])
    counted = keras.metrics
    model.compile(
        "adam",
        "binary_crossentropy",
        metrics=[
            "accuracy",
            counted.AUC(num_thresholds=20),
            counted.Precision(),
            counted.Recall(thresholds=[0.3, 0.6]),
            counted.TruePositives(),
            counted.SensitivityAtSpecificity(0.5, num_thresholds=20),
            counted.F1Score(threshold=0.5),
            counted.BinaryIoU(),
            counted.RootMeanSquaredError(),
            counted.R2Score(),
            counted.MeanAbsoluteError(),
            counted.CosineSimilarity(),
        ],
    )
    history = model.fit(x, y, 8, epochs=2, verbose=0)
    evaluated = np.concatenate([np.ravel(value) for value in model.evaluate(x, y, 8, verbose=0)])
    return outcome(model, history, evaluated=evaluated)


def short_arrays():
    """Fewer samples in the last batch than processes, the only batch of the validation data too."""
    x, y = labelled(17)
    model = classifier()
    history = model.fit(x, y, 8, epochs=3, validation_data=(x[:1], y[:1]), verbose=0)
    predicted = model.predict(x[:1], verbose=0)
    return outcome(model, history, predicted=predicted, few=model.predict(x, steps=1, verbose=0))


def weighted():
    """Sample weights in loss and metrics."""
    x, y = labelled()
    weights = np.linspace(0.0, 2.0, len(x))
    model = classifier(weighted_metrics=["accuracy"])
    history = model.fit(x, y, 16, epochs=2, sample_weight=weights, shuffle=False, verbose=0)
    balanced = model.fit(x, y, 16, epochs=1, class_weight={0: 2.0, 1: 0.5}, verbose=0)
    return outcome(model, history, balanced=balanced.history["loss"])


def reductions():
    """Losses that are sums, means by weights, and means over what a mask keeps."""
    x, y = labelled()
    found = {}
    for reduction in ("sum", "mean", "mean_with_sample_weight"):
        loss = keras.losses.SparseCategoricalCrossentropy(reduction=reduction)
        model = classifier(loss=loss, optimizer=keras.optimizers.SGD(0.01))
        weights = np.linspace(0.0, 2.0, len(x))
        history = model.fit(x, y, 16, epochs=2, sample_weight=weights, verbose=0)
        results = outcome(model, history).items()
        found.update({f"{reduction}_{name}": value for name, value in results})
    return found


def rounded():
    """Trainings whose gradients are averaged as they are, and in bfloat16 and float16."""
    mesh = keras.distribution.distribution().device_mesh
    x, y = labelled()
    found = {}
    for dtype in (None, "bfloat16", "float16"):
        keras.utils.set_random_seed(3)
        with keras.distribution.DataParallel(mesh, reduce_dtype=dtype).scope():
            model = classifier(optimizer=keras.optimizers.SGD(0.5, momentum=0.9))
            history = model.fit(x, y, 16, epochs=3, verbose=0)
        found |= {f"{dtype} {name}": value for name, value in outcome(model, history).items()}
    return found


def rounded_gradients():
    """The gradients of each process, and what one update by their averages subtracts."""
    rank = keras.distribution.process_id()
    found = {}
    for way in ("at_once", "compiled", "sharing"):
        variables = [keras.Variable(np.zeros(shape, "float32")) for shape in ((3, 5), (7,), (2,))]
        given = [numbers(*v.shape, seed=10 * rank + i) for i, v in enumerate(variables)]
        given = [keras.ops.convert_to_tensor(g, "float32") for g in given]
        optimizer = keras.optimizers.SGD(1.0)
        apply = keras.jit(optimizer.apply) if way == "compiled" else optimizer.apply
        shares = way == "sharing"
        options = {"shard_optimizer_state": shares, "reduce_dtype": "bfloat16"}
        with keras.distribution.DataParallel(**options).scope():
            optimizer.build(variables)
            apply(given, variables)
        for i, (variable, gradient) in enumerate(zip(variables, given, strict=True)):
            found[f"{way} {i}"] = -variable.numpy()
            found[f"given {i}"] = gradient.numpy()
    return found


def masked():
    """A mask counts differently in each share."""
    words = np.random.default_rng(0).integers(0, 4, (SAMPLES, 5))
    words[:, 3:] = 0
    words[10:] *= np.arange(5) < 2
    targets = numbers(SAMPLES, 5, 1, seed=2)
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            keras.layers.Embedding(4, 3, mask_zero=True),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    history = model.fit(words, targets, 16, epochs=2, verbose=0)
    return outcome(model, history)


def outputs():
    """Two outputs with losses and weights of their own."""
    x, y = labelled()
    inputs = keras.Input((6,))
    hidden = keras.layers.Dense(5, activation="relu")(inputs)
    a = keras.layers.Dense(3, activation="softmax", name="a")(hidden)
    b = keras.layers.Dense(1, name="b")(hidden)
    model = keras.Model(inputs, [a, b])
    losses = {"a": "sparse_categorical_crossentropy", "b": "mae"}
    model.compile("adam", losses, loss_weights={"a": 1.0, "b": 0.3}, metrics={"a": ["accuracy"]})
    history = model.fit(x, {"a": y, "b": x[:, :1]}, 16, epochs=2, verbose=0)
    predicted = model.predict(x, verbose=0)
    return outcome(model, history, first=predicted[0], second=predicted[1])


def images(synchronized=True, **options):
    x = numbers(SAMPLES, 6, 6, 2).astype(keras.config.floatx())
    y = (x.mean((1, 2, 3)) > 0).astype("int64")
    model = keras.Sequential(
        [
            keras.Input((6, 6, 2)),
            keras.layers.Conv2D(4, 3, padding="same", use_bias=False),
            keras.layers.BatchNormalization(momentum=0.8, synchronized=synchronized, **options),
            keras.layers.Activation("relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=["accuracy"])
    return model, x, y


def normalized():
    """Statistics of the whole batch, in a convolutional network."""
    model, x, y = images()
    history = model.fit(x, y, 16, epochs=2, verbose=0)
    return outcome(model, history, evaluated=model.evaluate(x, y, 16, verbose=0))


def normalized_apart():
    """Statistics of each process' share."""
    model, x, y = images(synchronized=False)
    return outcome(model, model.fit(x, y, 16, epochs=2, verbose=0))


class Batches(keras.utils.PyDataset):
    def __init__(self, size=16):
        super().__init__()
        self.x, self.y = labelled()
        self.size = size

    def __len__(self):
        return -(-len(self.x) // self.size)

    def __getitem__(self, index):
        which = slice(index * self.size, (index + 1) * self.size)
        return self.x[which], self.y[which]


def sources():
    """Batches of a generator, a PyDataset and a data set."""
    x, y = labelled()

    def generate():
        while True:
            for first in range(0, SAMPLES, 16):
                yield x[first : first + 16], y[first : first + 16]

    found = {}
    given = {
        "generator": (generate(), {"steps_per_epoch": 4}),
        "py_dataset": (Batches(), {}),
        "dataset": (keras.data.Dataset.from_tensor_slices((x, y)).batch(16), {}),
    }
    for name, (source, options) in given.items():
        keras.utils.set_random_seed(3)
        model = classifier()
        history = model.fit(source, epochs=2, verbose=0, **options)
        found.update({f"{name}_{key}": value for key, value in outcome(model, history).items()})
        if name != "generator":
            found[f"{name}_evaluated"] = model.evaluate(source, verbose=0)
            found[f"{name}_predicted"] = model.predict(source, verbose=0)
    return found


def reading():
    """Which samples a process makes of a data set that is shuffled."""
    x, y = labelled()
    data = keras.data.Dataset.from_tensor_slices((x, y)).shuffle(SAMPLES, seed=3).batch(16)
    gather, made = data._samples.gather, []

    def counted(indices):
        made.append(np.array(indices))
        return gather(indices)

    data._samples.gather = counted
    model = classifier()
    history = model.fit(data, epochs=2, verbose=0)
    return outcome(model, history, made=np.concatenate(made))


class OwnStep(keras.Sequential):
    def train_step(self, data):
        x, y = data
        with keras.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"objective": loss}


def own_step():
    """A train_step of the user's own with a tape, and batches by hand."""
    x, y = labelled()
    model = OwnStep([keras.Input((6,)), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    history = model.fit(x, y, 16, epochs=2, verbose=0)
    found = outcome(model, history)
    model = classifier()
    logs = [model.train_on_batch(x[:n], y[:n]) for n in (16, 9, 1)]
    logs += [model.test_on_batch(x[:n], y[:n]) for n in (16, 1)]
    return {**found, "batches": np.array(logs), "last": model.get_weights()[0]}


def wide():
    """Gradients of 40 KB, which are added up in parts."""
    x, y = labelled()
    model = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(501, activation="relu"), keras.layers.Dense(3)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    return outcome(model, model.fit(x, y, 16, epochs=2, verbose=0))


def own_loop():
    """Loops of the user's own, compiled or not, each process with its part of the batch."""
    x, y = labelled(48)
    rank, size = keras.distribution.process_id(), keras.distribution.num_processes()
    model = classifier()
    optimizer = keras.optimizers.Adam(0.01)

    def step(x, y):
        with keras.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(y, model(x, training=True))
            loss = keras.ops.mean(losses)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    compiled = keras.jit(step)
    for first in range(0, 48, 12):
        rows = np.arange(first, first + 12).reshape(size, -1)[rank]
        (compiled if first < 24 else step)(x[rows], y[rows])
    return outcome(model)


def at_once():
    """Steps that Python runs."""
    x, y = labelled(17)
    model = keras.Sequential(
        [keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3, activation="softmax")]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], run_eagerly=True)
    return outcome(model, model.fit(x, y, 8, epochs=2, verbose=0))


def digits():
    """Three epochs of real digits in float32, a convolutional network."""
    keras.config.set_floatx("float32")
    (x, y), _ = keras.datasets.digits.load_data()
    x = x[:300].reshape(-1, 8, 8, 1).astype("float32") / x.max()
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(x, y[:300], 64, epochs=3, verbose=0)
    keras.config.set_floatx("float64")
    return outcome(model, history)


def noise():
    """What dropout keeps in each process, the same in each run."""
    x = np.ones((12, 40), keras.config.floatx())
    model = keras.Sequential([keras.Input((40,)), keras.layers.Dropout(0.5, seed=1)])

    class Keeping(keras.Model):
        def __init__(self):
            super().__init__()
            self.drop = keras.layers.Dropout(0.5, seed=1)
            self.dense = keras.layers.Dense(1)
            self.kept = self.add_weight(shape=(40,), trainable=False, initializer="zeros")

        def call(self, x, training=None):
            dropped = self.drop(x, training=training)
            self.kept.assign(dropped[0])
            return self.dense(dropped)

    model = Keeping()
    model.compile("sgd", "mse")
    model.fit(x, np.zeros((12, 1)), 12, epochs=1, verbose=0)
    return {"kept": model.kept.numpy(), "weights": model.dense.kernel.numpy()}


def parts_of_sources(size):
    """The batches that each of the processes has: the first one has most of them."""
    own = np.array_split(np.arange(40), 2) if size == 2 else np.split(np.arange(40), [24, 35])
    own = [own[0], own[1][:9], *own[2:]]
    return [[rows[first : first + 4] for first in range(0, len(rows), 4)] for rows in own]


def train_on_batches(batches):
    x, y = labelled(40)

    def generate():
        for rows in batches:
            yield x[rows], y[rows]

    model = classifier()
    history = model.fit(generate(), epochs=1, verbose=0)
    return outcome(model, history, evaluated=model.evaluate(generate(), verbose=0))


def own_sources():
    """Sources with samples of each process' own, of different lengths."""
    mine = parts_of_sources(keras.distribution.num_processes())[keras.distribution.process_id()]
    own = keras.distribution.DataParallel(auto_shard_dataset=False)
    with own.scope():
        return train_on_batches(mine)


def together(size):
    """The same in one process: in each step what all of the processes have."""
    steps = itertools.zip_longest(*parts_of_sources(size), fillvalue=np.arange(0))
    return train_on_batches([np.concatenate(step) for step in steps])


def own_sources_of_2():
    return together(2)


def own_sources_of_3():
    return together(3)


class Hooks(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(logs["loss"])
        logs = self.model.evaluate(*labelled(17), verbose=0)
        self.seen.append(logs[0])


class FirstOnly(Hooks):
    first_process_only = True

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(logs["loss"])


def callbacks(folder):
    """Hooks in all processes or in the first, files by the first, a stop in all."""
    x, y = labelled()
    rank = keras.distribution.process_id()
    own = folder / f"callbacks-{keras.distribution.num_processes()}"
    everywhere, first_only = Hooks(), FirstOnly()
    given = [
        everywhere,
        first_only,
        keras.callbacks.ModelCheckpoint(
            own / "{epoch}.{batch}.weights.h5", save_weights_only=True, save_freq=3
        ),
        keras.callbacks.CSVLogger(own / f"log-{rank}.csv"),
        keras.callbacks.EarlyStopping("loss", min_delta=100.0, patience=2),
    ]
    own.mkdir(exist_ok=True)
    model = classifier()
    history = model.fit(x, y, 16, epochs=9, callbacks=given, verbose=0)
    files = sorted(path.name for path in own.iterdir())
    found = outcome(model, history, everywhere=everywhere.seen, files="|".join(files))
    return {**found, "only_first": np.array(len(first_only.seen))}


class Stopped(Exception):
    pass


class Stop(keras.callbacks.Callback):
    def __init__(self, at):
        super().__init__()
        self.left = at

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            raise Stopped


def interrupted(folder, *data, make=classifier):
    """A training that is interrupted in the middle of an epoch and goes on."""
    own = folder / f"state-{keras.distribution.num_processes()}"

    def train(*more):
        keras.utils.set_random_seed(5)
        model = make()
        backup = keras.callbacks.BackupAndRestore(own, save_freq=3)
        arguments = [part() for part in data]
        history = model.fit(*arguments, 16, epochs=3, callbacks=[backup, *more], verbose=0)
        return outcome(model, history)

    with contextlib.suppress(Stopped):
        train(Stop(7))
    found = train()
    left = own.exists()
    whole = {f"whole_{name}": value for name, value in train().items()}
    return {**found, **whole, "left": np.array(left)}


def resumed(folder):
    return interrupted(folder, lambda: labelled()[0], lambda: labelled()[1])


def resumed_data_set(folder):
    def shuffled():
        return keras.data.Dataset.from_tensor_slices(labelled()).shuffle(SAMPLES, seed=3).batch(16)

    return interrupted(folder, shuffled, lambda: None)


def begun(folder, make=classifier, name="moving"):
    """The first part of a training that another number of processes ends."""
    x, y = labelled()
    model = make()
    backup = keras.callbacks.BackupAndRestore(folder / name, save_freq=3, delete_checkpoint=False)
    with contextlib.suppress(Stopped):
        model.fit(x, y, 16, epochs=3, callbacks=[backup, Stop(7)], verbose=0)
    return {}


def ended(folder, make=classifier, name="moving"):
    """The rest of it."""
    x, y = labelled()
    model = make()
    backup = keras.callbacks.BackupAndRestore(folder / name, save_freq=3)
    return outcome(model, model.fit(x, y, 16, epochs=3, callbacks=backup, verbose=0))


def find_job(name):
    """Returns a function of this file, or of optimizer_work.py."""
    others = f"{__package__}.optimizer_work" if __package__ else "optimizer_work"
    return globals().get(name) or getattr(importlib.import_module(others), name)


def main(folder, *jobs):
    keras.distribution.initialize()
    named = os.environ.get("KERASCNN_TEST_DEVICES")
    devices = named.split(",") if named else None
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    folder = Path(folder)
    for name in jobs:
        keras.config.set_floatx("float64")
        keras.utils.set_random_seed(7)
        job = find_job(name)
        found = job(folder) if job.__code__.co_argcount else job()
        np.savez(folder / f"{name}.{keras.distribution.process_id()}.npz", **found)
    print("finished", keras.distribution.process_id(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
