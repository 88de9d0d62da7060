"""Objects as configuration dictionaries and back, in the form that Keras gives them.

A dictionary has `module` (the public place in Keras), `class_name`, `config` (what `from_config`
takes) and `registered_name`; layers add the shapes they were built on, models how they were
compiled. Reading one makes objects of public classes of kerascnn and of registered classes only: a
configuration cannot name a module to import.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import inspect
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from kerascnn import former_names, registration

# These are public modules of Keras, and the modules of kerascnn with the same objects.
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
    "keras.dtype_policies": "kerascnn.dtype_policies",
    "keras.quantizers": "kerascnn.quantizers",
    "keras.random": "kerascnn.random",
    # these are the only objects there with configurations
    "keras.utils": "kerascnn.utils.feature_space",
    "keras.models": "kerascnn.models",
    "keras": "kerascnn",
    "keras.src.models.functional": "kerascnn.models",
    "keras.src.models.sequential": "kerascnn.models",
    "keras.src.layers.preprocessing.feature_space": "kerascnn.utils.feature_space",
    "keras.src.applications.convnext": "kerascnn.applications.parts",
    "keras.src.applications.inception_resnet_v2": "kerascnn.applications.parts",
    "kerascnn.applications.parts": "kerascnn.applications.parts",
    "kerascnn.onnx_files.layers": "kerascnn.onnx_files.layers",
}
# Custom ops are registered in this package.
CUSTOM_OPS = "custom_op"
# A function that a configuration only names is looked for here.
_FUNCTION_PLACES = (
    "kerascnn.activations",
    "kerascnn.losses",
    "kerascnn.metrics",
    "kerascnn.initializers",
    "kerascnn.regularizers",
    "kerascnn.constraints",
)


class DeserializationError(ValueError, TypeError):
    """A configuration that describes nothing known. Keras raises TypeError for some of these."""


def public_module(cls: type) -> str:
    """Returns the public place in Keras of the counterpart of a kerascnn class."""
    parts = cls.__module__.split(".")
    if parts[0] != "kerascnn":
        return cls.__module__
    if "_module_in_configs" in cls.__dict__:
        return str(cls.__dict__["_module_in_configs"])
    for depth in (3, 2):
        place = ".".join(["keras", *parts[1:depth]])
        if len(parts) >= depth and place in _PLACES and place != "keras.models":
            return "keras" if cls.__name__ == "DTypePolicy" else place
    if cls.__name__ == "Functional":
        return "keras.src.models.functional"
    return "keras"


# Sharing -----------------------------------------------------------------------------------------


class _Shared:
    """The objects that occur more than once in a configuration."""

    def __init__(self) -> None:
        # keeps the object alive, so that its id stays valid
        self.numbers: dict[int, tuple[int, Any]] = {}
        self.objects: dict[Any, Any] = {}

    def number(self, obj: Any) -> int:
        return self.numbers.setdefault(id(obj), (len(self.numbers), obj))[0]


_shared: contextvars.ContextVar[_Shared | None] = contextvars.ContextVar("shared", default=None)


@contextlib.contextmanager
def object_sharing() -> Iterator[None]:
    """In this block, an object that occurs several times becomes one object again when read."""
    token = _shared.set(_Shared())
    try:
        yield
    finally:
        _shared.reset(token)


def serialize_with_sharing(obj: Any) -> Any:
    """Does what `serialize_keras_object` does, and notes which objects occur several times."""
    with object_sharing():
        config = serialize_keras_object(obj)
    uses: Counter[int] = Counter()

    def visit(part: Any, handle: Callable[[dict[str, Any]], None]) -> None:
        if isinstance(part, dict):
            if "shared_object_id" in part:
                handle(part)
            for value in part.values():
                visit(value, handle)
        elif isinstance(part, (list, tuple)):
            for value in part:
                visit(value, handle)

    def count(part: dict[str, Any]) -> None:
        uses[part["shared_object_id"]] += 1

    def drop_single(part: dict[str, Any]) -> None:
        if uses[part["shared_object_id"]] == 1:
            del part["shared_object_id"]

    visit(config, count)
    visit(config, drop_single)
    return config


# Writing -----------------------------------------------------------------------------------------


def serialize_keras_object(obj: Any) -> Any:
    """The configuration of an object with `get_config`; plain values stay as they are.

    Args:
        obj: An object, a function, a value, or lists and dictionaries of them.

    Returns:
        Dictionaries, lists, strings, numbers, booleans and None, as JSON has them.

    Raises:
        TypeError: for an object that has no configuration.

    Example:

    >>> import kerascnn as keras
    >>> keras.saving.serialize_keras_object(keras.initializers.Zeros())["class_name"]
    'Zeros'
    """
    if obj is None or isinstance(obj, (bool, int, float, str)):
        return obj
    if isinstance(obj, (list, tuple)):
        items = [serialize_keras_object(item) for item in obj]
        return tuple(items) if isinstance(obj, tuple) else items
    if isinstance(obj, dict):
        return {key: serialize_keras_object(value) for key, value in obj.items()}
    special = _serialize_special(obj)
    if special is not None:
        return special
    if isinstance(obj, np.generic) or (isinstance(obj, np.ndarray) and obj.ndim == 0):
        return obj.item()
    if isinstance(obj, types.FunctionType):
        return _serialize_function(obj)
    if hasattr(obj, "get_config") and not isinstance(obj, type):
        return _serialize_instance(obj)
    if callable(obj):
        return _serialize_function(obj)
    raise TypeError(f"{obj!r} cannot be put into a configuration: it has no `get_config`.")


def _serialize_special(obj: Any) -> dict[str, Any] | None:
    """Serializes values that are not objects with a configuration, in Keras' notation."""
    from kerascnn import _core
    from kerascnn.symbolic.keras_tensor import KerasTensor

    def entry(kind: str, **config: Any) -> dict[str, Any]:
        return {"class_name": f"__{kind}__", "config": config}

    if isinstance(obj, np.ndarray) and obj.ndim:
        return entry("numpy", value=obj.tolist(), dtype=str(obj.dtype))
    if isinstance(obj, _core.Tensor):
        return entry("tensor", value=obj.numpy().tolist(), dtype=obj.dtype)
    if isinstance(obj, bytes):
        return entry("bytes", value=obj.decode())
    if isinstance(obj, slice):
        ends = {name: serialize_keras_object(getattr(obj, name)) for name in ("start", "stop")}
        return entry("slice", **ends, step=serialize_keras_object(obj.step))
    if obj is Ellipsis:
        return entry("ellipsis")
    if isinstance(obj, KerasTensor):
        place = obj._keras_history
        history = None if place is None else [place.operation.name, *place[1:]]
        return entry("keras_tensor", shape=obj.shape, dtype=obj.dtype, keras_history=history)
    return None


