"""Implements scikit-learn's estimators by `fit` and `predict` of a model."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import metadata_routing
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from kerascnn.models import Model, clone_model


class SKLBase(BaseEstimator):
    """The base of the three wrappers.

    Args:
        model: A compiled model, of which each `fit` trains a copy; or a function that makes one,
            called with `X`, `y` (as the model will see them) and `model_kwargs`.
        warm_start: Whether each `fit` goes on with the model of the one before, or with `model`
            itself, in place of a copy.
        model_kwargs: Further arguments of the function.
        fit_kwargs: Arguments of the model's `fit`; those of this object's `fit` go first.

    Attributes:
        model_: The trained model.
        history_: What the model's `fit` returned.
    """

    def __init__(
        self,
        model: Any,
        warm_start: bool = False,
        model_kwargs: dict[str, Any] | None = None,
        fit_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.warm_start = warm_start
        self.model_kwargs = model_kwargs
        self.fit_kwargs = fit_kwargs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def __sklearn_clone__(self) -> Any:
        model = copy.deepcopy(self.model) if isinstance(self.model, Model) else self.model
        return type(self)(model, self.warm_start, self.model_kwargs, self.fit_kwargs)

    @property
    def epoch_(self) -> Any:
        """The epochs that the last `fit` trained, 0 before the first."""
        history = getattr(self, "history_", None)
        return 0 if history is None else history.epoch

    def set_fit_request(self, **kwargs: Any) -> Any:
        """Says which metadata `fit` asks for, where scikit-learn routes metadata.

        Args:
            **kwargs: True, False, None or another name for each parameter of `fit`.

        Raises:
            RuntimeError: where metadata are not routed.
        """
        if not sklearn.get_config().get("enable_metadata_routing", False):
            raise RuntimeError(
                "Metadata are not routed. Call sklearn.set_config(enable_metadata_routing=True) "
                "first."
            )
        request = metadata_routing.MetadataRequest(owner=type(self).__name__)
        for param, alias in kwargs.items():
            request.fit.add_request(param=param, alias=alias)
        self._metadata_request = request
        return self

    def _model_to_fit(self, X: Any, y: Any) -> Any:
        if self.warm_start and hasattr(self, "model_"):
            return self.model_
        if isinstance(self.model, Model):
            return self.model if self.warm_start else clone_model(self.model)
        return self.model(X=X, y=y, **(self.model_kwargs or {}))

    def fit(self, X: Any, y: Any, **kwargs: Any) -> Any:
        """Trains a model.

        Args:
            X: Samples, (number, features).
            y: Targets, (number,) or (number, outputs).
            **kwargs: For the model's `fit`.

        Raises:
            ValueError: for data that scikit-learn does not take.
            RuntimeError: for a model that is not compiled.
        """
        X, y = validate_data(self, X, y)
        y = self._encode(y)
        model = self._model_to_fit(X, y)
        if not model.compiled or not model.loss or not model.optimizer:
            raise RuntimeError(
                f"The model '{model.name}' is to be compiled, with a loss and an optimizer, before "
                f"{type(self).__name__} trains it."
            )
        self.history_ = model.fit(X, y, **{**(self.fit_kwargs or {}), **kwargs})
        self.model_ = model
        return self

    def _outputs(self, X: Any) -> np.ndarray[Any, Any]:
        check_is_fitted(self)
        return self.model_.predict(validate_data(self, X, reset=False))

    def predict(self, X: Any) -> Any:
        """Returns the trained model's predictions for samples, in the form of the targets."""
        return self._decode(self._outputs(X))

    def _encode(self, y: Any) -> Any:
        """Returns targets with an axis for the outputs, and notes how to remove it."""
        if type_of_target(y) == "unknown":
            raise ValueError(f"Unknown label type: {y!r}")
        self._target_ndim = y.ndim
        return y.reshape(-1, 1) if y.ndim == 1 else y

    def _decode(self, outputs: Any) -> Any:
        is_flat = self._target_ndim == 1 and outputs.ndim == 2
        return np.squeeze(outputs, axis=1) if is_flat else outputs


