"""A trained network gets a new head: first it is frozen, then all of it trains at a low rate."""

import numpy as np
from guide_tools import from_history, from_logs, images, main, start_from


def make_base(keras):
    layers = keras.layers
    inputs = keras.Input((16, 16, 3))
    x = inputs
    for i, filters in enumerate((8, 12)):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"conv_{i}")(x)
        x = layers.BatchNormalization(name=f"norm_{i}")(x)
        x = layers.Activation("relu", name=f"relu_{i}")(x)
        x = layers.MaxPooling2D(name=f"pool_{i}")(x)
    return keras.Model(inputs, x, name="base")


def run(keras):
    layers = keras.layers
    numbers = {}

    # A layer's flag applies to all layers inside it.
    norm = layers.BatchNormalization()
    norm.build((None, 4))
    dense = layers.Dense(3)
    dense.build((None, 4))
    dense.trainable = False
    numbers["trained and not"] = np.array(
        [len(x) for n in (norm, dense) for x in (n.trainable_weights, n.non_trainable_weights)]
    )

    # The first task trains the base.
    base = make_base(keras)
    first = keras.Sequential([base, layers.GlobalAveragePooling2D(), layers.Dense(5)])
    first.build((None, 16, 16, 3))
    start_from(first)
    x, y = images(11, 60, (16, 16, 3), 5)
    first.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    numbers |= from_history("first task", first.fit(x, y, epochs=2, shuffle=False, verbose=0))

    # The second task has a new head.
    base.trainable = False
    inputs = keras.Input((16, 16, 3))
    z = layers.Rescaling(2.0, offset=-0.1)(inputs)
    z = base(z, training=False)
    z = layers.GlobalAveragePooling2D()(z)
    z = layers.Dropout(0.0)(z)
    model = keras.Model(inputs, layers.Dense(1)(z))
    trained = base.get_weights()
    start_from(model, 1)
    base.set_weights(trained)
    numbers["frozen: trained weights"] = len(model.trainable_weights)
    x, y = images(13, 48, (16, 16, 3), 2)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=[keras.metrics.BinaryAccuracy()])
    numbers |= from_history(
        "frozen",
        model.fit(x, y, epochs=3, validation_data=(x[:20], y[:20]), shuffle=False, verbose=0),
    )
    numbers["frozen: change of the base"] = sum(
        np.abs(a - b).max() for a, b in zip(base.get_weights(), trained, strict=True)
    )

    # In Keras 3, `fit` overrides the `training=False` above; in kerascnn it holds. Frozen
    # normalizations keep their statistics in both.
    base.trainable = True
    for layer in base.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.trainable = False
    numbers["tuned: trained weights"] = len(model.trainable_weights)
    model.compile(keras.optimizers.Adam(1e-4), loss, metrics=[keras.metrics.BinaryAccuracy()])
    numbers |= from_history("tuned", model.fit(x, y, epochs=2, shuffle=False, verbose=0))
    for weight, before in zip(base.weights, trained, strict=True):
        change = np.abs(keras.ops.convert_to_numpy(weight) - before).max()
        if "moving" in weight.path:
            numbers[f"tuned: change of {weight.path}"] = change
        elif "kernel" in weight.path:
            numbers[f"tuned: has changed {weight.path}"] = change > 0

    # Half of the base is frozen again.
    for layer in base.layers[:4]:
        layer.trainable = False
    numbers["half: trained weights"] = len(model.trainable_weights)
    model.compile("sgd", loss, metrics=["accuracy"])
    numbers |= from_history("half", model.fit(x, y, epochs=1, shuffle=False, verbose=0))
    numbers |= from_logs("half", model.evaluate(x, y, verbose=0, return_dict=True))
    return numbers | {"predictions": model.predict(x[:8], verbose=0)}


if __name__ == "__main__":
    main(run)
