"""`ops.cond` in functional models computes what only one side needs where that side is chosen."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, ops


@pytest.fixture(autouse=True)
def on_device(device):
    with keras.device(device):
        yield


def noting(name, calls):
    def run(x):
        calls.append(name)
        return x * 1.0

    return ops.custom_op(name, cpu=run)


def test_one_side_runs(device, rng):
    """NumPy ops that note their calls show it, so this test only runs on the CPU."""
    if device != "cpu":
        pytest.skip("ops of NumPy run on the CPU")
    calls = []
    before, left, right, inner = (noting(n, calls) for n in ("before", "left", "right", "inner"))
    inputs = keras.Input((3,))
    shared = before(inputs)

    def positive():
        return ops.cond(ops.max(shared) > 9.0, lambda: inner(left(shared)), lambda: left(shared))

    outputs = ops.cond(ops.sum(shared) > 0.0, positive, lambda: right(shared) * 2.0)
    model = keras.Model(inputs, outputs)
    ways = [
        model,
        lambda x: model.predict(x, verbose=0),
        keras.jit(lambda x: model(x)),
        keras.Function(inputs, outputs),
    ]
    for way in ways:
        for x, expected, called in (
            ([[1.0, 2.0, 3.0]], [[1.0, 2.0, 3.0]], {"before", "left"}),
            ([[1.0, 2.0, 30.0]], [[1.0, 2.0, 30.0]], {"before", "left", "inner"}),
            ([[-1.0, -2.0, -3.0]], [[-2.0, -4.0, -6.0]], {"before", "right"}),
        ):
            way(np.array(x, "float32"))
            calls.clear()
            found = np.asarray(way(np.array(x, "float32")))
            assert found.tolist() == expected
            assert set(calls) == called


def two_sided():
    """Returns a model whose sides have a normalization and Dense layers, and two inner tensors."""
    keras.utils.set_random_seed(3)
    inputs = keras.Input((3,), name="x")
    hidden = layers.Dense(4, name="before")(inputs)
    taken = []

    def left():
        taken.append(layers.BatchNormalization(name="normal")(hidden))
        return layers.Dense(2, name="left")(taken[0]), ops.sum(taken[0])

    def right():
        return layers.Dense(2, name="right", activation="tanh")(hidden), 0.0 * ops.sum(hidden)

    outputs, total = ops.cond(ops.sum(inputs) > 0.0, left, right)
    return keras.Model(inputs, layers.Dense(1, name="after")(outputs)), total, taken[0]


class SameInPython(keras.Model):
    """Uses the same layers in a Python `if`, which needs run_eagerly=True."""

    def __init__(self, model):
        super().__init__()
        self.parts = [layer for layer in model.layers if layer.weights]
        self.named = {layer.name: layer for layer in self.parts}

    def call(self, x, training=None):
        hidden = self.named["before"](x)
        if float(ops.sum(x)) > 0.0:
            outputs = self.named["left"](self.named["normal"](hidden, training=training))
        else:
            outputs = self.named["right"](hidden)
        return self.named["after"](outputs)


# An eager choice in Python leaves the weights of the other side without a gradient.
@pytest.mark.filterwarnings("ignore:The loss does not depend")
def test_training_moves_what_has_run(rng):
    """An epoch with batches for both sides changes the same weights, compiled and in Python."""
    x = rng.uniform(0.1, 1.0, (24, 3)).astype("float32")
    x[8:16] *= -1.0
    y = rng.uniform(-1, 1, (24, 1)).astype("float32")
    options = {"batch_size": 8, "shuffle": False, "verbose": 0, "epochs": 2}
    results = []
    for eager, wrap in ((False, False), (True, False), (True, True)):
        model, _, _ = two_sided()
        trained = SameInPython(model) if wrap else model
        trained.compile(keras.optimizers.SGD(0.05), "mse", run_eagerly=eager)
        losses = trained.fit(x, y, **options).history["loss"]
        results.append([np.array(losses), *(w.numpy() for w in model.weights)])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            # There are about ten steps of products of four float32 numbers.
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_other_side_is_left_alone(rng):
    model, _, _ = two_sided()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = -rng.random((8, 3)), rng.random((8, 1))
    before = {w.path: w.numpy() for w in model.weights}
    model.fit(x, y, verbose=0)
    changed = {path.split("/")[0] for path, w in before.items() if (w != state(model)[path]).any()}
    assert changed == {"before", "right", "after"}
    model.fit(-x, y, verbose=0)
    assert (state(model)["normal/moving_mean"] != before["normal/moving_mean"]).any()


def state(model):
    return {w.path: w.numpy() for w in model.weights}


def test_what_is_needed_elsewhere_is_computed(rng):
    """A tensor of one side can also be an output, and a choice can have several results."""
    model, total, normal = two_sided()
    both = keras.Model(model.inputs, [model.output, total, normal])
    for x in (rng.random((4, 3)), -rng.random((4, 3))):
        outputs, found, normalized = map(np.asarray, both(x))
        np.testing.assert_allclose(outputs, np.asarray(model(x)), rtol=1e-6)
        wanted = normalized.sum() if x.sum() > 0 else 0.0
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_files_and_copies_choose_too(rng, tmp_path):
    model, _, _ = two_sided()
    model.save(tmp_path / "model.keras")
    copies = [keras.saving.load_model(tmp_path / "model.keras"), keras.models.clone_model(model)]
    copies[1].set_weights(model.get_weights())
    x = -rng.random((8, 3))
    for copy in copies:
        for rows in (x, -x):
            np.testing.assert_array_equal(np.asarray(copy(rows)), np.asarray(model(rows)))
        copy.compile("sgd", "mse")
        before = copy.get_layer("normal").moving_mean.numpy()
        copy.fit(x, rng.random((8, 1)), verbose=0)
        np.testing.assert_array_equal(copy.get_layer("normal").moving_mean.numpy(), before)


def test_results_that_are_broadcast(rng):
    """One side is a number, so both sides are computed, as by `ops.where`."""
    inputs = keras.Input((3,))
    model = keras.Model(inputs, ops.cond(ops.sum(inputs) > 0.0, lambda: inputs * 2.0, lambda: 1.0))
    x = rng.random((2, 3)).astype("float32")
    np.testing.assert_array_equal(np.asarray(model(x)), 2.0 * x)
    np.testing.assert_array_equal(model.predict(-x, verbose=0), np.ones_like(x))