class SKLearnClassifier(ClassifierMixin, SKLBase):
    """A model that classifies, as a classifier of scikit-learn.

    The model is trained with one output for each class, and targets in which one of them is 1.

    Args:
        model: See `SKLearnRegressor`, as for the others.
        warm_start: See there.
        model_kwargs: See there.
        fit_kwargs: See there.

    Attributes:
        classes_: The labels of the classes.
        model_: The trained model.
        history_: What the model's `fit` returned.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> def classifier(X, y):
    ...     model = keras.Sequential([
    ...         keras.Input(X.shape[1:]), keras.layers.Dense(y.shape[1], activation="softmax")
    ...     ])
    ...     model.compile(keras.optimizers.Adam(0.1), "categorical_crossentropy")
    ...     return model
    >>> X = np.array([[-1.0], [-2.0], [1.0], [2.0]], "float32")
    >>> y = np.array(["low", "low", "high", "high"])
    >>> estimator = keras.wrappers.SKLearnClassifier(
    ...     classifier, fit_kwargs={"epochs": 50, "verbose": 0}
    ... )
    >>> estimator.fit(X, y).predict(X).tolist()  # doctest: +ELLIPSIS
    1/1 ...
    ['low', 'low', 'high', 'high']
    """

    def decision_function(self, X: Any) -> Any:
        """Returns what the model returns for samples: one number for each class."""
        return self._outputs(X)

    def _encode(self, y: Any) -> Any:
        kind = type_of_target(y)
        if kind == "unknown":
            raise ValueError(f"Unknown label type: {y!r}")
        if kind not in ("binary", "multiclass"):
            raise ValueError(
                f"Only binary and multiclass targets are supported. Target type: {kind}"
            )
        self._target_ndim = y.ndim
        column = y.reshape(-1, 1) if y.ndim == 1 else y
        self._encoder = OneHotEncoder(sparse_output=False).fit(column)
        self.classes_ = np.unique(y)
        if len(self.classes_) == 1:
            raise ValueError("Classifier can't train when only one class is present.")
        return self._encoder.transform(column)

    def _decode(self, outputs: Any) -> Any:
        return super()._decode(self._encoder.inverse_transform(outputs))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


class SKLearnRegressor(RegressorMixin, SKLBase):
    """A model that returns numbers, as a regressor of scikit-learn.

    Args:
        model: A compiled model, of which each `fit` trains a copy; or a function that makes one,
            called with `X`, `y` (as the model will see them) and `model_kwargs`.
        warm_start: Whether each `fit` goes on with the model of the one before, or with `model`
            itself, in place of a copy.
        model_kwargs: Further arguments of the function.
        fit_kwargs: Arguments of the model's `fit`; those of this object's `fit` go first.

    Attributes:
        model_: The trained model.
        history_: What the model's `fit` returned.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile(keras.optimizers.SGD(0.1), "mse")
    >>> estimator = keras.wrappers.SKLearnRegressor(model, fit_kwargs={"epochs": 100, "verbose": 0})
    >>> X = np.array([[-1.0], [0.0], [1.0]], "float32")
    >>> y = estimator.fit(X, 2 * X[:, 0]).predict(X)  # doctest: +ELLIPSIS
    1/1 ...
    >>> y.round(2).tolist()
    [-2.0, 0.0, 2.0]
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


class SKLearnTransformer(TransformerMixin, SKLBase):
    """A model whose outputs are features of samples, as a transformer of scikit-learn.

    Args:
        model: See `SKLearnRegressor`, as for the others.
        warm_start: See there.
        model_kwargs: See there.
        fit_kwargs: See there.

    Attributes:
        model_: The trained model.
        history_: What the model's `fit` returned.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> estimator = keras.wrappers.SKLearnTransformer(model, fit_kwargs={"verbose": 0})
    >>> X, y = np.ones((8, 4), "float32"), np.zeros((8,), "float32")
    >>> estimator.fit(X, y).transform(X).shape  # doctest: +ELLIPSIS
    1/1 ...
    (8, 1)
    """

    def transform(self, X: Any) -> Any:
        """Returns the trained model's outputs for samples."""
        return self._outputs(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
