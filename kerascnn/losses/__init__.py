"""Losses: functions of targets and predictions, and classes that reduce them to one number."""

import inspect
from typing import Any

from kerascnn.losses.loss import Loss
from kerascnn.losses.losses import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    LossFunctionWrapper,
    MeanSquaredError,
    SparseCategoricalCrossentropy,
    binary_crossentropy,
    categorical_crossentropy,
    mean_squared_error,
    sparse_categorical_crossentropy,
)

_CLASSES = (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    MeanSquaredError,
    SparseCategoricalCrossentropy,
)
_FUNCTIONS = (
    binary_crossentropy,
    categorical_crossentropy,
    mean_squared_error,
    sparse_categorical_crossentropy,
)
_BY_NAME = {item.__name__: item for item in (*_CLASSES, *_FUNCTIONS)} | {
    "bce": binary_crossentropy,
    "BCE": binary_crossentropy,
    "mse": mean_squared_error,
    "MSE": mean_squared_error,
}


def get(identifier: Any) -> Any:
    """The loss that a name, a class, a config dictionary or a callable stands for.

    Raises:
        ValueError: for an unknown name or a thing that can't be called.

    >>> keras.losses.get("mse").__name__
    'mean_squared_error'
    """
    if identifier is None:
        return None
    loss = identifier
    if isinstance(identifier, str):
        loss = _BY_NAME.get(identifier)
    elif isinstance(identifier, dict):
        cls = _BY_NAME.get(identifier.get("class_name", ""))
        loss = cls(**identifier.get("config", {})) if inspect.isclass(cls) else None
    if inspect.isclass(loss):
        loss = loss()
    if not callable(loss):
        raise ValueError(
            f"Could not interpret loss identifier: {identifier!r}. Known names: "
            f"{', '.join(sorted(_BY_NAME))}."
        )
    return loss


__all__ = [
    "BinaryCrossentropy",
    "CategoricalCrossentropy",
    "Loss",
    "LossFunctionWrapper",
    "MeanSquaredError",
    "SparseCategoricalCrossentropy",
    "binary_crossentropy",
    "categorical_crossentropy",
    "get",
    "mean_squared_error",
    "sparse_categorical_crossentropy",
]
