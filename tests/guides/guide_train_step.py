"""Custom steps: replacing what `fit` does with a batch.

`loss.backward()`, `value.grad` and `optimizer.apply` are Keras' way on PyTorch and mean the same in
kerascnn. kerascnn also has `keras.gradients(loss, weights)` for this. Keras has no such function,
so `gradients` below is what a script for both libraries needs.
"""

import numpy as np
from guide_tools import from_history, from_logs, images, main, start_from


def gradients(keras, model, loss):
    """Returns the gradients of a loss by a model's trainable weights, with either library."""
    if hasattr(keras, "gradients"):
        return keras.gradients(loss, model.trainable_weights)
    model.zero_grad()
    loss.backward()
    return [weight.value.grad for weight in model.trainable_weights]


def apply(keras, optimizer, found, weights):
    """Applies an update; PyTorch must not differentiate it."""
    if hasattr(keras, "gradients"):
        optimizer.apply(found, weights)
    else:
        import torch

        with torch.no_grad():
            optimizer.apply(found, weights)


def make(keras, cls):
    inputs = keras.Input(shape=(32,))
    return start_from(cls(inputs, keras.layers.Dense(1)(inputs)))


def pairs():
    rng = np.random.default_rng(41)
    x = rng.standard_normal((64, 32)).astype("float32")
    return x, x[:, :1] - 0.5 * x[:, 1:2]


def by_backward(keras):
    class Own(keras.Model):
        def train_step(self, data):
            x, y = data
            self.zero_grad()
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
            loss.backward()
            weights = list(self.trainable_weights)
            found = [v.value.grad for v in weights]
            apply(keras, self.optimizer, found, weights)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {m.name: m.result() for m in self.metrics}

    model = make(keras, Own)
    model.compile(optimizer="adam", loss="mse")
    x, y = pairs()
    return from_history("backward", model.fit(x, y, epochs=3, shuffle=False, verbose=0))


def lower_level(keras):
    """The model owns its loss and metrics; `compile` gives it only the optimizer."""

    class Own(keras.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.loss_tracker = keras.metrics.Mean(name="loss")
            self.mae_metric = keras.metrics.MeanAbsoluteError(name="mae")
            self.loss_fn = keras.losses.MeanSquaredError()

        def train_step(self, data):
            x, y = data
            y_pred = self(x, training=True)
            loss = self.loss_fn(y, y_pred)
            weights = self.trainable_weights
            apply(keras, self.optimizer, gradients(keras, self, loss), weights)
            self.loss_tracker.update_state(loss)
            self.mae_metric.update_state(y, y_pred)
            return {"loss": self.loss_tracker.result(), "mae": self.mae_metric.result()}

        @property
        def metrics(self):
            return [self.loss_tracker, self.mae_metric]

    model = make(keras, Own)
    model.compile(optimizer="adam")
    x, y = pairs()
    return from_history("lower level", model.fit(x, y, epochs=3, shuffle=False, verbose=0))


def with_weights(keras):
    """Uses sample weights and class weights, with a custom step for evaluation."""

    class Own(keras.Model):
        def train_step(self, data):
            x, y, sample_weight = data if len(data) == 3 else (*data, None)
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred, sample_weight=sample_weight)
            weights = self.trainable_weights
            apply(keras, self.optimizer, gradients(keras, self, loss), weights)
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
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {m.name: m.result() for m in self.metrics}

    model = make(keras, Own)
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    x, y = pairs()
    weight = np.linspace(0, 2, 64).astype("float32")
    history = model.fit(x, y, sample_weight=weight, epochs=2, shuffle=False, verbose=0)
    logs = model.evaluate(x, y, verbose=0, return_dict=True)
    return from_history("weights", history) | {
        f"weights: {name} {key}": float(value)
        for name, value in logs.items()
        for key, value in (value if isinstance(value, dict) else {"": value}).items()
    }


def own_loss(keras):
    """Overrides `compute_loss` and `compute_metrics` and keeps the library's step."""

    class Own(keras.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.distance = keras.metrics.Mean(name="distance")

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            loss = keras.ops.mean(keras.ops.abs(keras.ops.subtract(y_pred, y)) ** 1.5)
            self.distance.update_state(loss)
            return loss + 0.01 * keras.ops.sum(keras.ops.square(y_pred)) / 64

        def compute_metrics(self, x, y, y_pred, sample_weight=None):
            return {**super().compute_metrics(x, y, y_pred, sample_weight), "constant": 2.0}

    model = make(keras, Own)
    model.compile(keras.optimizers.SGD(0.02), metrics=["mse"])
    x, y = pairs()
    numbers = from_history("own loss", model.fit(x, y, epochs=2, shuffle=False, verbose=0))
    logs = model.train_on_batch(x, y, return_dict=True)
    return numbers | from_logs("own loss on a batch", logs)


def two_players(keras):
    """A generator and a discriminator have an optimizer each; the noise comes with the data."""
    layers, ops = keras.layers, keras.ops

    class Players(keras.Model):
        def __init__(self, discriminator, generator):
            super().__init__()
            self.discriminator, self.generator = discriminator, generator
            self.d_tracker = keras.metrics.Mean(name="d_loss")
            self.g_tracker = keras.metrics.Mean(name="g_loss")
            self.built = True

        def compile(self, d_optimizer, g_optimizer, loss_fn):
            super().compile()
            self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer
            self.loss_fn = loss_fn

        def train_step(self, data):
            noise, real = data
            size = real.shape[0]
            both = ops.concatenate([self.generator(noise), real], axis=0)
            labels = ops.concatenate([ops.ones((size, 1)), ops.zeros((size, 1))], axis=0)
            d_loss = self.loss_fn(labels, self.discriminator(both, training=True))
            found = gradients(keras, self.discriminator, d_loss)
            apply(keras, self.d_optimizer, found, self.discriminator.trainable_weights)

            scores = self.discriminator(self.generator(noise, training=True))
            g_loss = self.loss_fn(ops.zeros((size, 1)), scores)
            found = gradients(keras, self.generator, g_loss)
            apply(keras, self.g_optimizer, found, self.generator.trainable_weights)
            self.d_tracker.update_state(d_loss)
            self.g_tracker.update_state(g_loss)
            return {"d_loss": self.d_tracker.result(), "g_loss": self.g_tracker.result()}

    discriminator = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.GlobalMaxPooling2D(),
            layers.Dense(1),
        ],
        name="discriminator",
    )
    generator = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(2 * 2 * 6),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Reshape((2, 2, 6)),
            layers.Conv2DTranspose(6, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2DTranspose(1, 4, strides=2, padding="same", activation="sigmoid"),
        ],
        name="generator",
    )
    model = Players(start_from(discriminator, 1), start_from(generator, 2))
    model.compile(
        keras.optimizers.SGD(0.02),
        keras.optimizers.SGD(0.02),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    real, _ = images(42, 48, (8, 8, 1), 4)
    noise = np.random.default_rng(43).standard_normal((48, 6)).astype("float32")
    history = model.fit(noise, real, batch_size=16, epochs=2, shuffle=False, verbose=0)
    return from_history("players", history) | {
        "players: drawn": generator.predict(noise[:2], verbose=0)
    }


def run(keras):
    parts = (by_backward, lower_level, with_weights, own_loss, two_players)
    return {name: value for part in parts for name, value in part(keras).items()}


if __name__ == "__main__":
    main(run)
