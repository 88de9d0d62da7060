"""A small network in the style of Xception learns to tell two kinds of images apart."""

import numpy as np
from guide_tools import from_history, images, main, start_from


def make_model(keras, input_shape, num_classes):
    layers = keras.layers
    inputs = keras.Input(shape=input_shape)
    # Layers before a normalization have no biases: their gradients would be only rounding, which
    # Adam turns into full steps. The random layers have ranges of one value, so that both libraries
    # move all images alike.
    x = layers.RandomRotation((0.02, 0.02), fill_mode="constant")(inputs)
    x = layers.RandomTranslation((0.05, 0.05), (0.0, 0.0), fill_mode="constant")(x)
    x = layers.Rescaling(1.0 / 255)(x)
    x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    previous = x
    for size in (12, 16):
        x = layers.Activation("relu")(x)
        x = layers.SeparableConv2D(size, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)
        x = layers.Activation("relu")(x)
        x = layers.SeparableConv2D(size, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        projected = layers.Conv2D(size, 1, strides=2, padding="same")(previous)
        x = layers.add([x, projected])
        previous = x
    x = layers.SeparableConv2D(24, 3, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.0)(x)
    units = 1 if num_classes == 2 else num_classes
    return keras.Model(inputs, layers.Dense(units, activation=None)(x))


def run(keras):
    x, y = images(21, 48, (32, 32, 3), 2)
    x = np.clip(127 + 60 * x, 0, 255).astype("uint8")
    model = start_from(make_model(keras, (32, 32, 3), 2))
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.BinaryAccuracy(name="acc")],
    )
    history = model.fit(
        x[:32],
        y[:32],
        batch_size=16,
        epochs=3,
        validation_data=(x[32:], y[32:]),
        shuffle=False,
        verbose=0,
    )
    numbers = from_history("fit", history)
    scores = model.predict(x[32:36], verbose=0)
    numbers["scores"] = keras.ops.convert_to_numpy(keras.ops.sigmoid(scores))
    return numbers | {"parameters": model.count_params()}


if __name__ == "__main__":
    main(run)
