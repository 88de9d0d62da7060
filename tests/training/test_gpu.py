"""Training on a GPU: few launches, the CPU's numbers, and models that stay on their device."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers
from kerascnn.training import routes

from .helpers import blobs, classifier, convnet


def digits(samples=1500):
    (x, y), _ = keras.datasets.digits.load_data()
    return x[:samples, ..., None], y[:samples]


def compiled(model):
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def launches_of_the_last_epochs(steps, device):
    """Returns the (kernels, graphs) that the host launches in each of the last two epochs."""
    counts = []
    watch = keras.callbacks.Callback()
    watch.on_epoch_end = lambda epoch, logs=None: counts.append(keras.config.launch_stats(device))
    with keras.device(device):
        model = compiled(classifier())
    model.fit(*blobs(2 * steps + 1), batch_size=2, epochs=5, callbacks=[watch], verbose=0)
    rows = [(c["kernel_launches"], c["graph_launches"]) for c in counts]
    # The first epochs look up more often, since they measure how long a step takes.
    return [tuple(row) for row in np.diff(rows, axis=0)[-2:].tolist()]


def test_launches_of_an_epoch_do_not_grow_with_its_steps(cuda_device):
    """An epoch needs a few loops: one of large turns, those of smaller ones, the last batch.

    Each is one graph, with one kernel before it that sets the number of turns. An epoch longer than
    a second would have more slices: test_pacing.py is about that bound.
    """
    for steps in (100, 1004):
        for kernels, graphs in launches_of_the_last_epochs(steps, cuda_device):
            assert 1 <= graphs <= 4
            assert kernels <= graphs


def test_batches_of_several_sizes_share_their_kernels(cuda_device):
    """A kernel planned for a small batch must not take shared memory from one for a large batch."""
    keras.utils.set_random_seed(3)
    with keras.device(cuda_device):
        model = keras.Sequential(
            [
                keras.Input((28, 28, 1)),
                layers.Conv2D(6, 5, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(64, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(10, activation="softmax"),
            ]
        )
    compiled(model)
    rng = np.random.default_rng(5)
    x = rng.standard_normal((300, 28, 28, 1), np.float32)
    y = rng.integers(0, 10, 300)
    for batch_size in (128, 1, 32):
        history = model.fit(x, y, batch_size=batch_size, epochs=2, verbose=0)
        assert np.isfinite(history.history["loss"]).all()
    large = model.predict(x, batch_size=128, verbose=0)
    small = model.predict(x, batch_size=7, verbose=0)
    np.testing.assert_allclose(model.predict(x, batch_size=128, verbose=0), large)
    # At most the sums of a probability's logits have another order.
    np.testing.assert_allclose(small, large, rtol=1e-4, atol=1e-6)


def trained_weights(device):
    """Returns the bits of weights and slots after whole turns, single steps and a short batch."""
    x, y = digits(1500)
    keras.utils.set_random_seed(11)
    with keras.device(device):
        model = compiled(
            keras.Sequential(
                [
                    keras.Input((8, 8, 1)),
                    layers.Rescaling(1 / 16),
                    layers.Conv2D(6, 3, padding="same", use_bias=False),
                    layers.BatchNormalization(),
                    layers.Activation("relu"),
                    layers.MaxPooling2D(),
                    layers.Conv2D(16, 3, activation="relu"),
                    layers.Flatten(),
                    layers.Dense(32, activation="relu"),
                    layers.Dropout(0.25),
                    layers.Dense(10, activation="softmax"),
                ]
            )
        )
    model.fit(x, y, batch_size=32, epochs=8, verbose=0)
    state = [*model.variables, *model.optimizer.variables]
    return [np.asarray(variable.numpy()).tobytes() for variable in state]


@pytest.mark.parametrize(
    "switch",
    [
        "KERASCNN_CUDA_BRANCHES",
        "KERASCNN_CUDA_EARLY_STARTS",
        "KERASCNN_CUDA_GRAPHS",
        "KERASCNN_CUDA_LOOPS",
        "KERASCNN_CUDA_PRIORITIES",
    ],
)
def test_kernels_side_by_side_train_the_same_bits(cuda_device, monkeypatch, switch):
    """A kernel that did not wait for its inputs would sooner or later change a weight."""
    monkeypatch.setenv(switch, "0")
    expected = trained_weights(cuda_device)
    monkeypatch.delenv(switch)
    for _ in range(3):
        assert trained_weights(cuda_device) == expected


def test_a_library_that_fills_memory_does_not_hold_up_a_graph(cuda_device, monkeypatch):
    """cuDNN fills counters of some convolutions; in a graph kernels do that, with the same bits."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    rng = np.random.default_rng(8)
    x = rng.standard_normal((256, 16, 16, 128), np.float32)
    y = rng.integers(0, 10, 256)

    def train():
        keras.utils.set_random_seed(2)
        with keras.device(cuda_device):
            model = keras.Sequential([keras.Input(x.shape[1:])])
            for filters, strides in ((128, 1), (256, 2), (256, 1)):
                options = {"strides": strides, "padding": "same", "use_bias": False}
                model.add(layers.Conv2D(filters, 3, **options))
                model.add(layers.BatchNormalization())
                model.add(layers.Activation("relu"))
            model.add(layers.GlobalAveragePooling2D())
            model.add(layers.Dense(10, activation="softmax"))
        compiled(model)
        model.fit(x, y, batch_size=256, epochs=3, verbose=0)
        rows = model.profile(x, y, batch_size=256).rows
        weights = [np.asarray(variable.numpy()).tobytes() for variable in model.variables]
        # "copies" are fills of no layer, such as one of a counter of steps.
        filled = [row["layer"] for row in rows if row["kernel"] == "fill"]
        return weights, [layer for layer in filled if layer not in ("", "copies")]

    try:
        weights, fills = train()
        assert fills == []
        monkeypatch.setenv("KERASCNN_CUDA_GRAPHS", "0")
        expected, fills = train()
    finally:
        keras.config.set_dtype_policy(before)
    assert weights == expected
    if not fills:
        pytest.skip("this version of cuDNN fills nothing for these convolutions")


