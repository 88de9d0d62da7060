"""Optimizers: how weights follow their gradients."""

import inspect
from typing import Any

from kerascnn.optimizers.adam import Adam
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.optimizers.rmsprop import RMSprop
from kerascnn.optimizers.sgd import SGD

_BY_NAME = {"adam": Adam, "rmsprop": RMSprop, "sgd": SGD}


def get(identifier: Any) -> Optimizer:
    """The optimizer that a name, a class, a config dictionary or an optimizer stands for.

    Raises:
        ValueError: for anything else.

    >>> keras.optimizers.get("adam").beta_1
    0.9
    """
    optimizer = identifier
    if isinstance(identifier, str):
        optimizer = _BY_NAME.get(identifier.lower())
    elif isinstance(identifier, dict):
        cls = _BY_NAME.get(str(identifier.get("class_name", "")).lower())
        optimizer = cls(**identifier.get("config", {})) if cls else None
    if inspect.isclass(optimizer):
        optimizer = optimizer()
    if not isinstance(optimizer, Optimizer):
        raise ValueError(
            f"Could not interpret optimizer identifier: {identifier!r}. Known names: "
            f"{', '.join(sorted(_BY_NAME))}."
        )
    return optimizer


__all__ = ["SGD", "Adam", "Optimizer", "RMSprop", "get"]
