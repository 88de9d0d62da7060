"""Numbers as the ranges that they lie in."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import ops
from kerascnn.layers.layer import Layer
from kerascnn.layers.preprocessing.adapting import batches_of
from kerascnn.layers.preprocessing.encoding import encode, encoded_shape
from kerascnn.layers.preprocessing.index_lookup import checked_mode, reject_sparse
from kerascnn.symbolic.keras_tensor import KerasTensor


class Discretization(Layer):
    """Turns numbers into the numbers of the ranges that they lie in.

    Args:
        bin_boundaries: Where ranges end and the next ones begin, in order; each range has its lower
            boundary.
        num_bins: How many ranges of about equally many values `adapt` looks for, in place of
            `bin_boundaries`.
        epsilon: How far quantiles may be off, as a share of the values.
        output_mode: "int" for the numbers of ranges; "one_hot" for a row for each with a 1;
            "multi_hot" and "count" for one row for the values along axis 1 (axis 0 of a vector).
        sparse: Only False.

    Input: numbers of any shape, in lists too.

    Output: int32 of the same shape, or rows in the layer's dtype.

    Raises:
        ValueError: unless exactly one of `bin_boundaries` and `num_bins` is given.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> layer = keras.layers.Discretization(bin_boundaries=[0.0, 1.0, 2.0])
    >>> layer(np.array([[-1.5, 1.0, 3.4, 0.5], [0.0, 3.0, 1.3, 0.0]])).numpy().tolist()
    [[0, 2, 3, 1], [1, 3, 2, 1]]
    """

    _takes_numbers = True

    def __init__(
        self,
        bin_boundaries: Any = None,
        num_bins: int | None = None,
        epsilon: float = 0.01,
        output_mode: str = "int",
        sparse: bool = False,
        dtype: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        reject_sparse(sparse, "Discretization")
        modes = ("int", "one_hot", "multi_hot", "count")
        self.output_mode = checked_mode(output_mode, "Discretization", modes)
        if num_bins is not None and num_bins < 0:
            raise ValueError(
                f"`num_bins` must be greater than or equal to 0. Received: `num_bins={num_bins}`"
            )
        if (num_bins is None) == (bin_boundaries is None):
            raise ValueError(
                "You need to set either `num_bins` or `bin_boundaries`, and not both. Received: "
                f"num_bins={num_bins}, bin_boundaries={bin_boundaries}"
            )
        self.bin_boundaries = None if bin_boundaries is None else _listed(bin_boundaries)
        self.num_bins = num_bins
        self.epsilon = epsilon
        self.sparse = False
        self.summary: np.ndarray[Any, Any]
        self.reset_state()

    @property
    def _trace_key(self) -> Any:
        return None if self.bin_boundaries is None else tuple(self.bin_boundaries)

    @property
    def output_dtype(self) -> str:
        """The dtype of what comes out."""
        return "int32" if self.output_mode == "int" else self.compute_dtype

    def adapt(self, data: Any, steps: int | None = None) -> None:
        """Learns where the ranges end, from the quantiles of data.

        Args:
            data: An array, or an iterable of batches, such as a `keras.data.Dataset`.
            steps: How many batches are taken of an iterable.

        Raises:
            ValueError: for a layer that was given its boundaries.
        """
        if self.num_bins is None:
            raise ValueError(
                "Cannot adapt a Discretization layer that has been initialized with "
                "`bin_boundaries`, use `num_bins` instead."
            )
        self.reset_state()
        for batch in batches_of(data, steps):
            self.update_state(batch)
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Looks at a batch."""
        found = summarized(np.asarray(data, "float32"), self.epsilon)
        both = np.concatenate([found, self.summary], axis=1)
        both = both[:, np.argsort(both[0])]
        self.summary = compressed(both, self.epsilon)

    def finalize_state(self) -> None:
        """Makes the boundaries of what was seen."""
        if self.num_bins is not None:
            ranges = compressed(self.summary, 1.0 / self.num_bins)
            self.bin_boundaries = ranges[0, :-1].tolist()

    def reset_state(self) -> None:
        """Forgets what was seen; the boundaries stay."""
        self.summary = np.zeros((2, 0), "float32")

    def call(self, inputs: Any) -> Any:
        if self.bin_boundaries is None:
            raise ValueError(
                "You need to either pass the `bin_boundaries` argument at construction time or "
                "call `adapt(dataset)` before you can start using the `Discretization` layer."
            )
        numbers = ops.digitize(inputs, np.asarray(self.bin_boundaries, self.compute_dtype))
        return encode(numbers, self.output_mode, len(self.bin_boundaries) + 1, self.output_dtype)

    def _depth(self) -> int:
        if self.bin_boundaries is not None:
            return len(self.bin_boundaries) + 1
        assert self.num_bins is not None
        return self.num_bins

    def compute_output_shape(self, input_shape: Any) -> Any:
        shape = tuple(input_shape)
        if self.output_mode in ("multi_hot", "count") and len(shape) > 1:
            return (shape[0], *shape[2:], self._depth())  # axis 1 gives a single row
        return encoded_shape(shape, self.output_mode, self._depth())

    def compute_output_spec(self, inputs: Any) -> Any:
        return KerasTensor(self.compute_output_shape(inputs.shape), self.output_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "dtype": self.dtype,
            "bin_boundaries": self.bin_boundaries,
            "num_bins": self.num_bins,
            "epsilon": self.epsilon,
            "output_mode": self.output_mode,
            "sparse": False,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """A layer of a configuration, with the boundaries that it had learned."""
        config = dict(config)
        learned = config.get("num_bins") is not None and config.get("bin_boundaries") is not None
        boundaries = config.pop("bin_boundaries", None) if learned else None
        layer = super().from_config(config)
        if learned:
            layer.bin_boundaries = _listed(boundaries)
        return layer


def _listed(values: Any) -> list[float]:
    return np.asarray(values).tolist()


def summarized(values: np.ndarray[Any, Any], epsilon: float) -> np.ndarray[Any, Any]:
    """Returns about 1 / epsilon sorted values, each with the number of values it stands for."""
    ordered = np.sort(values, axis=None)
    step = max(ordered.size * epsilon, 1)
    chosen = ordered[int(step - 1) :: int(step)]
    return np.stack([chosen, np.full_like(chosen, step)])


def compressed(summary: np.ndarray[Any, Any], epsilon: float) -> np.ndarray[Any, Any]:
    """A summary with about 1 / epsilon values, by interpolation between quantiles."""
    if summary.shape[1] * epsilon < 1:
        return summary
    shares = epsilon + np.arange(0.0, 1.0, epsilon)
    sums = summary[1].cumsum()
    known = sums / sums[-1]
    values = np.interp(shares, known, summary[0])
    sums = np.interp(shares, known, sums)
    return np.stack([values, np.diff(sums, prepend=0.0)]).astype("float32")