def test_steps_of_predictions_have_arenas_and_those_of_training_none(cuda_device, monkeypatch):
    x, y = digits(640)

    def arenas_by_kind():
        with keras.device(cuda_device):
            model = compiled(convnet(dropout=0.5))
        model.fit(x, y, batch_size=32, verbose=0)
        model.evaluate(x, y, batch_size=32, verbose=0)
        model.predict(x, batch_size=32, verbose=0)
        return {key[0]: step.program.stats()["num_arenas"] for key, step in model._programs.items()}

    arenas = arenas_by_kind()
    assert arenas["train"] == 1
    assert 1 < arenas["test"] <= 4
    assert 1 < arenas["predict"] <= 4
    monkeypatch.setenv("KERASCNN_CUDA_ARENAS", "3")
    assert arenas_by_kind() == {"train": 1, "test": 3, "predict": 3}
    monkeypatch.setenv("KERASCNN_CUDA_BRANCHES", "0")
    assert arenas_by_kind() == {"train": 1, "test": 1, "predict": 1}


def test_many_arenas_predict_the_same_bits(cuda_device, monkeypatch):
    """Several reductions keep tickets on the device, so runs of one program must not overlap."""
    x, y = digits(1500)
    keras.utils.set_random_seed(5)
    with keras.device(cuda_device):
        image = keras.Input((8, 8, 1))
        hidden = layers.Conv2D(16, 3, padding="same", activation="relu")(image)
        hidden = layers.BatchNormalization()(hidden)
        hidden = layers.LayerNormalization()(layers.MaxPooling2D()(hidden))
        hidden = layers.Dense(64, activation="tanh")(layers.Flatten()(hidden))
        hidden = layers.Dense(300, activity_regularizer="l2")(hidden)
        weights = keras.ops.softmax(keras.ops.mean(hidden, axis=0, keepdims=True))
        model = keras.Model(image, layers.Dense(10, activation="softmax")(hidden * weights))
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    results = []
    for arenas in ("1", "2", "5", "8", "8", "8"):
        monkeypatch.setenv("KERASCNN_CUDA_ARENAS", arenas)
        model._programs.clear()
        for batch_size in (512, 16, 7):
            for _ in range(3):
                predicted = model.predict(x, batch_size=batch_size, verbose=0)
                evaluated = model.evaluate(x, y, batch_size=batch_size, verbose=0)
            results.append((batch_size, predicted.tobytes(), evaluated))
    for batch_size, *bits in results:
        expected = next(row for row in results if row[0] == batch_size)
        assert bits == list(expected[1:]), batch_size


