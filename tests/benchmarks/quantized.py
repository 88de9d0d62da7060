"""Measures what `quantize("int8")` gains: the time of `predict` and the bytes of weights, by dtype.

    OMP_NUM_THREADS=2 python tests/benchmarks/quantized.py --device cpu --peers

Each line is for one model in float32, bfloat16 or int8, which is made from the float32 one. It
shows the best time of `predict` on samples in memory, the bytes of all weights, both as a share of
float32's, and the largest difference of an output from float32's, as a share of the largest output.
With `--peers` it also times Keras on the PyTorch backend, on the CPU.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings

import numpy as np

DTYPES = ("float32", "bfloat16", "int8")
ITEMSIZE = {"float32": 4, "bfloat16": 2, "int8": 1, "int32": 4, "int64": 8}


def mlp(keras, width):
    """Builds three wide layers on vectors of 784 numbers."""
    layers = keras.layers
    hidden = [layers.Dense(width, activation="relu") for _ in range(3)]
    return keras.Sequential([keras.Input((784,)), *hidden, layers.Dense(10)])


def transformer(keras, width):
    """Builds two blocks of attention and dense layers on sequences of 64 words out of 1,000."""
    layers = keras.layers
    words = keras.Input((64,), dtype="int32")
    x = layers.Embedding(1000, width)(words)
    for _ in range(2):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(8, width // 8)(y, y)])
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * width, activation="relu")(y)
        x = layers.Add()([x, layers.Dense(width)(y)])
    return keras.Model(words, layers.Dense(1000)(x))


MODELS = {"mlp": mlp, "transformer": transformer}


def samples(name, count, rng):
    if name == "mlp":
        return rng.standard_normal((count, 784)).astype("float32")
    return rng.integers(0, 1000, (count, 64)).astype("int32")


def make(keras, name, dtype, width, weights):
    """Builds the model in a dtype, with the given weights, or with first values for None."""
    keras.config.set_dtype_policy("bfloat16" if dtype == "bfloat16" else "float32")
    model = MODELS[name](keras, width)
    keras.config.set_dtype_policy("float32")
    if weights is not None:
        model.set_weights(weights)
    if dtype == "int8":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of layers that stay in float32
            model.quantize("int8")
    return model


def measure(keras, name, arguments, weights, rng):
    """Returns rows (dtype, seconds, bytes, difference)."""
    x = samples(name, arguments.samples, rng)
    expected = None
    for dtype in DTYPES:
        model = make(keras, name, dtype, arguments.width, weights)
        outputs = np.asarray(model.predict(x, batch_size=arguments.batch, verbose=0), "float32")
        expected = outputs if expected is None else expected
        best = float("inf")
        for _ in range(arguments.rounds):
            start = time.perf_counter()
            model.predict(x, batch_size=arguments.batch, verbose=0)
            best = min(best, time.perf_counter() - start)
        size = sum(int(np.prod(w.shape)) * ITEMSIZE[str(w.dtype)] for w in model.weights)
        difference = float(np.abs(outputs - expected).max() / np.abs(expected).max())
        yield dtype, best, size, difference


def report(title, rows):
    first = None
    for dtype, seconds, size, difference in rows:
        first = (seconds, size) if first is None else first
        print(
            f"{title:<24}{dtype:<10}{1e3 * seconds:9.2f} ms {seconds / first[0]:6.2f}"
            f"{size / 1e6:9.2f} MB {size / first[1]:6.2f}   difference {difference:.1e}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", action="store_true", help="Keras on PyTorch and the CPU too")
    arguments = parser.parse_args()
    import kerascnn

    rng = np.random.default_rng(1)
    for name in arguments.models:
        with kerascnn.device(arguments.device):
            weights = make(kerascnn, name, "float32", arguments.width, None).get_weights()
            rows = measure(kerascnn, name, arguments, weights, rng)
            report(f"{name}, {arguments.device}", rows)
        if arguments.peers:
            os.environ["KERAS_BACKEND"] = "torch"
            import keras

            report(f"{name}, Keras, cpu", measure(keras, name, arguments, weights, rng))


if __name__ == "__main__":
    main()
