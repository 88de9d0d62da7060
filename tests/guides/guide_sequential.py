"""Stacks of layers: building, adding and removing layers, extracting features, freezing."""

import numpy as np
from guide_tools import from_history, from_logs, images, main, start_from


def run(keras):
    layers = keras.layers
    numbers = {}
    x, y = images(1, 48, (16, 16, 3), 4)

    # A stack without an input has no weights until it sees data.
    late = keras.Sequential(name="late")
    late.add(layers.Dense(8, activation="relu", name="first"))
    late.add(layers.Dense(3, name="second"))
    numbers["weights before data"] = len(late.layers[0].weights)
    late(np.ones((2, 5), "float32"))
    start_from(late)
    late.pop()
    late.add(layers.Dense(2, activation="softmax", name="other"))
    late(np.ones((2, 5), "float32"))
    start_from(late)
    numbers["late: layers"] = len(late.layers)
    numbers["late: parameters"] = late.count_params()
    numbers["late"] = late.predict(np.linspace(-1, 1, 15).reshape(3, 5), verbose=0)

    # With an input the shapes are known as the stack grows.
    model = keras.Sequential([keras.Input((16, 16, 3))], name="images")
    model.add(layers.Conv2D(8, 5, strides=2, activation="relu"))
    numbers["height after one layer"] = model.output_shape[1]
    model.add(layers.Conv2D(8, 3, activation="relu", name="features"))
    model.add(layers.GlobalMaxPooling2D())
    model.add(layers.Dense(4))
    start_from(model)

    # The extractor returns the output of every layer, for the current weights.
    extractor = keras.Model(model.inputs, [layer.output for layer in model.layers])
    for i, feature in enumerate(extractor.predict(x[:4], verbose=0)):
        numbers[f"features {i}"] = feature

    model.compile(
        keras.optimizers.SGD(0.02, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    numbers |= from_history(
        "fit", model.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0)
    )

    # All layers but the last are frozen; then the trained layers get a new head.
    for layer in model.layers[:-1]:
        layer.trainable = False
    model.compile(
        "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    numbers["trained weights"] = len(model.trainable_weights)
    before = model.get_layer("features").get_weights()[0]
    numbers |= from_history("frozen", model.fit(x, y, epochs=2, shuffle=False, verbose=0))
    numbers["change of frozen weights"] = np.abs(
        model.get_layer("features").get_weights()[0] - before
    ).max()
    front = keras.Model(model.inputs, model.get_layer("features").output)
    stacked = keras.Sequential([front, layers.Flatten(), layers.Dense(1)])
    stacked.build((None, 16, 16, 3))
    start_from(stacked, 2)
    stacked.compile("rmsprop", "mse")
    numbers |= from_logs(
        "stacked", stacked.evaluate(x, y.astype("float32"), verbose=0, return_dict=True)
    ) | {"stacked": stacked.predict(x[:5], verbose=0)}
    return numbers


if __name__ == "__main__":
    main(run)
