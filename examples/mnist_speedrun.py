"""How soon a network reaches 99% on MNIST's test images: the time of plain `model.fit`, many times.

    python examples/mnist_speedrun.py --data FOLDER --seeds 20

The clock runs from the first step to the last, while nothing but training happens: the step was
compiled before, by a training that is thrown away, and the images are on the device. The test
images are looked at once, after each training.
"""

import time

from common import (
    FreshStart,
    accuracy_of,
    load_mnist,
    make_speedrun_parser,
    parse_speedrun_arguments,
    report,
)

import kerascnn as keras
from kerascnn import layers

# Divides 60,000, so that no epoch ends with a shorter batch.
BATCH_SIZE = 240
EPOCHS = 2
LEARNING_RATE = 0.2


def build(steps):
    """A small network in the manner of LeNet, whose learning rate rises and falls once."""
    more = {"activation": "relu", "kernel_initializer": "he_normal"}
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(16, 5, **more),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 5, **more),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(256, **more),
            layers.Dense(10, activation="softmax"),
        ]
    )
    rise = steps // 5
    rate = keras.optimizers.schedules.CosineDecay(
        LEARNING_RATE / 10, steps - rise, warmup_target=LEARNING_RATE, warmup_steps=rise
    )
    model.compile(
        keras.optimizers.SGD(rate, momentum=0.9, nesterov=True),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


class Clock(keras.callbacks.Callback):
    """Seconds from the first step of a training to the end of its last."""

    def on_train_begin(self, logs=None):
        self._start = time.perf_counter()

    def on_train_end(self, logs=None):
        self.seconds = time.perf_counter() - self._start


args = parse_speedrun_arguments(
    make_speedrun_parser(__doc__.splitlines()[0], batch_size=BATCH_SIZE, epochs=EPOCHS)
)
(x_train, y_train), (x_test, y_test) = load_mnist(args.data)
steps = args.epochs * -(-len(x_train) // args.batch_size)
model = build(steps)
start_again = FreshStart(model, lambda: build(steps))


def train(seed):
    """Trains from new weights; accuracy on the test images, and seconds."""
    start_again(seed)
    clock = Clock()
    model.fit(
        x_train,
        y_train,
        batch_size=args.batch_size,
        epochs=args.epochs,
        verbose=0,
        callbacks=[clock],
    )
    return accuracy_of(model.predict(x_test, batch_size=1000, verbose=0), y_test), clock.seconds


for _ in range(2):  # the second one finds everything where it will be
    train(args.seed)
results = [train(args.seed + 1 + i) for i in range(args.seeds)]
accuracies, times = zip(*results, strict=True)
report(args, accuracies, times, wanted=0.99)
