"""Configurations of Keras 2, and those in HDF5 files of Keras 3, in the form of today.

Only plain values are rearranged: nothing is made or looked up here but the arguments that layers
take. What comes out is read as any other configuration.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

_CLASSES = {"Model": "Functional"} | {
    f"{name}V{version}": name
    for name in ("BatchNormalization", "LSTM", "GRU", "Embedding")
    for version in (1, 2)
}
# Layers had these arguments, which mean nothing with these values; `...` stands for any value.
_GONE: dict[str, Any] = {
    "adjustment": None,
    "fused": ...,
    "groups": 1,
    "implementation": ...,
    "input_dtype": ...,
    "input_length": ...,
    "ragged": False,
    "time_major": False,
    "virtual_batch_size": None,
    "zero_output_for_mask": False,
}
_KERNEL = ("kernel_initializer", "kernel_regularizer", "kernel_constraint")
_OF_LAMBDAS = ("module", "function_type", "output_shape_type", "output_shape_module")
_OF_OPTIMIZERS = ("decay", "is_legacy_optimizer", "jit_compile", "registered_name")


def modern_model(entry: Any) -> Any:
    """The configuration of a model in the form of today.

    Args:
        entry: `{"class_name": ..., "config": ...}`, as in the attribute `model_config` of a file.

    Raises:
        ValueError: for what is no such dictionary.
    """
    if not isinstance(entry, dict) or "class_name" not in entry or "config" not in entry:
        raise ValueError("it is no dictionary with 'class_name' and 'config'")
    return _modern_layer(_plain(copy.deepcopy(entry)))


def _plain(value: Any) -> Any:
    """Converts tuples, shapes and bytes to what JSON held."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("class_name")
    if kind in ("__tuple__", "TensorShape") and "items" in value:
        return [_plain(item) for item in value["items"] or []]
    return {k: _plain(v) for k, v in value.items() if k != "__passive_serialization__"}


def _modern_layer(entry: dict[str, Any]) -> dict[str, Any]:
    """Converts a layer or model; one that names a module has today's form already."""
    config = entry.get("config")
    if isinstance(config, list):  # this was a Sequential model before Keras 2.2.3
        entry["config"] = config = {"name": entry.get("name"), "layers": config}
    if not isinstance(config, dict):
        return entry
    if isinstance(config.get("layers"), list):
        is_graph = "output_layers" in config
        entry["config"] = _modern_graph(config) if is_graph else _modern_stack(config)
    if entry.get("module"):
        return entry
    name = _CLASSES.get(str(entry.get("class_name")), entry.get("class_name"))
    entry["class_name"] = name
    entry["module"] = {
        "Functional": "keras.src.models.functional",
        "Sequential": "keras",
    }.get(str(name)) or _operation_module(str(name), config)
    if entry["module"] is None:
        entry["module"] = "keras.layers"
        _modernize_arguments(str(name), config)
    return entry


def _operation_module(name: str, config: dict[str, Any]) -> str | None:
    """Returns the module of an entry's operation in Keras; layers have `trainable` instead."""
    from kerascnn.models import op_config

    if "trainable" in config or name == "InputLayer":
        return None
    return op_config.module_of(name)


# Arguments ---------------------------------------------------------------------------------------


def _modernize_arguments(name: str, config: dict[str, Any]) -> None:
    shape = config.pop("batch_input_shape", None)
    if name == "InputLayer":
        config.setdefault("batch_shape", shape)
        for key in ("sparse", "ragged"):
            config[key] = config.get(key) or False
        return
    if isinstance(config.get("axis"), list) and len(config["axis"]) == 1:
        config["axis"] = config["axis"][0]
    if name == "Lambda":
        _modernize_lambda(config)
    takes = _arguments_of(name)
    for key, value in _GONE.items():
        if key in config and key not in takes and (value is ... or config[key] == value):
            del config[key]
    if name.startswith("Separable"):
        for key in _KERNEL:
            config.pop(key, None)
    for key, value in config.items():
        config[key] = _modern_value(key, value)


def _arguments_of(name: str) -> frozenset[str]:
    from kerascnn import layers

    cls = getattr(layers, name, None)
    if not inspect.isclass(cls):
        return frozenset(_GONE)  # a user's class accepts what it accepts
    return frozenset(inspect.signature(cls.__init__).parameters)


def _modernize_lambda(config: dict[str, Any]) -> None:
    for key in _OF_LAMBDAS:
        config.pop(key, None)
    function = config.get("function")
    if isinstance(function, list):
        config["function"] = {"class_name": "__lambda__", "config": {"value": function}}
    elif isinstance(function, str):
        config["function"] = {"class_name": "function", "config": function}


