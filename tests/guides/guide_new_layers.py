"""Custom layers: weights, state, nested layers, losses, `training`, configurations."""

import numpy as np
from guide_tools import from_history, images, main, start_from


def array(keras, value):
    return keras.ops.convert_to_numpy(value)


def weights_and_state(keras):
    ops, layers = keras.ops, keras.layers

    class Linear(layers.Layer):
        def __init__(self, units=32, **kwargs):
            super().__init__(**kwargs)
            self.units = units

        def build(self, input_shape):
            self.w = self.add_weight(
                shape=(input_shape[-1], self.units), initializer="random_normal", name="w"
            )
            self.b = self.add_weight(shape=(self.units,), initializer="ones", name="b")

        def call(self, inputs):
            return ops.matmul(inputs, self.w) + self.b

        def get_config(self):
            return {**super().get_config(), "units": self.units}

    class ComputeSum(layers.Layer):
        def __init__(self, input_dim):
            super().__init__()
            self.total = self.add_weight(initializer="zeros", shape=(input_dim,), trainable=False)

        def call(self, inputs):
            self.total.assign_add(ops.sum(inputs, axis=0))
            return self.total

    numbers = {}
    x = np.linspace(-1, 1, 8).reshape(2, 4).astype("float32")
    linear = Linear(3)
    numbers["weights before a call"] = len(linear.weights)
    linear(x)
    start_from(linear)
    numbers["linear"] = array(keras, linear(x))
    again = Linear.from_config(linear.get_config())
    again.build((None, 4))
    again.set_weights(linear.get_weights())
    numbers["linear again"] = array(keras, again(x))
    numbers["units"] = again.get_config()["units"]

    summing = ComputeSum(4)
    for i in range(2):
        numbers[f"sum {i}"] = array(keras, summing(x + i)).copy()
    numbers["kinds of weights"] = np.array(
        [len(w) for w in (summing.weights, summing.trainable_weights, linear.trainable_weights)]
    )

    class MLPBlock(layers.Layer):
        def __init__(self):
            super().__init__()
            self.steps = [Linear(5), Linear(6), Linear(1)]

        def call(self, inputs):
            x = inputs
            for step in self.steps[:-1]:
                x = keras.activations.relu(step(x))
            return self.steps[-1](x)

    block = MLPBlock()
    block(np.ones((3, 4), "float32"))
    start_from(block)
    numbers["block"] = array(keras, block(x))
    numbers["block: weights"] = len(block.trainable_weights)
    block.steps[0].trainable = False
    numbers["block: weights with a frozen part"] = len(block.trainable_weights)
    return numbers


def losses(keras):
    """Losses that a layer adds in a call belong to that call only."""
    layers, ops = keras.layers, keras.ops

    class Penalty(layers.Layer):
        def __init__(self, rate=1e-2, **kwargs):
            super().__init__(**kwargs)
            self.rate = rate

        def call(self, inputs):
            self.add_loss(self.rate * ops.mean(inputs))
            return inputs

    class Outer(layers.Layer):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(
                4, kernel_regularizer=keras.regularizers.L2(1e-2), activity_regularizer="l1"
            )
            self.penalty = Penalty(0.5)

        def call(self, inputs):
            return self.penalty(self.dense(inputs))

    numbers = {}
    x = np.linspace(-1, 2, 12).reshape(3, 4).astype("float32")
    outer = Outer()
    outer(x)
    start_from(outer)
    for i in range(2):
        outer(x + i)
        numbers[f"losses {i}"] = np.sort([float(array(keras, loss)) for loss in outer.losses])

    inputs = keras.Input((4,))
    model = start_from(keras.Model(inputs, layers.Dense(1)(Outer()(inputs))), 1)
    model.compile("adam", "mse")
    y = np.array([[0.0], [1.0], [0.5]], "float32")
    return numbers | from_history("losses", model.fit(x, y, epochs=3, shuffle=False, verbose=0))


