"""Recognizes handwritten digits with a convolutional network: the place to start.

    python examples/mnist_cnn.py

Without MNIST and without network it trains on the 8x8 digits that ship with the package.
"""

import time

from common import find_mnist, make_parser, set_up, with_channels

import kerascnn as keras
from kerascnn import layers


def mnist_model():
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )


def digits_model():
    """The same network for 8x8 images: padded, because two unpadded ones would leave nothing."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Rescaling(1 / 16),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )


def load_and_build(args):
    mnist = find_mnist(args.data)
    if mnist is not None:
        return *mnist, mnist_model()
    print("Training on the shipped 8x8 digits instead: 1,500 images and 10 times the epochs.")
    args.epochs *= 10
    return *with_channels(keras.datasets.digits.load_data()), digits_model()


args = make_parser(__doc__.splitlines()[0], batch_size=128).parse_args()
set_up(args)
(x_train, y_train), (x_test, y_test), model = load_and_build(args)
model.summary()

model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
start = time.perf_counter()
history = model.fit(
    x_train, y_train, batch_size=args.batch_size, epochs=args.epochs, validation_split=0.1
)
seconds = time.perf_counter() - start

test_loss, test_accuracy = model.evaluate(x_test, y_test, verbose=0)
print(f"Test accuracy {test_accuracy:.4f} after {len(history.epoch)} epochs in {seconds:.1f} s")
