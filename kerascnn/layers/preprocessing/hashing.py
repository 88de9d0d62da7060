"""Text and integers as numbers of buckets, by hashes that need no vocabulary."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import config
from kerascnn.layers.preprocessing import hashes
from kerascnn.layers.preprocessing.encoding import encode_on_host, encoded_shape
from kerascnn.layers.preprocessing.host_layer import HostLayer
from kerascnn.layers.preprocessing.index_lookup import checked_mode, checked_salt, reject_sparse
from kerascnn.symbolic.keras_tensor import KerasTensor


class Hashing(HostLayer):
    """Puts each word or integer into one of a number of buckets, by its hash.

    The hashes are those of TensorFlow, so that models keep their meaning: FarmHash's
    Fingerprint64, or with a salt SipHash-2-4. It works on the host: at once, in a data set's
    `map`, and at the beginning of a functional model, before the compiled step.

    Args:
        num_bins: How many buckets there are.
        mask_value: What gets the bucket 0, which nothing else is put into then.
        salt: One or two integers, for a keyed hash.
        output_mode: "int" for the numbers of buckets; "one_hot" for a row for each with a 1;
            "multi_hot" and "count" for one row for the values along the last axis.
        sparse: Only False.

    Input: text, integers or floats (which are cut to integers) of any shape.

    Output: int64 of the same shape, or rows in `floatx`; another `dtype` can be given.

    Raises:
        ValueError: for no buckets, an unknown mode, and a dtype of numbers that is no integer's.

    Source: https://github.com/google/farmhash; Aumasson and Bernstein, "SipHash: a fast
    short-input PRF", 2012.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Hashing(num_bins=3)([["A"], ["B"], ["C"], ["D"], ["E"]]).numpy().tolist()
    [[1], [0], [1], [1], [2]]
    """

    def __init__(
        self,
        num_bins: int,
        mask_value: Any = None,
        salt: Any = None,
        output_mode: str = "int",
        sparse: bool = False,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = "int64" if output_mode == "int" else config.floatx()
        super().__init__(**kwargs)
        if num_bins is None or num_bins <= 0:
            raise ValueError(
                "The `num_bins` for `Hashing` cannot be `None` or non-positive values. Received: "
                f"num_bins={num_bins}."
            )
        self.output_mode = checked_mode(
            output_mode, "Hashing", ("int", "one_hot", "multi_hot", "count")
        )
        reject_sparse(sparse, "Hashing")
        if self.output_mode == "int" and self.dtype_policy.name not in ("int32", "int64"):
            raise ValueError(
                'When `output_mode="int"`, `dtype` should be an integer type, "int32" or "int64". '
                f"Received: dtype={kwargs['dtype']}"
            )
        self.num_bins = num_bins
        self.mask_value = mask_value
        self.salt = None if salt is None else checked_salt(salt, "Hashing")
        self.sparse = False

    def call(self, inputs: Any) -> Any:
        values = inputs
        masked = None
        count = self.num_bins
        if self.mask_value is not None and count > 1:
            count -= 1
            masked = values == self.mask_value
        if values.dtype.kind in "fiub":
            values = values.astype(np.int64).astype(str)
        numbers = hashes.buckets(values.ravel().tolist(), count, self.salt).reshape(values.shape)
        if masked is not None:
            numbers = np.where(masked, 0, numbers + 1)
        if self.output_mode == "int":
            return numbers.astype(self.compute_dtype)
        rows = numbers[None] if numbers.ndim == 0 else numbers
        return encode_on_host(rows, self.output_mode, self.num_bins, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return encoded_shape(tuple(input_shape), self.output_mode, self.num_bins)

    def compute_output_spec(self, inputs: Any) -> Any:
        return KerasTensor(self.compute_output_shape(inputs.shape), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_bins": self.num_bins,
            "salt": self.salt,
            "mask_value": self.mask_value,
            "output_mode": self.output_mode,
            "sparse": False,
        }


class HashedCrossing(HostLayer):
    """Puts combinations of two or more values into one of a number of buckets, by their hash.

    The hashes are those of TensorFlow's `tf.sparse.cross_hashed`. It works on the host, as
    `Hashing` does.

    Args:
        num_bins: How many buckets there are.
        output_mode: "int" for the numbers of buckets, "one_hot" for rows with a 1.
        sparse: Only False.

    Input: a list or tuple of arrays of text or integers, all of shape (), (n,) or (n, 1).

    Output: int64 of the same shape, or rows in `floatx`.

    Raises:
        ValueError: for fewer than two inputs, other shapes, and floats.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> layer = keras.layers.HashedCrossing(num_bins=5)
    >>> words, numbers = np.array(["A", "B", "A", "B", "A"]), np.array([101, 101, 101, 102, 102])
    >>> layer((words, numbers)).numpy().tolist()
    [1, 4, 1, 1, 3]
    """

    def __init__(
        self,
        num_bins: int,
        output_mode: str = "int",
        sparse: bool = False,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        if output_mode == "int" and dtype is None:
            dtype = "int64"
        super().__init__(name=name, dtype=dtype, **kwargs)
        reject_sparse(sparse, "HashedCrossing")
        self.output_mode = checked_mode(output_mode, "HashedCrossing", ("int", "one_hot"))
        self.num_bins = num_bins
        self.sparse = False

    def _on_host(self, value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) < 2:
            raise ValueError(
                "`HashedCrossing` should be called on a list or tuple of at least two inputs. "
                f"Received: inputs={value}"
            )
        return [super(HashedCrossing, self)._on_host(x) for x in value]

    def call(self, inputs: Any) -> Any:
        shape = inputs[0].shape
        if len(shape) > 2 or (len(shape) == 2 and shape[-1] != 1):
            raise ValueError(
                "All `HashedCrossing` inputs should have shape `()`, `(batch_size)` or "
                f"`(batch_size, 1)`. Received: {shape}"
            )
        if any(x.shape != shape for x in inputs):
            raise ValueError(
                "All `HashedCrossing` inputs should have equal shape. Received: "
                f"{[x.shape for x in inputs]}"
            )
        if any(x.dtype.kind not in "iubO" for x in inputs):
            raise ValueError(
                "All `HashedCrossing` inputs should have an integer or string dtype. Received: "
                f"{[str(x.dtype) for x in inputs]}"
            )
        numbers = hashes.crossed([x.reshape(-1) for x in inputs], self.num_bins).reshape(shape)
        if self.output_mode == "int":
            return numbers.astype(self.compute_dtype)
        rows = numbers[None] if numbers.ndim == 0 else numbers
        return encode_on_host(rows, "one_hot", self.num_bins, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        if len(input_shape) < 2 or not all(isinstance(s, (list, tuple)) for s in input_shape):
            raise ValueError(
                "Expected as input a list/tuple of at least 2 tensors. Received input_shape="
                f"{input_shape}"
            )
        return encoded_shape(tuple(input_shape[0]), self.output_mode, self.num_bins)

    def compute_output_spec(self, inputs: Any) -> Any:
        shape = self.compute_output_shape([x.shape for x in inputs])
        return KerasTensor(shape, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_bins": self.num_bins,
            "output_mode": self.output_mode,
            "sparse": False,
        }