def privileged_arguments(keras):
    layers = keras.layers

    class Shift(layers.Layer):
        """Shifts its inputs in training only, and counts how often it does."""

        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.calls = self.add_weight(
                shape=(), initializer="zeros", trainable=False, name="calls"
            )

        def call(self, inputs, training=None):
            if training:
                self.calls.assign(self.calls + 1.0)
                return inputs + 1.0
            return inputs

    class Pair(layers.Layer):
        """Takes two inputs, the second one optional, and passes `training` to a layer inside."""

        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.shift = Shift()
            self.dense = layers.Dense(2)

        def build(self, input_shape):
            self.dense.build(input_shape)
            self.built = True

        def call(self, x, extra=None):
            x = self.dense(self.shift(x))
            return x if extra is None else x + extra

    numbers = {}
    x = np.arange(6, dtype="float32").reshape(2, 3)
    pair = Pair()
    pair(x)
    start_from(pair)
    numbers["inference"] = array(keras, pair(x))
    numbers["training"] = array(keras, pair(x, training=True))
    numbers["extra"] = array(keras, pair(x, extra=np.ones((2, 2), "float32")))

    a, b = keras.Input((3,)), keras.Input((2,))
    model = start_from(keras.Model([a, b], Pair(name="pair")(a, extra=b)))
    model.compile("sgd", "mse")
    y = np.zeros((2, 2), "float32")
    data = [x, np.ones((2, 2), "float32")]
    history = model.fit(data, y, epochs=2, batch_size=1, shuffle=False, verbose=0)
    numbers |= from_history("training", history)
    numbers["predicted"] = model.predict(data, verbose=0)
    numbers["calls"] = array(keras, model.get_layer("pair").shift.calls)
    return numbers


def autoencoder(keras):
    """Trains a variational autoencoder of nested layers without its noise."""
    layers, ops = keras.layers, keras.ops

    class Sampling(layers.Layer):
        def call(self, inputs):
            mean, log_var = inputs
            return mean + ops.exp(0.5 * log_var) * ops.zeros_like(mean)

    class Encoder(layers.Layer):
        def __init__(self, latent_dim=4, intermediate_dim=12, name="encoder", **kwargs):
            super().__init__(name=name, **kwargs)
            self.proj = layers.Dense(intermediate_dim, activation="relu")
            self.mean = layers.Dense(latent_dim)
            self.log_var = layers.Dense(latent_dim)
            self.sampling = Sampling()

        def call(self, inputs):
            x = self.proj(inputs)
            mean, log_var = self.mean(x), self.log_var(x)
            return mean, log_var, self.sampling((mean, log_var))

    class Decoder(layers.Layer):
        def __init__(self, original_dim, intermediate_dim=12, name="decoder", **kwargs):
            super().__init__(name=name, **kwargs)
            self.proj = layers.Dense(intermediate_dim, activation="relu")
            self.out = layers.Dense(original_dim, activation="sigmoid")

        def call(self, inputs):
            return self.out(self.proj(inputs))

    class Autoencoder(keras.Model):
        def __init__(self, original_dim, name="autoencoder", **kwargs):
            super().__init__(name=name, **kwargs)
            self.encoder = Encoder()
            self.decoder = Decoder(original_dim)

        def call(self, inputs):
            mean, log_var, z = self.encoder(inputs)
            kl = -0.5 * ops.mean(log_var - ops.square(mean) - ops.exp(log_var) + 1)
            self.add_loss(kl)
            return self.decoder(z)

    x, _ = images(51, 64, (6, 6, 1), 3)
    x = np.clip(x.reshape(64, 36), 0, 1)
    model = Autoencoder(36)
    model(x[:1])
    start_from(model)
    model.compile(keras.optimizers.Adam(1e-3), loss=keras.losses.MeanSquaredError())
    history = model.fit(x, x, epochs=2, batch_size=16, shuffle=False, verbose=0)
    return from_history("autoencoder", history) | {
        "autoencoder: evaluated": model.evaluate(x, x, verbose=0),
        "autoencoder: drawn": model.predict(x[:2], verbose=0),
        "autoencoder: weights": len(model.weights),
    }


def run(keras):
    parts = (weights_and_state, losses, privileged_arguments, autoencoder)
    return {name: value for part in parts for name, value in part(keras).items()}


if __name__ == "__main__":
    main(run)
