"""Initializers without chance."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import dtypes, serialization
from kerascnn.initializers.initializer import Initializer


class Zeros(Initializer):
    """Zeros.

    Example:

    >>> from kerascnn import initializers
    >>> initializers.Zeros()((2,)).numpy().tolist()
    [0.0, 0.0]
    """

    def draw(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        return np.zeros(shape, dtypes.numpy_dtype(dtype))


class Ones(Initializer):
    """Ones.

    Example:

    >>> from kerascnn import initializers
    >>> initializers.Ones()((2,)).numpy().tolist()
    [1.0, 1.0]
    """

    def draw(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        return np.ones(shape, dtypes.numpy_dtype(dtype))


class Constant(Initializer):
    """One value everywhere.

    Args:
        value: A number, or an array that can be broadcast to the weights' shape.

    Example:

    >>> from kerascnn import initializers
    >>> initializers.Constant(3.0)((2,)).numpy().tolist()
    [3.0, 3.0]
    """

    def __init__(self, value: Any = 0.0) -> None:
        self.value = value

    def draw(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        return np.broadcast_to(np.asarray(self.value), shape).astype(dtypes.numpy_dtype(dtype))

    def get_config(self) -> dict[str, Any]:
        return {"value": serialization.serialize_object(self.value)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Constant:
        return cls(serialization.deserialize_object(config["value"]))
