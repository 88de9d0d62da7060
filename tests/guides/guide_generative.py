"""Models whose steps are more than a loss of one network: diffusion, a critic, triplets.

A network that removes noise is trained beside a copy that follows its weights slowly and draws
images in `test_step`. A critic is held to slopes of 1, which takes gradients of gradients. Three
inputs share one embedding, and a layer of several arguments gives their distances. Noise comes with
the data, so that both libraries see the same.
"""

import math

import numpy as np
from guide_tools import from_history, from_logs, images, main, start_from
from guide_train_step import apply, gradients

SIZE, EMBEDDED, EMA = 8, 8, 0.9
SIGNAL = (0.95, 0.3)


def sinusoids(keras):
    ops = keras.ops

    class Sinusoids(keras.layers.Layer):
        def call(self, x):
            frequencies = ops.exp(ops.linspace(ops.log(1.0), ops.log(100.0), EMBEDDED // 2))
            angles = ops.cast(2.0 * math.pi * frequencies, "float32") * x
            return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=3)

    return Sinusoids()


def unet(keras):
    layers = keras.layers

    def block(x, width):
        short = x if x.shape[3] == width else layers.Conv2D(width, 1)(x)
        x = layers.BatchNormalization(center=False, scale=False)(x)
        x = layers.Conv2D(width, 3, padding="same", activation="swish")(x)
        x = layers.Conv2D(width, 3, padding="same")(x)
        return layers.Add()([x, short])

    noisy = keras.Input((SIZE, SIZE, 1))
    variance = keras.Input((1, 1, 1))
    code = layers.UpSampling2D(SIZE, interpolation="nearest")(sinusoids(keras)(variance))
    x = layers.Concatenate()([layers.Conv2D(6, 1)(noisy), code])
    skips = []
    for width in (6, 8):
        x = block(x, width)
        skips.append(x)
        x = layers.AveragePooling2D(2)(x)
    x = block(x, 10)
    for width in (8, 6):
        x = layers.UpSampling2D(2, interpolation="bilinear")(x)
        x = block(layers.Concatenate()([x, skips.pop()]), width)
    return keras.Model([noisy, variance], layers.Conv2D(1, 1)(x), name="unet")


def diffusion(keras):
    ops = keras.ops

    class Spread(keras.metrics.Metric):
        """A metric that keeps another one."""

        def __init__(self, name="spread"):
            super().__init__(name=name)
            self.mean = keras.metrics.Mean(name="mean")

        def update_state(self, drawn, sample_weight=None):
            self.mean.update_state(ops.std(drawn, axis=(1, 2, 3)))

        def result(self):
            return self.mean.result()

        def reset_state(self):
            self.mean.reset_state()

    class Diffusion(keras.Model):
        def __init__(self):
            super().__init__()
            self.normalizer = keras.layers.Normalization(axis=None)
            self.network = start_from(unet(keras), 1)
            self.slow_network = keras.models.clone_model(self.network)
            self.slow_network.set_weights(self.network.get_weights())
            self.built = True

        def compile(self, optimizer, loss_fn):
            super().compile(optimizer=optimizer)
            self.loss_fn = loss_fn
            self.noise_loss = keras.metrics.Mean(name="n_loss")
            self.image_loss = keras.metrics.Mean(name="i_loss")
            self.spread = Spread()

        @property
        def metrics(self):
            return [self.noise_loss, self.image_loss, self.spread]

        def rates(self, times):
            first, last = (ops.cast(ops.arccos(rate), "float32") for rate in SIGNAL)
            angles = first + times * (last - first)
            return ops.sin(angles), ops.cos(angles)

        def denoise(self, noisy, noise_rates, signal_rates, training):
            network = self.network if training else self.slow_network
            noises = network([noisy, noise_rates**2], training=training)
            return noises, (noisy - noise_rates * noises) / signal_rates

        def losses_of(self, data, training):
            drawn, noises, times = data
            drawn = self.normalizer(drawn)
            noise_rates, signal_rates = self.rates(times)
            noisy = signal_rates * drawn + noise_rates * noises
            found_noises, found = self.denoise(noisy, noise_rates, signal_rates, training)
            noise_loss = self.loss_fn(noises, found_noises)
            self.noise_loss.update_state(noise_loss)
            self.image_loss.update_state(self.loss_fn(drawn, found))
            return noise_loss

        def train_step(self, data):
            loss = self.losses_of(data[0], training=True)
            weights = self.network.trainable_weights
            apply(keras, self.optimizer, gradients(keras, self.network, loss), weights)
            for weight, slow in zip(self.network.weights, self.slow_network.weights, strict=True):
                slow.assign(EMA * slow + (1 - EMA) * weight)
            return {metric.name: metric.result() for metric in self.metrics[:-1]}

        def test_step(self, data):
            self.losses_of(data[0], training=False)
            self.spread.update_state(self.draw(data[0][1], steps=3))
            return {metric.name: metric.result() for metric in self.metrics}

        def draw(self, noise, steps):
            noisy, step = noise, 1.0 / steps
            for i in range(steps):
                times = ops.ones((noise.shape[0], 1, 1, 1)) - i * step
                noises, found = self.denoise(noisy, *self.rates(times), training=False)
                noise_rates, signal_rates = self.rates(times - step)
                noisy = signal_rates * found + noise_rates * noises
            deviation = self.normalizer.variance**0.5
            return ops.clip(self.normalizer.mean + found * deviation, -9.0, 9.0)

    rng = np.random.default_rng(71)
    x, _ = images(72, 24, (SIZE, SIZE, 1), 4)
    noise = rng.standard_normal(x.shape).astype("float32")
    times = rng.random((24, 1, 1, 1), dtype="float32")
    model = Diffusion()
    model.normalizer.adapt(x)
    model.compile(keras.optimizers.SGD(0.01), keras.losses.MeanAbsoluteError())
    history = model.fit((x, noise, times), batch_size=8, epochs=2, shuffle=False, verbose=0)
    logs = model.evaluate((x, noise, times), batch_size=8, verbose=0, return_dict=True)
    first = keras.ops.convert_to_tensor(noise[:2])
    drawn = keras.ops.convert_to_numpy(model.draw(first, steps=2))
    return (
        from_history("diffusion", history)
        | from_logs("diffusion: evaluated", logs)
        | {"diffusion: drawn": drawn}
    )


def slopes(keras, critic, x):
    """The norms of a critic's gradients by its inputs, which can be differentiated themselves."""
    if hasattr(keras, "GradientTape"):
        with keras.GradientTape() as tape:
            tape.watch(x)
            scores = critic(x, training=True)
        found = tape.gradient(scores, x)
    else:
        import torch

        x = x.detach().requires_grad_()
        (found,) = torch.autograd.grad(critic(x, training=True).sum(), x, create_graph=True)
    return keras.ops.sqrt(keras.ops.sum(found**2, axis=(1, 2, 3)))


def penalty(keras):
    layers, ops = keras.layers, keras.ops

    class Critic(keras.Model):
        def __init__(self, critic):
            super().__init__()
            self.critic = critic
            self.built = True

        def train_step(self, data):
            real, fake, place = data[0]
            mixed = real + place * (fake - real)
            excess = ops.mean((slopes(keras, self.critic, mixed) - 1.0) ** 2)
            scores = self.critic(fake, training=True) - self.critic(real, training=True)
            loss = ops.mean(scores) + 10.0 * excess
            weights = self.critic.trainable_weights
            apply(keras, self.optimizer, gradients(keras, self.critic, loss), weights)
            return {"loss": loss, "penalty": excess}

    critic = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 1)),
            layers.Conv2D(4, 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(6, 3, strides=2, padding="same", activation="tanh"),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    model = Critic(start_from(critic, 3))
    model.compile(optimizer=keras.optimizers.SGD(0.01))
    real, _ = images(73, 24, (SIZE, SIZE, 1), 4)
    rng = np.random.default_rng(74)
    fake = rng.standard_normal(real.shape).astype("float32")
    place = rng.random((24, 1, 1, 1), dtype="float32")
    history = model.fit((real, fake, place), batch_size=8, epochs=2, shuffle=False, verbose=0)
    return from_history("penalty", history) | {
        "penalty: scores": critic.predict(real[:4], verbose=0)
    }


def triplets(keras):
    layers, ops = keras.layers, keras.ops

    class Distances(layers.Layer):
        def call(self, anchor, positive, negative):
            return (
                ops.sum(ops.square(anchor - positive), -1),
                ops.sum(ops.square(anchor - negative), -1),
            )

    class Siamese(keras.Model):
        def __init__(self, network, margin=2.0):
            super().__init__()
            self.network, self.margin = network, margin
            self.tracker = keras.metrics.Mean(name="loss")

        def call(self, inputs):
            return self.network(inputs)

        def hinge(self, data):
            near, far = self.network(data)
            return ops.mean(ops.maximum(near - far + self.margin, 0.0))

        def train_step(self, data):
            loss = self.hinge(data[0])
            weights = self.network.trainable_weights
            apply(keras, self.optimizer, gradients(keras, self.network, loss), weights)
            self.tracker.update_state(loss)
            return {"loss": self.tracker.result()}

        def test_step(self, data):
            self.tracker.update_state(self.hinge(data[0]))
            return {"loss": self.tracker.result()}

        @property
        def metrics(self):
            return [self.tracker]

    base = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 1)),
            layers.Conv2D(4, 3, activation="tanh", name="frozen"),
            layers.Conv2D(6, 3, activation="tanh"),
        ],
        name="base",
    )
    base.get_layer("frozen").trainable = False
    x = layers.Flatten()(base.outputs[0])
    x = layers.BatchNormalization()(layers.Dense(12, activation="relu")(x))
    embedding = start_from(keras.Model(base.inputs, layers.Dense(6)(x), name="embedding"), 5)
    inputs = [keras.Input((SIZE, SIZE, 1), name=f"{name}_image") for name in ("a", "p", "n")]
    network = keras.Model(inputs, Distances()(*(embedding(image) for image in inputs)))
    model = Siamese(network)
    model.compile(optimizer=keras.optimizers.SGD(0.005))
    x, y = images(75, 48, (SIZE, SIZE, 1), 2)
    ones, others = x[y == 0][:16], x[y == 1][:16]
    data = (ones, np.roll(ones, 1, axis=0), others)
    history = model.fit(data, batch_size=8, epochs=2, shuffle=False, verbose=0)
    loss = model.evaluate(data, batch_size=8, verbose=0)
    return from_history("triplets", history) | {
        "triplets: evaluated": loss,
        "triplets: embedded": embedding.predict(ones[:3], verbose=0),
    }


def run(keras):
    parts = (diffusion, penalty, triplets)
    return {name: value for part in parts for name, value in part(keras).items()}


if __name__ == "__main__":
    main(run)
