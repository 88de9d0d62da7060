"""Where a schedule needs the step's number as a value, Python computes the rates beforehand."""

import math

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, ops
from kerascnn.optimizers import host_rates
from kerascnn.symbolic.no_value import NoValueError

Schedule = keras.optimizers.schedules.LearningRateSchedule
STEPS = 7  # An epoch has 7 batches of 4 samples, but the last has 2.


class Pieces(Schedule):
    def __call__(self, step):
        if step < 3:
            return 0.25
        return 0.5 if step < 8 else ops.cast(step, "float32") / 64.0


class Floats(Schedule):
    def __call__(self, step):
        return 0.5 / (1.0 + math.sqrt(float(step)))


class Numpy(Schedule):
    def __call__(self, step):
        return np.interp(np.asarray(step), [0.0, 10.0, 30.0], [0.0, 1.0, 0.125])


class Rates(Schedule):
    """Has rates for so many steps, and fails beyond them."""

    def __init__(self, count):
        self.rates = [1.0 / (i + 1) for i in range(count)]

    def __call__(self, step):
        return self.rates[int(step)]


class Probe(keras.optimizers.Optimizer):
    """Updates weights so that they encode all rates and their order, and no gradients."""

    def update_step(self, gradient, variable, learning_rate):
        variable.assign(variable.value * 1.25 + learning_rate + 0.0 * gradient)


def model_with(rate, optimizer=keras.optimizers.SGD, run_eagerly=False, **kwargs):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([layers.Input((3,)), layers.Dense(2)])
    optimizer = optimizer(learning_rate=rate, **kwargs)
    model.compile(optimizer, "mse", run_eagerly=run_eagerly)
    return model


def data_of(rng):
    rows = 4 * (STEPS - 1) + 2
    return rng.normal(size=(rows, 3)).astype("float32"), rng.normal(size=(rows, 2)).astype(
        "float32"
    )


def batches(x, y, epochs):
    for _ in range(epochs):
        for i in range(0, len(x), 4):
            yield x[i : i + 4], y[i : i + 4]


class SeesBatches(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        pass


def fit_arrays(model, x, y):
    model.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0)


def fit_batch_by_batch(model, x, y):
    calls = [SeesBatches()]
    model.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0, callbacks=calls)


def fit_generator(model, x, y):
    model.fit(batches(x, y, 3), steps_per_epoch=STEPS, epochs=3, shuffle=False, verbose=0)


def train_on_batches(model, x, y):
    for batch in batches(x, y, 3):
        model.train_on_batch(*batch)


ROUTES = [fit_arrays, fit_batch_by_batch, fit_generator, train_on_batches]


def rates_seen(schedule, route, x, y, **kwargs):
    """Returns weights and rate after compiled and after eager steps on the same route."""
    results = []
    for run_eagerly in (False, True):
        model = model_with(schedule(), run_eagerly=run_eagerly, **kwargs)
        route(model, x, y)
        assert int(model.optimizer._steps().numpy()) == 3 * STEPS
        results.append([*model.get_weights(), float(model.optimizer.learning_rate)])
    return results


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("schedule", [Pieces, Floats, Numpy])
def test_each_step_has_its_rate(rng, schedule, route):
    compiled, eager = rates_seen(schedule, route, *data_of(rng), optimizer=Probe)
    for a, b in zip(compiled, eager, strict=True):
        # There are 21 steps of three operations. The rate of another step would differ by far more.
        np.testing.assert_allclose(a, b, rtol=3 * 21 * 2**-23)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"gradient_accumulation_steps": 2},
        {"optimizer": keras.optimizers.Adam},
        {"optimizer": keras.optimizers.AdamW, "clipnorm": 1.0},
        {"weight_decay": 0.125, "use_ema": True},
    ],
)
@pytest.mark.parametrize("route", [fit_arrays, fit_generator])
def test_weights_are_those_of_eager_steps(rng, route, kwargs):
    compiled, eager = rates_seen(Pieces, route, *data_of(rng), **kwargs)
    for a, b in zip(compiled, eager, strict=True):
        # The tolerance is that of the tests of run_eagerly.
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_run_longer_than_the_table(rng, monkeypatch):
    monkeypatch.setattr(host_rates, "_LENGTH", 5)
    compiled, eager = rates_seen(Pieces, fit_arrays, *data_of(rng), optimizer=Probe)
    for a, b in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(a, b, rtol=3 * 21 * 2**-23)


def test_training_goes_on_where_the_count_was_set(rng):
    x, y = data_of(rng)
    results = []
    for run_eagerly in (False, True):
        model = model_with(Pieces(), Probe, run_eagerly)
        fit_arrays(model, x, y)
        model.optimizer.iterations.assign(2)
        fit_arrays(model, x, y)
        results.append(model.get_weights()[1])
    np.testing.assert_allclose(*results, rtol=6 * 21 * 2**-23)


