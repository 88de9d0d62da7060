"""Objects as configuration dictionaries and back, in the form that Keras gives them.

A dictionary has `module` (the public place in Keras), `class_name`, `config` (what `from_config`
takes) and `registered_name`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

# Public places of Keras, and the modules where kerascnn keeps what they hold.
_PLACES = {
    "keras.layers": "kerascnn.layers",
    "keras.initializers": "kerascnn.initializers",
    "keras.regularizers": "kerascnn.regularizers",
    "keras.constraints": "kerascnn.constraints",
    "keras.optimizers.schedules": "kerascnn.optimizers.schedules",
    "keras.optimizers": "kerascnn.optimizers",
    "keras.losses": "kerascnn.losses",
    "keras.metrics": "kerascnn.metrics",
    "keras.activations": "kerascnn.activations",
    "keras.random": "kerascnn.random",
    "keras": "kerascnn",
    "keras.src.models.functional": "kerascnn.models",
    "keras.src.models.sequential": "kerascnn.models",
}


def public_module(cls: type) -> str:
    """The place in Keras where the like of a class of kerascnn is found."""
    parts = cls.__module__.split(".")
    if parts[0] != "kerascnn":
        return cls.__module__
    for depth in (3, 2):
        place = ".".join(["keras", *parts[1:depth]])
        if len(parts) >= depth and place in _PLACES:
            return place
    if cls.__name__ == "Functional":
        return "keras.src.models.functional"
    return "keras"


def serialize_object(obj: Any) -> Any:
    """The configuration of an object with `get_config`; plain values stay as they are.

    Raises:
        TypeError: for an object that has no configuration.
    """
    if obj is None or isinstance(obj, (bool, int, float, str)):
        return obj
    if isinstance(obj, (list, tuple)):
        return [serialize_object(item) for item in obj]
    if isinstance(obj, dict):
        return {key: serialize_object(value) for key, value in obj.items()}
    if isinstance(obj, np.generic):
        return obj.item()
    if isinstance(obj, np.ndarray):
        return {
            "class_name": "__numpy__",
            "config": {"value": obj.tolist(), "dtype": str(obj.dtype)},
        }
    if hasattr(obj, "get_config"):
        cls = type(obj)
        own = cls.__module__.split(".")[0] == "kerascnn"
        return {
            "module": public_module(cls),
            "class_name": cls.__name__,
            "config": obj.get_config(),
            "registered_name": None if own else cls.__name__,
        }
    if callable(obj):
        return {
            "module": "builtins",
            "class_name": "function",
            "config": obj.__name__,
            "registered_name": obj.__name__,
        }
    raise TypeError(f"{obj!r} cannot be put into a configuration: it has no `get_config`.")


def serialize_layer(layer: Any) -> dict[str, Any]:
    """The configuration of a layer of a model, with the shapes that it was built on."""
    config = serialize_object(layer)
    if layer.built and layer.get_build_config() is not None:
        config["build_config"] = layer.get_build_config()
    return config


def deserialize_object(
    config: Any, custom_objects: Mapping[str, Any] | None = None, place: str | None = None
) -> Any:
    """The object that a configuration describes; plain values stay as they are.

    Args:
        config: What `serialize_object` returned.
        custom_objects: Classes and functions of one's own by name.
        place: A module of kerascnn to look in where the configuration names none.

    Raises:
        ValueError: for a class that is not known.
    """
    if isinstance(config, (list, tuple)):
        return [deserialize_object(item, custom_objects, place) for item in config]
    if not isinstance(config, dict) or "class_name" not in config or "config" not in config:
        return config
    name = config["class_name"]
    if name == "__numpy__":
        return np.array(config["config"]["value"], dtype=config["config"]["dtype"])
    if name == "function":
        name = config["config"]
        if custom_objects and name in custom_objects:
            return custom_objects[name]
        raise ValueError(
            f"The function {name!r} is not known. Pass it as custom_objects={{{name!r}: {name}}}."
        )
    cls = _find_class(name, config, custom_objects, place)
    inner = config["config"]
    if custom_objects and _takes_custom_objects(cls):
        return cls.from_config(inner, custom_objects=custom_objects)
    return cls.from_config(inner)


def _takes_custom_objects(cls: Any) -> bool:
    code = getattr(getattr(cls.from_config, "__func__", cls.from_config), "__code__", None)
    return code is not None and "custom_objects" in code.co_varnames[: code.co_argcount]


def _find_class(
    name: str, config: dict[str, Any], custom_objects: Mapping[str, Any] | None, place: str | None
) -> Any:
    for key in (str(config.get("registered_name")), name):
        if custom_objects and key in custom_objects:
            return custom_objects[key]
    module_name = config.get("module")
    if str(module_name).startswith("keras.src.backend.torch.optimizers."):
        module_name = "keras.optimizers"  # where Keras on PyTorch says that its optimizers are
    wanted = _PLACES.get(module_name, place) if module_name else place
    if wanted is not None:
        found = getattr(importlib.import_module(wanted), name, None)
        if isinstance(found, type):
            return found
    raise ValueError(
        f"The class {name!r}{f' of {module_name}' if module_name else ''} is not known. If it is "
        f"your own, pass it as custom_objects={{{name!r}: {name}}}."
    )


def did_you_mean(name: Any, choices: Any) -> str:
    """The end of an error message: the names that come close, else all of them."""
    import difflib  # for errors only: it would slow the import of the package

    names = sorted(str(c) for c in choices)
    close = difflib.get_close_matches(str(name).lower(), names, n=3, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(repr(c) for c in close)}?"
    return f"Known are {', '.join(names)}."
