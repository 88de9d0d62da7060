"""The base of initializers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import _core, dtypes
from kerascnn.device import current as current_device


class Initializer:
    """Makes first values of weights; subclasses override `__call__`, or `draw` in NumPy.

    The initializers here draw on the host, so that one seed gives the same weights on every device.

    Example:

    >>> import kerascnn as keras
    >>> class Ramp(keras.initializers.Initializer):
    ...     def __call__(self, shape, dtype=None):
    ...         return keras.ops.broadcast_to(keras.ops.arange(shape[-1], dtype=dtype), shape)
    >>> keras.layers.Dense(2, bias_initializer=Ramp())(keras.ops.zeros((1, 3))).numpy().tolist()
    [[0.0, 1.0]]
    """

    def draw(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        """The values as a NumPy array.

        Args:
            shape: Shape of the weights.
            dtype: Name of their dtype.
        """
        if type(self).__call__ is Initializer.__call__:
            raise NotImplementedError(
                f"{type(self).__name__} must implement __call__(shape, dtype=None)."
            )
        return np.asarray(self(shape, dtype=dtype))

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        """The values as a tensor on the current device.

        Args:
            shape: Shape of the weights.
            dtype: By default `floatx`.
        """
        name = dtypes.standardize_dtype(dtype)
        array = self.draw(tuple(int(n) for n in shape), name)
        return _core.from_numpy(array.astype(dtypes.numpy_dtype(name)), current_device())

    def clone(self) -> Initializer:
        """Another one of the same configuration."""
        return self.from_config(self.get_config())

    def get_config(self) -> dict[str, Any]:
        """The arguments that make another one like it; values of JSON.

        Returns:
            A dictionary, which `from_config` takes.
        """
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Initializer:
        """Makes one of what `get_config` returned.

        Args:
            config: The dictionary.

        Raises:
            TypeError: for a class that gives no values, such as `RandomInitializer`.
        """
        if cls.__call__ is Initializer.__call__ and cls.draw is Initializer.draw:
            raise TypeError(
                f"{cls.__name__} is a base of initializers and gives no values. Name a class that "
                "does, such as RandomNormal."
            )
        return cls(**config)
