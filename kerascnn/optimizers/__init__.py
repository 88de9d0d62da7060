"""Optimizers, which change weights by their gradients."""

import inspect
from typing import Any

from kerascnn import serialization
from kerascnn.naming import to_snake_case
from kerascnn.optimizers import legacy, schedules
from kerascnn.optimizers.adadelta import Adadelta
from kerascnn.optimizers.adafactor import Adafactor
from kerascnn.optimizers.adagrad import Adagrad
from kerascnn.optimizers.adam import Adam
from kerascnn.optimizers.adamax import Adamax
from kerascnn.optimizers.adamw import AdamW
from kerascnn.optimizers.ftrl import Ftrl
from kerascnn.optimizers.lamb import Lamb
from kerascnn.optimizers.lion import Lion
from kerascnn.optimizers.loss_scale_optimizer import LossScaleOptimizer
from kerascnn.optimizers.multi_optimizer import MultiOptimizer, OptimizerMap
from kerascnn.optimizers.muon import Muon
from kerascnn.optimizers.nadam import Nadam
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.optimizers.rmsprop import RMSprop
from kerascnn.optimizers.schedule_free_adamw import ScheduleFreeAdamW
from kerascnn.optimizers.sgd import SGD

_CLASSES: tuple[Any, ...] = (
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Ftrl,
    Lamb,
    Lion,
    LossScaleOptimizer,
    MultiOptimizer,
    Muon,
    Nadam,
    OptimizerMap,
    RMSprop,
    ScheduleFreeAdamW,
    SGD,
)
_BY_NAME = {cls.__name__.lower(): cls for cls in _CLASSES}


def serialize(optimizer: Optimizer) -> dict[str, Any]:
    """The configuration of an optimizer, without its state.

    Args:
        optimizer: an optimizer.

    Returns:
        A dictionary, which `deserialize` makes an optimizer of.

    >>> keras.optimizers.serialize(keras.optimizers.Lion())["class_name"]
    'Lion'
    """
    return serialization.serialize_object(optimizer)


def deserialize(config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Any:
    """The optimizer that a configuration describes; upper and lower case do not matter.

    Args:
        config: what `serialize` returned.
        custom_objects: classes of your own by name.

    Returns:
        An optimizer without state.

    Raises:
        ValueError: for a class that is not known.

    >>> keras.optimizers.deserialize({"class_name": "sgd", "config": {"momentum": 0.5}}).momentum
    0.5
    """
    name = config["class_name"]
    cls = (custom_objects or {}).get(name)
    if cls is None and str(config.get("module") or "keras.").split(".")[0] in ("keras", "kerascnn"):
        cls = _BY_NAME.get(str(name).lower())
    if cls is None:
        return serialization.deserialize_object(config, custom_objects, "kerascnn.optimizers")
    return cls.from_config(config.get("config", {}), custom_objects=custom_objects)


def get(identifier: Any) -> Any:
    """The optimizer that a name, a class, a config dictionary or an optimizer stands for.

    Args:
        identifier: one of them, or None.

    Returns:
        An optimizer; None for None.

    Raises:
        ValueError: for anything else.

    >>> keras.optimizers.get("adam").beta_1
    0.9
    """
    if identifier is None or isinstance(identifier, Optimizer):
        return identifier
    optimizer = None
    if isinstance(identifier, dict):
        optimizer = deserialize(identifier)
    elif isinstance(identifier, str):
        cls = _BY_NAME.get(identifier.lower())
        if cls is None:
            names = [to_snake_case(c.__name__).replace("_", "") for c in _CLASSES]
            hint = serialization.did_you_mean(identifier, names)
            raise ValueError(f"Could not interpret optimizer identifier: {identifier!r}. {hint}")
        optimizer = cls()
    elif inspect.isclass(identifier) and identifier in _CLASSES:
        optimizer = identifier()
    if not isinstance(optimizer, Optimizer):
        raise ValueError(
            f"Could not interpret optimizer identifier: {identifier!r}. It is to be a name such as "
            "'adam', an optimizer, or the configuration of one."
        )
    return optimizer


__all__ = [
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lamb",
    "Lion",
    "LossScaleOptimizer",
    "MultiOptimizer",
    "Muon",
    "Nadam",
    "Optimizer",
    "OptimizerMap",
    "RMSprop",
    "ScheduleFreeAdamW",
    "deserialize",
    "get",
    "legacy",
    "schedules",
    "serialize",
]
