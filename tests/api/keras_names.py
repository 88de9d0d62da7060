"""Lists the names of Keras' namespaces, and finds each of them in kerascnn."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any

NAMESPACES = (
    "",  # keras itself
    "activations",
    "applications",
    "applications.convnext",
    "applications.densenet",
    "applications.efficientnet",
    "applications.efficientnet_v2",
    "applications.imagenet_utils",
    "applications.inception_resnet_v2",
    "applications.inception_v3",
    "applications.mobilenet",
    "applications.mobilenet_v2",
    "applications.mobilenet_v3",
    "applications.nasnet",
    "applications.resnet",
    "applications.resnet50",
    "applications.resnet_v2",
    "applications.vgg16",
    "applications.vgg19",
    "applications.xception",
    "backend",
    "callbacks",
    "config",
    "constraints",
    "datasets.cifar10",
    "datasets.cifar100",
    "datasets.fashion_mnist",
    "datasets.mnist",
    "distribution",
    "dtype_policies",
    "initializers",
    "layers",
    "legacy.saving",
    "losses",
    "metrics",
    "mixed_precision",
    "models",
    "ops",
    "ops.image",
    "ops.linalg",
    "ops.nn",
    "ops.numpy",
    "optimizers",
    "optimizers.legacy",
    "optimizers.schedules",
    "preprocessing",
    "preprocessing.image",
    "preprocessing.sequence",
    "quantizers",
    "random",
    "regularizers",
    "saving",
    "tree",
    "utils",
    "utils.bounding_boxes",
    "utils.legacy",
    "visualization",
    "wrappers",
)


def namespace(package: str, name: str) -> ModuleType | None:
    """Returns the module of that name in Keras or kerascnn, or None."""
    if not name:
        return importlib.import_module(package)
    try:
        return importlib.import_module(f"{package}.{name}")
    except ImportError:
        # Some namespaces, like `keras.datasets.cifar10`, are attributes rather than modules.
        part: Any = importlib.import_module(package)
        for piece in name.split("."):
            part = getattr(part, piece, None)
        return part


def names_in(package: str) -> dict[str, Any]:
    """Returns every public class and function of Keras as {"layers.Dense": the class, ...}."""
    found = {}
    for name in NAMESPACES:
        module = namespace(package, name)
        for public in dir(module):
            value = getattr(module, public)
            if not public.startswith("_") and callable(value) and not inspect.ismodule(value):
                found[f"{name}.{public}".lstrip(".")] = value
    return found


def here(name: str) -> Any:
    """Returns the object of that name in kerascnn, or None."""
    where, _, public = name.rpartition(".")
    return getattr(namespace("kerascnn", where), public, None)


def arguments(function: Any) -> list[tuple[str, str, Any]]:
    """Returns (name, kind, default) of each argument."""
    is_class = inspect.isclass(function)
    parameters = list(
        inspect.signature(function.__init__ if is_class else function).parameters.values()
    )
    return [
        (
            # A call cannot use the names of *args and **kwargs.
            "" if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) else p.name,
            p.kind.name,
            "(none)" if p.default is p.empty else _plain(p.default),
        )
        for p in parameters[1 if is_class else 0 :]
    ]


def _plain(default: Any) -> Any:
    """Compares functions and classes as defaults by name, and tells 1 from 1.0 and True."""
    if inspect.isfunction(default) or inspect.isclass(default):
        return default.__name__
    return f"{default!r}"
