"""Recognizes handwritten digits, trained by one process or by several: the script is the same.

    python examples/distributed_mnist.py
    mpirun -n 4 python examples/distributed_mnist.py --device cpu
    torchrun --nproc-per-node 4 --max-restarts 3 examples/distributed_mnist.py --backup state

They end with the same weights, to rounding: the processes share each batch. `mpirun` comes with
`pip install 'kerascnn[mpi]'`, `torchrun` with PyTorch. It starts processes that have failed again,
and the training goes on from the folder that `--backup` names. Without MNIST and without network it
trains on the 8x8 digits that ship with the package.
"""

import time

from common import find_mnist, make_parser, set_up, with_channels

import kerascnn as keras
from kerascnn import layers

keras.distribution.initialize()  # joins the processes that a launcher has started, if one has
parser = make_parser(__doc__.splitlines()[0], batch_size=128, epochs=3)
parser.add_argument("--backup", help="folder that keeps the state of a training that may fail")
args = parser.parse_args()
set_up(args)
keras.distribution.set_distribution(keras.distribution.DataParallel())

data = find_mnist(args.data) or with_channels(keras.datasets.digits.load_data())
(x_train, y_train), (x_test, y_test) = data
model = keras.Sequential(
    [
        keras.Input(x_train.shape[1:]),
        layers.Rescaling(1 / 255 if x_train.max() > 16 else 1 / 16),
        layers.Conv2D(32, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(10, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
start = time.perf_counter()
callbacks = [keras.callbacks.BackupAndRestore(args.backup)] if args.backup else []
model.fit(x_train, y_train, args.batch_size, args.epochs, callbacks=callbacks)
seconds = time.perf_counter() - start

# All processes take their share of this too, and have the whole result.
loss, accuracy = model.evaluate(x_test, y_test, verbose=0)
if keras.distribution.process_id() == 0:
    processes = keras.distribution.num_processes()
    print(f"{processes} process{'es' * (processes > 1)}: {seconds:.1f} s")
    print(f"Test loss {loss:.6f}, test accuracy {accuracy:.4f}")