def test_first_losses_are_those_of_the_cpu(cuda_device):
    x, y = digits(640)
    losses = {}
    for device in ("cpu", cuda_device):
        keras.utils.set_random_seed(1)
        with keras.device(device):
            model = compiled(convnet(dropout=0.0))
        assert {v.device for v in model.variables} == {device}
        losses[device] = [
            model.train_on_batch(x[start : start + 64], y[start : start + 64])[0]
            for start in range(0, 640, 64)
        ]
    # TF32 is off in tests; ten steps of Adam carry on the float32 rounding.
    np.testing.assert_allclose(losses[cuda_device], losses["cpu"], rtol=2e-5)


def test_dropout_draws_the_masks_of_the_cpu(cuda_device):
    """Both devices have the same generator, so that equal seeds give equal training."""
    x, y = digits(256)
    weights = []
    for device in ("cpu", cuda_device):
        keras.utils.set_random_seed(3)
        with keras.device(device):
            model = compiled(convnet(dropout=0.5))
        keras.utils.set_random_seed(3)
        model.fit(x, y, batch_size=32, epochs=1, verbose=0)
        weights.append(model.get_weights()[-2])
    # Other masks would change the weights by the learning rate, 1e-3, in each step.
    np.testing.assert_allclose(*weights, atol=2e-4)


def test_a_model_on_the_cpu_trains_there_while_the_default_is_a_gpu(cuda_device):
    metric = None
    with keras.device(cuda_device):
        metric = keras.metrics.SparseCategoricalAccuracy()
    with keras.device("cpu"):
        model = classifier()
    with keras.device(cuda_device):
        model.compile("adam", "sparse_categorical_crossentropy", metrics=[metric])
        before = keras.config.launch_stats(cuda_device)
        model.fit(*blobs(), epochs=2, verbose=0)
        model.evaluate(*blobs(), verbose=0)
        model.predict(blobs()[0], verbose=0)
        model.train_on_batch(*blobs())
        model.test_on_batch(*blobs())
        model.predict_on_batch(blobs()[0])
        assert 0 <= float(metric.result()) <= 1
        assert keras.config.launch_stats(cuda_device) == before
    state = [*model.variables, *model.optimizer.variables, *metric.variables]
    state += [variable for m in model._all_metrics() for variable in m.variables]
    assert {variable.device for variable in state} == {"cpu"}


def test_layers_and_metrics_made_elsewhere_train_on_the_device_of_the_weights(cuda_device):
    """Weights are made where the model is built; states of random numbers and metrics follow."""
    x, y = blobs(64)
    for home, elsewhere in (("cpu", cuda_device), (cuda_device, "cpu")):
        with keras.device(elsewhere):
            dropout = layers.Dropout(0.5, seed=1)
            metric = keras.metrics.Mean(name="extra")
            optimizer = keras.optimizers.Adam(0.01)
            assert optimizer.learning_rate.device == elsewhere
        with keras.device(home):
            model = keras.Sequential([keras.Input((4,)), dropout, layers.Dense(3)])
        with keras.device(elsewhere):
            model.extra = [metric]
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(optimizer, loss)
            model.fit(x, y, batch_size=16, epochs=2, verbose=0)
        state = [*model.variables, *optimizer.variables, *metric.variables]
        assert {variable.device for variable in state} == {home}
        assert int(optimizer.iterations.numpy()) == 8
        assert dropout.seed_generator.state.numpy().tolist() == [1, 8]


