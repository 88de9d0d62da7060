"""A convolutional network learns the small handwritten digits that ship with kerascnn."""

from guide_tools import from_history, from_logs, main, start_from

from kerascnn.datasets import digits


def run(keras):
    layers = keras.layers
    (x_train, y_train), (x_test, y_test) = digits.load_data()
    # Images are scaled to [0, 1] and get a channel axis; labels become one-hot vectors.
    x_train = x_train[:512, ..., None].astype("float32") / 16
    x_test = x_test[..., None].astype("float32") / 16
    y_train = keras.utils.to_categorical(y_train[:512], 10)
    y_test = keras.utils.to_categorical(y_test, 10)

    model = keras.Sequential(
        [
            keras.Input(shape=(8, 8, 1)),
            layers.Conv2D(16, kernel_size=(3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Conv2D(32, kernel_size=(2, 2), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Flatten(),
            layers.Dropout(0.0),  # The rate is 0, since the libraries draw different numbers.
            layers.Dense(10, activation="softmax"),
        ]
    )
    start_from(model)
    model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
    history = model.fit(
        x_train,
        y_train,
        batch_size=64,
        epochs=3,
        validation_split=0.125,
        shuffle=False,
        verbose=0,
    )
    score = model.evaluate(x_test, y_test, verbose=0)
    numbers = from_history("fit", history)
    numbers |= from_logs("test", {"loss": score[0], "accuracy": score[1]})
    return numbers | {"predictions": model.predict(x_test[:20], verbose=0)}


if __name__ == "__main__":
    main(run)
