"""Subclassed models, several inputs and outputs, custom steps, single batches."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, ops

from .helpers import DenseReference, blobs, classifier, count_compilations, softmax


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(6, activation="relu")
        self.dropout = layers.Dropout(0.5)
        self.head = layers.Dense(3, activation="softmax")

    def call(self, inputs, training=False):
        return self.head(self.dropout(self.hidden(inputs), training=training))


def test_a_subclass_is_built_by_its_first_fit():
    x, y = blobs(200)
    y = (x[:, 0] > 0).astype(int)
    keras.utils.set_random_seed(3)
    model = Subclassed()
    adam = keras.optimizers.Adam(0.01)
    model.compile(adam, "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(x, y, epochs=30, batch_size=16, verbose=0)
    assert model.evaluate(x, y, verbose=0)[1] > 0.9
    # Without dropout, predictions are the same each time.
    first, second = (model.predict(x, verbose=0) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def two_headed(losses, **kwargs):
    a, b = keras.Input((4,), name="a"), keras.Input((2,), name="b")
    joined = layers.Concatenate()([a, b])
    kind = layers.Dense(3, activation="softmax", name="kind")(joined)
    size = layers.Dense(1, name="size")(joined)
    model = keras.Model([a, b], [kind, size])
    model.compile(keras.optimizers.SGD(0.1), losses, **kwargs)
    return model


def two_headed_data(samples=12):
    rng = np.random.default_rng(5)
    a = rng.normal(size=(samples, 4)).astype("float32")
    b = rng.normal(size=(samples, 2)).astype("float32")
    return (a, b), (rng.integers(0, 3, samples), rng.normal(size=(samples, 1)).astype("float32"))


LOSSES = ["sparse_categorical_crossentropy", "mse"]
NAMED_LOSSES = dict(zip(["kind", "size"], LOSSES, strict=True))


def expected_losses(model, x, y):
    outputs = np.concatenate(x, axis=1).astype("float64")
    kind_w, kind_b, size_w, size_b = model.get_weights()
    probabilities = softmax(outputs @ kind_w + kind_b)
    kind = -np.log(probabilities[np.arange(len(y[0])), y[0]]).mean()
    size = np.square(outputs @ size_w + size_b - y[1]).mean()
    right = (probabilities.argmax(1) == y[0]).mean()
    return kind, size, right


@pytest.mark.parametrize("losses", [LOSSES, NAMED_LOSSES])
@pytest.mark.parametrize("weights", [None, [2.0, 0.5], {"kind": 2.0, "size": 0.5}])
@pytest.mark.parametrize("form", ["list", "dict"])
def test_two_inputs_and_two_outputs(losses, weights, form):
    x, y = two_headed_data()
    model = two_headed(losses, loss_weights=weights, metrics={"kind": "accuracy"})
    kind, size, right = expected_losses(model, x, y)
    factors = (1, 1) if weights is None else (2.0, 0.5)
    if form == "list":
        data = list(x), list(y)
    else:
        data = (
            dict(zip(["a", "b"], x, strict=True)),
            dict(zip(["kind", "size"], y, strict=True)),
        )
    logs = model.evaluate(*data, batch_size=5, verbose=0, return_dict=True)
    assert list(logs) == ["kind_accuracy", "kind_loss", "loss", "size_loss"]
    # The losses are float32 sums over 12 samples.
    assert logs["kind_loss"] == pytest.approx(kind, rel=2e-6)
    assert logs["size_loss"] == pytest.approx(size, rel=2e-6)
    assert logs["loss"] == pytest.approx(factors[0] * kind + factors[1] * size, rel=2e-6)
    assert logs["kind_accuracy"] == pytest.approx(right, abs=1e-7)
    history = model.fit(*data, epochs=20, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    predictions = model.predict(data[0], verbose=0)
    assert [p.shape for p in predictions] == [(12, 3), (12, 1)]


def test_an_output_without_a_loss_needs_no_target():
    x, y = two_headed_data()
    model = two_headed({"kind": "sparse_categorical_crossentropy"})
    kind, _, _ = expected_losses(model, x, y)
    assert model.evaluate(list(x), {"kind": y[0]}, verbose=0) == pytest.approx(kind, rel=2e-6)


def test_outputs_as_a_dictionary():
    class Named(keras.Model):
        def __init__(self):
            super().__init__()
            self.kind, self.size = layers.Dense(3, activation="softmax"), layers.Dense(1)

        def call(self, inputs):
            joined = ops.concatenate([inputs["a"], inputs["b"]], axis=-1)
            return {"size": self.size(joined), "kind": self.kind(joined)}

    x, y = two_headed_data()
    model = Named()
    model.compile("sgd", NAMED_LOSSES, metrics={"size": ["mse"]})
    data = {"a": x[0], "b": x[1]}, {"kind": y[0], "size": y[1]}
    history = model.fit(*data, epochs=2, verbose=0).history
    assert list(history) == ["kind_loss", "loss", "size_loss", "size_mse"]
    np.testing.assert_allclose(history["size_mse"], history["size_loss"], rtol=1e-6)
    assert sorted(model.predict(data[0], verbose=0)) == ["kind", "size"]


def test_targets_of_another_structure_are_named():
    x, y = two_headed_data()
    with pytest.raises(ValueError, match=r"2 arrays \('kind', 'size'\).*y has 1 array"):
        two_headed(LOSSES).fit(list(x), y[0], verbose=0)
    with pytest.raises(ValueError, match=r"names of outputs.*'kind', 'size'.*'sort'"):
        two_headed({"sort": "mse"}).fit(list(x), list(y), verbose=0)


class OwnStep(keras.Model):
    """Trains on pairs without noise with its own loss, and reports two numbers."""

    def __init__(self):
        super().__init__()
        self.head = layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        self.tracker = keras.metrics.Mean(name="distance")

    def call(self, inputs):
        return self.head(inputs)

    def train_step(self, data):
        x, y = data
        loss = ops.mean(ops.square(self(x, training=True) - y))
        weights = self.trainable_variables
        gradients = keras.gradients(loss, weights)
        self.optimizer.apply(gradients, weights)
        self.tracker.update_state(loss)
        return {"distance": self.tracker.result(), "twice": loss * 2.0}


def test_a_train_step_of_ones_own_reports_what_it_returns():
    x = np.eye(4, dtype="float32")
    model = OwnStep()
    model.compile(keras.optimizers.SGD(0.1))
    history = model.fit(x, np.ones((4, 1)), epochs=3, batch_size=2, shuffle=False, verbose=0)
    assert list(history.history) == ["distance", "twice"]
    # Each step multiplies the two weights of its error by 1 - 0.1: d(mean of squares) = error.
    errors = 0.9 ** np.arange(3)
    np.testing.assert_allclose(history.history["distance"], errors**2, rtol=1e-6)
    np.testing.assert_allclose(history.history["twice"], 2 * errors**2, rtol=1e-6)


class OwnLoss(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = layers.Dense(1)

    def call(self, inputs):
        return self.head(inputs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return ops.mean(ops.abs(y_pred - y)) + 0.0 * ops.sum(x)


def test_a_compute_loss_of_ones_own_is_trained_on():
    x, _ = blobs()
    model = OwnLoss()
    model.compile(keras.optimizers.SGD(0.2), metrics=["mse"])
    history = model.fit(x, x[:, :1], epochs=50, verbose=0).history
    assert list(history) == ["loss", "mse"]
    assert history["loss"][-1] < 0.5 * history["loss"][0]


def test_single_batches_train_as_fit_does():
    x, y = blobs()
    fitted, stepped = classifier(), classifier()
    for model in (fitted, stepped):
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    fitted.fit(x, y, batch_size=5, epochs=2, shuffle=False, verbose=0)
    reference = DenseReference(stepped, 0.0)
    with count_compilations() as kinds:
        for epoch in range(2):
            for start in range(0, 20, 5):
                batch = slice(start, start + 5)
                loss, _ = stepped.train_on_batch(x[batch], y[batch])
                if epoch == start == 0:
                    expected = reference.losses(x[batch], y[batch]).mean()
                    assert loss == pytest.approx(expected, rel=2e-6)
        assert kinds == ["train"]
    for a, b in zip(fitted.get_weights(), stepped.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_single_batches_are_tested_and_predicted():
    x, y = blobs()
    model = classifier()
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    logs = model.test_on_batch(x, y, return_dict=True)
    assert logs == model.evaluate(x, y, verbose=0, return_dict=True)
    np.testing.assert_array_equal(model.predict_on_batch(x), model.predict(x, verbose=0))
    weights = np.arange(20.0)
    loss = model.test_on_batch(x, y, sample_weight=weights)[0]
    values = DenseReference(model, 0.0).losses(x, y) * weights
    assert loss == pytest.approx(values.mean(), rel=2e-6)
    by_class = model.train_on_batch(x, y, class_weight={0: 2.0}, return_dict=True)["loss"]
    assert by_class > logs["loss"]


def test_predict_works_without_compile_and_in_any_batch_size():
    model = classifier()
    x, _ = blobs()
    outputs = [model.predict(x, batch_size=size, verbose=0) for size in (1, 7, 20, 99)]
    for other in outputs[1:]:
        # Each batch size has its own product, which may add in another order.
        np.testing.assert_allclose(other, outputs[0], rtol=1e-6)
    assert model.predict(x, batch_size=4, steps=2, verbose=0).shape == (8, 3)


def test_losses_that_layers_add_are_part_of_the_loss():
    plain, penalized = classifier(), classifier(kernel_regularizer=keras.regularizers.L2(0.1))
    x, y = blobs()
    losses = []
    for model in (plain, penalized):
        model.compile("sgd", "sparse_categorical_crossentropy")
        losses.append(model.evaluate(x, y, verbose=0))
    penalty = 0.1 * np.square(plain.get_weights()[0]).sum()
    assert losses[1] == pytest.approx(losses[0] + penalty, rel=2e-6)


def test_batch_normalization_learns_its_statistics_in_training_only():
    x, y = blobs(64)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.BatchNormalization(momentum=0.5),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
    model.evaluate(x, y, verbose=0)
    mean = model.layers[0].moving_mean
    np.testing.assert_array_equal(mean.numpy(), np.zeros(4))
    model.fit(x, y, batch_size=64, verbose=0)
    # There is one step with momentum 0.5 from 0, and a float32 mean of 64 numbers.
    np.testing.assert_allclose(mean.numpy(), 0.5 * x.mean(axis=0), rtol=1e-5, atol=1e-7)
