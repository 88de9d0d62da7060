"""A training that was interrupted and goes on ends with the bits of one that was not."""

import json
import random
import shutil
import sys

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import callbacks, layers
from kerascnn.models import weights_file
from kerascnn.saving import nested_state

SAMPLES, BATCH, EPOCHS = 44, 8, 4  # the last of six batches is smaller


def small_net(inputs):
    return [inputs, layers.Flatten(), layers.Dense(5, activation="tanh"), layers.Dense(3)]


def random_net(inputs):
    """Everything random in it is drawn without a seed, but for one layer."""
    return [
        inputs,
        layers.RandomTranslation(0.2, 0.2),
        layers.Conv2D(4, 3, activation="relu"),
        layers.BatchNormalization(),
        layers.SpatialDropout2D(0.2, seed=5),
        layers.Flatten(),
        layers.GaussianNoise(0.1),
        layers.Dropout(0.4),
        layers.Dense(3),
    ]


def compiled(net, optimizer, **options):
    model = keras.Sequential(net(keras.Input((6, 6, 1))))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], **options)
    return model


class Numbered(keras.utils.PyDataset):
    """Draws from NumPy's generator for each batch, and turns its samples after each epoch."""

    def __init__(self, x, y, **options):
        super().__init__(**options)
        self.x, self.y = x, y
        self.turned = 0

    def __len__(self):
        return -(-len(self.x) // BATCH)

    def __getitem__(self, index):
        rows = (np.arange(index * BATCH, (index + 1) * BATCH) + self.turned) % len(self.x)
        noise = np.random.normal(size=self.x[rows].shape)  # noqa: NPY002
        return self.x[rows] + 0.1 * noise.astype("float32"), self.y[rows]

    def on_epoch_end(self):
        self.turned += 3

    def state_dict(self):
        return {"turned": self.turned}

    def load_state_dict(self, state):
        self.turned = state["turned"]


def generated(x, y):
    own = np.random.default_rng(7)
    while True:
        rows = own.integers(len(x), size=BATCH)
        yield x[rows], y[rows]


def torch_loader(x, y):
    torch = pytest.importorskip("torch")
    rows = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    return torch.utils.data.DataLoader(rows, batch_size=BATCH, shuffle=True)


def shuffled_dataset(x, y):
    rows = keras.data.Dataset.from_tensor_slices((x, y))
    return rows.shuffle(10, seed=3).map(lambda a, b: (a + np.random.rand(), b)).batch(BATCH)  # noqa: NPY002


# How each kind of data is made in the process that is interrupted, and again in the next one.
SOURCES = {
    "arrays": lambda x, y: {"x": x, "y": y, "batch_size": BATCH},
    "arrays in order": lambda x, y: {"x": x, "y": y, "batch_size": BATCH, "shuffle": False},
    "epochs within a pass": lambda x, y: {
        "x": x,
        "y": y,
        "batch_size": BATCH,
        "steps_per_epoch": 2,
    },
    "PyDataset": lambda x, y: {"x": Numbered(x, y)},
    "PyDataset within a pass": lambda x, y: {"x": Numbered(x, y), "steps_per_epoch": 3},
    "data set": lambda x, y: {"x": shuffled_dataset(x, y)},
    "shuffled rows": lambda x, y: {
        "x": keras.data.Dataset.from_tensor_slices((x, y)).shuffle(None, seed=1).batch(BATCH)
    },
    "DataLoader": lambda x, y: {"x": torch_loader(x, y), "shuffle": False},
    "generator": lambda x, y: {"x": generated(x, y), "steps_per_epoch": 5, "shuffle": False},
}
# The network, and what compile gets.
SETTINGS = {
    "sgd": (small_net, lambda: ("sgd", {})),
    "random layers": (random_net, lambda: (keras.optimizers.Adam(0.01), {})),
    "average of weights": (
        small_net,
        lambda: (keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=5), {}),
    ),
    "accumulation": (
        random_net,
        lambda: (keras.optimizers.Adam(0.01, gradient_accumulation_steps=4), {}),
    ),
    "schedule": (
        small_net,
        lambda: (keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 20), 0.9), {}),
    ),
    "eager": (random_net, lambda: ("adam", {"run_eagerly": True})),
    "several steps": (random_net, lambda: ("adam", {"steps_per_execution": 2})),
    "own steps": (small_net, lambda: (keras.optimizers.Adam(lambda: 0.02), {})),
}