def _serialize_function(function: Any) -> dict[str, Any]:
    if getattr(function, "__name__", None) == "<lambda>":
        from kerascnn import lambdas

        warnings.warn(
            "A lambda is part of the configuration. It can only be read with safe_mode=False, for "
            "that runs code out of a file. Use a function with a name.",
            stacklevel=4,
        )
        return {"class_name": "__lambda__", "config": {"value": lambdas.dump(function)}}
    return {
        "module": "builtins",
        "class_name": "function",
        "config": registration.get_registered_name(function),
        "registered_name": "function",
    }


def _serialize_instance(obj: Any) -> dict[str, Any]:
    cls = type(obj)
    inner = obj.get_config()
    if not isinstance(inner, dict):
        raise TypeError(f"`get_config` of {obj} must return a dictionary. It returned: {inner}")
    inner = {key: serialize_keras_object(value) for key, value in inner.items()}
    own = cls.__module__.split(".")[0] == "kerascnn"
    module: str | None = public_module(cls)
    config: dict[str, Any] = {
        "module": None if module == "__main__" else module,
        "class_name": cls.__dict__.get("_name_in_configs", cls.__name__),
        "config": inner,
        "registered_name": None if own else registration.get_registered_name(cls),
    }
    if own and str(module).startswith("keras.src."):
        config["registered_name"] = cls.__name__
    for part in ("build", "compile"):
        getter = getattr(obj, f"get_{part}_config", None)
        value = None if getter is None else getter()
        if value is not None:
            config[f"{part}_config"] = serialize_keras_object(value)
    shared = _shared.get()
    if shared is not None:
        config["shared_object_id"] = shared.number(obj)
    return config