def _modern_value(key: str, value: Any) -> Any:
    if isinstance(value, list) and key == "cells":
        return [_modern_value("cell", item) for item in value]
    if not isinstance(value, dict) or value.get("module") or "class_name" not in value:
        return value
    inner = value.get("config")
    if key == "dtype" and isinstance(inner, dict):
        return inner.get("name")
    if key.endswith("_initializer") and isinstance(inner, dict):
        inner.pop("dtype", None)
    if key in ("layer", "backward_layer", "cell"):
        return _modern_layer(value)
    return value


# Models ------------------------------------------------------------------------------------------


def _modern_stack(config: dict[str, Any]) -> dict[str, Any]:
    layers = config["layers"]
    first = layers[0] if layers and isinstance(layers[0], dict) else {}
    found = first.get("config")
    inner: dict[str, Any] = found if isinstance(found, dict) else {}
    shape = inner.get("batch_input_shape")
    if shape is not None and first.get("class_name") != "InputLayer":
        beginning = {"batch_shape": shape, "dtype": "float32", "name": f"{inner.get('name')}_input"}
        layers = [{"class_name": "InputLayer", "config": beginning}, *layers]
    config["layers"] = [_modern_layer(x) if isinstance(x, dict) else x for x in layers]
    return config


def _modern_graph(config: dict[str, Any]) -> dict[str, Any]:
    layers = {str(entry["name"]): entry for entry in config["layers"]}
    is_old = any(isinstance(n, list) for e in layers.values() for n in e["inbound_nodes"])
    first_calls = _first_calls(config, layers) if is_old else {}

    def reference(name: str, node_index: int, tensor_index: int) -> dict[str, Any]:
        history = [name, node_index - first_calls.get(name, 0), tensor_index]
        return {"class_name": "__keras_tensor__", "config": {"keras_history": history}}

    config["layers"] = [_modern_layer(entry) for entry in config["layers"]]
    for entry in config["layers"]:
        entry["inbound_nodes"] = [
            _modern_call(node, layers, reference) for node in entry["inbound_nodes"] if node
        ]
    if is_old:
        for key in ("input_layers", "output_layers"):
            config[key] = _modern_ends(config[key], layers, first_calls)
    return config


def _first_calls(config: dict[str, Any], layers: dict[str, Any]) -> dict[str, int]:
    """Returns the number of each inner model's first call: Keras 2 also counts its creation."""
    used: dict[str, list[int]] = {}

    def visit(value: Any) -> None:
        if _is_reference(value, layers):
            used.setdefault(value[0], []).append(value[1])
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(item, (list, dict)):
                visit(item)

    visit([entry["inbound_nodes"] for entry in layers.values()])
    visit([config["input_layers"], config["output_layers"]])
    return {
        name: min(indices)
        for name, indices in used.items()
        if "layers" in (layers[name].get("config") or {})
    }


def _is_reference(value: Any, layers: dict[str, Any]) -> bool:
    return (
        isinstance(value, list)
        and len(value) in (3, 4)
        and isinstance(value[0], str)
        and value[0] in layers
        and all(isinstance(n, int) for n in value[1:3])
        and isinstance(value[3:] or [{}], list)
    )


def _modern_call(
    node: Any, layers: dict[str, Any], reference: Callable[[str, int, int], Any]
) -> dict[str, Any]:
    """Converts a call to arguments with references to tensors in them."""
    if isinstance(node, dict) and "args" in node and "kwargs" in node:
        return node
    kwargs: dict[str, Any] = {}

    def revive(value: Any) -> Any:
        if _is_reference(value, layers):
            if len(value) == 4 and isinstance(value[3], dict):
                kwargs.update(value[3])
            return reference(*value[:3])
        if isinstance(value, list) and value[:2] == ["_CONSTANT_VALUE", -1]:
            if len(value) == 4 and isinstance(value[3], dict):
                kwargs.update(value[3])
            return value[2]
        if isinstance(value, dict):
            return {key: revive(item) for key, item in value.items()}
        return [revive(item) for item in value] if isinstance(value, list) else value

    inputs = revive(node)
    if isinstance(inputs, list) and len(inputs) == 1:
        inputs = inputs[0]
    named = {key: revive(value) for key, value in dict(kwargs).items()}
    return {"args": [inputs], "kwargs": named}