@pytest.fixture
def data(rng):
    return rng.random((SAMPLES, 6, 6, 1), "float32"), rng.integers(0, 3, SAMPLES)


class Killed(Exception):
    pass


class Kill(callbacks.Callback):
    """Ends a training before step `step`, counted over all epochs."""

    def __init__(self, step):
        super().__init__()
        self.left = step

    def on_train_batch_begin(self, batch, logs=None):
        if self.left <= 0:
            raise Killed
        self.left -= 1


def run(data, source, setting, extra=(), seed=3, **options):
    """A training as a process of its own runs it; returns its model and its history."""
    keras.utils.clear_session()  # names are counted from the start
    keras.utils.set_random_seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
    net, arguments = SETTINGS[setting]
    optimizer, settings = arguments()
    model = compiled(net, optimizer, **settings)
    arguments = {"epochs": EPOCHS, "verbose": 0, "callbacks": list(extra), **options}
    return model, model.fit(**{**arguments, **SOURCES[source](*data)}).history


def assert_equal_ends(one, other):
    (model, history), (expected, expected_history) = one, other
    assert history == expected_history
    for ours, theirs in zip(
        [*model.variables, *model.optimizer.variables],
        [*expected.variables, *expected.optimizer.variables],
        strict=True,
    ):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def draws():
    """What a program draws after its training."""
    return random.random(), np.random.rand(), float(np.asarray(keras.random.uniform(())))  # noqa: NPY002


def check(
    tmp_path, data, source, setting, step, save_freq, make_callbacks=lambda name: [], **options
):
    """Interrupts a training before a step, goes on in "another process", compares with a whole."""
    whole = run(data, source, setting, make_callbacks("whole"), **options)
    next_draws = draws()
    folder = tmp_path / "backup"

    def backup():
        return callbacks.BackupAndRestore(folder, save_freq=save_freq)

    with pytest.raises(Killed):
        extra = [backup(), *make_callbacks("parts"), Kill(step)]
        run(data, source, setting, extra, **options)
    # The seed of the second process is another one: all that is drawn comes from the state.
    again = run(data, source, setting, [backup(), *make_callbacks("parts")], 99, **options)
    assert_equal_ends(again, whole)
    assert draws() == next_draws
    assert not folder.exists()


@pytest.mark.parametrize("save_freq", ["epoch", 1, 4])
@pytest.mark.parametrize("source", SOURCES)
def test_data(tmp_path, data, source, save_freq, rng, amount):
    steps = SOURCES[source](*data).get("steps_per_epoch", 6)
    # It is interrupted in an epoch after the first, and after something was saved.
    first = int(rng.integers(max(steps, 4) + 1, EPOCHS * steps - 1))
    for step in range(first, first + amount(1, 2)):
        check(tmp_path, data, source, "sgd", step, save_freq)


@pytest.mark.parametrize("save_freq", ["epoch", 2])
@pytest.mark.parametrize("setting", SETTINGS)
def test_settings(tmp_path, data, setting, save_freq, rng, device):
    per_hook = SETTINGS[setting][1]()[1].get("steps_per_execution", 1)
    step = int(rng.integers(7, EPOCHS * 6)) // per_hook
    with keras.device(device):
        check(tmp_path, data, "arrays", setting, step, save_freq)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16", "bfloat16"])
