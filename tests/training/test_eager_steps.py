"""With `run_eagerly=True` Python runs each step on values, and the results equal those of fit."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, ops

# Each float32 step carries on earlier rounding. Programs fuse ops, so sums are rounded in other
# places.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam, accumulation": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=3),
    "adamw, averages": lambda: keras.optimizers.AdamW(
        0.01, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=4
    ),
    "rmsprop, clipping": lambda: keras.optimizers.RMSprop(0.01, global_clipnorm=0.5),
    "adafactor": lambda: keras.optimizers.Adafactor(0.01),
    "lion, schedule": lambda: keras.optimizers.Lion(
        keras.optimizers.schedules.ExponentialDecay(0.01, 3, 0.5)
    ),
    "loss scale": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.01), initial_scale=2.0**12, dynamic_growth_steps=4
    ),
}


def flat(x):
    """Returns all numbers of a nested result, in the order of their names."""
    if isinstance(x, dict):
        return [number for key in sorted(x) for number in flat(x[key])]
    if isinstance(x, (list, tuple)):
        return [number for item in x for number in flat(item)]
    return [np.asarray(x)]


def check_close(actual, expected, **tolerances):
    for a, e in zip(flat(actual), flat(expected), strict=True):
        np.testing.assert_allclose(a, e, **(tolerances or CLOSE))


def images(rng, samples=22, classes=3):
    return rng.normal(size=(samples, 7, 6, 2)).astype("float32"), rng.integers(0, classes, samples)


def convolutional(rng):
    """Builds a random model with random layers, statistics, penalties and frozen weights."""
    pooling = [layers.MaxPooling2D, layers.AveragePooling2D][rng.integers(2)]
    activation = ["relu", "gelu", "tanh"][rng.integers(3)]
    inputs = keras.Input((7, 6, 2))
    x = layers.GaussianNoise(0.1)(inputs)
    x = layers.Conv2D(int(rng.integers(2, 6)), 3, activation=activation)(x)
    frozen = layers.Conv2D(3, 1, name="frozen")
    frozen.trainable = False
    x = layers.BatchNormalization(momentum=0.7)(frozen(x))
    x = layers.Dropout(0.3, seed=int(rng.integers(100)))(pooling(2)(x))
    x = layers.Flatten()(x)
    x = layers.Dense(4, kernel_regularizer="l2", activity_regularizer="l1")(x)
    return keras.Model(inputs, layers.Dense(3, activation="softmax")(layers.Dropout(0.2)(x)))


def run(seed, optimizer, x, y, run_eagerly, policy="float32", **options):
    keras.utils.set_random_seed(seed)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = convolutional(np.random.default_rng(seed))
    finally:
        keras.config.set_dtype_policy(before)
    metrics = ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2, name="top")]
    model.compile(
        OPTIMIZERS[optimizer](),
        "sparse_categorical_crossentropy",
        metrics=metrics,
        weighted_metrics=["sparse_categorical_crossentropy"],
        run_eagerly=run_eagerly,
        steps_per_execution=2,
    )
    seen = []
    hook = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append((batch, logs["loss"]))
    )
    history = model.fit(x, y, batch_size=5, epochs=2, verbose=0, callbacks=[hook], **options)
    return {
        "history": history.history,
        "seen": seen,
        "evaluate": model.evaluate(x, y, verbose=0, batch_size=8),
        "predict": model.predict(x, verbose=0, batch_size=8),
        "train_on_batch": model.train_on_batch(x, y, class_weight={0: 2.0}),
        "test_on_batch": model.test_on_batch(x, y),
        "predict_on_batch": model.predict_on_batch(x),
        "state": [np.asarray(v) for v in (*model.variables, *model.optimizer.variables)],
    }


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_same_numbers_as_compiled(rng, optimizer):
    x, y = images(rng)
    seed = int(rng.integers(1000))
    options = {
        "class_weight": {0: 1.0, 1: 0.5, 2: 3.0},
        "validation_split": 0.3,
        "validation_batch_size": 4,
    }
    # The runs are float64, since statistics of a few samples enlarge rounding more than a
    # hundredfold. Losses and metrics are float32.
    expected = run(seed, optimizer, x, y, False, policy="float64", **options)
    check_close(run(seed, optimizer, x, y, True, policy="float64", **options), expected)


def test_the_same_numbers_in_mixed_precision(rng):
    x, y = images(rng)
    expected = run(3, "adam, accumulation", x, y, False, "mixed_bfloat16")
    # bfloat16 has 8 bits, and intermediate results are rounded in other places.
    check_close(
        run(3, "adam, accumulation", x, y, True, "mixed_bfloat16"), expected, rtol=0.05, atol=0.05
    )


@pytest.mark.parametrize("kind", ["generator", "PyDataset"])
def test_the_same_numbers_from_sources_of_batches(rng, kind):
    x, y = images(rng)
    batches = [
        (x[i : i + 5], y[i : i + 5], rng.uniform(size=len(y[i : i + 5]))) for i in (0, 5, 20)
    ]

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return len(batches)

        def __getitem__(self, index):
            return batches[index]

    def generator():
        while True:
            yield from batches

    def train(run_eagerly):
        keras.utils.set_random_seed(1905)
        model = convolutional(np.random.default_rng(1905))
        model.compile("adam", "sparse_categorical_crossentropy", run_eagerly=run_eagerly)
        source = generator() if kind == "generator" else Batches()
        steps = {"steps_per_epoch": 3} if kind == "generator" else {}
        history = model.fit(source, epochs=2, verbose=0, shuffle=False, **steps)
        return history.history, model.get_weights(), model.predict(x, verbose=0)

    check_close(train(True), train(False))


def test_a_block_that_is_computed_again_draws_the_same_numbers(rng):
    x, y = images(rng)

    def train(run_eagerly):
        keras.utils.set_random_seed(11)
        with keras.RematScope(mode="full"):
            hidden = layers.Dropout(0.5)
        model = keras.Sequential(
            [keras.Input((7, 6, 2)), layers.Flatten(), layers.Dense(6), hidden, layers.Dense(3)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, run_eagerly=run_eagerly)
        return model.fit(x, y, batch_size=6, epochs=2, verbose=0).history, model.get_weights()

    check_close(train(True), train(False))


class Looking(keras.Model):
    """Uses Python on values everywhere: a branch, numbers, NumPy, print, a list that grows."""

    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(5, activation="relu")
        self.last = layers.Dense(1)
        self.seen = []

    def call(self, x, training=False):
        self.seen.append((bool(training), float(ops.mean(x)), np.asarray(x).shape))
        x = self.hidden(x)
        if ops.max(x) > 1e9:
            raise FloatingPointError("too large")
        for row in x:
            assert row.shape == (5,)
        return self.last(x)


def test_python_runs_for_each_batch(rng, capsys):
    x, y = rng.normal(size=(10, 3)).astype("float32"), rng.normal(size=(10, 1)).astype("float32")

    def loss(y_true, y_pred):
        print("a loss of shape", np.asarray(y_pred).shape)
        return ops.mean(ops.square(y_true - y_pred), axis=-1)

    model = Looking()
    model.compile("sgd", loss, run_eagerly=True)
    model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    assert [shape for _, _, shape in model.seen] == [(4, 3), (4, 3), (2, 3)] * 2
    assert all(training for training, _, _ in model.seen)
    # The mean may be near 0, and float32 rounds sums of twelve numbers of size 1.
    np.testing.assert_allclose(model.seen[1][1], x[4:8].mean(), rtol=1e-5, atol=1e-6)
    assert capsys.readouterr().out.count("a loss of shape (4, 1)") == 4
    model.seen.clear()
    model.evaluate(x, y, verbose=0, batch_size=5)
    model.predict(x, verbose=0, batch_size=5)
    assert [training for training, _, _ in model.seen] == [False] * 4
    model.seen.clear()
    model.train_on_batch(x, y)
    model.test_on_batch(x, y)
    model.predict_on_batch(x)
    assert [training for training, _, _ in model.seen] == [True, False, False]


def test_an_error_comes_from_the_batch_that_has_it(rng):
    x = rng.normal(size=(10, 3)).astype("float32")
    x[7] = 1e12
    model = Looking()
    model.hidden.build((None, 3))
    # Drawn weights may be such that relu gives 0 for all five units.
    model.hidden.set_weights([np.ones((3, 5)), np.zeros(5)])
    model.compile("sgd", "mse", run_eagerly=True)
    with pytest.raises(FloatingPointError, match="too large"):
        model.predict(np.abs(x), batch_size=2, verbose=0)
    assert len(model.seen) == 4


def spelled(spelling):
    """Returns a model whose `train_step` takes gradients in one of the possible ways."""

    class Own(keras.Model):
        def train_step(self, data):
            x, y = data[:2]
            if spelling == "tape":
                with keras.GradientTape() as tape:
                    loss = self.compute_loss(y=y, y_pred=self(x, training=True))
                gradients = tape.gradient(loss, self.trainable_variables)
            else:
                self.zero_grad()
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
                if spelling == "gradients":
                    gradients = keras.gradients(loss, self.trainable_variables)
                else:
                    # Two halves show that gradients are added up.
                    (loss * 0.5).backward()
                    (loss * 0.5).backward()
                    gradients = [v.value.grad for v in self.trainable_variables]
            self.optimizer.apply(gradients, self.trainable_variables)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, self(x, training=False))
            return {m.name: m.result() for m in self.metrics}

    inputs = keras.Input((3,))
    hidden = layers.Dropout(0.4, seed=1)(layers.Dense(5, activation="tanh")(inputs))
    return Own(inputs, layers.Dense(1)(hidden))


@pytest.mark.parametrize("spelling", ["tape", "gradients", "backward"])
def test_steps_of_ones_own_take_gradients(rng, spelling):
    x, y = rng.normal(size=(9, 3)).astype("float32"), rng.normal(size=(9, 1)).astype("float32")

    def train(run_eagerly):
        keras.utils.set_random_seed(2)
        model = spelled(spelling)
        model.compile("adam", "mse", metrics=["mae"], run_eagerly=run_eagerly)
        history = model.fit(x, y, batch_size=4, epochs=3, verbose=0).history
        return history, model.get_weights(), model.train_on_batch(x, y)

    check_close(train(True), train(False))


class TwoPlayers(keras.Model):
    """Has two losses and two optimizers in one step, as a generative adversarial network does."""

    def __init__(self):
        super().__init__()
        self.maker, self.judge = layers.Dense(3), layers.Dense(1)
        self.build((None, 3))

    def build(self, shape):
        self.maker.build((None, 3))
        self.judge.build((None, 3))

    def compile(self, run_eagerly):
        super().compile("sgd", run_eagerly=run_eagerly)
        self.other = keras.optimizers.SGD(0.05)

    def train_step(self, data):
        made = self.maker(keras.random.normal(data.shape))
        judged = ops.mean(ops.square(self.judge(data) - 1.0)) + ops.mean(
            ops.square(self.judge(ops.stop_gradient(made)))
        )
        variables = self.judge.trainable_variables
        self.other.apply(keras.gradients(judged, variables), variables)
        fooled = ops.mean(ops.square(self.judge(made) - 1.0))
        variables = self.maker.trainable_variables
        self.optimizer.apply(keras.gradients(fooled, variables), variables)
        return {"judge": judged, "maker": fooled}


def test_two_optimizers_in_a_step(rng):
    x = rng.normal(size=(12, 3)).astype("float32")

    def train(run_eagerly):
        keras.utils.set_random_seed(8)
        model = TwoPlayers()
        model.compile(run_eagerly)
        return model.fit(x, batch_size=4, epochs=2, verbose=0).history, model.get_weights()

    check_close(train(True), train(False))


def test_gradients_by_what_is_not_recorded_are_an_error(rng):
    class Own(keras.Model):
        def train_step(self, data):
            loss = ops.mean(self(data))
            self.variables[0].trainable = False
            return {"loss": keras.gradients(loss, self.variables)[0]}

    inputs = keras.Input((2,))
    model = Own(inputs, layers.Dense(1)(inputs))
    model.compile("sgd", run_eagerly=True)
    with pytest.raises(ValueError, match="is not trainable.*GradientTape"):
        model.fit(rng.normal(size=(3, 2)), verbose=0)


def test_a_batch_that_is_kept_stays_as_it_was(rng):
    x = rng.normal(size=(6, 2)).astype("float32")
    kept = []

    class Keeping(keras.Model):
        def __init__(self):
            super().__init__()
            self.last = layers.Dense(1)

        def call(self, inputs):
            kept.append(inputs)
            return self.last(inputs)

    model = Keeping()
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(((x[i : i + 2], x[i : i + 2, :1]) for i in (0, 2, 4)), shuffle=False, verbose=0)
    np.testing.assert_array_equal(np.concatenate([np.asarray(k) for k in kept]), x)


def test_a_step_may_stop_the_training(rng):
    class Stopping(keras.Model):
        def train_step(self, data):
            logs = super().train_step(data)
            if int(self.optimizer.iterations) == 4:
                self.stop_training = True
            return logs

    inputs = keras.Input((2,))
    model = Stopping(inputs, layers.Dense(1)(inputs))
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(np.ones((30, 2)), np.ones((30, 1)), batch_size=1, epochs=5, verbose=0)
    assert int(model.optimizer.iterations) == 4


def test_labels_are_checked_before_the_first_update(rng):
    x, y = images(rng)
    model = convolutional(rng)
    model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    before = model.get_weights()
    with pytest.raises(ValueError, match="class numbers from 0 to 2"):
        model.fit(x, y + 1, batch_size=len(y), verbose=0)
    check_close(before[:2], model.get_weights()[:2], rtol=0, atol=0)


def test_a_loss_that_is_no_number_is_warned_of(rng):
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    x = np.ones((6, 2), "float32")
    x[4] = np.nan
    with pytest.warns(RuntimeWarning, match="epoch 1, step 3"):
        model.fit(x, np.ones((6, 1)), batch_size=2, shuffle=False, verbose=0)


def test_pytorch_on_values(rng):
    torch = pytest.importorskip("torch")

    class Centred(keras.Model):
        def __init__(self):
            super().__init__()
            self.last = layers.Dense(2)

        def call(self, x):
            centre = torch.from_dlpack(x).median(dim=0).values
            return self.last(x - ops.convert_to_tensor(centre))

    x = rng.normal(size=(7, 3)).astype("float32")
    model = Centred()
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(x, np.ones((7, 2)), verbose=0, batch_size=7)
    kernel, bias = model.get_weights()
    expected = (x - np.median(x, axis=0)) @ kernel + bias
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-4, atol=1e-6)


def test_a_setting_that_is_changed_counts_at_once(rng):
    model = Looking()
    model.compile("sgd", "mse", run_eagerly=True)
    x, y = rng.normal(size=(4, 3)).astype("float32"), np.ones((4, 1), "float32")
    model.fit(x, y, verbose=0)
    plain = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
    plain.compile("sgd", "mse")
    compiled = plain.evaluate(x, y, verbose=0)
    plain.run_eagerly = True
    check_close(plain.evaluate(x, y, verbose=0), compiled)
    with pytest.raises(ValueError, match="run_eagerly"):
        plain.profile(x, y)
