"""Metrics: what `fit` and `evaluate` report beside the loss."""

from typing import Any

from kerascnn import lookup, serialization
from kerascnn.losses import (
    binary_crossentropy,
    binary_focal_crossentropy,
    categorical_crossentropy,
    categorical_focal_crossentropy,
    categorical_hinge,
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
)
from kerascnn.metrics.accuracy_metrics import (
    Accuracy,
    BinaryAccuracy,
    CategoricalAccuracy,
    SparseCategoricalAccuracy,
    SparseTopKCategoricalAccuracy,
    TopKCategoricalAccuracy,
    binary_accuracy,
    categorical_accuracy,
    sparse_categorical_accuracy,
    sparse_top_k_categorical_accuracy,
    top_k_categorical_accuracy,
)
from kerascnn.metrics.auc import AUC
from kerascnn.metrics.confusion_metrics import (
    FalseNegatives,
    FalsePositives,
    Precision,
    PrecisionAtRecall,
    Recall,
    RecallAtPrecision,
    SensitivityAtSpecificity,
    SpecificityAtSensitivity,
    TrueNegatives,
    TruePositives,
)
from kerascnn.metrics.correlation_metrics import (
    ConcordanceCorrelation,
    PearsonCorrelation,
    concordance_correlation,
    pearson_correlation,
)
from kerascnn.metrics.f_score_metrics import F1Score, FBetaScore
from kerascnn.metrics.iou_metrics import BinaryIoU, IoU, MeanIoU, OneHotIoU, OneHotMeanIoU
from kerascnn.metrics.loss_metrics import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    CategoricalHinge,
    Hinge,
    KLDivergence,
    LogCoshError,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    Poisson,
    SparseCategoricalCrossentropy,
    SquaredHinge,
)
from kerascnn.metrics.metric import Metric
from kerascnn.metrics.reduction_metrics import Mean, MeanMetricWrapper, Sum
from kerascnn.metrics.regression_metrics import CosineSimilarity, R2Score, RootMeanSquaredError
from kerascnn.naming import to_snake_case

_CLASSES = (
    AUC,
    Accuracy,
    BinaryAccuracy,
    BinaryCrossentropy,
    BinaryIoU,
    CategoricalAccuracy,
    CategoricalCrossentropy,
    CategoricalHinge,
    ConcordanceCorrelation,
    CosineSimilarity,
    F1Score,
    FBetaScore,
    FalseNegatives,
    FalsePositives,
    Hinge,
    IoU,
    KLDivergence,
    LogCoshError,
    Mean,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanIoU,
    MeanMetricWrapper,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    Metric,
    OneHotIoU,
    OneHotMeanIoU,
    PearsonCorrelation,
    Poisson,
    Precision,
    PrecisionAtRecall,
    R2Score,
    Recall,
    RecallAtPrecision,
    RootMeanSquaredError,
    SensitivityAtSpecificity,
    SparseCategoricalAccuracy,
    SparseCategoricalCrossentropy,
    SparseTopKCategoricalAccuracy,
    SpecificityAtSensitivity,
    SquaredHinge,
    Sum,
    TopKCategoricalAccuracy,
    TrueNegatives,
    TruePositives,
)
_FUNCTIONS = (
    binary_accuracy,
    binary_crossentropy,
    binary_focal_crossentropy,
    categorical_accuracy,
    categorical_crossentropy,
    categorical_focal_crossentropy,
    categorical_hinge,
    concordance_correlation,
    hinge,
    huber,
    kl_divergence,
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
    pearson_correlation,
    poisson,
    sparse_categorical_accuracy,
    sparse_categorical_crossentropy,
    sparse_top_k_categorical_accuracy,
    squared_hinge,
    top_k_categorical_accuracy,
)
_BY_NAME: dict[str, Any] = {cls.__name__: cls for cls in _CLASSES}
_BY_NAME |= {to_snake_case(cls.__name__): cls for cls in _CLASSES}
for _cls, _aliases in {
    BinaryCrossentropy: ("bce", "BCE"),
    MeanAbsoluteError: ("mae", "MAE"),
    MeanAbsolutePercentageError: ("mape", "MAPE"),
    MeanSquaredError: ("mse", "MSE"),
    MeanSquaredLogarithmicError: ("msle", "MSLE"),
}.items():
    _BY_NAME |= dict.fromkeys(_aliases, _cls)
