"""A training loop of one's own: what `fit` does, written out, and as fast once it is compiled.

    python examples/custom_training_loop.py

The ten lines of `train_step` and the loop below take the place of `compile` and `fit`. Whatever
is put into them (another loss, two optimizers, gradients of gradients) is compiled too.
"""

import time

import numpy as np
from common import load_mnist, make_parser, set_up

import kerascnn as keras
from kerascnn import layers, ops

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
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.SGD(learning_rate=0.01)
images, labels = ops.convert_to_tensor(x_train), ops.convert_to_tensor(y_train)  # on the device
rng = np.random.default_rng(args.seed)


@keras.jit
def train_step(images, labels, picked):
    x, y = ops.take(images, picked, axis=0), ops.take(labels, picked, axis=0)
    with keras.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    weights = model.trainable_variables
    optimizer.apply(tape.gradient(loss, weights), weights)
    return loss


for epoch in range(args.epochs):
    start = time.perf_counter()
    order = rng.permutation(len(x_train)).astype("int32")
    batches = [order[i : i + args.batch_size] for i in range(0, len(order), args.batch_size)]
    losses = [train_step(images, labels, picked) for picked in batches]
    mean = np.mean([float(loss) for loss in losses])  # asks the device, so not in the loop
    print(f"Epoch {epoch + 1}: loss {mean:.4f} in {time.perf_counter() - start:.1f} s")

accuracy = (model.predict(x_test, verbose=0).argmax(axis=1) == y_test).mean()
print(f"Test accuracy {accuracy:.4f} after {args.epochs} epochs")
