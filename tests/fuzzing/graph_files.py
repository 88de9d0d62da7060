"""Files with the graph of a model, which the C++ library loads and predicts with: seeds, mutations,
and readers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from . import mutators


def seeds(loops: bool) -> Callable[[Path, Random | None], list[bytes]]:
    """Makes files of small models.

    Args:
        loops: Whether some have loops, which a mutation may make endless.
    """

    def write(folder: Path, _: Random | None) -> list[bytes]:
        contents = []
        for model in _models(loops):
            model.export(folder / "seed.safetensors", include_graph=True)
            contents.append((folder / "seed.safetensors").read_bytes())
        return contents

    return write


def _models(loops: bool) -> list[Any]:
    import kerascnn as keras
    from kerascnn import layers, ops

    images = keras.Sequential(
        [
            keras.Input((9, 9, 2)),
            layers.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.DepthwiseConv2D(3),
            layers.MaxPooling2D(2),
            layers.Conv2DTranspose(2, 2),
            layers.Flatten(),
            layers.Dense(3, activation="softmax"),
        ]
    )
    x, y = keras.Input((None, 4), name="x"), keras.Input((3,), dtype="int32", name="y")
    z = layers.MultiHeadAttention(2, 2)(x, x, use_causal_mask=True)
    z = layers.LayerNormalization()(layers.LSTM(3, return_sequences=True)(z))
    words = layers.Embedding(7, 3)(y)
    both = keras.Model(
        {"x": x, "y": y}, [ops.flip(z, 1), layers.Concatenate()([z[:, 0], words[:, 1]])]
    )
    found = [images, both]
    if loops:

        class Steps(layers.Layer):
            def call(self, x: Any) -> Any:
                return ops.cond(
                    ops.sum(x) > 0.0,
                    lambda: ops.scan(lambda c, row: (c + row, ops.tanh(c)), x[0], x)[1],
                    lambda: ops.fori_loop(0, 5, lambda i, y: y * 0.5 + x, x),
                )

        found.append(keras.Sequential([keras.Input((3,)), Steps(), layers.GaussianNoise(0.1)]))
    return found


def mutate(rng: Random, content: bytes) -> bytes:
    """Changes what nodes and values are, any part of the graph, the header or its bytes."""
    if rng.random() < 0.4:
        try:
            return mutators.mutate_safetensors(rng, content, None, "graph")
        except RecursionError:  # a copy of what was made deep before
            return content
    length = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    graph = json.loads(header["__metadata__"]["graph"])
    for _ in range(rng.choice([1, 1, 2, 3])):
        _change(rng, graph)
    header["__metadata__"]["graph"] = json.dumps(graph)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _change(rng: Random, graph: dict[str, Any]) -> None:
    """Makes one thing of the graph another one that a reader may believe."""
    from kerascnn import _core

    inner = graph["graph"]
    node = rng.choice(inner["nodes"])
    kind = rng.randrange(7)
    if kind == 0:
        node["op"] = rng.choice(_core.op_names())
    elif kind == 1 and node["inputs"]:
        node["inputs"][rng.randrange(len(node["inputs"]))] = rng.randrange(40)
    elif kind == 2 and inner["values"]:
        value = rng.choice(inner["values"])
        for name in list(value):
            value[name] = rng.choice(inner["values"]).get(name, value[name])
    elif kind == 3:
        inner["nodes"].insert(rng.randrange(len(inner["nodes"])), json.loads(json.dumps(node)))
    elif kind == 4:
        other = rng.choice(inner["nodes"])
        node["op"], node["attributes"] = other["op"], other.get("attributes", {})
    else:
        attributes = node.setdefault("attributes", {})
        if attributes:
            name = rng.choice(list(attributes))
            attributes[name] = _other(rng, attributes[name])


def _other(rng: Random, value: Any) -> Any:
    if isinstance(value, list) and value:
        place = rng.randrange(len(value))
        return [_other(rng, v) if i == place else v for i, v in enumerate(value)]
    if type(value) is int:
        return rng.choice([value + 1, value - 1, 0, -value, *mutators.WILD_NUMBERS[:27]])
    if type(value) is bool:
        return not value
    if type(value) is float:
        return rng.choice([-value, 0.0, 1e300, {"number": "nan"}, {"number": "-inf"}])
    return rng.choice(["relu", "float16", "int8", "sum", {"size": [[1, 0]]}, {"size": [[3, 0, 0]]}])


def load(path: Path) -> Any:
    from kerascnn import _core

    return _core.InferenceModel.load(str(path), "cpu")


def predict(path: Path) -> Any:
    """Predicts for a few zeros, if the inputs are small."""
    model = load(path)
    inputs = []
    for _, dtype, shape in model.inputs:
        sizes = [2 if n < 0 else n for n in shape]
        if np.prod(sizes, dtype="float64") > 4096:
            return model
        inputs.append(np.zeros(sizes, "float32" if dtype == "bfloat16" else dtype))
    model.predict(inputs)
    return model.predict(inputs, 1)
