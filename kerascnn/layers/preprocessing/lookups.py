"""Words and integers as numbers of a vocabulary."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import _core, config, ops
from kerascnn.layers.preprocessing.encoding import encode
from kerascnn.layers.preprocessing.index_lookup import IndexLookup
from kerascnn.layers.text import as_text
from kerascnn.ops import dispatch

# If its integers span no more than this, a compiled step has a table with a place for each.
_LARGEST_TABLE = 1 << 22


class StringLookup(IndexLookup):
    """Turns words into the numbers of a vocabulary, or back.

    It works on the host: at once, in a data set's `map`, and at the beginning of a functional
    model, before the compiled step.

    Args:
        max_tokens: The most numbers that there are, with the special ones; None for any number.
        num_oov_indices: How many numbers words have that are not in the vocabulary; with several
            a hash chooses (FarmHash's Fingerprint64, as in TensorFlow), with 0 they are errors.
        mask_token: A word for nothing, which has the number 0, or in modes other than "int" none.
        oov_token: What stands for unknown words, where numbers are turned into words.
        vocabulary: The words, a list or the path of a file with one in each line; by default
            `adapt` learns them.
        idf_weights: A weight for each, with "tf_idf".
        invert: Whether numbers are turned into words.
        output_mode: "int" for numbers; "one_hot" for a row for each word with a 1 at its number;
            "multi_hot", "count" and "tf_idf" for one row for the words along the last axis, which
            says whether each is there, how often, or how often times its weight.
        pad_to_max_tokens: Whether rows have `max_tokens` places.
        sparse: Only False.
        encoding: Of words that come as bytes.
        salt: One or two integers, for a keyed hash (SipHash-2-4) of unknown words.

    Input: text of any shape, as arrays or lists; with `invert` integers.

    Output: int64 of the same shape, or rows in `floatx`. With `invert` an array of strings.

    Raises:
        ValueError: for arguments that do not go together, and unknown words without a number.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.StringLookup(vocabulary=["a", "b", "c"])
    >>> layer([["a", "c"], ["z", "b"]]).numpy().tolist()
    [[1, 3], [0, 2]]
    >>> back = keras.layers.StringLookup(vocabulary=layer.get_vocabulary(), invert=True)
    >>> back([[1, 0]]).tolist()
    [['a', '[UNK]']]
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: str | None = None,
        oov_token: str = "[UNK]",
        vocabulary: Any = None,
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str = "int",
        pad_to_max_tokens: bool = False,
        sparse: bool = False,
        encoding: str = "utf-8",
        name: str | None = None,
        salt: Any = None,
        **kwargs: Any,
    ) -> None:
        self.encoding = encoding
        super().__init__(
            max_tokens,
            num_oov_indices,
            mask_token,
            oov_token,
            vocabulary,
            idf_weights,
            invert,
            output_mode,
            sparse,
            pad_to_max_tokens,
            name=name,
            salt=salt,
            **kwargs,
        )

    def _values(self, data: Any) -> np.ndarray[Any, Any]:
        return as_text(data, self.encoding)

    def _sort_key(self, token: Any) -> Any:
        return token.encode("utf-8")

    def get_config(self) -> dict[str, Any]:
        values = super().get_config()
        del values["vocabulary_dtype"]
        return {**values, "encoding": self.encoding}


