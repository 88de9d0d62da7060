"""A layer that turns text into the numbers of its words."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kerascnn import config, serialization
from kerascnn.layers.preprocessing.adapting import batches_of
from kerascnn.layers.preprocessing.encoding import encoded_shape
from kerascnn.layers.preprocessing.host_layer import HostLayer
from kerascnn.layers.preprocessing.index_lookup import MODES, checked_mode, reject_sparse
from kerascnn.layers.preprocessing.lookups import StringLookup
from kerascnn.layers.text import as_text
from kerascnn.ops import dispatch
from kerascnn.symbolic.keras_tensor import KerasTensor

# As in TensorFlow, letters outside ASCII are not changed.
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_STRIP = str.maketrans("", "", string.punctuation)
_WORD = re.compile(r"[^ \t\n\v\f\r]+")
_STANDARDIZE = {
    "lower": _LOWER,
    "strip_punctuation": _STRIP,
    "lower_and_strip_punctuation": {**_LOWER, **_STRIP},
}


class TextVectorization(HostLayer):
    """Turns text into the numbers of its words, or into one row for each text.

    Text is standardized, split into words, joined to n-grams, and looked up in a vocabulary,
    which is given or learned with `adapt`. It works on the host: at once, in a data set's `map`,
    and at the beginning of a functional model or `Sequential`, before the compiled step.

    Args:
        max_tokens: The most numbers that there are, with those for padding and unknown words.
        standardize: "lower_and_strip_punctuation", "lower", "strip_punctuation" (all for the
            letters and signs of ASCII), None, or a function of a NumPy array of text.
        split: "whitespace", "character", None, or a function that makes a list of words of each
            text of an array.
        ngrams: None for single words, n for sequences of 1 to n words, or a tuple of lengths.
        output_mode: "int" for the numbers of the words, with 0 behind them where a text is shorter;
            "multi_hot", "count" and "tf_idf" for rows that say which words are in a text, how
            often, or how often times their weights.
        output_sequence_length: How many numbers each text has, with "int"; by default as many as
            the longest of the batch.
        pad_to_max_tokens: Whether rows have `max_tokens` places.
        vocabulary: The words, a list or the path of a file with one in each line.
        idf_weights: A weight for each, with "tf_idf".
        sparse: Only False.
        ragged: Only False.
        encoding: Of text that comes as bytes.

    Input: text of shape (n,) or (n, 1), or one text; without `split` of any shape.

    Output: int64 (n, length), or rows (n, vocabulary size) in `floatx`.

    Raises:
        ValueError: for unknown names, and arguments that do not go together.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.TextVectorization(output_sequence_length=4)
    >>> layer.adapt(["The fish swims.", "The bird flies; the fish does not!"])
    >>> layer.get_vocabulary()[:4]
    ['', '[UNK]', 'the', 'fish']
    >>> layer(["fish, the fish", "a cat"]).numpy().tolist()
    [[3, 2, 3, 0], [1, 1, 0, 0]]
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        standardize: Any = "lower_and_strip_punctuation",
        split: Any = "whitespace",
        ngrams: Any = None,
        output_mode: str = "int",
        output_sequence_length: int | None = None,
        pad_to_max_tokens: bool = False,
        vocabulary: Any = None,
        idf_weights: Any = None,
        sparse: bool = False,
        ragged: bool = False,
        encoding: str = "utf-8",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        reject_sparse(sparse, "TextVectorization")
        if ragged:
            raise ValueError("TextVectorization: ragged=True is not available, tensors are dense.")
        _check_choice("standardize", standardize, tuple(_STANDARDIZE))
        _check_choice("split", split, ("whitespace", "character"))
        output_mode = checked_mode(output_mode, "TextVectorization", MODES)
        is_tuple = isinstance(ngrams, (tuple, list)) and all(isinstance(n, int) for n in ngrams)
        if ngrams is not None and not isinstance(ngrams, int) and not is_tuple:
            raise ValueError(
                "`ngrams` must be None, an integer, or a tuple of integers. Received: "
                f"ngrams={ngrams}"
            )
        length = output_sequence_length
        if length is not None and (output_mode != "int" or not isinstance(length, int)):
            raise ValueError(
                "`output_sequence_length` must be an integer, and is for output_mode='int'. "
                f"Received: output_sequence_length={length}, output_mode={output_mode!r}"
            )
        own = {k: kwargs.pop(k) for k in ("has_input_vocabulary", "vocabulary_size") if k in kwargs}
        super().__init__(name=name, **kwargs)
        self._standardize = standardize
        self._split = split
        self._ngrams_arg = ngrams
        self._ngrams: tuple[int, ...] | None = None
        if ngrams is not None:
            self._ngrams = tuple(range(1, ngrams + 1)) if isinstance(ngrams, int) else tuple(ngrams)
        self._output_mode = output_mode
        self._output_sequence_length = output_sequence_length
        self._encoding = encoding
        self._lookup_layer = StringLookup(
            max_tokens=max_tokens,
            vocabulary=vocabulary,
            idf_weights=idf_weights,
            pad_to_max_tokens=pad_to_max_tokens,
            mask_token="",
            output_mode=output_mode,
            encoding=encoding,
            **own,
        )

    @property
    def compute_dtype(self) -> str:
        return "string"

    @property
    def variable_dtype(self) -> str:  # type: ignore[override]
        return "string"

    def _on_host(self, value: Any) -> Any:
        return as_text(value, self._encoding)

    # The vocabulary -----------------------------------------------------------------------------

    def adapt(self, data: Any, batch_size: int | None = None, steps: int | None = None) -> None:
        """Learns the vocabulary: all words of data, most frequent first, up to `max_tokens`.

        Args:
            data: Text as a list or array, or an iterable of batches of it, such as a
                `keras.data.Dataset`.
            batch_size: Without effect.
            steps: How many batches are taken of an iterable.
        """
        self.reset_state()
        if isinstance(data, (list, tuple)) or dispatch.is_tensor(data) or hasattr(data, "dtype"):
            values = as_text(data, self._encoding)
            self.update_state(values[:, None] if values.ndim == 1 else values)
        else:
            for batch in batches_of(data, steps):
                self.update_state(batch)
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Counts the words of a batch."""
        values = as_text(data, self._encoding)
        if self._split is None and values.ndim < 2:
            values = values.reshape(1, -1)  # a vector is one document
        self._lookup_layer._count(self._words(values))

    def finalize_state(self) -> None:
        """Makes the vocabulary of what was counted."""
        self._lookup_layer.finalize_state()

    def reset_state(self) -> None:
        """Forgets what was counted; the vocabulary stays."""
        self._lookup_layer.reset_state()

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Gives the layer its words; see `StringLookup.set_vocabulary`."""
        self._lookup_layer.set_vocabulary(vocabulary, idf_weights)

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[str]:
        """The words in the order of their numbers, with those for padding and unknown words."""
        return self._lookup_layer.get_vocabulary(include_special_tokens)

    def vocabulary_size(self) -> int:
        """Returns how many numbers there are, with those for padding and unknown words."""
        return self._lookup_layer.vocabulary_size()

    # Using it -----------------------------------------------------------------------------------

    def _words(self, values: np.ndarray[Any, Any]) -> list[list[str]]:
        """Splits each text, or without `split` each row, into words or n-grams."""
        values = self._standardized(values)
        if self._split is None:
            rows = values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)
            words: Iterable[Any] = rows.tolist()
        else:
            if values.ndim > 1 and values.shape[-1] != 1:
                raise ValueError(
                    "When using `TextVectorization` to tokenize strings, the input rank must be 1 "
                    f"or the last shape dimension must be 1. Received: inputs.shape={values.shape}"
                )
            texts = values.reshape(-1)
            if self._split == "whitespace":
                words = (_WORD.findall(text) for text in texts)
            elif self._split == "character":
                words = (list(text) for text in texts)
            else:
                words = [[str(word) for word in found] for found in self._split(texts)]
        return [self._joined(found) for found in words]

    def _standardized(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if self._standardize is None:
            return values
        if callable(self._standardize):
            # NumPy's functions for text need arrays of its own text type.
            return as_text(self._standardize(values.astype(str)), self._encoding)
        table = _STANDARDIZE[self._standardize]
        result = np.empty(values.size, object)
        result[:] = [text.translate(table) for text in values.ravel().tolist()]
        return result.reshape(values.shape)

    def _joined(self, words: list[str]) -> list[str]:
        if self._ngrams is None:
            return words
        return [" ".join(words[i : i + n]) for n in self._ngrams for i in range(len(words) - n + 1)]

    def call(self, inputs: Any) -> Any:
        lookup = self._lookup_layer
        words = self._words(inputs)
        counts = [len(found) for found in words]
        numbers = lookup.numbers_of([word for found in words for word in found])
        longest, length = max(counts, default=0), self._output_sequence_length
        width = longest if length is None else length
        # Short rows are padded with the mask's number, or with a number that no row has a place
        # for.
        table = np.full((len(words), width), 0 if self._output_mode == "int" else -1, np.int64)
        for row, end, count in zip(table, np.cumsum(counts), counts, strict=True):
            kept = min(count, width)
            row[:kept] = numbers[end - count : end - count + kept]
        drops = inputs.ndim > 1 or self._split is None
        table = table.reshape(*(inputs.shape[:-1] if drops else inputs.shape), width)
        return table if self._output_mode == "int" else lookup.encoded(table)

    def compute_output_shape(self, input_shape: Any) -> Any:
        shape = tuple(input_shape)
        if self._output_mode == "int":
            return (shape[0], self._output_sequence_length)
        if self._split is None:
            inner = shape if len(shape) > 1 else (*shape, 1)
        else:
            inner = (*(shape[:-1] if len(shape) > 1 else shape), None)
        return encoded_shape(inner, self._output_mode, self._lookup_layer._depth())

    def compute_output_spec(self, inputs: Any) -> Any:
        dtype = "int64" if self._output_mode == "int" else config.floatx()
        return KerasTensor(self.compute_output_shape(inputs.shape), dtype)

    # Files --------------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        lookup = self._lookup_layer
        return {
            **super().get_config(),
            "max_tokens": lookup.max_tokens,
            "standardize": _saved(self._standardize),
            "split": _saved(self._split),
            "ngrams": self._ngrams_arg,
            "output_mode": self._output_mode,
            "output_sequence_length": self._output_sequence_length,
            "pad_to_max_tokens": lookup.pad_to_max_tokens,
            "sparse": False,
            "ragged": False,
            "vocabulary": lookup.input_vocabulary,
            "idf_weights": lookup.input_idf_weights,
            "encoding": self._encoding,
            "vocabulary_size": self.vocabulary_size(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """A layer of a configuration that `get_config` gave."""
        config = dict(config)
        for name in ("standardize", "split"):
            if isinstance(config.get(name), dict):
                config[name] = serialization.deserialize_keras_object(config[name])
        if isinstance(config.get("ngrams"), list):
            config["ngrams"] = tuple(config["ngrams"])
        return super().from_config(config)

    def get_build_config(self) -> dict[str, Any]:
        """Returns None: there are no weights to build."""
        return {}

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Does nothing: there are no weights to build."""

    def save_own_variables(self, store: Any) -> None:
        self._lookup_layer.save_own_variables(store)

    def load_own_variables(self, store: Any) -> None:
        self._lookup_layer.load_own_variables(store)

    def save_assets(self, dir_path: str) -> None:
        """Writes a vocabulary that was learned; see `StringLookup`."""
        self._lookup_layer.save_assets(dir_path)

    def load_assets(self, dir_path: str) -> None:
        """Reads what `save_assets` wrote."""
        self._lookup_layer.load_assets(dir_path)


def _check_choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value is not None and not callable(value) and value not in known:
        raise ValueError(
            f"TextVectorization: `{name}` must be None, a function or one of {known}. Received: "
            f"{name}={value!r}"
        )


def _saved(value: str | Callable[..., Any] | None) -> Any:
    return serialization.serialize_keras_object(value) if callable(value) else value
