"""The smallest network that deserves the name: one convolution, one pooling, one dense layer.

    python examples/simple_cnn.py

It trains with plain stochastic gradient descent and has no biases, so that what remains is easy
to follow: 144 numbers that look at 3x3 pixels, and a table of weights that adds up what they saw.
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
        layers.Conv2D(
            16,
            3,
            padding="same",
            use_bias=False,
            activation="relu",
            # Keras' default starts with smaller weights, and plain SGD takes epochs to grow them.
            kernel_initializer="he_normal",
        ),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(10, use_bias=False),
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
