"""Trainings that drills run in processes of their own, and what is left of them at the end."""

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

import kerascnn as keras
from kerascnn import callbacks, layers

# Imported here, so that the server of forks has what event files need.
try:
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer import record_writer  # noqa: F401

    HAS_BOARD = True
except ImportError:
    HAS_BOARD = False

SAMPLES, BATCH, EPOCHS = 44, 8, 5
STEPS = -(-SAMPLES // BATCH)


def small_net():
    return [layers.Flatten(), layers.Dense(5, activation="tanh"), layers.Dense(3)]


def random_net():
    """Everything random in it is drawn without a seed."""
    return [
        layers.RandomTranslation(0.2, 0.2),
        layers.Conv2D(4, 3, activation="relu"),
        layers.BatchNormalization(),
        layers.Flatten(),
        layers.GaussianNoise(0.1),
        layers.Dropout(0.4),
        layers.Dense(3),
    ]


class Augmented(keras.utils.PyDataset):
    """Draws from NumPy's generator for each batch; `fit` shuffles its batches."""

    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        rows = slice(index * BATCH, (index + 1) * BATCH)
        noise = np.random.normal(size=self.x[rows].shape)  # noqa: NPY002
        return self.x[rows] + 0.1 * noise.astype("float32"), self.y[rows]


def decayed():
    return keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 25), 0.9)


# Each is a network, an optimizer, and what else differs: the data, the dtype, callbacks, and how
# often a backup is made.
MODES = {
    "sgd": {},
    "adam and random layers": {"net": random_net, "optimizer": lambda: "adam"},
    "within epochs": {"net": random_net, "optimizer": lambda: "adam", "save_freq": 2},
    "batches in Python": {"data": Augmented, "save_freq": 3},
    "schedule": {"optimizer": decayed, "save_freq": 4},
    "average of weights": {
        "optimizer": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=7),
        "callbacks": lambda folder: [callbacks.SwapEMAWeights(swap_on_epoch=True)],
    },
    "accumulation": {
        "net": random_net,
        "optimizer": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=4),
        "save_freq": 3,
    },
    "mixed_bfloat16": {"net": random_net, "dtype": "mixed_bfloat16", "save_freq": 5},
    "callbacks": {
        "save_freq": 1,
        "callbacks": lambda folder: [
            callbacks.ReduceLROnPlateau("loss", patience=1, mode="max"),
            callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True),
            callbacks.CSVLogger(folder / "log.csv"),
            callbacks.ModelCheckpoint(folder / "{epoch}.weights.h5", save_weights_only=True),
            *([callbacks.TensorBoard(folder / "board", update_freq=2)] if HAS_BOARD else []),
        ],
    },
}


def train(mode, folder, device, steps_left, file_events_left):
    """Trains in `folder` and leaves `result.json` there, unless the process dies before.

    Args:
        mode: Which of `MODES`.
        folder: The folder of the training and of its backup.
        device: Where it trains.
        steps_left: Before so many further steps the process kills itself; None for no kill.
        file_events_left: The same for events of files in the folder: opened, renamed, removed.
    """
    if file_events_left is not None:
        _die_at_file_event(folder, file_events_left)
    options = {"net": small_net, "optimizer": lambda: "sgd", **MODES[mode]}
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(options.get("dtype", "float32"))
    numbers = np.random.default_rng(5)
    x, y = numbers.random((SAMPLES, 6, 6, 1), "float32"), numbers.integers(0, 3, SAMPLES)
    with keras.device(device):
        model = keras.Sequential([keras.Input((6, 6, 1)), *options["net"]()])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(options["optimizer"](), loss, metrics=["accuracy"])
    backup = callbacks.BackupAndRestore(
        folder / "backup", save_freq=options.get("save_freq", "epoch"), double_checkpoint=True
    )
    extra = options["callbacks"](folder) if "callbacks" in options else []
    if steps_left is not None:
        extra.append(_Dies(steps_left))
    data = {"x": options["data"](x, y)} if "data" in options else {"x": x, "y": y}
    history = model.fit(
        **data, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[backup, *extra]
    )
    result = {"history": history.history, "weights": _digest(model), "files": _texts(folder)}
    (folder / "result.json").write_text(json.dumps(result))


class _Dies(callbacks.Callback):
    def __init__(self, steps):
        super().__init__()
        self.left = steps

    def on_train_batch_begin(self, batch, logs=None):
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


def _die_at_file_event(folder, left):
    """Kills the process at an event of a file in the folder, just before it happens."""
    prefix, kinds = str(folder), {"open", "os.rename", "os.remove", "os.truncate", "os.mkdir"}

    def hook(event, arguments):
        nonlocal left
        if event in kinds and str(arguments[0]).startswith(prefix):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    sys.addaudithook(hook)


def _digest(model):
    found = hashlib.sha256()
    for variable in [*model.variables, *model.optimizer.variables]:
        found.update(np.ascontiguousarray(variable.numpy()).view(np.uint8))
    return found.hexdigest()


def _texts(folder):
    texts = {path.name: path.read_text() for path in sorted(Path(folder).glob("*.csv"))}
    # A process that dies before its first backup leaves a file of events that no other knows of.
    for path in sorted(Path(folder).rglob("events.out.tfevents.*"), key=_time_of_last_event)[-1:]:
        texts[str(path.parent.relative_to(folder))] = _digest_of_events(path)
    return texts


def _events(path):
    return [Event.FromString(content) for content in RawEventFileLoader(str(path)).Load()]


def _time_of_last_event(path):
    return max((event.wall_time for event in _events(path)), default=0.0)


def _digest_of_events(path):
    """What events are, apart from when they were."""
    found = hashlib.sha256()
    for event in _events(path):
        event.wall_time = 0
        found.update(event.SerializeToString(deterministic=True))
    return found.hexdigest()