def test_two_updates_and_the_rate_after_them(rng):
    x, _ = data_of(rng)

    class Twice(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            for _ in range(2):
                loss = ops.mean(self(data[0]))
                variables = self.trainable_variables
                self.optimizer.apply(keras.gradients(loss, variables), variables)
            return {"rate": ops.cast(self.optimizer.learning_rate, "float32")}

    model = Twice()
    model.compile(Probe(Floats()))
    seen = [model.train_on_batch(x[:4], return_dict=True)["rate"] for _ in range(4)]
    np.testing.assert_allclose(seen, [Floats()(2 * i + 2) for i in range(4)], rtol=2**-23)


def test_updates_in_a_loop_of_a_step_name_the_line(rng):
    x, y = data_of(rng)

    class Loops(keras.Sequential):
        def train_step(self, data):
            variables = self.trainable_variables
            gradients = [ops.ones(v.shape) for v in variables]

            def body(i, carry):
                self.optimizer.apply(gradients, variables)
                return carry

            return {"x": ops.fori_loop(0, 3, body, ops.zeros(()))}

    model = Loops([layers.Input((3,)), layers.Dense(2)])
    model.compile(Probe(Floats()))
    model.optimizer.build(model.trainable_variables)
    with pytest.raises(NoValueError, match="math.sqrt"):
        model.train_on_batch(x[:4], y[:4])


def test_what_a_callback_changes_in_a_schedule_counts(rng):
    x, y = data_of(rng)

    class Switch(Schedule):
        rate = 1.0

        def __call__(self, step):
            return self.rate if float(step) >= 0.0 else 0.0

    schedule = Switch()

    class Halve(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            schedule.rate /= 2

    model = model_with(schedule, Probe)
    before = model.get_weights()[1]
    model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=[Halve()])
    for rate in [1.0] * STEPS + [0.5] * STEPS:
        before = before * 1.25 + rate
    np.testing.assert_allclose(model.get_weights()[1], before, rtol=2**-20)


def test_a_callable_is_asked_before_each_step(rng):
    x, y = data_of(rng)
    model = model_with(lambda: 1.0 / (1.0 + float(model.optimizer.iterations)), Probe)
    fit_arrays(model, x, y)
    expected = np.zeros(2)
    for i in range(3 * STEPS):
        expected = expected * 1.25 + 1.0 / (1.0 + i)
    np.testing.assert_allclose(model.get_weights()[1], expected, rtol=3 * 21 * 2**-23)


def test_a_schedule_that_fails_does_so_after_the_steps_before(rng):
    x, y = data_of(rng)
    model, other = model_with(Rates(10)), model_with(Rates(STEPS))
    first = model.get_weights()
    once = {"batch_size": 4, "shuffle": False, "verbose": 0}
    model.fit(x, y, **once)
    with pytest.raises(IndexError, match="out of range"):
        model.fit(x, y, **once)
    assert int(model.optimizer.iterations.numpy()) == 10
    # The next fit starts with the first batch again.
    model.set_weights(first)
    model.optimizer.iterations.assign(0)
    for each in (model, other):
        each.fit(x, y, **once)
    for a, b in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_optimizers_of_optimizers(rng):
    # Small numbers, for which no draw diverges at these rates in two layers.
    x, y = (0.25 * part for part in data_of(rng))
    results = []
    for run_eagerly in (False, True):
        keras.utils.set_random_seed(3)
        model = keras.Sequential([layers.Input((3,)), layers.Dense(4), layers.Dense(2)])
        choice = keras.optimizers.OptimizerMap(keras.optimizers.SGD(Pieces()))
        choice["kernel"] = keras.optimizers.SGD(Floats())
        two = keras.optimizers.MultiOptimizer(choice)
        model.compile(two, "mse", run_eagerly=run_eagerly)
        fit_arrays(model, x, y)
        results.append(model.get_weights())
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_steps_that_a_loss_scale_leaves_out_take_no_rate(rng):
    x, y = data_of(rng)
    x[4] = np.inf  # This value is in the second batch.
    results = []
    for run_eagerly in (False, True):
        model = model_with(0.1)
        scaled = keras.optimizers.LossScaleOptimizer(Probe(Floats()))
        model.compile(scaled, "mse", run_eagerly=run_eagerly)
        with pytest.warns(RuntimeWarning, match="NaN or infinite"):
            fit_arrays(model, x, y)
        assert int(scaled.iterations.numpy()) == 3 * (STEPS - 1)
        results.append(model.get_weights())
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=3 * 21 * 2**-23)


def test_schedules_of_ops_stay_in_the_step(rng, monkeypatch):
    class Never:
        def __init__(self, *args):
            raise AssertionError("the host was asked")

    monkeypatch.setattr("kerascnn.optimizers.state.HostRates", Never)
    x, y = data_of(rng)
    fit_arrays(model_with(keras.optimizers.schedules.CosineDecay(0.1, 30)), x, y)
    with pytest.raises(AssertionError, match="the host was asked"):
        fit_arrays(model_with(Pieces()), x, y)


def test_a_function_of_jit_names_the_line():
    optimizer = keras.optimizers.SGD(Pieces())
    weight = keras.Variable([1.0, 2.0])
    optimizer.build([weight])

    @keras.jit
    def step(gradient):
        optimizer.apply([gradient], [weight])
        return weight.value

    with pytest.raises(NoValueError, match="if step < 3"):
        step(np.ones(2, "float32"))


@pytest.mark.parametrize("rate", [Floats(), Rates(STEPS + 1)])
def test_profile_runs_steps_with_rates(rng, device, rate):
    """All steps that it runs have the rate of the next step; training then continues with it."""
    asked = []

    class Noting(Schedule):
        def __call__(self, step):
            result = rate(step)
            asked.append(int(step))
            return result

    x, y = data_of(rng)
    with keras.device(device):
        model = model_with(Noting())
        options = {"batch_size": 4, "verbose": 0, "shuffle": False}
        model.fit(x, y, **options)
        weights = model.get_weights()
        asked.clear()
        profile = model.profile(x, y, batch_size=4)
        assert asked == [STEPS]
        assert profile.step_us > 0
        for before, after in zip(weights, model.get_weights(), strict=True):
            np.testing.assert_array_equal(before, after)
        model.fit(x[:4], y[:4], **options)
        assert np.isfinite(model.get_weights()[0]).all()
