"""Models as estimators of scikit-learn, which is imported when the first name is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerascnn import former_names

if TYPE_CHECKING:
    from kerascnn.wrappers.sklearn_wrapper import (
        SKLearnClassifier,
        SKLearnRegressor,
        SKLearnTransformer,
    )

__all__ = ["SKLearnClassifier", "SKLearnRegressor", "SKLearnTransformer"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        return former_names.module_getattr(__name__)(name)
    try:
        from kerascnn.wrappers import sklearn_wrapper
    except ImportError as error:
        raise ImportError(
            f"{name} needs the package scikit-learn: pip install scikit-learn ({error})."
        ) from error
    return getattr(sklearn_wrapper, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