# A configuration contains names of functions, some of which as metrics' names stand for classes.
_FUNCTIONS_BY_NAME: dict[str, Any] = {fn.__name__: fn for fn in _FUNCTIONS}


def serialize(metric: Any) -> Any:
    """The configuration of a `Metric` or a metric function, as a dictionary.

    Args:
        metric: a `Metric` or a function.

    Returns:
        What `deserialize` makes the metric of.

    Raises:
        TypeError: for an object without a configuration.

    >>> keras.metrics.serialize(keras.metrics.TopKCategoricalAccuracy(k=3))["config"]["k"]
    3
    """
    return serialization.serialize_object(metric)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """The `Metric` or the metric function that a configuration or a name describes.

    Args:
        config: what `serialize` returned, or a name.
        custom_objects: custom classes and functions by name.

    Returns:
        A `Metric`, or a function of `(y_true, y_pred)`.

    Raises:
        ValueError: for a name that is not known.

    >>> keras.metrics.deserialize({"class_name": "F1Score", "config": {"average": "macro"}})
    <F1Score name=f1_score>
    """
    known = _BY_NAME
    if isinstance(config, dict) and config.get("class_name") == "function":
        known = _FUNCTIONS_BY_NAME
    return lookup.deserialize(config, known, "metric", custom_objects)


def get(identifier: Any) -> Any:
    """The metric that a name, a class, a config dictionary or a callable stands for.

    Args:
        identifier: one of them, or None.

    Returns:
        A `Metric` or a function of targets and predictions; None for None.

    Raises:
        ValueError: for an unknown name or a thing that can't be called.

    >>> keras.metrics.get("sparse_categorical_accuracy")
    <SparseCategoricalAccuracy name=sparse_categorical_accuracy>
    """
    if isinstance(identifier, dict) and identifier.get("class_name") == "function":
        return deserialize(identifier)
    return lookup.get(identifier, _BY_NAME, "metric")


__all__ = [
    "AUC",
    "Accuracy",
    "BinaryAccuracy",
    "BinaryCrossentropy",
    "BinaryIoU",
    "CategoricalAccuracy",
    "CategoricalCrossentropy",
    "CategoricalHinge",
    "ConcordanceCorrelation",
    "CosineSimilarity",
    "F1Score",
    "FBetaScore",
    "FalseNegatives",
    "FalsePositives",
    "Hinge",
    "IoU",
    "KLDivergence",
    "LogCoshError",
    "Mean",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanIoU",
    "MeanMetricWrapper",
    "MeanSquaredError",
    "MeanSquaredLogarithmicError",
    "Metric",
    "OneHotIoU",
    "OneHotMeanIoU",
    "PearsonCorrelation",
    "Poisson",
    "Precision",
    "PrecisionAtRecall",
    "R2Score",
    "Recall",
    "RecallAtPrecision",
    "RootMeanSquaredError",
    "SensitivityAtSpecificity",
    "SparseCategoricalAccuracy",
    "SparseCategoricalCrossentropy",
    "SparseTopKCategoricalAccuracy",
    "SpecificityAtSensitivity",
    "SquaredHinge",
    "Sum",
    "TopKCategoricalAccuracy",
    "TrueNegatives",
    "TruePositives",
    "binary_accuracy",
    "binary_crossentropy",
    "binary_focal_crossentropy",
    "categorical_accuracy",
    "categorical_crossentropy",
    "categorical_focal_crossentropy",
    "categorical_hinge",
    "concordance_correlation",
    "deserialize",
    "get",
    "hinge",
    "huber",
    "kl_divergence",
    "log_cosh",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_error",
    "mean_squared_logarithmic_error",
    "pearson_correlation",
    "poisson",
    "serialize",
    "sparse_categorical_accuracy",
    "sparse_categorical_crossentropy",
    "sparse_top_k_categorical_accuracy",
    "squared_hinge",
    "top_k_categorical_accuracy",
]
