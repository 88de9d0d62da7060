"""ONNX files for the fuzz tests: good ones, and mutations that know their form."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from . import mutators

# Numbers of the types of fields of Protocol Buffers.
_TEXT, _MESSAGE, _BYTES, _FLOATS, _BOOL = 9, 11, 12, (1, 2), 8
_PLACES = (
    *(mutators.CANARY, "../canary", "/etc/passwd", "..", ".", "", "a/../../b", "case.onnx"),
    *("/proc/self/mem", "/dev/zero", "weights.bin", "C:\\x", "a\\..\\b", "x\0y", "%s", "~/x"),
)


def seeds(folder: Path, _: Random | None) -> list[bytes]:
    """Files of models that have every reader somewhere, and one with its weights beside it."""
    import onnx

    import kerascnn as keras
    from kerascnn import layers

    images = keras.Sequential(
        [
            keras.Input((3, 9, 9)),
            layers.Conv2D(4, 3, strides=2, padding="same", data_format="channels_first"),
            layers.BatchNormalization(axis=1),
            layers.LeakyReLU(),
            layers.DepthwiseConv2D(3, data_format="channels_first"),
            layers.AveragePooling2D(2, padding="same", data_format="channels_first"),
            layers.Conv2DTranspose(2, 2, strides=2, data_format="channels_first"),
            layers.ZeroPadding2D(1, data_format="channels_first"),
            layers.Flatten(),
            layers.Dense(3, activation="softmax"),
        ]
    )
    x = keras.Input((5, 4))
    y = layers.MultiHeadAttention(2, 2)(x, x)
    y = layers.LayerNormalization()(layers.Add()([x, y]))
    y = layers.Concatenate()([layers.LSTM(3, return_sequences=True)(y), layers.Dense(2)(x)])
    y = layers.GRU(2)(y) + keras.ops.max(x, axis=(1, 2), keepdims=False)[:, None]
    words = keras.Input((4,), dtype="int32")
    z = layers.Embedding(7, 3)(words)
    z = layers.Activation("gelu")(keras.ops.flip(z, 1))
    models = [images, keras.Model(x, y), keras.Model(words, layers.UpSampling1D(2)(z))]
    contents = []
    for model in models:
        model.export(folder / "seed.onnx")
        contents.append((folder / "seed.onnx").read_bytes())
    contents.append(_of_nodes(onnx).SerializeToString())
    contents.append(_with_data_beside(onnx, folder, contents[0]))
    return contents


def _of_nodes(onnx: Any) -> Any:
    """A model of nodes as other libraries write them."""
    import numpy as np

    helper, rng = onnx.helper, np.random.default_rng(1)
    weights = {
        "w": rng.normal(size=(4, 3, 3, 3)),
        "b": rng.normal(size=4),
        **{n: np.abs(rng.normal(size=4)) for n in ("scale", "shift", "mean", "var")},
        "m": rng.normal(size=(8, 5)),
        "slope": np.full((4, 1, 1), 0.1),
    }
    tensors = [onnx.numpy_helper.from_array(v.astype("float32"), n) for n, v in weights.items()]
    for name, numbers in {"axes": [2, 3], "shape": [0, -1], "starts": [1], "ends": [5]}.items():
        tensors.append(helper.make_tensor(name, onnx.TensorProto.INT64, [len(numbers)], numbers))
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"]),
        helper.make_node("PRelu", ["n", "slope"], ["p"]),
        helper.make_node(
            "MaxPool",
            ["p"],
            ["q"],
            kernel_shape=[3, 3],
            pads=[1, 1, 1, 1],
            strides=[2, 2],
            ceil_mode=1,
        ),
        helper.make_node("Resize", ["q", "", "scales"], ["r"], mode="nearest"),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("ReduceMax", ["p"], ["h"], axes=[2, 3]),
        helper.make_node("Concat", ["g", "h"], ["k"], axis=1),
        helper.make_node("Reshape", ["k", "shape"], ["f"]),
        helper.make_node("Constant", [], ["two"], value_float=2.0),
        helper.make_node("Pow", ["f", "two"], ["s"]),
        helper.make_node("MatMul", ["s", "m"], ["d"]),
        helper.make_node("Slice", ["d", "starts", "ends", "starts"], ["y"]),
        helper.make_node("Split", ["d"], ["y1", "y2"], axis=1, num_outputs=2),
    ]
    tensors.append(helper.make_tensor("scales", onnx.TensorProto.FLOAT, [4], [1, 1, 2, 2]))
    graph = helper.make_graph(
        nodes,
        "nodes",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, 12, 12])],
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in ("y", "y1")],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _with_data_beside(onnx: Any, folder: Path, content: bytes) -> bytes:
    model = onnx.load_model_from_string(content)
    data = b""
    for tensor in model.graph.initializer:
        raw = tensor.raw_data
        if len(raw) < 16:
            continue
        tensor.ClearField("raw_data")
        tensor.data_location = 1
        places = {"location": "weights.bin", "offset": str(len(data)), "length": str(len(raw))}
        for key, value in places.items():
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value
        data += raw
    (folder / "weights.bin").write_bytes(data)
    return model.SerializeToString()


def mutate(rng: Random, content: bytes) -> bytes:
    """Changes one or several fields of a file, or its bytes."""
    if rng.random() < 0.1:
        return mutators.mutate_bytes(rng, content)
    import onnx

    model = onnx.load_model_from_string(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        places = list(_fields(model))
        message, field = rng.choice(places)
        _change(rng, message, field)
    return model.SerializeToString()


def _fields(message: Any) -> Any:
    """All fields of a message and of those in it, with the message that they are in."""
    for field, value in message.ListFields():
        yield message, field
        if field.type != _MESSAGE:
            continue
        for inner in value if _repeats(field) else [value]:
            yield from _fields(inner)


def _repeats(field: Any) -> bool:
    repeated = field.is_repeated
    return repeated() if callable(repeated) else bool(repeated)


def _change(rng: Random, message: Any, field: Any) -> None:
    """Makes one field another one; a value that it can't have leaves it as it is."""
    name = field.name
    if rng.random() < 0.1:
        message.ClearField(name)
        return
    if _repeats(field):
        _change_list(rng, getattr(message, name), field)
    elif field.type != _MESSAGE:
        try:
            setattr(message, name, _other(rng, field, getattr(message, name)))
        except (ValueError, TypeError, OverflowError):
            message.ClearField(name)