def test_precisions(tmp_path, data, dtype, rng, device):
    keras.config.set_dtype_policy(dtype)
    try:
        with keras.device(device):
            check(tmp_path, data, "arrays", "random layers", int(rng.integers(7, 24)), 3)
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize("step", [6, 12, 18, 23])
def test_after_the_last_step_of_an_epoch(tmp_path, data, step):
    # The state is saved after the last step and before the epoch's end, validation included.
    validation = data[0][:20], data[1][:20]
    check(tmp_path, data, "arrays", "random layers", step, 1, validation_data=validation)


class OwnStep(keras.Sequential):
    def train_step(self, data):
        return {**super().train_step(data), "twice": 2.0 * self.layers[-1].bias[0]}


def test_logs_of_steps_of_the_users_own(tmp_path, data):
    def fit(*extra):
        keras.utils.set_random_seed(1)
        model = OwnStep(small_net(keras.Input((6, 6, 1))))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss)
        return model, model.fit(*data, BATCH, 2, verbose=0, callbacks=extra).history

    class KilledAfterSteps(callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise Killed

    whole = fit()
    assert "twice" in whole[1]
    folder = tmp_path / "b"
    with pytest.raises(Killed):
        fit(callbacks.BackupAndRestore(folder, save_freq=6), KilledAfterSteps())
    assert_equal_ends(fit(callbacks.BackupAndRestore(folder)), whole)


def test_images_of_a_folder(tmp_path, rng):
    image = pytest.importorskip("PIL.Image")
    for kind in "ab":
        (tmp_path / "images" / kind).mkdir(parents=True)
        for i in range(11):
            pixels = rng.integers(0, 256, (6, 6), "uint8")
            image.fromarray(pixels).save(tmp_path / "images" / kind / f"{i}.png")

    def fit(seed, *extra):
        keras.utils.clear_session()
        keras.utils.set_random_seed(seed)
        # Orders and layers are drawn without a seed, which set_random_seed determines.
        images, validation = (
            keras.utils.image_dataset_from_directory(
                tmp_path / "images",
                image_size=(6, 6),
                color_mode="grayscale",
                batch_size=4,
                verbose=False,
                seed=11,
                validation_split=0.3,
                subset=subset,
            )
            for subset in ("training", "validation")
        )
        model = compiled(random_net, "adam")
        history = model.fit(
            images, epochs=EPOCHS, verbose=0, callbacks=extra, validation_data=validation
        )
        return model, history.history

    whole = fit(3)
    for save_freq in ("epoch", 1):
        folder = tmp_path / f"b{save_freq}"
        with pytest.raises(Killed):
            fit(3, callbacks.BackupAndRestore(folder, save_freq=save_freq), Kill(10))
        assert_equal_ends(fit(99, callbacks.BackupAndRestore(folder)), whole)


def test_data_with_a_state_of_their_own(tmp_path, data):
    class Stateful:
        """As torchdata's StatefulDataLoader: a pass begins where the state that was loaded is."""

        def __init__(self):
            self.next = self.loaded = 0
            self.made = []

        def __iter__(self):
            first, self.loaded = self.loaded, 0
            for start in range(first, len(data[0]), BATCH):
                self.next = (start + BATCH) % (6 * BATCH)
                self.made.append(start)
                yield data[0][start : start + BATCH], data[1][start : start + BATCH]

        def state_dict(self):
            return {"next": self.next}

        def load_state_dict(self, state):
            self.loaded = state["next"]

    def fit(source, *extra):
        keras.utils.set_random_seed(1)
        model = compiled(small_net, "sgd")
        return model, model.fit(source, epochs=3, verbose=0, callbacks=extra).history

    whole = fit(Stateful())
    with pytest.raises(Killed):
        fit(Stateful(), callbacks.BackupAndRestore(tmp_path / "b", save_freq=2), Kill(10))
    source = Stateful()
    assert_equal_ends(fit(source, callbacks.BackupAndRestore(tmp_path / "b")), whole)
    # The first batch is what the model is built with, and batches 0 to 3 are not made again.
    assert source.made == [0, 32, 40, *range(0, 48, 8)]


def events(folder):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found = []
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                content = value.tensor.SerializeToString()
                found.append((path.parent.name, value.tag, event.step, content))
    return found


@pytest.mark.parametrize("step", [7, 13, 17, 23])
@pytest.mark.parametrize("save_freq", ["epoch", 1, 5])
def test_callbacks(tmp_path, data, save_freq, step):
    pytest.importorskip("tensorboard")

    def made(name):
        return [
            callbacks.EarlyStopping("loss", patience=3, restore_best_weights=True),
            callbacks.ReduceLROnPlateau("val_loss", patience=1, factor=0.5, mode="max"),
            callbacks.LearningRateScheduler(lambda epoch, rate: 0.9 * rate),
            callbacks.SwapEMAWeights(swap_on_epoch=True),
            callbacks.CSVLogger(tmp_path / f"{name}.csv"),
            callbacks.TensorBoard(tmp_path / name, update_freq=2, histogram_freq=1),
            callbacks.ModelCheckpoint(
                str(tmp_path / name) + ".weights.h5",
                "loss",
                save_best_only=True,
                save_weights_only=True,
            ),
        ]

    validation = data[0][:20], data[1][:20]
    arguments = {"validation_data": validation, "make_callbacks": made}
    check(tmp_path, data, "arrays", "average of weights", step, save_freq, **arguments)
    assert (tmp_path / "parts.csv").read_text() == (tmp_path / "whole.csv").read_text()
    assert events(tmp_path / "parts") == events(tmp_path / "whole")
    assert len(list((tmp_path / "parts").rglob("events.*"))) == 2  # training and validation


def test_a_training_that_was_stopped_has_ended(tmp_path, data):
    def extra(*more):
        stop = callbacks.EarlyStopping("loss", patience=1, mode="max", restore_best_weights=True)
        return [callbacks.BackupAndRestore(tmp_path / "b"), stop, *more]

    class KilledAtTheEnd(callbacks.Callback):
        def on_train_end(self, logs=None):
            raise Killed

    model, history = run(data, "arrays", "sgd", extra()[1:])
    assert len(history["loss"]) < EPOCHS
    with pytest.raises(Killed):
        run(data, "arrays", "sgd", extra(KilledAtTheEnd()))
    assert_equal_ends(run(data, "arrays", "sgd", extra(), 99), (model, history))


def test_callbacks_of_the_users_own(tmp_path, data):
    class Counter(callbacks.Callback):
        count = 0

        def on_train_batch_end(self, batch, logs=None):
            self.count += 1

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state):
            self.count = state["count"]

    counters = [Counter(), Counter()]
    with pytest.raises(Killed):
        backup = callbacks.BackupAndRestore(tmp_path / "b", save_freq=1)
        run(data, "arrays", "sgd", [backup, counters[0], Kill(9)])
    run(data, "arrays", "sgd", [callbacks.BackupAndRestore(tmp_path / "b"), counters[1]], 99)
    assert counters[1].count == EPOCHS * 6

    class Odd(callbacks.Callback):
        def state_dict(self):
            return {"model": self.model}

    with pytest.raises(TypeError, match="Odd_0/model can't be kept.*Received: Sequential"):
        run(data, "arrays", "sgd", [callbacks.BackupAndRestore(tmp_path / "c"), Odd()])


