"""Two convolutions and a hidden dense layer, the shape of most beginners' image classifiers.

python examples/two_conv_cnn.py
"""

import time

from common import load_mnist, make_parser, set_up

import kerascnn as keras
from kerascnn import layers

args = make_parser(__doc__.splitlines()[0], batch_size=64).parse_args()
set_up(args)
(x_train, y_train), (x_test, y_test) = load_mnist(args.data)

model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        layers.Rescaling(1 / 255),
        layers.Conv2D(32, 3, padding="same", activation="relu", kernel_initializer="he_normal"),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, padding="same", activation="relu", kernel_initializer="he_normal"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(128, activation="relu"),
        layers.Dense(10),
    ]
)
model.summary()

# The last layer gives scores, not probabilities: the loss applies the softmax itself.
model.compile(
    optimizer=keras.optimizers.SGD(learning_rate=0.01),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
start = time.perf_counter()
history = model.fit(x_train, y_train, batch_size=args.batch_size, epochs=args.epochs)
seconds = time.perf_counter() - start

test_loss, test_accuracy = model.evaluate(x_test, y_test, verbose=0)
print(f"Test accuracy {test_accuracy:.4f} after {len(history.epoch)} epochs in {seconds:.1f} s")