def _modern_ends(value: Any, layers: dict[str, Any], first_calls: dict[str, int]) -> Any:
    """Converts inputs or outputs, a single one without a list; inner models' calls count from 1."""
    if isinstance(value, dict):
        return {key: _modern_ends(item, layers, first_calls) for key, item in value.items()}
    if _is_reference(value, layers):
        name, node_index, tensor_index = value[:3]
        counted = 1 if layers[name].get("class_name") == "Functional" else 0
        return [name, node_index - first_calls.get(name, 0) + counted, tensor_index]
    ends = [_modern_ends(item, layers, first_calls) for item in value]
    return ends[0] if len(ends) == 1 else ends


# Training ----------------------------------------------------------------------------------------


def modern_training(config: Any) -> dict[str, Any]:
    """Returns what a model was compiled with, for `compile_from_config`.

    Args:
        config: the attribute `training_config` of a file.

    Raises:
        ValueError: for what is no dictionary with an optimizer.
    """
    if not isinstance(config, dict) or not isinstance(config.get("optimizer_config"), dict):
        raise ValueError("it has no dictionary 'optimizer_config'")
    config = _plain(copy.deepcopy(config))
    return {
        "optimizer": _modern_optimizer(config["optimizer_config"]),
        "loss": _modern_nested(config.get("loss"), _modern_loss),
        "loss_weights": config.get("loss_weights"),
        "metrics": _modern_nested(config.get("metrics"), _modern_metric),
        "weighted_metrics": _modern_nested(config.get("weighted_metrics"), _modern_metric),
    }


def _modern_nested(value: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    if isinstance(value, list):
        return [_modern_nested(item, change) for item in value]
    if isinstance(value, dict) and "class_name" in value:
        return value if value.get("module") else change(value)
    if isinstance(value, dict):
        return {key: _modern_nested(item, change) for key, item in value.items()}
    return value


def _modern_loss(entry: dict[str, Any]) -> dict[str, Any]:
    config = entry.get("config")
    if isinstance(config, dict) and config.get("reduction") == "auto":
        config["reduction"] = "sum_over_batch_size"
    return {**entry, "module": "keras.losses"}


def _modern_metric(entry: dict[str, Any]) -> dict[str, Any]:
    config = entry.get("config")
    if not isinstance(config, dict):
        return entry
    if entry.get("class_name") == "MeanMetricWrapper" and isinstance(config.get("fn"), str):
        config["fn"] = {"class_name": "function", "config": config["fn"]}
    return {**entry, "module": "keras.metrics"}


def _modern_optimizer(entry: dict[str, Any]) -> dict[str, Any]:
    if entry.get("module") or not isinstance(entry.get("config"), dict):
        return entry
    config = dict(entry["config"])
    name = str(entry.get("class_name")).removeprefix("Custom>")
    if "lr" in config:
        config["learning_rate"] = config.pop("lr")
    rate, decay = config.get("learning_rate"), config.get("decay")
    if decay and isinstance(rate, (int, float)):
        inverse = {"initial_learning_rate": rate, "decay_steps": 1, "decay_rate": decay}
        config["learning_rate"] = {"class_name": "InverseTimeDecay", "config": inverse}
    elif isinstance(rate, int):
        config["learning_rate"] = float(rate)
    for key in _OF_OPTIMIZERS:
        config.pop(key, None)
    if config.get("epsilon", 0) is None:
        del config["epsilon"]
    if config.get("weight_decay") == 0:
        config["weight_decay"] = None
    rate = config.get("learning_rate")
    if isinstance(rate, dict) and "class_name" in rate and not rate.get("module"):
        rate["module"] = "keras.optimizers.schedules"
    return {"class_name": name, "module": "keras.optimizers", "config": config}


# Writing -----------------------------------------------------------------------------------------


def legacy_layer(entry: dict[str, Any]) -> dict[str, Any]:
    """A configuration of today as files of the older form have it.

    Operations keep their module: their classes' names are those of layers too.
    """
    config = dict(entry["config"])
    if isinstance(config.get("layers"), list):
        config["layers"] = [legacy_layer(layer) for layer in config["layers"]]
    kept: dict[str, Any] = {key: entry[key] for key in ("name", "inbound_nodes") if key in entry}
    if str(entry.get("module")).startswith(("keras.src.ops.", "kerascnn.ops")):
        return {**entry, **kept, "config": config}
    name = entry.get("registered_name")
    if not name or ("layers" in config and name == entry["class_name"]):
        name = entry["class_name"]
    return {"class_name": name, "config": config, **kept}