def interrupted(folder, data, source="arrays", step=15, save_freq=1, **options):
    with pytest.raises(Killed):
        backup = callbacks.BackupAndRestore(folder, save_freq=save_freq, **options)
        run(data, source, "sgd", [backup, Kill(step)])


def test_other_data(tmp_path, data):
    for source, data_now in (("arrays in order", data), ("arrays", [a[:20] for a in data])):
        interrupted(tmp_path / "b", data)
        with pytest.raises(ValueError, match="can't be restored: .*(`shuffle`|batches)"):
            run(data_now, source, "sgd", [callbacks.BackupAndRestore(tmp_path / "b")])
        shutil.rmtree(tmp_path / "b")


def test_lines_and_events_that_are_gone(tmp_path, data):
    def logs():
        return callbacks.CSVLogger(tmp_path / "a.csv"), callbacks.TensorBoard(tmp_path / "logs")

    with pytest.raises(Killed):
        run(data, "arrays", "sgd", [callbacks.BackupAndRestore(tmp_path / "b"), *logs(), Kill(15)])
    (tmp_path / "a.csv").unlink()
    shutil.rmtree(tmp_path / "logs")
    with pytest.warns(UserWarning) as found:
        run(data, "arrays", "sgd", [callbacks.BackupAndRestore(tmp_path / "b"), *logs()])
    texts = [str(warning.message) for warning in found]
    assert any("CSVLogger" in t for t in texts) and any("TensorBoard" in t for t in texts)
    assert (tmp_path / "a.csv").read_text().splitlines()[1].startswith("2,")


