"""Compares a custom op with the built-in activation of the same formula, in turns.

    python tests/benchmarks/custom_op.py --device cpu

Trains net C with a sigmoid in its dense layer, and with one after every layer. In the second case
it also tries an op that does not declare that it is increasing. Then it applies the op to tensors
at once. Each line shows the best time of both and their ratio. The built-in activation of a dense
layer is part of the layer's kernel, and the custom op has a kernel of its own.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from nets import CLASSES, IMAGE_SIZE, NETS

import kerascnn as keras
from kerascnn import ops

SIGMOID = {"forward": "1 / (1 + exp(-x))", "gradient": "dy * y * (1 - y)"}
OWN = ops.custom_op("own_sigmoid", **SIGMOID, increasing=True)
# Max-pooling cannot run before this one, because it may not be increasing.
PLAIN = ops.custom_op("own_sigmoid_plain", **SIGMOID)


def network(activation, everywhere):
    """Builds net C with the activation in its dense layer, or after every layer except the last."""
    net = NETS["C"]
    layers = [keras.Input((IMAGE_SIZE, IMAGE_SIZE, 1)), keras.layers.Rescaling(1 / 255)]
    for filters, size, padding in net.convolutions:
        kind = activation if everywhere else "relu"
        layers.append(keras.layers.Conv2D(filters, size, padding=padding, activation=kind))
        layers.append(keras.layers.MaxPooling2D())
    layers.append(keras.layers.Flatten())
    layers += [keras.layers.Dense(units, activation=activation) for units in net.hidden]
    model = keras.Sequential([*layers, keras.layers.Dense(CLASSES)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(net.learning_rate), loss)
    return model


class EpochTimes(keras.callbacks.Callback):
    """Notes the seconds of each epoch."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds.append(time.perf_counter() - self.start)


def time_fits(samples, rounds, epochs, own, everywhere):
    """Returns the best seconds of an epoch with the built-in activation and with the custom op."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (samples, IMAGE_SIZE, IMAGE_SIZE, 1), np.uint8)
    y = rng.integers(0, CLASSES, samples, np.uint8)
    models = [network(activation, everywhere) for activation in ("sigmoid", own)]
    best = [float("inf")] * 2
    for _ in range(rounds):
        for place, model in enumerate(models):
            times = EpochTimes()
            model.fit(x, y, batch_size=64, epochs=epochs + 1, verbose=0, callbacks=[times])
            best[place] = min(best[place], *times.seconds[1:])
    return best


def time_calls(shape, calls, rounds):
    """Returns the best seconds of a call on a tensor, until its work is done."""
    x = ops.convert_to_tensor(np.random.default_rng(0).standard_normal(shape, "float32"))
    best = [float("inf")] * 2
    for _ in range(rounds):
        for place, function in enumerate((ops.sigmoid, OWN)):
            function(x)
            start = time.perf_counter()
            for _ in range(calls):
                y = function(x)
            y[0, 0].numpy()  # this waits for the device
            best[place] = min(best[place], (time.perf_counter() - start) / calls)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--samples", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2, help="in each round, after one more")
    options = parser.parse_args()

    def line(name, best, unit, scale):
        built_in, own = (seconds * scale for seconds in best)
        print(f"{name:24} {built_in:10.3f} {own:10.3f} {unit}  {own / built_in:6.3f}", flush=True)

    print(f"{'':24} {'built-in':>10} {'own':>10}     {'ratio':>6}")
    with keras.device(options.device):
        for name, own, everywhere in (
            ("fit, dense layer", OWN, False),
            ("fit, every layer", OWN, True),
            ("the same, plain", PLAIN, True),
        ):
            best = time_fits(options.samples, options.rounds, options.epochs, own, everywhere)
            line(name, best, "ms", 1e3)
        for shape, calls in (((64, 128), 200), ((2048, 2048), 10)):
            best = time_calls(shape, calls, options.rounds)
            line(f"at once, {shape[0]} x {shape[1]}", best, "us", 1e6)


if __name__ == "__main__":
    main()
