"""Overridden training methods: the same classes give the same numbers in both libraries.

The classes follow Keras' guide for PyTorch, with `loss.backward()` and `variable.value.grad`. In
kerascnn, these record a step that is compiled.
"""

import contextlib

import numpy as np
import pytest

import kerascnn

RNG = np.random.default_rng(23)
X = RNG.normal(size=(24, 4)).astype("float32")
Y = RNG.normal(size=(24, 1)).astype("float32")
WEIGHTS = RNG.uniform(0.2, 2.0, 24).astype("float32")

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
# There are at most 12 float32 steps, each of which carries on earlier rounding.
CLOSE = {"rtol": 2e-5, "atol": 2e-6}


def no_grad(library):
    if library is kerascnn:
        return contextlib.nullcontext()
    return pytest.importorskip("torch").no_grad()


def functional(library, cls):
    inputs = library.Input((4,))
    hidden = library.layers.Dense(5, activation="tanh")(inputs)
    return cls(inputs, library.layers.Dense(1)(hidden))


def compile_metrics_by_hand(k):
    class Own(k.Model):
        def train_step(self, data):
            if len(data) == 3:
                x, y, sample_weight = data
            else:
                sample_weight = None
                x, y = data
            self.zero_grad()
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred, sample_weight=sample_weight)
            loss.backward()
            trainable_weights = list(self.trainable_weights)
            gradients = [v.value.grad for v in trainable_weights]
            with no_grad(k):
                self.optimizer.apply(gradients, trainable_weights)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred, sample_weight=sample_weight)
            return {m.name: m.result() for m in self.metrics}

        def test_step(self, data):
            x, y = data
            y_pred = self(x, training=False)
            loss = self.compute_loss(y=y, y_pred=y_pred)
            for metric in self.metrics:
                if metric.name != "loss":
                    metric.update_state(y, y_pred)
                else:
                    metric.update_state(loss)
            return {m.name: m.result() for m in self.metrics}

    return functional(k, Own), {"loss": "mse", "metrics": ["mae"]}