def test_a_metric_of_two_models_on_two_devices_counts_for_both(cuda_device):
    x, y = blobs()
    metric = keras.metrics.SparseCategoricalAccuracy()
    models = []
    for device in ("cpu", cuda_device):
        with keras.device(device):
            models.append(classifier())
        models[-1].compile("sgd", "sparse_categorical_crossentropy", metrics=[metric])
    on_cpu, on_gpu = models
    expected = on_cpu.evaluate(x, y, verbose=0)
    for model in (on_gpu, on_cpu, on_gpu):
        np.testing.assert_allclose(model.evaluate(x, y, verbose=0), expected, rtol=1e-5)


def test_batches_that_do_not_fit_say_which_would(cuda_device):
    with keras.device(cuda_device):
        model = keras.Sequential(
            [
                keras.Input((1,)),
                keras.layers.Dense(100_000, activation="relu"),
                keras.layers.Dense(1),
            ]
        )
    model.compile("sgd", "mse")
    x = np.zeros((1_000_000, 1), "float32")
    with pytest.raises(MemoryError, match=r"batch_size of up to about \d+ fits") as caught:
        model.fit(x, x, batch_size=1_000_000, verbose=0)
    # Other processes, such as other tests, may take memory of the GPU meanwhile.
    fitting = caught.value.fitting_batch_size * 3 // 4
    model.fit(x[:fitting], x[:fitting], batch_size=fitting, verbose=0)


class Digits:
    """Gives batches of the digits in their order."""

    def __init__(self, size):
        self.arrays, self.size = digits(), size

    def __iter__(self):
        x, y = self.arrays
        for first in range(0, len(x), self.size):
            yield x[first : first + self.size], y[first : first + self.size]


def state_after(device, **arguments):
    """Returns the bits of all state after some epochs over the digits, and the logs."""
    keras.utils.set_random_seed(4)
    with keras.device(device):
        model = compiled(convnet())
    history = model.fit(shuffle=False, verbose=0, epochs=3, **arguments).history
    variables = [*model.variables, *model.optimizer.variables]
    return [np.asarray(v.numpy()).tobytes() for v in variables], history


class Reading(keras.callbacks.Callback):
    """Has batch hooks, and looks at the logs now and then."""

    def __init__(self, every=None):
        super().__init__()
        self.every, self.batches = every, 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if self.every and batch % self.every == 0:
            assert np.isfinite(logs["loss"])


@pytest.mark.parametrize("batch_size", [7, 32, 250])
def test_batches_of_a_source_train_the_bits_of_arrays(device, batch_size, monkeypatch):
    """With the ring, its halves and single steps, the same kernels run on the same numbers."""
    x, y = digits()
    expected = state_after(device, x=x, y=y, batch_size=batch_size)
    for half in (64, 3):
        monkeypatch.setattr(routes, "HALF_BATCHES", half)
        assert state_after(device, x=Digits(batch_size)) == expected
    for every in (None, 5):
        hooks = [Reading(every)]
        assert state_after(device, x=x, y=y, batch_size=batch_size, callbacks=hooks) == expected
        assert state_after(device, x=Digits(batch_size), callbacks=hooks) == expected
        assert hooks[0].batches == 2 * 3 * -(-len(x) // batch_size)


def test_hooks_and_sources_launch_little_on_a_gpu(cuda_device):
    """A single step needs at most one launch; steps of a source share launches."""
    counts = []

    class Watch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            counts.append(keras.config.launch_stats(cuda_device)["graph_launches"])

    x, y = digits()
    with keras.device(cuda_device):
        model = compiled(convnet())
    steps = -(-len(x) // 8)
    model.fit(x, y, batch_size=8, epochs=5, callbacks=[Watch(), Reading()], verbose=0)
    assert counts[-1] - counts[-2] <= steps
    counts.clear()
    model.fit(Digits(8), epochs=5, callbacks=[Watch()], verbose=0)
    # A launch has fewer steps than a half if the device asks early, but never a single one.
    assert counts[-1] - counts[-2] < steps / 2