class IntegerLookup(IndexLookup):
    """Turns integers into the numbers of a vocabulary, or back.

    It is part of the compiled step, but where `oov_method` or `salt` ask for hashes.

    Args:
        max_tokens: The most numbers that there are, with the special ones; None for any number.
        num_oov_indices: How many numbers integers have that are not in the vocabulary. With 0
            they are errors outside of compiled steps, in which they have the number -1.
        mask_token: An integer for nothing, which has the number 0, or in modes other than "int"
            none.
        oov_token: What stands for unknown integers, where numbers are turned into integers.
        vocabulary: The integers, a list or the path of a file with one in each line; by default
            `adapt` learns them.
        vocabulary_dtype: Only "int64".
        idf_weights: See `StringLookup`, as for all arguments that are not explained here.
        invert: Whether numbers are turned into integers.
        output_mode: "int", "one_hot", "multi_hot", "count" or "tf_idf".
        sparse: Only False.
        pad_to_max_tokens: Whether rows have `max_tokens` places.
        oov_method: How several numbers for unknown integers are given out: "floormod" for the
            remainder, "farmhash" for a hash of the digits.
        salt: One or two integers, for a keyed hash, with "farmhash".

    Input: integers of any shape.

    Output: int64 of the same shape, or rows in `floatx`.

    Raises:
        ValueError: for arguments that do not go together, and unknown integers without a number.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> layer = keras.layers.IntegerLookup(vocabulary=[12, 36, 1138])
    >>> layer(np.array([[1138, 12], [7, 36]])).numpy().tolist()
    [[3, 1], [0, 2]]
    """

    vocabulary_dtype = "int64"

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: int | None = None,
        oov_token: int = -1,
        vocabulary: Any = None,
        vocabulary_dtype: str = "int64",
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str = "int",
        sparse: bool = False,
        pad_to_max_tokens: bool = False,
        oov_method: str = "floormod",
        salt: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if vocabulary_dtype != "int64":
            raise ValueError(
                "Only `vocabulary_dtype='int64'` is supported. Received: "
                f"vocabulary_dtype={vocabulary_dtype}"
            )
        if salt is not None and oov_method != "farmhash":
            raise ValueError(
                "`salt` can only be used when `oov_method='farmhash'`. Received: "
                f"oov_method={oov_method}"
            )
        super().__init__(
            max_tokens,
            num_oov_indices,
            mask_token,
            oov_token,
            vocabulary,
            idf_weights,
            invert,
            output_mode,
            sparse,
            pad_to_max_tokens,
            oov_method=oov_method,
            salt=salt,
            name=name,
            **kwargs,
        )

    @property
    def runs_on_host(self) -> bool:  # type: ignore[override]
        """True only if hashes are needed."""
        return self.oov_method == "farmhash" and self.num_oov_indices > 1

    @property
    def _trace_key(self) -> Any:
        idf = None if self._idf is None else self._idf.tobytes()
        return tuple(self._tokens), idf

    def _values(self, data: Any) -> np.ndarray[Any, Any]:
        values = np.asarray(data)
        if values.dtype.kind not in "iub" and values.size:
            raise TypeError(f"Integers are expected. Received an array of {values.dtype}")
        return values.astype(np.int64)

    def _sort_key(self, token: Any) -> Any:
        return token

    def _of_lines(self, lines: list[str]) -> list[Any]:
        return [int(line) for line in super()._of_lines(lines)]

    def _oov_numbers(self, tokens: list[Any]) -> Any:
        if self.oov_method == "floormod":
            return np.asarray(tokens, np.int64) % self.num_oov_indices
        return super()._oov_numbers([str(token) for token in tokens])

    def _convert_inputs(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not self.runs_on_host and any(isinstance(x, _core.Value) for x in args):
            return args, kwargs
        return super()._convert_inputs(args, kwargs)

    def call(self, inputs: Any) -> Any:
        if not isinstance(inputs, _core.Value):
            return super().call(inputs)
        keys, numbers = self._keys_and_numbers()
        if self.invert:
            found, known = _looked_up(inputs, numbers, keys)
            return ops.where(known, found, self.oov_token)
        inputs = ops.cast(inputs, "int64")
        found, known = _looked_up(inputs, keys, numbers)
        start = self._oov_start_index()
        unknown: Any = -1 if self.num_oov_indices == 0 else start
        if self.num_oov_indices > 1:
            unknown = ops.add(ops.mod(inputs, self.num_oov_indices), start)
        found = ops.where(known, found, unknown)
        if self.mask_token is not None:
            masked = 0 if self.output_mode == "int" else -1
            found = ops.where(ops.equal(inputs, self.mask_token), masked, found)
        found = ops.cast(found, "int64")
        if self.output_mode == "int":
            return found
        mode = "count" if self.output_mode == "tf_idf" else self.output_mode
        rows = encode(found, mode, self._depth(), config.floatx())
        return rows if self._idf is None else ops.multiply(rows, self._idf)

    def _keys_and_numbers(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        start = self._token_start_index()
        numbers = np.arange(start, start + len(self._tokens), dtype=np.int64)
        keys = np.array(self._tokens, np.int64)
        if self.invert and self.mask_token is not None:
            keys, numbers = np.append(keys, self.mask_token), np.append(numbers, 0)
        return keys, numbers


def _looked_up(inputs: Any, keys: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> Any:
    """In a compiled step, finds the value for each key among inputs, and tells which are keys."""
    if not len(keys):
        return ops.zeros_like(inputs), ops.zeros_like(inputs, dtype="bool")
    low, high = int(keys.min()), int(keys.max())
    inputs = ops.cast(inputs, "int64")
    if high - low < _LARGEST_TABLE:
        table = np.full(high - low + 1, -1, np.int64)
        table[keys - low] = np.arange(len(keys))
        places = ops.clip(ops.subtract(inputs, low), 0, high - low)
        found = ops.take(dispatch.convert(table), ops.cast(places, "int32"))
        inside = ops.logical_and(ops.greater_equal(inputs, low), ops.less_equal(inputs, high))
        known = ops.logical_and(inside, ops.greater_equal(found, 0))
        found = ops.maximum(found, 0)
    else:
        order = np.argsort(keys)
        keys, values = keys[order], values[order]
        found = ops.minimum(ops.searchsorted(keys, inputs), len(keys) - 1)
        known = ops.equal(ops.take(dispatch.convert(keys), found), inputs)
    return ops.take(dispatch.convert(values), ops.cast(found, "int32")), known