# The rest of the package uses these names.
serialize_object = serialize_keras_object


# Reading -----------------------------------------------------------------------------------------


def deserialize_keras_object(
    config: Any,
    custom_objects: Mapping[str, Any] | None = None,
    safe_mode: bool = True,
    **kwargs: Any,
) -> Any:
    """The object that a configuration describes; plain values stay as they are.

    Args:
        config: What `serialize_keras_object` returned, in kerascnn or in Keras.
        custom_objects: Custom classes and functions by name.
        safe_mode: Whether lambdas are refused. They are code, which would be run.
        module_objects: Classes and functions by name, for configurations that are only a name.

    Returns:
        An object of the class that the configuration names, or the value.

    Raises:
        ValueError: for a class or function that is not known (a TypeError too, as in Keras), a
            lambda in safe mode, or a configuration that does not fit its class.

    Example:

    >>> import kerascnn as keras
    >>> config = keras.saving.serialize_keras_object(keras.regularizers.L2(0.1))
    >>> round(keras.saving.deserialize_keras_object(config).l2, 3)
    0.1
    """
    module_objects = kwargs.pop("module_objects", None)
    if kwargs:
        raise TypeError(f"deserialize_keras_object does not have the arguments {sorted(kwargs)}")
    inherited = registration.in_safe_mode()
    custom = registration.all_custom_objects(custom_objects)
    with registration.SafeModeScope(safe_mode if inherited is None else inherited):
        if isinstance(config, str):
            if custom.get(config) is not None:
                return custom[config]
            found = (module_objects or {}).get(config)
            return config if found is None else (found() if isinstance(found, type) else found)
        if module_objects is not None and isinstance(config, dict):
            named = module_objects.get(config.get("class_name"))
            if named is not None:
                custom.setdefault(config["class_name"], named)
        try:
            return deserialize_object(config, custom)
        except RecursionError as error:
            raise DeserializationError(
                "The configuration is nested deeper than any object's. It is damaged, or was made "
                "to end the program."
            ) from error


def deserialize_object(
    config: Any, custom_objects: Mapping[str, Any] | None = None, place: str | None = None
) -> Any:
    """As `deserialize_keras_object`, with a module of kerascnn to look in by default.

    Args:
        config: What `serialize_keras_object` returned.
        custom_objects: Custom classes and functions by name.
        place: A module of kerascnn to look in where the configuration names none.
    """
    if isinstance(config, (list, tuple)):
        return [deserialize_object(item, custom_objects, place) for item in config]
    if not isinstance(config, dict):
        return config
    if "class_name" not in config or "config" not in config:
        return {k: deserialize_object(v, custom_objects, place) for k, v in config.items()}
    name, inner = config["class_name"], config["config"]
    if not isinstance(name, str):
        raise DeserializationError(f"A class is named by a string. Received: class_name={name!r}")
    if name.startswith("__"):
        return _deserialize_special(name, inner, custom_objects)
    if name == "function":
        return _find_function(inner, config, custom_objects)
    shared = _shared.get()
    number = config.get("shared_object_id")
    if shared is not None and number is not None and number in shared.objects:
        return shared.objects[number]
    cls = _find_class(name, config, custom_objects, place)
    if isinstance(cls, types.FunctionType):
        return cls
    obj = make(cls, name, {} if inner is None else inner, config, custom_objects)
    if shared is not None and number is not None:
        shared.objects[number] = obj
    return obj


