"""Configurations as Keras 2 wrote them: a class by its name alone, a function as its name.

Nothing is imported to read one: names stand for what the caller passes and what is registered.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from kerascnn import registration, serialization

__all__ = ["deserialize_keras_object", "serialize_keras_object"]

# This key marks an object inside the configuration of another.
_HELD = "__passive_serialization__"


def serialize_keras_object(instance: Any) -> Any:
    """The configuration of an object, or the name of a function or class.

    Args:
        instance: An object with `get_config`, a function, a class, or None.

    Returns:
        A dictionary with `class_name` and `config`, a name, or None.

    Raises:
        ValueError: for anything else.

    Example:

    >>> import kerascnn as keras
    >>> keras.legacy.saving.serialize_keras_object(keras.regularizers.L1(0.5))
    {'class_name': 'L1', 'config': {'l1': 0.5}}
    """
    instance = inspect.unwrap(instance)
    if instance is None:
        return None
    if hasattr(instance, "get_config") and not inspect.isclass(instance):
        config = {key: _serialize_held(item) for key, item in instance.get_config().items()}
        return {
            "class_name": registration.get_registered_name(type(instance)),
            "config": config,
        }
    if hasattr(instance, "__name__"):
        return registration.get_registered_name(instance)
    raise ValueError(f"{instance!r} cannot be put into a configuration: it has no `get_config`.")


def _serialize_held(item: Any) -> Any:
    """Serializes a value in a configuration: objects and functions; other values stay."""
    if item is None or not (hasattr(item, "get_config") or hasattr(item, "__name__")):
        return item
    entry = serialize_keras_object(item)
    return {**entry, _HELD: True} if isinstance(entry, dict) else entry


def deserialize_keras_object(
    identifier: Any,
    module_objects: Mapping[str, Any] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    printable_module_name: str = "object",
) -> Any:
    """The object that a configuration or a name stands for.

    Only classes with `from_config` are made from a configuration, so one cannot have a function
    called with arguments of its choice.

    Args:
        identifier: What `serialize_keras_object` returned, or None or a function, which come back.
        module_objects: Classes and functions by name. Without it kerascnn's own are not known.
        custom_objects: More of them, which go first.
        printable_module_name: What an error calls the kind of object.

    Raises:
        ValueError: for a name that is not known, and for what is no configuration.

    Example:

    >>> import kerascnn as keras
    >>> entry = {"class_name": "L1", "config": {"l1": 0.5}}
    >>> keras.legacy.saving.deserialize_keras_object(entry, vars(keras.regularizers)).get_config()
    {'l1': 0.5}
    """
    if identifier is None or inspect.isfunction(identifier):
        return identifier
    inherited = registration.in_safe_mode()
    with registration.SafeModeScope(True if inherited is None else inherited):
        if isinstance(identifier, str):
            # The caller's objects come first here, and last for classes in a configuration.
            found = (custom_objects or {}).get(identifier)
            if found is None:
                found = _known(identifier, module_objects, None, printable_module_name)
            return found() if inspect.isclass(found) else found
        if isinstance(identifier, dict) and {"class_name", "config"} <= set(identifier):
            return _make(identifier, module_objects, custom_objects, printable_module_name)
    raise ValueError(
        f"Could not interpret the serialized {printable_module_name}: {identifier!r}. It must be a "
        "name, or a dictionary with 'class_name' and 'config'."
    )


def _known(
    name: Any,
    module_objects: Mapping[str, Any] | None,
    custom_objects: Mapping[str, Any] | None,
    kind: str,
) -> Any:
    found = None
    if isinstance(name, str):
        found = registration.get_registered_object(name, custom_objects, module_objects)
    if found is None:
        raise ValueError(
            f"Unknown {kind}: {name!r}. Pass it in module_objects or custom_objects, or register "
            "it with keras.saving.register_keras_serializable."
        )
    return found


def _make(
    entry: dict[str, Any],
    module_objects: Mapping[str, Any] | None,
    custom_objects: Mapping[str, Any] | None,
    kind: str,
) -> Any:
    name, config = entry["class_name"], entry["config"]
    cls = _known(name, module_objects, custom_objects, kind)
    if isinstance(config, list):  # early versions wrote a Sequential as the list of its layers
        config = {"layers": config}
    if isinstance(config, dict):
        config = {
            key: item if key == "name" else _held(item, module_objects, custom_objects)
            for key, item in config.items()
        }
    inner = {"class_name": name, "config": config}
    return serialization.make(cls, name, config, inner, custom_objects)


def _held(
    item: Any,
    module_objects: Mapping[str, Any] | None,
    custom_objects: Mapping[str, Any] | None,
) -> Any:
    """Restores a value in a configuration: makes marked objects, looks up names of functions."""
    if isinstance(item, dict) and _HELD in item:
        return deserialize_keras_object(item, module_objects, custom_objects, "config_item")
    if isinstance(item, str):
        found = registration.get_registered_object(item, custom_objects, module_objects)
        return found if inspect.isfunction(found) else item
    return item
