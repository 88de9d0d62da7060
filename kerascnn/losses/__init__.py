"""Losses: functions of targets and predictions, and classes that reduce them to one number."""

from typing import Any

from kerascnn import lookup, serialization
from kerascnn.losses.alignment import CTC, ctc
from kerascnn.losses.crossentropy import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    SparseCategoricalCrossentropy,
    binary_crossentropy,
    categorical_crossentropy,
    sparse_categorical_crossentropy,
)
from kerascnn.losses.function_losses import LossFunctionWrapper
from kerascnn.losses.hinges import (
    CategoricalHinge,
    Hinge,
    SquaredHinge,
    categorical_hinge,
    hinge,
    squared_hinge,
)
from kerascnn.losses.loss import Loss
from kerascnn.losses.probabilistic import (
    BinaryFocalCrossentropy,
    CategoricalFocalCrossentropy,
    CategoricalGeneralizedCrossEntropy,
    KLDivergence,
    Poisson,
    binary_focal_crossentropy,
    categorical_focal_crossentropy,
    categorical_generalized_cross_entropy,
    kl_divergence,
    poisson,
)
from kerascnn.losses.regression import (
    CosineSimilarity,
    Huber,
    LogCosh,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    cosine_similarity,
    huber,
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
)
from kerascnn.losses.segmentation import (
    Dice,
    Tversky,
    dice,
    tversky,
)
from kerascnn.losses.similarity import (
    Circle,
    circle,
)

_CLASSES = (
    CTC,
    BinaryCrossentropy,
    BinaryFocalCrossentropy,
    CategoricalCrossentropy,
    CategoricalFocalCrossentropy,
    CategoricalGeneralizedCrossEntropy,
    CategoricalHinge,
    Circle,
    CosineSimilarity,
    Dice,
    Hinge,
    Huber,
    KLDivergence,
    LogCosh,
    Loss,
    LossFunctionWrapper,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    Poisson,
    SparseCategoricalCrossentropy,
    SquaredHinge,
    Tversky,
)
_FUNCTIONS = (
    binary_crossentropy,
    binary_focal_crossentropy,
    categorical_crossentropy,
    categorical_focal_crossentropy,
    categorical_generalized_cross_entropy,
    categorical_hinge,
    circle,
    cosine_similarity,
    ctc,
    dice,
    hinge,
    huber,
    kl_divergence,
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
    poisson,
    sparse_categorical_crossentropy,
    squared_hinge,
    tversky,
)
_BY_NAME = {item.__name__: item for item in (*_CLASSES, *_FUNCTIONS)}
for _function, _aliases in {
    binary_crossentropy: ("bce", "BCE"),
    kl_divergence: ("kld", "KLD"),
    mean_absolute_error: ("mae", "MAE"),
    mean_absolute_percentage_error: ("mape", "MAPE"),
    mean_squared_error: ("mse", "MSE"),
    mean_squared_logarithmic_error: ("msle", "MSLE"),
}.items():
    _BY_NAME |= dict.fromkeys(_aliases, _function)


def is_loss_function(fn: Any) -> bool:
    """Tells whether `fn` is one of the loss functions, for which less is better."""
    return any(fn is known for known in _FUNCTIONS)


def serialize(loss: Any) -> Any:
    """The configuration of a `Loss` or a loss function, as a dictionary.

    Args:
        loss: a `Loss` or a function.

    Returns:
        What `deserialize` makes the loss of.

    Raises:
        TypeError: for an object without a configuration.

    >>> keras.losses.serialize(keras.losses.Dice())["config"]
    {'name': 'dice', 'reduction': 'sum_over_batch_size', 'axis': None}
    """
    return serialization.serialize_object(loss)


def deserialize(name: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """The `Loss` or the loss function that a configuration or a name describes.

    Args:
        name: what `serialize` returned, or a name.
        custom_objects: custom classes and functions by name.

    Returns:
        A `Loss`, or a function of `(y_true, y_pred)`.

    Raises:
        ValueError: for a name that is not known.

    >>> keras.losses.deserialize({"class_name": "Huber", "config": {"delta": 2.0}}).delta
    2.0
    """
    return lookup.deserialize(name, _BY_NAME, "loss", custom_objects)


def get(identifier: Any) -> Any:
    """The loss that a name, a class, a config dictionary or a callable stands for.

    Args:
        identifier: one of them, or None.

    Returns:
        A `Loss` or a function of targets and predictions; None for None.

    Raises:
        ValueError: for an unknown name or a thing that can't be called.

    >>> keras.losses.get("mse").__name__
    'mean_squared_error'
    """
    return lookup.get(identifier, _BY_NAME, "loss")


__all__ = [
    "CTC",
    "BinaryCrossentropy",
    "BinaryFocalCrossentropy",
    "CategoricalCrossentropy",
    "CategoricalFocalCrossentropy",
    "CategoricalGeneralizedCrossEntropy",
    "CategoricalHinge",
    "Circle",
    "CosineSimilarity",
    "Dice",
    "Hinge",
    "Huber",
    "KLDivergence",
    "LogCosh",
    "Loss",
    "LossFunctionWrapper",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanSquaredError",
    "MeanSquaredLogarithmicError",
    "Poisson",
    "SparseCategoricalCrossentropy",
    "SquaredHinge",
    "Tversky",
    "binary_crossentropy",
    "binary_focal_crossentropy",
    "categorical_crossentropy",
    "categorical_focal_crossentropy",
    "categorical_generalized_cross_entropy",
    "categorical_hinge",
    "circle",
    "cosine_similarity",
    "ctc",
    "deserialize",
    "dice",
    "get",
    "hinge",
    "huber",
    "kl_divergence",
    "log_cosh",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_error",
    "mean_squared_logarithmic_error",
    "poisson",
    "serialize",
    "sparse_categorical_crossentropy",
    "squared_hinge",
    "tversky",
]