def make(
    cls: Any,
    name: str,
    inner: Any,
    config: dict[str, Any],
    custom_objects: Mapping[str, Any] | None,
) -> Any:
    if not hasattr(cls, "from_config"):
        raise DeserializationError(f"{name!r} cannot be made again: it has no `from_config`.")
    if not isinstance(inner, dict):
        raise DeserializationError(
            f"The config of {name} must be a dictionary. Received: {inner!r}"
        )
    scope: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if custom_objects:
        scope = registration.CustomObjectScope(custom_objects)
    with scope:
        if custom_objects and _takes_custom_objects(cls):
            obj = cls.from_config(inner, custom_objects=custom_objects)
        else:
            obj = cls.from_config(inner)
        if config.get("build_config") and not getattr(obj, "built", True):
            obj.build_from_config(config["build_config"])
            if not type(obj).build_from_config.__module__.startswith("kerascnn."):
                obj.built = True  # a user's class has built what it needs
        if config.get("compile_config"):
            obj.compile_from_config(config["compile_config"])
    return obj


def _deserialize_special(name: str, inner: Any, custom_objects: Mapping[str, Any] | None) -> Any:
    try:
        if name == "__numpy__":
            return np.array(inner["value"], dtype=_plain_dtype(inner["dtype"]))
        if name == "__tensor__":
            from kerascnn import ops

            return ops.convert_to_tensor(inner["value"], dtype=inner["dtype"])
        if name == "__bytes__":
            return inner["value"].encode()
        if name == "__ellipsis__":
            return Ellipsis
        if name == "__slice__":
            ends = [inner[end] for end in ("start", "stop", "step")]
            return slice(*deserialize_object(ends, custom_objects))
        if name == "__keras_tensor__":
            from kerascnn.symbolic.keras_tensor import KerasTensor

            return KerasTensor(inner["shape"], dtype=inner["dtype"])
    except (KeyError, AttributeError) as error:
        raise DeserializationError(f"The config of {name} is damaged: {inner!r}") from error
    if name == "__lambda__":
        if registration.in_safe_mode() is not False:
            raise ValueError(
                "The configuration holds a lambda: code that would be run. Where you trust its "
                "source, pass safe_mode=False, or call "
                "keras.config.enable_unsafe_deserialization()."
            )
        from kerascnn import lambdas

        return lambdas.load(inner)
    raise DeserializationError(f"The kind of value {name!r} is not known here.")


def _plain_dtype(name: Any) -> np.dtype[Any]:
    """Parses a dtype of numbers; "object", which may run code, is refused."""
    from kerascnn import dtypes

    return np.dtype(dtypes.numpy_dtype(dtypes.standardize_dtype(name)))


def _takes_custom_objects(cls: Any) -> bool:
    code = getattr(getattr(cls.from_config, "__func__", cls.from_config), "__code__", None)
    return code is not None and "custom_objects" in code.co_varnames[: code.co_argcount]


def _registered(name: Any, custom_objects: Mapping[str, Any] | None) -> Any:
    if not isinstance(name, str):
        return None
    found = registration.get_registered_object(name, custom_objects)
    return found if found is not None else (custom_objects or {}).get(name)


