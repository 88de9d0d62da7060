"""Files of models for the fuzz tests: good ones, and mutations of configurations and weights."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from . import mutators


def models() -> list[Any]:
    """Small models that have every part of a configuration somewhere."""
    import kerascnn as keras
    from kerascnn import layers

    images = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.Rescaling(0.5),
            layers.RandomFlip(seed=1),
            layers.Conv2D(2, 3, activation="relu", kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Dropout(0.2, seed=2),
            layers.Flatten(),
            layers.Dense(3, kernel_constraint="max_norm"),
        ]
    )
    images.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)),
        keras.losses.CategoricalCrossentropy(label_smoothing=0.1),
        metrics=["accuracy", keras.metrics.AUC(num_thresholds=5)],
    )
    left, right = keras.Input((4, 3), name="left"), keras.Input((4, 3), name="right")
    shared = layers.TimeDistributed(layers.Dense(3))
    x = layers.Concatenate()([shared(left), shared(right)])
    x = layers.Bidirectional(layers.LSTM(2, return_sequences=True))(x)
    x = layers.MultiHeadAttention(2, 2)(x, x)
    x = keras.ops.reshape(keras.ops.transpose(x, (0, 2, 1)), (-1, 16)) * 2.0
    x = layers.LayerNormalization()(x)
    graph = keras.Model({"left": left, "right": right}, [layers.Dense(2)(x), x])
    graph.compile("sgd", ["mse", None])
    words = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            layers.Embedding(7, 4, mask_zero=True),
            layers.Conv1D(3, 2, padding="causal"),
            layers.GlobalAveragePooling1D(),
            keras.Sequential([layers.Dense(4), layers.PReLU(), layers.Dense(2)]),
        ]
    )
    return [images, graph, words]


# These are tried one after the other for arguments without a default.
_ARGUMENTS: dict[str, list[Any]] = {
    "units": [3],
    "filters": [2],
    "kernel_size": [2],
    "pool_size": [2],
    "input_dim": [7],
    "output_dim": [3],
    "num_heads": [2],
    "key_dim": [2],
    "head_dim": [4],
    "num_query_heads": [2],
    "num_key_value_heads": [1],
    "output_size": [2],
    "n": [3],
    "target_shape": [(-1,)],
    "dims": [(1,), (2, 1), (2, 1, 3)],
    "num_bins": [3],
    "num_tokens": [4],
    "rate": [0.2],
    "stddev": [0.1],
    "factor": [0.2],
    "height": [3],
    "width": [3],
    "height_factor": [0.1],
    "width_factor": [0.1],
    "value_range": [(0, 1)],
    "scale": [2.0],
    "max_value": [1.0],
    "cell": [],
    "equation": ["ab,bc->ac", "abc,cd->abd"],
    "output_shape": [3],
    "groups": [1],
    "max_number": [3],
}
_INPUTS = (
    *(((4,), "float32"), ((6, 4), "float32"), ((6, 6, 4), "float32")),
    *(((4, 4, 4, 2), "float32"), ((5,), "int32"), ((4000,), "float32")),
)


def _zoo(rng: Random | None) -> list[Any]:
    """A small model around each layer, op and metric that can be made with few arguments."""
    import kerascnn as keras
    from kerascnn import layers

    def some(names: Any) -> list[str]:
        return [n for n in names if rng is None or rng.random() < 0.08]

    found = []
    for name in some(vars(layers)):
        cls = getattr(layers, name)
        if not inspect.isclass(cls) or not issubclass(cls, layers.Layer):
            continue
        required = [
            p.name
            for p in inspect.signature(cls.__init__).parameters.values()
            if p.default is inspect.Parameter.empty and p.kind == p.POSITIONAL_OR_KEYWORD
        ][1:]
        if any(n not in _ARGUMENTS for n in required):
            continue
        chosen: list[dict[str, Any]] = [{}]
        for n in required:
            chosen = [{**c, n: value} for c in chosen for value in _ARGUMENTS[n]]
        for arguments in chosen:
            for shape, dtype in _INPUTS:
                try:
                    model = keras.Sequential([keras.Input(shape, dtype=dtype), cls(**arguments)])
                    model.to_json()
                except Exception:
                    continue
                found.append(model)
    cells = [
        layers.GRUCell(2),
        layers.StackedRNNCells([layers.LSTMCell(2), layers.SimpleRNNCell(2)]),
    ]
    for layer in (
        *(layers.RNN(cell, return_sequences=True) for cell in cells),
        layers.Bidirectional(layers.GRU(2)),
        layers.TimeDistributed(layers.Dense(2)),
        layers.Dense(2, kernel_initializer="orthogonal"),
        layers.Dense(4, kernel_initializer="identity"),
    ):
        found.append(keras.Sequential([keras.Input((6, 4)), layer]))
    for name in some(keras.ops.__all__):
        function = getattr(keras.ops, name)
        for more in ((), (2,), (None,), ("x",), ([2, 2],), (0, 1), (3, 2)):
            inputs = keras.Input((4, 6))
            try:
                outputs = function(inputs, *(inputs if m == "x" else m for m in more))
                model = keras.Model(inputs, outputs)
                model.to_json()
            except Exception:
                continue
            found.append(model)
            break
    for name in some(vars(keras.metrics)):
        cls = getattr(keras.metrics, name)
        if inspect.isclass(cls):
            for arguments in ({}, {"num_classes": 3}, {"target_class_ids": [1], "num_classes": 3}):
                try:
                    metric = cls(**arguments)
                    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
                    model.compile("adam", "mse", metrics=[metric])
                    model.to_json()
                except Exception:
                    continue
                found.append(model)
                break
    return found


def _parts() -> list[Any]:
    """Configurations of every public class, with wild arguments where there is no default."""
    import kerascnn as keras

    rng = Random(1)
    found: list[Any] = []
    for place in ("layers", "initializers", "metrics", "losses", "optimizers", "regularizers"):
        for name, cls in vars(getattr(keras, place)).items():
            if not inspect.isclass(cls) or not hasattr(cls, "from_config"):
                continue
            try:
                parameters = inspect.signature(cls.__init__).parameters.values()
            except ValueError:
                continue
            for _ in range(3):
                config = {}
                for p in parameters:
                    if p.name in ("self", "kwargs", "args", "name"):
                        continue
                    plain = isinstance(p.default, (int, float, str, bool, type(None)))
                    if p.default is inspect.Parameter.empty:
                        choices: list[Any] = [1, 2, 3, [2, 2], 1000, 10**6, 10**9, "x"]
                        config[p.name] = rng.choice(choices)
                    elif type(p.default) in (int, float) and rng.random() < 0.2:
                        config[p.name] = rng.choice(mutators.WILD_NUMBERS)
                    elif plain:
                        config[p.name] = p.default
                found.append(
                    {
                        "module": f"keras.{place}",
                        "class_name": name,
                        "config": config,
                        "registered_name": None,
                        "build_config": {"input_shape": rng.choice([[None, 4], [None, 6, 6, 2]])},
                    }
                )
    return found


_PARTS: list[Any] = []


def parts() -> list[Any]:
    if not _PARTS:
        _PARTS.extend(_parts())
    return _PARTS


def saved(ending: str, zoo: bool = False) -> Callable[[Path, Random | None], list[bytes]]:
    def seeds(folder: Path, rng: Random | None) -> list[bytes]:
        contents: list[bytes] = []
        known: dict[int, bytes] = {}
        # the models with every part of a configuration are as frequent as all others together
        few = models()
        for model in [*few * 20, *_zoo(rng)] if zoo else few:
            path = folder / f"seed{ending}"
            if ending.endswith((".weights.h5", ".weights.safetensors")):
                model.save_weights(path)
            elif ending == ".safetensors":
                if id(model) not in known:
                    model.export(path)
            elif id(model) not in known:
                model.save(path)
            if path.exists():
                known[id(model)] = path.read_bytes()
                path.unlink()
            contents.append(known[id(model)])
        return contents

    return seeds


def mutate_config(rng: Random, content: bytes) -> bytes:
    return mutators.dump_json(rng, mutators.mutate_json(rng, json.loads(content), parts()))


def mutate_keras(rng: Random, content: bytes) -> bytes:
    kind = rng.randrange(10)
    if kind < 6:
        return mutators.within_zip(rng, content, "config.json", mutate_config)
    if kind < 8:
        return mutators.within_zip(rng, content, "model.weights.h5", mutators.mutate_h5)
    return (mutators.mutate_zip if kind == 8 else mutators.mutate_bytes)(rng, content)


def mutate_h5_model(rng: Random, content: bytes) -> bytes:
    if rng.random() < 0.6:
        return mutators.mutate_h5_config(rng, content, parts())
    return mutators.mutate_h5(rng, content)


def mutate_exported(rng: Random, content: bytes) -> bytes:
    return mutators.mutate_safetensors(rng, content, parts(), "config")


def load_model(path: Path) -> Any:
    import kerascnn as keras

    return keras.saving.load_model(path)


class IntoModels:
    """Loads weights into models, which stay what they were on an error."""

    def __init__(self) -> None:
        self._models: list[Any] = []
        self.__name__ = "load_weights"

    def __call__(self, path: Path) -> Any:
        self._models = self._models or models()
        first_error: ValueError | None = None
        loaded = 0
        for model in self._models:
            before = [v.numpy() for v in model.weights]
            try:
                model.load_weights(path)
            except ValueError as error:
                first_error = first_error or error
                for value, variable in zip(before, model.weights, strict=True):
                    if not np.array_equal(value, variable.numpy(), equal_nan=True):
                        raise AssertionError(f"{variable.path} changed: {error}") from error
            else:
                loaded += 1
                for value, variable in zip(before, model.weights, strict=True):
                    variable.assign(value)
        if first_error is not None and loaded == 0:
            raise first_error


class Configuration:
    """A configuration without a file: `model_from_json`."""

    @staticmethod
    def seeds(_: Path, rng: Random | None) -> list[bytes]:
        return [model.to_json().encode() for model in [*models() * 20, *_zoo(rng)]]

    @staticmethod
    def read(path: Path) -> Any:
        import kerascnn as keras

        return keras.models.model_from_json(path.read_text("utf-8", "replace"))
