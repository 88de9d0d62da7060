"""LeNet, the classic of 1998, with a choice of activation and pooling.

    python examples/lenet.py --activation tanh --pooling average

Source: Y. LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998.
Sigmoids flatten gradients: with them try --learning-rate 0.5.
"""

import time

from common import load_mnist, make_parser, set_up

import kerascnn as keras
from kerascnn import layers

ACTIVATIONS = ["relu", "sigmoid", "tanh", "clipped_relu", "elu"]
POOLINGS = {"max": layers.MaxPooling2D, "average": layers.AveragePooling2D}


def activation(name):
    if name == "clipped_relu":
        return layers.ReLU(max_value=6.0)
    return layers.Activation(name)


def lenet(activation_name, pooling_name):
    pooling = POOLINGS[pooling_name]
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(6, 5),
            activation(activation_name),
            pooling(2),
            layers.Conv2D(16, 5),
            activation(activation_name),
            pooling(2),
            layers.Flatten(),
            layers.Dense(120),
            activation(activation_name),
            layers.Dense(10),
        ]
    )


parser = make_parser(__doc__.splitlines()[0], batch_size=64)
parser.add_argument("--activation", choices=ACTIVATIONS, default="relu", help="default relu")
parser.add_argument("--pooling", choices=list(POOLINGS), default="max", help="default max")
parser.add_argument("--learning-rate", type=float, default=0.01, help="default 0.01")
args = parser.parse_args()
set_up(args)
(x_train, y_train), (x_test, y_test) = load_mnist(args.data)

model = lenet(args.activation, args.pooling)
model.summary()

# The last layer gives scores, not probabilities: the loss applies the softmax itself.
model.compile(
    optimizer=keras.optimizers.SGD(learning_rate=args.learning_rate),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
start = time.perf_counter()
history = model.fit(x_train, y_train, batch_size=args.batch_size, epochs=args.epochs)
seconds = time.perf_counter() - start

test_loss, test_accuracy = model.evaluate(x_test, y_test, verbose=0)
print(f"Test accuracy {test_accuracy:.4f} after {len(history.epoch)} epochs in {seconds:.1f} s")
