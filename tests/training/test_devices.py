"""A model stays on the device of its weights, even if the default device changes."""

import sys

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, ops

from .helpers import blobs


@pytest.fixture
def elsewhere(monkeypatch):
    """Makes a device that does not exist the default, so that any use of the default fails."""
    module = sys.modules["kerascnn.device"]

    def begin():
        monkeypatch.setattr(module, "_default", "cuda:63")
        with pytest.raises(keras.DeviceError, match="cuda:63"):
            ops.ones((1,))

    return begin


def network():
    return keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(8, activation="relu", kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dropout(0.5, seed=1),
            layers.Dense(3, activation="softmax"),
        ]
    )


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: "adam",
        lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        lambda: keras.optimizers.RMSprop(0.01, centered=True, momentum=0.5),
    ],
)
def test_everything_is_made_where_the_weights_are(optimizer, elsewhere):
    x, y = blobs(40)
    with keras.device("cpu"):
        model = network()
    elsewhere()
    model.compile(
        optimizer(),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        weighted_metrics=["sparse_categorical_crossentropy"],
    )
    stop = keras.callbacks.EarlyStopping(monitor="loss", restore_best_weights=True)
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    model.fit(
        x,
        y,
        batch_size=16,
        epochs=3,
        verbose=0,
        validation_split=0.2,
        class_weight={0: 1.0, 1: 2.0, 2: 0.5},
        callbacks=[stop, schedule],
    )
    loss, *_ = model.evaluate(x, y, verbose=0)
    assert np.isfinite(loss)
    assert model.predict(x, verbose=0).shape == (40, 3)
    model.train_on_batch(x, y)
    model.test_on_batch(x, y, sample_weight=np.ones(40))
    np.testing.assert_allclose(model.predict_on_batch(x), model(x).numpy(), rtol=1e-5)
    model.set_weights(model.get_weights())
    results = model.get_metrics_result()
    assert {"loss", "accuracy"} <= set(results)
    state = [*model.variables, *model.optimizer.variables]
    state += [variable for metric in model._all_metrics() for variable in metric.variables]
    assert {variable.device for variable in state} == {"cpu"}


def test_steps_of_ones_own_run_where_the_weights_are(elsewhere):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)
            self.means = [keras.metrics.Mean(name="own")]

        def call(self, inputs):
            return self.dense(inputs)

        def test_step(self, data):
            x, y = data
            error = ops.square(self(x) - y)
            self.means[0].update_state(error + ops.zeros_like(error) + ops.ones((1,)))
            return {"own": self.means[0].result()}

    with keras.device("cpu"):
        model = Own()
        model.build((None, 4))
    elsewhere()
    model.compile(loss="mse")
    x = np.ones((10, 4), "float32")
    expected = float(((model(x).numpy() - 0) ** 2).mean()) + 1
    for _ in range(2):  # The second evaluation starts from zero again.
        logs = model.evaluate(x, np.zeros((10, 1)), batch_size=4, verbose=0, return_dict=True)
        assert logs["own"] == pytest.approx(expected, rel=1e-5)


def test_metrics_and_losses_at_once(elsewhere):
    with keras.device("cpu"):
        metric = keras.metrics.Mean()
        values = ops.convert_to_tensor([1.0, 3.0])
        generator = keras.random.SeedGenerator(1)
    elsewhere()
    metric.update_state(values)
    metric.update_state(values, sample_weight=2)
    assert float(metric.result()) > 0
    metric.reset_state()
    assert float(metric.result()) == 0
    assert ops.full_like(values, 2).device == "cpu"
    assert keras.random.dropout(values, 0.5, seed=generator).device == "cpu"
    variable = metric.total
    variable.assign_add(1.0)
    variable.assign(np.float32(4))
    assert variable.device == "cpu"
