"""Optimizers in compiled training are compared with Keras' own fit."""

import numpy as np
import pytest

import kerascnn as keras

other = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

rng = np.random.default_rng(3)
X = rng.normal(size=(44, 5)).astype("float32")
Y = rng.normal(size=(44, 2)).astype("float32")


def network(module):
    return module.Sequential(
        [
            module.Input((5,)),
            module.layers.Dense(6, activation="tanh", name="first"),
            module.layers.Dense(2, name="second"),
        ]
    )


def scheduled(module):
    return module.schedules.CosineDecay(0.0, 12, warmup_target=0.05, warmup_steps=3)


def mapped(module):
    choice = module.OptimizerMap(module.SGD(0.1))
    choice["first/.*"] = module.Adam(0.01)
    return module.MultiOptimizer(choice)


OPTIMIZERS = {
    "schedule": lambda m: m.SGD(scheduled(m), momentum=0.9),
    "schedule of Adam": lambda m: m.Adam(scheduled(m)),
    "accumulation": lambda m: m.Adam(0.05, gradient_accumulation_steps=3),
    "accumulation and schedule": lambda m: m.SGD(scheduled(m), gradient_accumulation_steps=2),
    "averages": lambda m: m.SGD(0.1, use_ema=True, ema_momentum=0.8),
    "averages in between": lambda m: m.SGD(
        0.1, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=4
    ),
    "clipped": lambda m: m.Adam(0.05, global_clipnorm=0.1, weight_decay=0.1),
    "loss scale": lambda m: m.RMSprop(0.01, loss_scale_factor=16.0),
    "dynamic loss scale": lambda m: m.LossScaleOptimizer(m.SGD(0.1), 64.0, 3),
    "several": mapped,
    "lamb": lambda m: m.Lamb(0.01),
    "muon": lambda m: m.Muon(0.01),
    "adafactor": lambda m: m.Adafactor(0.01),
}


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_fit_ends_where_keras_does(name, device):
    with keras.device(device):
        own = network(keras)
    theirs = network(other)
    theirs.set_weights(own.get_weights())
    losses = []
    for module, model in ((keras, own), (other, theirs)):
        model.compile(OPTIMIZERS[name](module.optimizers), "mse")
        # There are 44 samples, so the last batch has 12 and a program of its own.
        history = model.fit(X, Y, batch_size=16, epochs=6, shuffle=False, verbose=0)
        losses.append(history.history["loss"])
    # The network runs 18 steps in float32. In Keras 1 - beta**t has only four digits at first.
    np.testing.assert_allclose(*losses, rtol=1e-4)
    for a, b in zip(own.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5)
    assert int(np.asarray(own.optimizer.iterations)) == int(theirs.optimizer.iterations)


def test_the_loss_that_is_reported_is_not_scaled():
    model = network(keras)
    before = model.get_weights()
    results = []
    for factor in (None, 1024.0):
        model.set_weights(before)
        model.compile(keras.optimizers.SGD(0.1, loss_scale_factor=factor), "mse")
        results.append(model.fit(X, Y, 44, 2, shuffle=False, verbose=0).history["loss"])
    # A power of two changes only the exponent.
    assert results[0] == results[1]


def test_a_changed_hyperparameter_takes_effect():
    model = network(keras)
    optimizer = keras.optimizers.SGD(0.1)
    model.compile(optimizer, "mse")
    model.fit(X, Y, batch_size=44, verbose=0)
    optimizer.clipvalue = 1e-30
    before = model.get_weights()
    model.fit(X, Y, batch_size=44, verbose=0)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert int(optimizer.iterations.numpy()) == 2


def test_a_changed_rate_compiles_nothing_anew():
    model = network(keras)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(X, Y, batch_size=44, verbose=0)
    programs = dict(model._programs)
    model.optimizer.learning_rate = 0.0
    before = model.get_weights()
    model.fit(X, Y, batch_size=44, verbose=0)
    assert model._programs == programs
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_count_on_the_host_moves_to_the_device():
    model = network(keras)
    optimizer = keras.optimizers.SGD(0.1)
    model.compile(optimizer, "mse")
    model.fit(X, Y, batch_size=11, epochs=2, verbose=0)
    optimizer.learning_rate = keras.optimizers.schedules.PiecewiseConstantDecay([7], [0.1, 0.0])
    before = model.get_weights()
    model.fit(X, Y, batch_size=11, verbose=0)  # steps from 8 on have a rate of 0
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert int(optimizer.iterations.numpy()) == 12


def test_state_can_be_saved_and_loaded():
    model = network(keras)
    model.compile(keras.optimizers.Adam(0.05), "mse")
    model.fit(X, Y, batch_size=16, verbose=0)
    store = {}
    model.optimizer.save_own_variables(store)
    weights = model.get_weights()
    again = network(keras)
    again.set_weights(weights)
    again.compile(keras.optimizers.Adam(), "mse")
    with pytest.warns(UserWarning, match="was not loaded: it has 2 variables, the saved one 10"):
        again.optimizer.load_own_variables(store)
    with pytest.raises(ValueError, match="no state yet"):
        again.optimizer.set_weights(list(store.values()))
    again.optimizer.build(again.trainable_variables)
    again.optimizer.load_own_variables(store)
    first, second = (m.fit(X, Y, 16, shuffle=False, verbose=0) for m in (model, again))
    assert first.history == second.history
    with pytest.raises(ValueError, match="has shape"):
        again.optimizer.set_weights([np.zeros(3)])