def changed(path, change):
    state = nested_state.read(path)
    change(state)
    nested_state.write(path, state)


DAMAGES = {
    "order": lambda state: state["feeds"]["training"].update(order={"bit_generator": "MT19937"}),
    "left": lambda state: state["feeds"]["training"].update(left=10**9),
    "batches": lambda state: state["feeds"]["training"].update(num_batches=[]),
    "python": lambda state: state["random"].update(python=[3, [1, 2], None]),
    "numpy": lambda state: state["random"].update(numpy=5),
    "epoch": lambda state: state.update(epoch="x"),
    "no callbacks": lambda state: state.pop("callbacks"),
    "history": lambda state: state["callbacks"].update(History_0={"epoch": 3}),
    "variables": lambda state: state.update(variables=[]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_states_that_are_not_what_they_should_be(tmp_path, data, damage):
    interrupted(tmp_path / "b", data)
    [path] = (tmp_path / "b").iterdir()
    changed(path, DAMAGES[damage])
    with pytest.raises(ValueError, match="can't be restored: .*Remove the folder"):
        run(data, "arrays", "sgd", [callbacks.BackupAndRestore(tmp_path / "b")])


def test_a_state_names_no_file_elsewhere(tmp_path, data):
    logs = callbacks.TensorBoard(tmp_path / "logs")
    with pytest.raises(Killed):
        backup = callbacks.BackupAndRestore(tmp_path / "b", save_freq=1)
        run(data, "arrays", "sgd", [backup, logs, Kill(9)])
    [path] = (tmp_path / "b").iterdir()
    victim = tmp_path / "events.out.tfevents.mine"
    victim.write_text("mine")
    name = "../../" + victim.name
    changed(path, lambda state: state["callbacks"]["TensorBoard_0"].update(file=name))
    with pytest.raises(ValueError, match="is no name of a file of events"):
        run(data, "arrays", "sgd", [callbacks.BackupAndRestore(tmp_path / "b"), logs])
    assert victim.read_text() == "mine"


def test_every_bit_of_a_state_is_checked(tmp_path, data, rng):
    interrupted(tmp_path / "b", data)
    [path] = (tmp_path / "b").iterdir()
    whole = path.read_bytes()
    for place in rng.integers(8, len(whole), 20):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            assert json.dumps(str(nested_state.read(path)))
        except ValueError:
            continue
        # Of the header's spaces and order nothing depends.
        assert place < 8 + int.from_bytes(whole[:8], "little")
    path.write_bytes(whole)
    weights_file.write(path, weights_file.read(path), {"version": "0"})
    with pytest.raises(ValueError, match="another form"):
        nested_state.read(path)
