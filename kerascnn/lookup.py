"""Names and configurations, and the losses, metrics, initializers, ... that they stand for."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from kerascnn import serialization


def deserialize(
    config: Any,
    known: Mapping[str, Any],
    kind: str,
    custom_objects: Mapping[str, Any] | None = None,
) -> Any:
    """The object that a name or a configuration dictionary describes.

    Args:
        config: a name, or what `serialize` returned; anything else comes back as it is.
        known: classes and functions by their names.
        kind: "loss", "metric", "initializer", "regularizer" or "constraint".
        custom_objects: custom classes and functions by name.

    Raises:
        ValueError: for a name that is not known.
    """
    if isinstance(config, str):
        return _by_name(config, known, kind, custom_objects)
    if isinstance(config, dict) and config.get("class_name") == "function":
        name = str(config.get("config"))
        if name in known and not (custom_objects and name in custom_objects):
            return known[name]
    place = "kerascnn.losses" if kind == "loss" else f"kerascnn.{kind}s"
    return serialization.deserialize_object(config, custom_objects, place)


def _by_name(
    name: str, known: Mapping[str, Any], kind: str, custom_objects: Mapping[str, Any] | None
) -> Any:
    found = (custom_objects or {}).get(name, known.get(name))
    if found is None:
        raise ValueError(
            f"Could not interpret {kind} identifier: {name!r}. "
            f"{serialization.did_you_mean(name, known)} If it is your own, pass it as "
            f"custom_objects={{{name!r}: ...}}, or pass the object in place of its name."
        )
    return found() if inspect.isclass(found) else found


def get(identifier: Any, known: Mapping[str, Any], kind: str) -> Any:
    """The object that a name, a class, a configuration or a callable stands for; None for None.

    Raises:
        ValueError: for an unknown name or a thing that can't be called.
    """
    if identifier is None:
        return None
    found = identifier
    if isinstance(identifier, (str, dict)):
        try:
            found = deserialize(identifier, known, kind)
        except ValueError as error:
            if "Could not interpret" in str(error):
                raise
            raise ValueError(
                f"Could not interpret {kind} identifier: {identifier!r}. {error}"
            ) from error
    if inspect.isclass(found):
        found = found()
    if not callable(found):
        raise ValueError(
            f"Could not interpret {kind} identifier: {identifier!r} of type "
            f"{type(identifier).__name__}. Pass a name, an object, a class, a function or a "
            "dictionary with 'class_name' and 'config'."
        )
    return found
