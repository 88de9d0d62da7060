"""Measures what masks cost: epochs of networks with masks, beside the same ones without.

    OMP_NUM_THREADS=2 python tests/benchmarks/masks.py [--device gpu] [--only lstm_pooled]
        [--output FILE] [--processor-time]

Both sides are models of kerascnn with the same layers, trained through plain `fit` on sequences of
random lengths, which the masks tell. The sides take turns, and each line shows the best epochs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kerascnn as keras
from kerascnn import layers

SAMPLES, STEPS, WORDS, WIDTH, CLASSES, BATCH = 2048, 64, 1000, 64, 10, 64
BAR = 1.05  # the time with masks may be this many times the time without


def embedded(masked: bool) -> tuple[Any, Any]:
    """Inputs are numbers of words, with 0 after the end."""
    words = keras.Input((STEPS,), dtype="int32")
    return words, layers.Embedding(WORDS, WIDTH, mask_zero=masked)(words)


def lstm_last(masked: bool) -> Any:
    words, x = embedded(masked)
    return keras.Model(words, layers.Dense(CLASSES)(layers.LSTM(WIDTH)(x)))


def lstm_pooled(masked: bool) -> Any:
    words, x = embedded(masked)
    x = layers.LSTM(WIDTH, return_sequences=True)(x)
    return keras.Model(words, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(x)))


def gru_each_step(masked: bool) -> Any:
    """The loss gets the mask too."""
    words, x = embedded(masked)
    x = layers.GRU(WIDTH, return_sequences=True)(x)
    return keras.Model(words, layers.Dense(CLASSES)(x))


def masking_lstm(masked: bool) -> Any:
    numbers = keras.Input((STEPS, WIDTH))
    x = layers.Masking()(numbers) if masked else numbers
    x = layers.LSTM(WIDTH, return_sequences=True)(x)
    return keras.Model(numbers, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(x)))


def dense_layers(masked: bool) -> Any:
    """Dense layers do not use masks, so only the pooling does more work."""
    words, x = embedded(masked)
    for _ in range(2):
        x = layers.TimeDistributed(layers.Dense(2 * WIDTH, activation="relu"))(x)
        x = layers.Add()([x, layers.Dense(2 * WIDTH)(x)])
    return keras.Model(words, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(x)))


def transformer(masked: bool) -> Any:
    words, x = embedded(masked)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, WIDTH // 4)(x, x))
        inner = layers.Dense(2 * WIDTH, activation="relu")(x)
        x = layers.LayerNormalization()(x + layers.Dense(WIDTH)(inner))
    return keras.Model(words, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(x)))


NETWORKS: dict[str, Callable[[bool], Any]] = {
    network.__name__: network
    for network in (lstm_last, lstm_pooled, gru_each_step, masking_lstm, dense_layers, transformer)
}


def arrays(name: str, steps_have_labels: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    inside = np.arange(STEPS) < rng.integers(STEPS // 4, STEPS + 1, SAMPLES)[:, None]
    y = rng.integers(0, CLASSES, (SAMPLES, STEPS) if steps_have_labels else SAMPLES)
    if name == "masking_lstm":
        x = rng.standard_normal((SAMPLES, STEPS, WIDTH)).astype("float32")
        return x * inside[:, :, None].astype("float32"), y
    return (rng.integers(1, WORDS, (SAMPLES, STEPS)) * inside).astype("int32"), y


def epochs_of(name: str, masked: bool) -> Callable[[], None]:
    model = NETWORKS[name](masked)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss)
    x, y = arrays(name, len(model.output_shape) == 3)
    return lambda: model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)


def measure(name: str, rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    runs = {"masks": epochs_of(name, True), "none": epochs_of(name, False)}
    best = dict.fromkeys(runs, float("inf"))
    for turn in range(rounds + 1):  # the first turn warms up
        for side, run in runs.items():
            start = clock()
            run()
            if turn > 0:
                best[side] = min(best[side], clock() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--only", help="networks, separated by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="a file for all numbers")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="counts what the processor works, not the time on the wall: for a busy machine",
    )
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(NETWORKS)
    unknown = [name for name in names if name not in NETWORKS]
    if unknown:
        parser.error(f"unknown networks {', '.join(unknown)}; there are {', '.join(NETWORKS)}")
    import report

    clock = time.process_time if arguments.processor_time else time.perf_counter
    results = {}
    with keras.device(arguments.device):
        for name in names:
            best = measure(name, arguments.rounds, clock)
            ratio = best["masks"] / best["none"]
            each = "  ".join(f"{side} {1e3 * seconds:.1f} ms" for side, seconds in best.items())
            verdict = "" if ratio <= BAR else f"  above {BAR}"
            print(f"{name:14} {each}  ratio {ratio:.3f}{verdict}", flush=True)
            results[name] = {"seconds": best, "ratio": ratio}
    if arguments.output:
        machine = report.machine("cuda:0" if arguments.device == "gpu" else "cpu")
        document = {"machine": machine, "processor_time": arguments.processor_time}
        arguments.output.write_text(json.dumps(document | {"networks": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