def _change_list(rng: Random, values: Any, field: Any) -> None:
    kind, place = rng.randrange(5), rng.randrange(len(values))
    if kind == 0:
        del values[place]
    elif kind == 1 and len(values) > 1:
        first, second = values[place], values[rng.randrange(len(values))]
        if field.type == _MESSAGE:
            first.MergeFrom(second)
        else:
            values[place] = second
    elif kind == 2:
        for _ in range(rng.choice([1, 1, 3, 40])):
            if field.type == _MESSAGE:
                values.add().CopyFrom(values[place])
            else:
                values.append(values[place])
    elif field.type != _MESSAGE:
        try:
            values[place] = _other(rng, field, values[place])
        except (ValueError, TypeError, OverflowError):
            del values[place]


def _other(rng: Random, field: Any, value: Any) -> Any:
    if field.type == _TEXT:
        if field.name == "value" or rng.random() < 0.2:
            return rng.choice(_PLACES)
        ops = (
            "Conv",
            "Expand",
            "Tile",
            "Loop",
            "ConstantOfShape",
            "Range",
            "Pad",
            "LSTM",
            "Gather",
        )
        return rng.choice([*ops, *mutators.WILD_TEXTS[:9], value + "x", "x", "y"])
    if field.type == _BYTES:
        return mutators.mutate_bytes(rng, bytes(value) or b"x")
    if field.type == _BOOL:
        return not value
    if field.type in _FLOATS:
        return float(rng.choice([*mutators.WILD_NUMBERS[:20], float("nan"), float("inf"), -1.0]))
    near = value + rng.choice([-1, 1, 2, -2]) if isinstance(value, int) else 1
    return rng.choice([near, near, *mutators.WILD_NUMBERS[:27]])
