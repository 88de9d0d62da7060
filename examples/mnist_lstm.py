"""Reads handwritten digits row by row, as a sequence of 28 rows of 28 pixels, with an LSTM.

    python examples/mnist_lstm.py --cell gru --bidirectional

What the layer has seen of an image is in its state, from which the last row's output is taken.
"""

import time

from common import load_mnist, make_parser, set_up

import kerascnn as keras
from kerascnn import layers

CELLS = {"lstm": layers.LSTM, "gru": layers.GRU, "simple": layers.SimpleRNN}

parser = make_parser(__doc__.splitlines()[0], batch_size=64)
parser.add_argument("--cell", choices=list(CELLS), default="lstm", help="default lstm")
parser.add_argument("--units", type=int, default=128, help="size of the state; default 128")
parser.add_argument("--bidirectional", action="store_true", help="also from the last row up")
args = parser.parse_args()
set_up(args)
(x_train, y_train), (x_test, y_test) = load_mnist(args.data)

reader = CELLS[args.cell](args.units)
model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        layers.Rescaling(1 / 255),
        layers.Reshape((28, 28)),  # rows are time steps, the pixels of a row its features
        layers.Bidirectional(reader) if args.bidirectional else reader,
        layers.Dense(10),
    ]
)
model.summary()

# The last layer gives scores, not probabilities: the loss applies the softmax itself.
model.compile(
    optimizer=keras.optimizers.Adam(learning_rate=0.001),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
start = time.perf_counter()
history = model.fit(x_train, y_train, batch_size=args.batch_size, epochs=args.epochs)
seconds = time.perf_counter() - start

test_loss, test_accuracy = model.evaluate(x_test, y_test, verbose=0)
print(f"Test accuracy {test_accuracy:.4f} after {len(history.epoch)} epochs in {seconds:.1f} s")