def _find_function(
    name: Any, config: dict[str, Any], custom_objects: Mapping[str, Any] | None
) -> Any:
    if not isinstance(name, str):
        raise DeserializationError(f"A function is given by its name. Received: {name!r}")
    found = _registered(name, custom_objects)
    package, _, own = name.partition(">")
    if found is None and package == CUSTOM_OPS:
        found = _registered(own, custom_objects)
        if found is None:
            raise DeserializationError(missing_custom_op(own))
    if found is not None:
        return found
    wanted = _PLACES.get(str(config.get("module")))
    for place in (wanted,) if wanted else _FUNCTION_PLACES:
        function = _public(place, name)
        if inspect.isfunction(function):
            return function
    places = (wanted,) if wanted else _FUNCTION_PLACES
    known = [n for place in places for n in _shown_names(place, inspect.isfunction)]
    raise DeserializationError(_unknown("function", name, "", known))


def missing_custom_op(name: str) -> str:
    """Describes what is wrong if something names a custom op that is not defined here."""
    return (
        f"The custom op {name!r} is not defined here. Run the code that defines it, "
        f"ops.custom_op({name!r}, ...), or import the module that does, before loading what uses "
        f"it; or pass it as custom_objects={{{name!r}: ...}}."
    )


def _unknown(what: str, name: str, origin: str, known: list[str]) -> str:
    question = _close_names(name, known)
    return (
        f"The {what} {name!r}{origin} is not known. {question + ' ' if question else ''}If it is "
        f"your own, pass it as custom_objects={{{name!r}: {name}}}, or decorate it with "
        "keras.saving.register_keras_serializable()."
    )


def _shown_names(place: str, kind: Callable[[Any], bool]) -> list[str]:
    """Returns the public names of a kerascnn module whose objects are of a kind."""
    return [n for n, value in vars(importlib.import_module(place)).items() if kind(value)]


def _public(place: str, name: str) -> Any:
    """Returns what a kerascnn module shows under a name, or None."""
    module = importlib.import_module(place)
    public = getattr(module, "__all__", None)
    if name.startswith("_") or (public is not None and name not in public):
        return None
    return getattr(module, name, None)


def _of_class_name(place: str, name: str) -> Any:
    """Returns the public class whose own name is another than its public one, or None.

    `.h5` files have the name of the class: "GroupedQueryAttention" for `GroupQueryAttention`.
    """
    shown = (_public(place, n) for n in _shown_names(place, inspect.isclass))
    return next((found for found in shown if found and found.__name__ == name), None)


def _find_class(
    name: str, config: dict[str, Any], custom_objects: Mapping[str, Any] | None, place: str | None
) -> Any:
    for key in (config.get("registered_name"), name):
        found = _registered(key, custom_objects)
        if found is not None:
            return found
    module_name = config.get("module")
    if str(module_name).startswith("keras.src.backend.torch.optimizers."):
        module_name = "keras.optimizers"  # Keras on PyTorch gives its optimizers another module
    wanted = _PLACES.get(str(module_name), place) if module_name else place
    if wanted is not None:
        found = _public(wanted, name) or _of_class_name(wanted, name)
        if isinstance(found, type) and hasattr(found, "get_config"):
            return found
    origin = f" of {module_name}" if module_name else ""
    known = [] if wanted is None else _shown_names(wanted, inspect.isclass)
    raise DeserializationError(_unknown("class", name, origin, known))


def did_you_mean(name: Any, choices: Any) -> str:
    """Returns the end of an error message: similar names, or else all names."""
    names = sorted(str(c) for c in choices)
    now = former_names.today(str(name), names)
    if now is not None:
        return f"It is called {now!r}."
    return _close_names(name, names) or f"Known are {', '.join(names)}."


def _close_names(name: Any, names: list[str]) -> str:
    """Returns a question with similar names, or "" if there are none."""
    import difflib  # only errors need this import, which is slow

    spellings = (str(name), str(name).lower())
    close = [c for s in spellings for c in difflib.get_close_matches(s, names, n=3, cutoff=0.6)]
    if not close and len(str(name)) > 1:  # a part of a name
        close = [c for c in names if str(name).lower() in c.lower()]
    shown = " or ".join(repr(c) for c in list(dict.fromkeys(close))[:3])
    return f"Did you mean {shown}?" if close else ""
