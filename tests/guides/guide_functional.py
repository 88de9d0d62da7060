"""Graphs of layers: a residual network, an autoencoder, ensembles, several inputs and outputs."""

import numpy as np
from guide_tools import from_history, from_logs, images, main, start_from


def residual_network(keras):
    layers = keras.layers
    inputs = keras.Input((32, 32, 3), name="image")
    x = layers.Conv2D(8, 3, activation="relu")(inputs)
    x = layers.Conv2D(16, 3, activation="relu")(x)
    block = layers.MaxPooling2D(3)(x)
    for i in range(2):
        x = layers.Conv2D(16, 3, activation="relu", padding="same")(block)
        x = layers.Conv2D(16, 3, activation="relu", padding="same")(x)
        block = layers.add([x, block], name=f"block_{i}")
    x = layers.Conv2D(16, 3, activation="relu")(block)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(32, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(10)(layers.Dropout(0.0)(x)), name="residual")


def residual(keras):
    x, y = images(2, 48, (32, 32, 3), 10)
    model = start_from(residual_network(keras))
    model.compile(
        optimizer=keras.optimizers.RMSprop(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["acc"],
    )
    history = model.fit(
        x, y, batch_size=16, epochs=2, validation_split=0.25, shuffle=False, verbose=0
    )
    numbers = from_history("residual", history)
    numbers |= from_logs("residual", model.evaluate(x, y, verbose=0, return_dict=True))
    numbers["residual: parameters"] = model.count_params()
    middle = keras.Model(model.inputs, model.get_layer("block_0").output)
    return numbers | {"residual: middle": middle.predict(x[:2], verbose=0)}


def autoencoder(keras):
    """Two models share a graph. Later, models are called like layers."""
    layers = keras.layers
    encoder_input = keras.Input((12, 12, 1), name="img")
    x = layers.Conv2D(4, 3, activation="relu")(encoder_input)
    x = layers.Conv2D(8, 3, activation="relu")(x)
    x = layers.MaxPooling2D(2)(x)
    encoder = keras.Model(encoder_input, layers.GlobalMaxPooling2D()(x), name="encoder")

    decoder_input = keras.Input((8,), name="encoded_img")
    x = layers.Reshape((2, 2, 2))(decoder_input)
    x = layers.Conv2DTranspose(8, 3, activation="relu")(x)
    x = layers.UpSampling2D(2)(x)
    x = layers.Conv2DTranspose(4, 3, activation="relu")(x)
    decoder = keras.Model(
        decoder_input, layers.Conv2DTranspose(1, 3, activation="relu")(x), name="decoder"
    )

    whole_input = keras.Input((12, 12, 1))
    whole = keras.Model(whole_input, decoder(encoder(whole_input)), name="autoencoder")
    start_from(whole)
    x, _ = images(3, 32, (12, 12, 1), 3)
    whole.compile(keras.optimizers.Adam(0.005), "mse", metrics=["mae"])
    numbers = from_history("autoencoder", whole.fit(x, x, epochs=3, shuffle=False, verbose=0))
    # The parts share the weights of the whole model, which was trained.
    numbers["decoded"] = decoder.predict(encoder.predict(x[:3], verbose=0), verbose=0)
    numbers["whole"] = whole.predict(x[:3], verbose=0)
    return numbers


def ensemble(keras):
    def one(name):
        inputs = keras.Input((6,))
        return keras.Model(inputs, keras.layers.Dense(1)(inputs), name=name)

    models = [one(f"model_{i}") for i in range(3)]
    inputs = keras.Input((6,))
    mean = keras.layers.average([model(inputs) for model in models])
    together = start_from(keras.Model(inputs, mean))
    x = np.random.default_rng(4).standard_normal((5, 6)).astype("float32")
    return {
        "ensemble": together.predict(x, verbose=0),
        "one of it": models[1].predict(x, verbose=0),
    }


def several(keras):
    """One shared layer reads the images of two cameras; the two outputs have names."""
    layers = keras.layers
    left, right = keras.Input((8, 8, 1), name="left"), keras.Input((8, 8, 1), name="right")
    facts = keras.Input((5,), name="facts")
    look = layers.Conv2D(4, 3, activation="tanh", name="look")
    seen = [layers.Flatten()(look(picture)) for picture in (left, right)]
    x = layers.concatenate([*seen, facts])
    priority = layers.Dense(1, name="priority")(x)
    department = layers.Dense(3, name="department")(x)
    model = keras.Model([left, right, facts], {"priority": priority, "department": department})
    start_from(model)
    model.compile(
        optimizer=keras.optimizers.RMSprop(1e-3),
        loss={
            "priority": keras.losses.BinaryCrossentropy(from_logits=True),
            "department": keras.losses.CategoricalCrossentropy(from_logits=True),
        },
        loss_weights={"priority": 1.0, "department": 0.2},
    )
    rng = np.random.default_rng(5)
    a, labels = images(6, 40, (8, 8, 1), 3)
    data = {"left": a, "right": a[::-1].copy(), "facts": rng.standard_normal((40, 5))}
    targets = {
        "priority": rng.integers(0, 2, (40, 1)).astype("float32"),
        "department": keras.utils.to_categorical(labels, 3),
    }
    history = model.fit(data, targets, epochs=2, batch_size=16, shuffle=False, verbose=0)
    predictions = model.predict(data, verbose=0)
    numbers = from_history("several", history) | {
        f"several: {k}": v for k, v in sorted(predictions.items())
    }
    return numbers | {"weights with a shared layer": len(model.weights)}


def own_layer(keras):
    """A custom layer survives the round trip through a configuration."""

    class CustomDense(keras.layers.Layer):
        def __init__(self, units=32, **kwargs):
            super().__init__(**kwargs)
            self.units = units

        def build(self, input_shape):
            self.w = self.add_weight(
                shape=(input_shape[-1], self.units),
                initializer="random_normal",
                trainable=True,
            )
            self.b = self.add_weight(
                shape=(self.units,), initializer="random_normal", trainable=True
            )

        def call(self, inputs):
            return keras.ops.matmul(inputs, self.w) + self.b

        def get_config(self):
            return {**super().get_config(), "units": self.units}

    inputs = keras.Input((4,))
    model = keras.Model(inputs, CustomDense(10)(inputs))
    kernel = np.random.default_rng(7).standard_normal((4, 10)).astype("float32")
    again = keras.Model.from_config(model.get_config(), custom_objects={"CustomDense": CustomDense})
    again.set_weights([kernel, np.arange(10, dtype="float32")])
    return {"own layer": again.predict(np.ones((2, 4), "float32"), verbose=0)}


def run(keras):
    parts = (residual, autoencoder, ensemble, several, own_layer)
    return {name: value for part in parts for name, value in part(keras).items()}


if __name__ == "__main__":
    main(run)