def metrics_of_its_own(k):
    class Own(k.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.loss_tracker = k.metrics.Mean(name="loss")
            self.mae_metric = k.metrics.MeanAbsoluteError(name="mae")
            self.loss_fn = k.losses.MeanSquaredError()

        def train_step(self, data):
            x, y = data[:2]
            self.zero_grad()
            y_pred = self(x, training=True)
            loss = self.loss_fn(y, y_pred)
            loss.backward()
            trainable_weights = list(self.trainable_weights)
            gradients = [v.value.grad for v in trainable_weights]
            with no_grad(k):
                self.optimizer.apply(gradients, trainable_weights)
            self.loss_tracker.update_state(loss)
            self.mae_metric.update_state(y, y_pred)
            return {"loss": self.loss_tracker.result(), "mae": self.mae_metric.result()}

        @property
        def metrics(self):
            return [self.loss_tracker, self.mae_metric]

    return functional(k, Own), {"loss": "mse"}


def values_of_the_last_batch(k):
    class Own(k.Model):
        def train_step(self, data):
            x, y = data[:2]
            self.zero_grad()
            loss = k.ops.mean(k.ops.square(self(x, training=True) - y))
            loss.backward()
            weights = self.trainable_weights
            with no_grad(k):
                self.optimizer.apply([v.value.grad for v in weights], weights)
            return {"zeta": loss, "twice": 2 * loss}

    return functional(k, Own), {"loss": "mse"}


def loss_of_its_own(k):
    class Own(k.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.loss_tracker = k.metrics.Mean(name="loss")

        def compute_loss(self, x, y, y_pred, sample_weight, training=True):
            loss = k.ops.mean((y_pred - y) ** 2)
            if training:
                loss = loss + 0.1 * k.ops.mean(k.ops.abs(y_pred))
            self.loss_tracker.update_state(loss)
            return loss

        def reset_metrics(self):
            self.loss_tracker.reset_state()

        @property
        def metrics(self):
            return [self.loss_tracker]

    return functional(k, Own), {"loss": "mse"}


def loss_without_training(k):
    class Own(k.Model):
        def compute_loss(self, x, y, y_pred, sample_weight):
            return k.ops.mean(k.ops.abs(y_pred - y))

    return functional(k, Own), {"metrics": ["mse"]}


def metrics_beside_those_of_compile(k):
    class Own(k.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.custom = k.metrics.MeanSquaredError(name="custom")

        def compute_metrics(self, x, y, y_pred, sample_weight=None):
            results = super().compute_metrics(x, y, y_pred, sample_weight)
            self.custom.update_state(y, y_pred)
            results["custom"] = self.custom.result()
            return results

    return functional(k, Own), {"loss": "mae", "metrics": ["mae"]}


def predictions_of_its_own(k):
    class Own(k.Model):
        def predict_step(self, data):
            x, _, _ = k.utils.unpack_x_y_sample_weight(data)
            return {"twice": self(x, training=False) * 2, "sum": k.ops.sum(x, axis=1)}

    return functional(k, Own), {"loss": "mse"}


def penalties(k):
    class Penalized(k.layers.Layer):
        def call(self, inputs):
            self.add_loss(0.05 * k.ops.sum(k.ops.abs(inputs)))
            return inputs

    inputs = k.Input((4,))
    hidden = k.layers.Dense(5, kernel_regularizer="l2", activation="tanh")(inputs)
    return k.Model(inputs, k.layers.Dense(1)(Penalized()(hidden))), {"loss": "mse"}


OWN = [
    compile_metrics_by_hand,
    metrics_of_its_own,
    values_of_the_last_batch,
    loss_of_its_own,
    loss_without_training,
    metrics_beside_those_of_compile,
    predictions_of_its_own,
    penalties,
]


def trained(library, make, weights, fit_arguments):
    model, arguments = make(library)
    model.set_weights(weights)
    model.compile(library.optimizers.SGD(0.05), **arguments)
    options = {"batch_size": 7, "verbose": 0}
    history = model.fit(X, Y, epochs=3, shuffle=False, **options, **fit_arguments).history
    logs = model.evaluate(X, Y, **options, return_dict=True)
    return history, logs, model.predict(X, **options), model.get_weights()


def check_equal(own, expected):
    if isinstance(expected, dict):
        assert list(own) == list(expected)
        own, expected = list(own.values()), list(expected.values())
    if isinstance(expected, list):
        assert len(own) == len(expected)
        for a, b in zip(own, expected, strict=True):
            check_equal(a, b)
    else:
        np.testing.assert_allclose(own, expected, **CLOSE)


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("make", OWN, ids=lambda make: make.__name__)
def test_overridden_methods_train_as_in_keras(make, weighted):
    keras = pytest.importorskip("keras")
    arguments = {"sample_weight": WEIGHTS} if weighted else {"validation_data": (X[:9], Y[:9])}
    model, _ = make(keras)
    weights = model.get_weights()
    expected = trained(keras, make, weights, arguments)
    with kerascnn.device("cpu"):
        own = trained(kerascnn, make, weights, arguments)
    for a, b in zip(own, expected, strict=True):
        if isinstance(b, dict) and "twice" in b and "sum" in b:  # Predictions have no order.
            a = {name: a[name] for name in b}
        check_equal(a, b)


def adversarial(k):
    """Returns a model of two networks with two optimizers; one is trained through the other."""

    class Adversarial(k.Model):
        def __init__(self, discriminator, generator):
            super().__init__()
            self.discriminator, self.generator = discriminator, generator
            self.d_metric = k.metrics.Mean(name="d_loss")
            self.g_metric = k.metrics.Mean(name="g_loss")
            self.built = True

        @property
        def metrics(self):
            return [self.d_metric, self.g_metric]

        def compile(self, d_optimizer, g_optimizer, loss_fn):
            super().compile()
            self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer
            self.loss_fn = loss_fn

        def update(self, optimizer, loss, weights):
            self.zero_grad()
            loss.backward()
            with no_grad(k):
                optimizer.apply([v.value.grad for v in weights], weights)

        def train_step(self, real):
            if isinstance(real, (list, tuple)):
                real = real[0]
            n = real.shape[0]
            latent = k.ops.ones((n, 2)) * k.ops.sum(real) / 10.0
            images = k.ops.concatenate([self.generator(latent), real], axis=0)
            labels = k.ops.concatenate([k.ops.ones((n, 1)), k.ops.zeros((n, 1))], axis=0)
            d_loss = self.loss_fn(labels, self.discriminator(images))
            self.update(self.d_optimizer, d_loss, self.discriminator.trainable_weights)
            misleading = k.ops.zeros((n, 1))
            g_loss = self.loss_fn(misleading, self.discriminator(self.generator(latent)))
            self.update(self.g_optimizer, g_loss, self.generator.trainable_weights)
            self.d_metric.update_state(d_loss)
            self.g_metric.update_state(g_loss)
            return {"d_loss": self.d_metric.result(), "g_loss": self.g_metric.result()}

    layers = k.layers
    discriminator = k.Sequential(
        [k.Input((4,)), layers.Dense(3, activation="tanh"), layers.Dense(1)]
    )
    generator = k.Sequential([k.Input((2,)), layers.Dense(4)])
    model = Adversarial(discriminator, generator)
    adam = k.optimizers.Adam
    model.compile(adam(0.01), adam(0.02), k.losses.BinaryCrossentropy(from_logits=True))
    return model


def test_two_models_and_two_optimizers_train_in_one_step():
    keras = pytest.importorskip("keras")
    theirs = adversarial(keras)
    with kerascnn.device("cpu"):
        ours = adversarial(kerascnn)
    ours.set_weights(theirs.get_weights())
    options = {"batch_size": 7, "epochs": 3, "shuffle": False, "verbose": 0}
    # Adam divides a gradient by its size. Where its terms cancel all but a hundredth, its rounding
    # is 2^-24 * 100 of it, and so far apart are steps of 0.02; a few of nine steps may be so.
    histories = [model.fit(X, **options).history for model in (ours, theirs)]
    for name, expected in histories[1].items():
        np.testing.assert_allclose(histories[0][name], expected, rtol=1e-4)
    for own, expected in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-4, atol=3 * 0.02 * 1e-3)


class ByFunction(kerascnn.Model):
    def train_step(self, data):
        x, y = data
        loss = self.compute_loss(x, y, self(x, training=True))
        variables = self.trainable_variables
        self.optimizer.apply(kerascnn.gradients(loss, variables), variables)
        return {"last": loss}


@pytest.mark.parametrize("source", ["arrays", "generator"])
def test_the_gradient_function_gives_what_fit_takes(source, device):
    with kerascnn.device(device):
        models = [functional(kerascnn, cls) for cls in (kerascnn.Model, ByFunction)]
        models[1].set_weights(models[0].get_weights())
        for model in models:
            model.compile("adam", "mse")
    batches = [(X[i : i + 8], Y[i : i + 8]) for i in (0, 8, 16)]
    for model in models:
        if source == "generator":
            model.fit((batch for batch in batches), shuffle=False, verbose=0)
        else:
            model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    # The step is recorded and compiled in the same way, so the bits are the same.
    for own, other in zip(models[1].get_weights(), models[0].get_weights(), strict=True):
        np.testing.assert_array_equal(own, other)


def test_gradients_of_gradients():
    """Penalizes the gradient as Wasserstein GANs do; for a linear model the result is known."""

    class Penalized(kerascnn.Model):
        def train_step(self, data):
            x, y = data
            loss = kerascnn.ops.mean(kerascnn.ops.square(self(x) - y))
            kernel = self.trainable_variables[0]
            (slope,) = kerascnn.gradients(loss, [kernel])
            penalty = kerascnn.ops.sum(kerascnn.ops.square(slope))
            self.optimizer.apply(kerascnn.gradients(penalty, [kernel]), [kernel])
            return {"penalty": penalty}

    inputs = kerascnn.Input((4,))
    model = Penalized(inputs, kerascnn.layers.Dense(1, use_bias=False)(inputs))
    model.compile(kerascnn.optimizers.SGD(0.01))
    w = model.get_weights()[0].astype("float64")
    history = model.fit(X, Y, batch_size=24, verbose=0).history
    slope = 2 / 24 * X.T.astype("float64") @ (X @ w - Y)
    # The derivative of slope^2 by w is 2 H slope with H = 2/n X^T X. There are float32 products of
    # 24 terms.
    hessian = 2 / 24 * X.T.astype("float64") @ X
    np.testing.assert_allclose(history["penalty"], [np.square(slope).sum()], rtol=1e-5)
    expected = w - 0.01 * 2 * hessian @ slope
    np.testing.assert_allclose(model.get_weights()[0], expected, rtol=1e-5, atol=1e-6)


def test_gradients_outside_of_a_step_say_where_they_belong():
    with pytest.raises(ValueError, match="train_step"):
        kerascnn.gradients(kerascnn.ops.ones(()), [])

    class Wrong(kerascnn.Model):
        def train_step(self, data):
            kerascnn.gradients(self(data[0]), self.trainable_variables)

    model = functional(kerascnn, Wrong)
    model.compile("sgd")
    with pytest.raises(ValueError, match=r"loss that is a scalar.*\(24, 1\)"):
        model.fit(X, Y, verbose=0)


def test_frozen_variables_get_no_gradient_from_backward():
    class Own(kerascnn.Model):
        def train_step(self, data):
            x, y = data
            loss = kerascnn.ops.mean(kerascnn.ops.square(self(x) - y))
            loss.backward()
            self.found = [v.value.grad is not None for v in self.weights]
            variables = self.trainable_weights
            self.optimizer.apply([v.value.grad for v in variables], variables)
            return {}

    model = functional(kerascnn, Own)
    model.layers[1].trainable = False
    model.compile("sgd")
    model.fit(X, Y, verbose=0)
    assert model.found == [False, False, True, True]


def test_a_model_inside_of_a_model_keeps_its_metrics_to_itself():
    inner = functional(kerascnn, kerascnn.Model)
    inner.compile("sgd", "mse", metrics=["mae"])
    inner.fit(X, Y, verbose=0)
    outer = kerascnn.Sequential([kerascnn.Input((4,)), inner, kerascnn.layers.Dense(1)])
    outer.compile("sgd", "mse")
    assert outer.metrics_names == ["loss"]
    assert list(outer.fit(X, Y, verbose=0).history) == ["loss"]


@pytest.mark.parametrize(
    ("arguments", "jit_compile"),
    [({}, False), ({"jit_compile": True}, True), ({"jit_compile": False}, False)],
)
def test_jit_compile_and_run_eagerly_are_kept(arguments, jit_compile):
    model = functional(kerascnn, kerascnn.Model)
    model.compile("sgd", "mse", **arguments)
    assert model.jit_compile is jit_compile
    with pytest.warns(UserWarning, match="jit_compile"):
        model.compile("sgd", "mse", run_eagerly=True, jit_compile=True)
    assert model.run_eagerly and not model.jit_compile
    plain, eager = functional(kerascnn, kerascnn.Model), model
    eager.set_weights(plain.get_weights())
    plain.compile("sgd", "mse")
    options = {"batch_size": 8, "shuffle": False, "verbose": 0}
    expected = plain.fit(X, Y, **options).history
    # The passes may add sums in another order.
    check_equal(eager.fit(X, Y, **options).history, expected)


@pytest.mark.parametrize("source", ["arrays", "generator"])
def test_steps_per_execution_is_the_distance_of_hooks(source):
    seen = []

    class Noting(kerascnn.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            seen.append(batch)

        def on_train_batch_end(self, batch, logs=None):
            seen.append(-batch)

    model = functional(kerascnn, kerascnn.Model)
    model.compile("sgd", "mse", steps_per_execution=3)
    data = (X, Y)
    if source == "generator":
        data = (((X[i : i + 4], Y[i : i + 4]) for i in range(0, 20, 4)),)
    else:
        data = (X[:20], Y[:20], 4)
    model.fit(*data, callbacks=[Noting()], shuffle=False, verbose=0)
    # There are five batches: three, then two. The second call is numbered as if it also had three.
    assert seen == [0, -2, 3, -5]
    assert int(model.optimizer.iterations.numpy()) == 5


def test_a_step_may_call_the_model_on_something_else(rng):
    """In Keras' example of a graph network, too, the data are numbers of nodes."""

    class Nodes(kerascnn.Model):
        def __init__(self, nodes, neighbors):
            super().__init__()
            self.nodes, self.neighbors = nodes, neighbors
            self.inner, self.last = kerascnn.layers.Dense(4), kerascnn.layers.Dense(3)

        def call(self, inputs):
            nodes, neighbors = inputs
            return self.last(self.inner(kerascnn.ops.take(nodes, neighbors, axis=0)))

        def train_step(self, data):
            numbers, labels = data
            with kerascnn.GradientTape() as tape:
                outputs = kerascnn.ops.take(self([self.nodes, self.neighbors]), numbers, axis=0)
                loss = self.compute_loss(y=labels, y_pred=outputs)
            gradients = tape.gradient(loss, self.trainable_weights)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
            return {"own_loss": loss}

        def predict_step(self, data):
            return kerascnn.ops.take(self([self.nodes, self.neighbors]), data, axis=0)

    nodes = rng.normal(size=(10, 6)).astype("float32")
    neighbors = rng.integers(0, 10, 10)
    labels = rng.integers(0, 3, 10)
    model = Nodes(nodes, neighbors)
    model.compile("sgd", kerascnn.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = model.fit(np.arange(10), labels, batch_size=10, epochs=3, verbose=0).history[
        "own_loss"
    ]
    assert losses[-1] < losses[0]
    assert model.inner.kernel.shape == (6, 4)
    hidden = nodes[neighbors] @ model.inner.get_weights()[0] + model.inner.get_weights()[1]
    wanted = hidden @ model.last.get_weights()[0] + model.last.get_weights()[1]
    numbers = np.array([3, 1, 7])
    found = model.predict(numbers, verbose=0)
    np.testing.assert_allclose(found, wanted[numbers], rtol=1e-3, atol=1e-4)
