"""Inputs brought to mean 0 and variance 1, by statistics of the data set."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from kerascnn import config, dtypes, ops
from kerascnn.layers.layer import Layer
from kerascnn.layers.preprocessing.adapting import batches_of
from kerascnn.ops import dispatch

Array = np.ndarray[Any, Any]

# This many elements are processed together.
_PIECE = 1 << 22


class Normalization(Layer):
    """(inputs - mean) / sqrt(variance), with statistics that are given or learned by `adapt`.

    Args:
        axis: The axis or axes that have statistics of their own, counted with the batch; None for
            one mean and one variance of everything.
        mean: Given in place of `adapt`: a number, or an array that goes with `axis`.
        variance: The same.
        invert: Whether to go back: inputs * sqrt(variance) + mean.

    Raises:
        ValueError: where only one of mean and variance is given, or their shapes do not fit.

    Input: Any number of axes, with known sizes along `axis`; any dtype, numbers in lists too.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> layer = keras.layers.Normalization()
    >>> layer.adapt(np.array([[0.0, 7.0], [2.0, 9.0]]))
    >>> layer(np.array([[0.0, 10.0]])).numpy().tolist()
    [[-1.0, 2.0]]
    """

    _supports_masking = True
    _takes_numbers = True

    def __init__(
        self,
        axis: Any = -1,
        mean: Any = None,
        variance: Any = None,
        invert: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.axis: tuple[int, ...] = (
            () if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        )
        if (mean is None) != (variance is None):
            raise ValueError(
                "When setting values directly, both `mean` and `variance` must be set. Received: "
                f"mean={mean} and variance={variance}"
            )
        if mean is not None:
            if np.shape(mean) != np.shape(variance):
                raise ValueError(
                    "When setting values directly, `mean` and `variance` must have the same shape. "
                    f"Received: mean shape {np.shape(mean)} and variance shape {np.shape(variance)}"
                )
            if np.ndim(mean) > len(self.axis):
                raise ValueError(
                    "The rank of `mean` must be less than or equal to the number of axes "
                    f"({len(self.axis)}). Received: mean shape {np.shape(mean)} for axis "
                    f"{self.axis}"
                )
        self.input_mean = mean
        self.input_variance = variance
        self.invert = invert
        self._build_input_shape: tuple[int | None, ...] | None = None

    def build(self, input_shape: Any) -> None:
        rank = len(input_shape)
        if any(not -rank <= a < rank for a in self.axis):
            raise ValueError(
                "All `axis` values must be in the range [-ndim, ndim). Received inputs with "
                f"ndim={rank}, while axis={self.axis}"
            )
        self._kept = tuple(sorted(a % rank for a in self.axis))
        self._reduced = tuple(a for a in range(rank) if a not in self._kept)
        unknown = [a for a in self._kept if input_shape[a] is None]
        if unknown:
            raise ValueError(
                "All `axis` values to be kept must have a known shape. Received "
                f"axis={self.axis}, inputs.shape={tuple(input_shape)}, with unknown axis at index "
                f"{unknown[0]}"
            )
        self._build_input_shape = tuple(input_shape)
        self._spread = [input_shape[a] if a in self._kept else 1 for a in range(rank)]
        if self.input_mean is not None:
            self._given = [self._aligned(x) for x in (self.input_mean, self.input_variance)]
            return
        shape = tuple(input_shape[a] for a in self._kept)
        self.adapt_mean = self.add_weight(
            name="mean", shape=shape, initializer="zeros", trainable=False
        )
        self.adapt_variance = self.add_weight(
            name="variance", shape=shape, initializer="ones", trainable=False
        )
        # Nothing reads this weight, but Keras' files have it.
        self.count = self.add_weight(
            name="count", shape=(), dtype="int32", initializer="zeros", trainable=False
        )

    def _aligned(self, value: Any) -> Array:
        """Reshapes a given statistic to broadcast with the inputs, by the last axes of both."""
        array = np.asarray(value, dtypes.numpy_dtype(self.compute_dtype))
        shape = [1] * len(self._spread)
        for i in range(1, array.ndim + 1):
            shape[self._kept[-i]] = array.shape[-i]
        return np.broadcast_to(array.reshape(shape), self._spread)

    def adapt(self, data: Any) -> None:
        """Learns the mean and the variance of data; what it had learned before is replaced.

        Args:
            data: An array, or an iterable of batches (arrays, or tuples that begin with one): a
                list, a generator, a PyDataset, a DataLoader.

        Raises:
            TypeError: for anything else.
            ValueError: for no batches, or shapes that do not go together.
        """
        batches = batches_of(data)
        first = next(batches, None)
        if first is None:
            raise ValueError(
                "adapt() received an empty iterable (no batches). Expected at least one batch: "
                "arrays or tensors, as in layer.adapt([x])."
            )
        if not self.built:
            self.build(first.shape)
        if self.input_mean is not None:
            raise ValueError(
                f"Layer '{self.name}' was given its mean and variance: there is nothing to adapt."
            )
        total, mean, variance = 0, np.float64(0), np.float64(0)
        for piece in self._pieces(itertools.chain([first], batches)):
            count = math.prod(piece.shape[a] for a in self._reduced)
            total += count
            share = count / total if total else 0.0
            # This combines the mean and the variance of two groups.
            piece = piece.astype("float64")
            own_mean, own_variance = piece.mean(self._reduced), piece.var(self._reduced)
            new_mean = mean * (1 - share) + own_mean * share
            variance = (variance + (mean - new_mean) ** 2) * (1 - share) + (
                own_variance + (own_mean - new_mean) ** 2
            ) * share
            mean = new_mean
        self.adapt_mean.assign(np.asarray(mean, self.adapt_mean.dtype))
        self.adapt_variance.assign(np.asarray(variance, self.adapt_variance.dtype))

    def _pieces(self, batches: Iterable[Array]) -> Iterator[Array]:
        """Yields the batches, checked, in pieces whose float64 copies are small."""
        shape = self._build_input_shape
        assert shape is not None
        for batch in batches:
            if batch.ndim != len(shape) or any(batch.shape[a] != shape[a] for a in self._kept):
                raise ValueError(
                    f"The layer was built with input_shape={shape}, but adapt() is being called "
                    f"with data with an incompatible shape, data.shape={batch.shape}"
                )
            if 0 in self._kept or not batch.size:
                yield batch
                continue
            rows = max(1, _PIECE * len(batch) // batch.size)
            yield from (batch[i : i + rows] for i in range(0, len(batch), rows))

    def finalize_state(self) -> None:
        """There is nothing to do: the statistics are read where they are used."""

    def _statistics(self) -> list[Any]:
        if self.input_mean is not None:
            return [dispatch.convert(np.array(x)) for x in self._given]
        learned = (self.adapt_mean, self.adapt_variance)
        return [ops.cast(ops.reshape(x, self._spread), self.compute_dtype) for x in learned]

    @property
    def mean(self) -> Any:
        """The mean in use, in a shape that goes with the inputs; None before `build`."""
        return self._statistics()[0] if self.built else None

    @property
    def variance(self) -> Any:
        """The variance in use, in a shape that goes with the inputs; None before `build`."""
        return self._statistics()[1] if self.built else None

    def call(self, inputs: Any) -> Any:
        x = ops.cast(inputs, self.compute_dtype)
        mean, variance = self._statistics()
        deviation = ops.maximum(ops.sqrt(variance), config.epsilon())
        if self.invert:
            return ops.add(mean, ops.multiply(x, deviation))
        return ops.divide(ops.subtract(x, mean), deviation)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "axis": self.axis,
            "invert": self.invert,
            "mean": np.array(self.input_mean).tolist(),
            "variance": np.array(self.input_variance).tolist(),
        }
