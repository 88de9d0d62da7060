"""Random models, which kerascnn and Keras build from one description and which must agree.

A description is a dictionary that JSON can hold: the shape of the input, a list of nodes, and how
the model is compiled. A node is a layer with its arguments and the numbers of the values that it
takes; value 0 is the input, value n what node n - 1 gives. Both libraries must refuse a node, or
take it and agree on its shape.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from . import layer_calls

BATCH = 4
_LARGEST = 3000  # numbers of one sample, so that a model takes some milliseconds
_SHAPES: list[list[int]] = [[6], [1], [5, 4], [7, 2], [6, 6, 2], [7, 5, 3], [9, 8, 1], [4, 5, 3, 2]]
_OPTIMIZERS: list[dict[str, Any]] = [
    {"class": "SGD", "config": {"learning_rate": 0.05}},
    {"class": "SGD", "config": {"learning_rate": 0.05, "momentum": 0.9, "nesterov": True}},
    {"class": "SGD", "config": {"learning_rate": 0.05, "clipnorm": 0.1, "weight_decay": 0.1}},
    {"class": "SGD", "config": {"learning_rate": 0.05, "global_clipnorm": 0.2}},
    {"class": "SGD", "config": {"learning_rate": 0.05, "clipvalue": 0.01, "use_ema": True}},
    # A large epsilon: without it a gradient that is nothing but rounding moves a weight.
    {"class": "Adam", "config": {"learning_rate": 0.01, "epsilon": 0.01}},
    {"class": "Adam", "config": {"learning_rate": 0.01, "epsilon": 0.01, "amsgrad": True}},
    {"class": "AdamW", "config": {"learning_rate": 0.01, "epsilon": 0.01, "weight_decay": 0.01}},
    {"class": "Nadam", "config": {"learning_rate": 0.01, "epsilon": 0.01}},
    {"class": "Adamax", "config": {"learning_rate": 0.01, "epsilon": 0.01}},
    {"class": "RMSprop", "config": {"learning_rate": 0.01, "epsilon": 0.01, "centered": True}},
    {"class": "RMSprop", "config": {"learning_rate": 0.01, "epsilon": 0.01, "momentum": 0.5}},
    {"class": "Adagrad", "config": {"learning_rate": 0.05, "epsilon": 0.01}},
    {"class": "Adadelta", "config": {"learning_rate": 1.0, "epsilon": 0.01}},
    {"class": "Ftrl", "config": {"learning_rate": 0.05}},
]
_LOSSES = (
    *("mse", "mae", "huber", "log_cosh", "mean_squared_logarithmic_error", "poisson"),
    *("cosine_similarity", "squared_hinge", "kl_divergence"),
)
_CLASS_LOSSES = ("sparse_categorical_crossentropy", "categorical_crossentropy")


class Refused(Exception):
    """Both libraries refuse a node."""


class Differs(AssertionError):
    """The libraries disagree.

    Attributes:
        description: The model up to the node about which they do.
    """

    description: dict[str, Any] | None = None


class Builder:
    """Builds a model of one library node by node.

    Args:
        keras: The library.
        shape: The shape of a sample of the input.
        dtype: The dtype of the input.
        policy: The dtype of the layers, that of the library without one.
    """

    def __init__(self, keras: Any, shape: list[int], dtype: str, policy: str | None = None) -> None:
        self.keras, self.policy = keras, policy
        self.values = [keras.Input(tuple(shape), dtype=dtype, name="the_input")]
        self.layers: list[Any] = []

    def layer(self, node: dict[str, Any]) -> Any:
        config = {**node["config"]}
        if isinstance(config.get("layer"), dict):
            config["layer"] = self.layer(config["layer"])
        if self.policy is not None and node["class"] not in ("Bidirectional", "TimeDistributed"):
            config["dtype"] = self.policy
        for key, value in config.items():
            if isinstance(value, list) and key not in ("layer",):
                config[key] = tuple(tuple(v) if isinstance(v, list) else v for v in value)
        return getattr(self.keras.layers, node["class"])(**config)

    def add(self, node: dict[str, Any]) -> None:
        """Adds a node; a node with "shared" calls the layer of an earlier node again."""
        if "shared" in node:
            layer = self.layers[node["shared"]]
        else:
            layer = self.layer({**node, "config": {**node["config"], "name": node["name"]}})
        inputs = [self.values[i] for i in node["inputs"]]
        if node.get("spread"):
            output = layer(*inputs)
        else:
            output = layer(inputs if node.get("many") else inputs[0])
        self.values.append(output)
        self.layers.append(layer)

    def model(self, sequential: bool) -> Any:
        if sequential:
            return self.keras.Sequential([self.values[0], *self.layers], name="the_model")
        return self.keras.Model(self.values[0], self.values[-1], name="the_model")


def both(node: dict[str, Any], builders: tuple[Builder, Builder]) -> tuple[Any, ...]:
    """Adds a node to both models.

    Returns:
        The shape of its output.

    Raises:
        Refused: where both refuse it.
        Differs: where one does, or the shapes differ.
    """
    errors: list[Exception | None] = []
    for builder in builders:
        try:
            builder.add(node)
        except Exception as error:
            errors.append(error)
        else:
            errors.append(None)
    here, there = errors
    if here is not None and there is not None:
        if not isinstance(here, (ValueError, TypeError)) or not str(here):
            raise Differs(f"{type(here).__name__}: {here}; Keras: {there}") from here
        raise Refused
    if here is not None or there is not None:
        for builder, error in zip(builders, errors, strict=True):
            if error is None:
                builder.values.pop()
                builder.layers.pop()
        who, error = ("kerascnn", here) if there is None else ("Keras", there)
        raise Differs(f"only {who} refuses it: {type(error).__name__}: {error}") from error
    shapes = [tuple(b.values[-1].shape) for b in builders]
    if shapes[0] != shapes[1]:
        raise Differs(f"shape {shapes[0]}, with Keras {shapes[1]}")
    return shapes[0]


def _draw_node(rng: Random, shapes: list[tuple[Any, ...]], sequential: bool) -> dict[str, Any]:
    last = len(shapes) - 1
    if sequential or rng.random() < 0.6:
        source = last if sequential or rng.random() < 0.8 else rng.randrange(last + 1)
        return {**layer_calls.draw_layer(rng, shapes[source]), "inputs": [source]}
    if len(shapes[last]) == 3 and rng.random() < 0.5:
        name = rng.choice(list(layer_calls.SELF_ATTENTION))
        node = {
            "class": name,
            "config": layer_calls.SELF_ATTENTION[name](rng, shapes[last]),
            "inputs": [last, last],
            "many": True,
        }
        if name in ("MultiHeadAttention", "GroupQueryAttention"):
            node.update(many=False, spread=True)
        return node
    name = rng.choice(layer_calls.MERGES)
    alike = [i for i, s in enumerate(shapes) if s == shapes[last]]
    if name == "Concatenate":
        alike = [i for i, s in enumerate(shapes) if s[:-1] == shapes[last][:-1]]
    inputs = [last, *(rng.choice(alike) for _ in range(rng.choice([1, 1, 2])))]
    if name in ("Subtract", "Dot"):
        inputs = inputs[:2]
    config: dict[str, Any] = {}
    if name == "Concatenate" and rng.random() < 0.3:
        config["axis"] = rng.randrange(-2, len(shapes[last]))
    elif name == "Dot":
        config["axes"] = rng.choice([-1, 1])
        config["normalize"] = rng.random() < 0.3
    return {"class": name, "config": config, "inputs": inputs, "many": True}


def _keras_is_right(node: dict[str, Any], description: dict[str, Any]) -> bool:
    """Whether Keras on PyTorch computes a node rightly, where it does at all.

    Many layers fail there on integers. Unrolled recurrent layers fail with masks, and gradients of
    attention with rows in which all is masked are not those of its results.
    """
    if description["words"] and 0 in node["inputs"] and node["class"] != "Embedding":
        return False
    nodes = description["nodes"]
    if not any(n["class"] == "Masking" or n["config"].get("mask_zero") for n in nodes):
        return True
    inner = node["config"].get("layer")
    configs = [node["config"], inner["config"] if isinstance(inner, dict) else {}]
    return node["class"] != "GroupQueryAttention" and not any(c.get("unroll") for c in configs)


def _is_a_step(node: dict[str, Any], shapes: list[tuple[Any, ...]]) -> bool:
    """Whether a node normalizes single numbers: signs or zeros, with roundings for gradients."""
    axis = node["config"].get("axis", -1)
    classes = ("UnitNormalization", "LayerNormalization")
    return node["class"] in classes and shapes[node["inputs"][0]][axis] == 1


def _draw_nodes(
    rng: Random, description: dict[str, Any], builders: tuple[Builder, Builder], name: str
) -> None:
    """Appends nodes that both take to the description, and builds them."""
    nodes = description["nodes"]
    shapes = [tuple(builders[0].values[0].shape)]
    for _ in range(rng.choice([1, 2, 3, 4, 6, 8])):
        if description["words"] and len(nodes) == 0:
            mask_zero = rng.random() < 0.5
            node = {
                "class": "Embedding",
                "config": {"input_dim": 9, "output_dim": 3, "mask_zero": mask_zero},
                "inputs": [0],
            }
        else:
            node = _draw_node(rng, shapes, description["sequential"])
        earlier = [i for i, n in enumerate(nodes) if n["class"] == "Dense" and "shared" not in n]
        if not description["sequential"] and earlier and rng.random() < 0.1:
            node = {"class": "Dense", "config": {}, "shared": rng.choice(earlier), "inputs": [0]}
            node["inputs"] = [rng.randrange(len(shapes))]
        node["name"] = f"{name}_{len(nodes)}"
        if not _keras_is_right(node, description) or _is_a_step(node, shapes):
            continue
        try:
            shape = both(node, builders)
        except Refused:
            description["refused"] += 1
            continue
        except Differs as error:
            error.description = {**description, "nodes": [*nodes, node]}
            raise
        nodes.append(node)
        shapes.append(shape)
        sizes = [n for n in shape[1:] if n is not None]
        if math.prod(sizes) > _LARGEST or any(n == 0 for n in sizes) or len(shape) > 5:
            break  # few layers take more axes


def _compiled(rng: Random, shape: tuple[Any, ...]) -> dict[str, Any]:
    loss = rng.choice(_LOSSES)
    if len(shape) == 2 and shape[1] and shape[1] > 1 and rng.random() < 0.5:
        loss = rng.choice(_CLASS_LOSSES)
    # Keras' PyTorch backend takes weights of samples for losses with one axis only.
    weighted = len(shape) == 2 and rng.random() < 0.4
    return {"loss": loss, "optimizer": rng.choice(_OPTIMIZERS), "weighted": weighted}


def draw(rng: Random, libraries: tuple[Any, Any]) -> tuple[dict[str, Any], tuple[Any, Any]]:
    """A random description with the models of both libraries that are built from it.

    Raises:
        Differs: with the node in its text, where they disagree about one.
    """
    words = rng.random() < 0.1
    shape = [5] if words else rng.choice(_SHAPES)
    description: dict[str, Any] = {
        "input": shape,
        "words": words,
        "sequential": rng.random() < 0.4,
        "nodes": [],
        "refused": 0,
        "seed": rng.randrange(1 << 30),
    }
    dtype = "int32" if words else "float32"
    builders = tuple(Builder(library, shape, dtype) for library in libraries)
    while not description["nodes"]:
        _draw_nodes(rng, description, builders, "layer")  # type: ignore[arg-type]
    description["compile"] = _compiled(rng, tuple(builders[0].values[-1].shape))
    first, second = (b.model(description["sequential"]) for b in builders)
    return description, (first, second)


def build(description: dict[str, Any], library: Any, policy: str | None = None) -> Any:
    """The model of a description in one library."""
    dtype = "int32" if description["words"] else "float32"
    builder = Builder(library, description["input"], dtype, policy)
    for node in description["nodes"]:
        builder.add(node)
    return builder.model(description["sequential"])


def data(description: dict[str, Any], output: tuple[Any, ...]) -> dict[str, Any]:
    """Inputs, targets and weights of samples for a description."""
    rng = np.random.default_rng(description["seed"])
    shape = (BATCH, *description["input"])
    if description["words"]:
        x = rng.integers(0, 9, shape).astype("int32")
    else:
        x = (rng.uniform(0.05, 1.0, shape) * rng.choice([-1, 1], shape)).astype("float32")
    loss = description["compile"]["loss"]
    if loss == "sparse_categorical_crossentropy":
        y = rng.integers(0, output[-1], BATCH)
    elif loss == "categorical_crossentropy":
        y = np.eye(output[-1], dtype="float32")[rng.integers(0, output[-1], BATCH)]
    else:
        y = rng.uniform(0.1, 0.9, (BATCH, *output[1:])).astype("float32")
    weights = None
    if description["compile"]["weighted"]:
        weights = rng.uniform(0.5, 1.5, BATCH).astype("float32")
    return {"x": x, "y": y, "sample_weight": weights}


def new_weights(model: Any, seed: int) -> list[Any]:
    """Values for the weights of a model, positive where they are variances."""
    rng = np.random.default_rng(seed)
    values = []
    for weight in model.weights:
        shape = tuple(weight.shape)
        value = rng.uniform(0.1, 0.6, shape) * rng.choice([-1, 1], shape)
        values.append((np.abs(value) if "variance" in weight.name else value).astype("float32"))
    return values


def compile_model(model: Any, library: Any, description: dict[str, Any], **options: Any) -> None:
    given = description["compile"]
    config = {**given["optimizer"]["config"]}
    optimizer = getattr(library.optimizers, given["optimizer"]["class"])(**config)
    model.compile(optimizer, given["loss"], **options)


def train(model: Any, given: dict[str, Any], steps: int = 2) -> tuple[list[float], list[Any]]:
    """Returns the losses of steps, and the weights afterwards."""
    arguments = {"x": given["x"], "y": given["y"], "sample_weight": given["sample_weight"]}
    losses = [np.asarray(model.train_on_batch(**arguments)).reshape(-1)[0] for _ in range(steps)]
    return [float(x) for x in losses], [np.asarray(w) for w in model.get_weights()]


def plain(value: Any) -> Any:
    """A configuration as JSON has it, without what names the library and its version."""
    if isinstance(value, dict):
        left_out = {"keras_version", "backend"}
        return {k: plain(v) for k, v in value.items() if k not in left_out}
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def configuration(model: Any) -> Any:
    return plain(json.loads(model.to_json()))


def without_build_shapes(value: Any) -> Any:
    """A configuration as a `.h5` file has it: the shapes that layers were built on are not in it.

    A layer's first call, which decides them, can be one that is not part of the model.
    """
    if isinstance(value, dict):
        return {k: without_build_shapes(v) for k, v in value.items() if k != "build_config"}
    return [without_build_shapes(v) for v in value] if isinstance(value, list) else value


def saved_and_loaded(model: Any, library: Any, path: Path) -> Any:
    model.save(path)
    return library.saving.load_model(path)
