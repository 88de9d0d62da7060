"""Tables between tokens and numbers, given or learned from data."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from kerascnn import config, registration
from kerascnn.layers.preprocessing import hashes
from kerascnn.layers.preprocessing.adapting import batches_of
from kerascnn.layers.preprocessing.encoding import encode_on_host, encoded_shape
from kerascnn.layers.preprocessing.host_layer import HostLayer
from kerascnn.ops import dispatch
from kerascnn.symbolic.keras_tensor import KerasTensor

MODES = ("int", "one_hot", "multi_hot", "count", "tf_idf")
_OLD_MODES = {"binary": "multi_hot", "tf-idf": "tf_idf"}
_FILE = "vocabulary.txt"


def checked_mode(output_mode: Any, layer: str, known: tuple[str, ...] = MODES) -> str:
    """The name of an output mode, also by the names that Keras 2 had.

    Raises:
        ValueError: for another one.
    """
    mode = _OLD_MODES.get(output_mode, output_mode)
    if mode not in known:
        raise ValueError(
            f"{layer}: `output_mode` must be one of {known}. Received: output_mode={output_mode!r}"
        )
    return mode


def reject_sparse(sparse: Any, layer: str) -> None:
    """Raises a ValueError for `sparse=True`."""
    if sparse:
        raise ValueError(f"{layer}: sparse=True is not available, tensors are dense.")


class IndexLookup(HostLayer):
    """Base of `StringLookup` and `IntegerLookup`; see there.

    Numbers are given to the mask, then to what is not in the vocabulary, then to its tokens.
    """

    vocabulary_dtype = "string"

    def __init__(
        self,
        max_tokens: int | None,
        num_oov_indices: int,
        mask_token: Any,
        oov_token: Any,
        vocabulary: Any = None,
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
        own = type(self).__name__
        self._check_sizes(max_tokens, pad_to_max_tokens, num_oov_indices)
        reject_sparse(sparse, own)
        output_mode = checked_mode(output_mode, own)
        if oov_method not in ("floormod", "farmhash"):
            raise ValueError(
                f"{own}: `oov_method` must be 'floormod' or 'farmhash'. Received: {oov_method!r}"
            )
        if invert and output_mode != "int":
            raise ValueError(
                f"{own}: `output_mode` must be 'int' when `invert` is true. Received: "
                f"output_mode={output_mode}"
            )
        if idf_weights is not None and output_mode != "tf_idf":
            raise ValueError(
                f"{own}: `idf_weights` are for output_mode='tf_idf'. Received: output_mode="
                f"{output_mode}"
            )
        if output_mode == "tf_idf" and vocabulary is not None and idf_weights is None:
            raise ValueError(f"{own}: a `vocabulary` in output_mode='tf_idf' needs `idf_weights`.")
        frozen_size = kwargs.pop("vocabulary_size", None)
        has_vocabulary = kwargs.pop("has_input_vocabulary", vocabulary is not None)
        kwargs.pop("trainable", None)
        super().__init__(name=name, **kwargs)
        self.max_tokens = max_tokens
        self.num_oov_indices = num_oov_indices
        self.mask_token = mask_token
        self.oov_token = oov_token
        self.invert = invert
        self.output_mode = output_mode
        self.sparse = False
        self.pad_to_max_tokens = pad_to_max_tokens
        self.oov_method = oov_method
        self.salt = self._checked_salt(salt)
        self.input_idf_weights = _listed(idf_weights)
        self._has_input_vocabulary = has_vocabulary
        self._frozen_vocab_size = frozen_size
        self._table: dict[Any, int] = {}
        self._tokens: list[Any] = []
        self._idf: np.ndarray[Any, Any] | None = None
        self.input_vocabulary: list[Any] | None = None
        self.reset_state()
        if vocabulary is not None:
            self.set_vocabulary(vocabulary, idf_weights)
            self.input_vocabulary = list(self._given)

    def _check_sizes(self, max_tokens: Any, pad: bool, num_oov_indices: int) -> None:
        if max_tokens is not None and max_tokens <= 1:
            raise ValueError(
                f"If set, `max_tokens` must be greater than 1. Received: max_tokens={max_tokens}"
            )
        if pad and max_tokens is None:
            raise ValueError("pad_to_max_tokens=True needs `max_tokens`. Received: None")
        if num_oov_indices < 0:
            raise ValueError(
                "`num_oov_indices` must be greater than or equal to 0. Received: "
                f"num_oov_indices={num_oov_indices}"
            )

    def _checked_salt(self, salt: Any) -> list[int] | None:
        if salt is None:
            return None
        return checked_salt(salt, type(self).__name__)

    @property
    def compute_dtype(self) -> str:
        return self.vocabulary_dtype

    @property
    def variable_dtype(self) -> str:  # type: ignore[override]
        return self.vocabulary_dtype

    # Tokens of a kind: what subclasses say -------------------------------------------------------

    def _values(self, data: Any) -> np.ndarray[Any, Any]:
        """Converts data to an array of tokens."""
        raise NotImplementedError

    def _sort_key(self, token: Any) -> Any:
        """Returns the key that sorts tokens of equal counts."""
        raise NotImplementedError

    def _oov_numbers(self, tokens: list[Any]) -> Any:
        """Returns numbers below `num_oov_indices` for tokens that are not in the vocabulary."""
        return hashes.buckets(tokens, self.num_oov_indices, self.salt)

    # The vocabulary -----------------------------------------------------------------------------

    def _oov_start_index(self) -> int:
        return 1 if self.mask_token is not None and self.output_mode == "int" else 0

    def _token_start_index(self) -> int:
        return self._oov_start_index() + self.num_oov_indices

    def vocabulary_size(self) -> int:
        """Returns how many numbers there are, with those for the mask and for unknown tokens."""
        return self._token_start_index() + len(self._tokens)

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """The tokens in the order of their numbers.

        Args:
            include_special_tokens: Whether the mask and the token for unknown ones are among them.
        """
        if not include_special_tokens:
            return list(self._tokens)
        return [*self._special_tokens(), *self._tokens]

    def _special_tokens(self) -> list[Any]:
        mask = [self.mask_token] * self._oov_start_index()
        return [*mask, *[self.oov_token] * self.num_oov_indices]

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Gives the layer its tokens, in place of those that it has.

        Args:
            vocabulary: A list or vector of them, most frequent first, with or without the special
                tokens at its beginning; or the path of a text file with one in each line.
            idf_weights: For output_mode="tf_idf", a weight for each.

        Raises:
            ValueError: for tokens that occur twice, special ones in other places, more than
                `max_tokens`, or a path in a configuration that is being loaded.
        """
        if (self.output_mode == "tf_idf") != (idf_weights is not None):
            raise ValueError(
                "`idf_weights` must be given with output_mode='tf_idf', and only then. Received: "
                f"output_mode={self.output_mode!r}, idf_weights={idf_weights}"
            )
        if isinstance(vocabulary, (str, os.PathLike)):
            vocabulary = self._read(os.fspath(vocabulary))
        given = self._values(vocabulary).tolist() if len(vocabulary) else []
        if not given:
            raise ValueError(f"Cannot set an empty vocabulary. Received: vocabulary={vocabulary}")
        special = self._special_tokens()
        has_special = given[: len(special)] == special
        tokens = given[len(special) :] if has_special else given
        self._check_tokens(tokens, special)
        self._given = given
        self._take(tokens)
        if idf_weights is not None:
            self._set_idf(np.asarray(idf_weights, "float64"), len(given), has_special)

    def _read(self, path: str) -> list[Any]:
        if registration.in_safe_mode():
            raise ValueError(
                "The configuration names a file to read a vocabulary from, "
                f"{path!r}: files outside of a model's own are not read while it is loaded, since "
                "whoever wrote it could have any file read. Pass safe_mode=False where you trust "
                "it."
            )
        if not os.path.isfile(path):
            raise ValueError(f"Vocabulary file {path} does not exist.")
        if self.output_mode == "tf_idf":
            raise ValueError("output_mode='tf_idf' takes no vocabulary of a file.")
        with open(path, encoding="utf-8") as file:
            return self._of_lines(file.read().split("\n"))

    def _of_lines(self, lines: list[str]) -> list[Any]:
        while lines and not lines[-1]:
            lines.pop()
        return list(lines)

    def _check_tokens(self, tokens: list[Any], special: list[Any]) -> None:
        repeated = [token for token, count in Counter(tokens).items() if count > 1]
        if repeated:
            raise ValueError(
                "The passed vocabulary has at least one repeated term. The repeated terms are: "
                f"{repeated}"
            )
        for name, token, counts in (
            ("mask", self.mask_token, True),
            ("OOV", self.oov_token, self.invert),
        ):
            if counts and token is not None and token in tokens:
                raise ValueError(
                    f"Found reserved {name} token {token!r} at unexpected location in "
                    "`vocabulary`. Leave the special tokens out, or begin the vocabulary with "
                    f"exactly these: {special}."
                )
        size = self._token_start_index() + len(tokens)
        if self.max_tokens is not None and size > self.max_tokens:
            raise ValueError(
                "Attempted to set a vocabulary larger than the maximum vocab size. Received "
                f"vocabulary size is {size}; `max_tokens` is {self.max_tokens}."
            )

    def _take(self, tokens: list[Any]) -> None:
        fixed = self.output_mode != "int" and not self.pad_to_max_tokens
        size = self._token_start_index() + len(tokens)
        if fixed and self._frozen_vocab_size not in (None, size) and self._tokens:
            raise RuntimeError(
                f"With output_mode={self.output_mode!r} and pad_to_max_tokens=False the size of "
                f"the vocabulary stays what it is, {self._frozen_vocab_size}. Received: {size}"
            )
        self._tokens = list(tokens)
        start = self._token_start_index()
        self._table = {token: number for number, token in enumerate(tokens, start)}
        self._frozen_vocab_size = size

    def _set_idf(self, weights: np.ndarray[Any, Any], count: int, has_special: bool) -> None:
        if weights.ndim != 1 or len(weights) != count:
            raise ValueError(
                "`idf_weights` must be a vector of the same length as the vocabulary. Received: "
                f"shape {weights.shape} for {count} tokens"
            )
        # Unknown tokens get the mean weight of the others.
        front = 0 if has_special else self._token_start_index()
        weights = np.concatenate([np.full(front, weights.mean()), weights])
        if self.pad_to_max_tokens:
            weights = np.pad(weights, (0, self._depth() - len(weights)))
        self._idf = weights.astype(config.floatx())

    def _depth(self) -> int:
        size = self.max_tokens if self.pad_to_max_tokens else self._frozen_vocab_size
        if size is None:
            raise RuntimeError(
                f"With output_mode={self.output_mode!r} and pad_to_max_tokens=False the layer "
                f"'{self.name}' needs its vocabulary before it is called: pass `vocabulary`, or "
                "call `adapt` on data."
            )
        return size

    # Learning it --------------------------------------------------------------------------------

    def adapt(self, data: Any, steps: int | None = None) -> None:
        """Learns the vocabulary: all tokens of data, most frequent first, up to `max_tokens`.

        Args:
            data: An array or a list of tokens, one row for each document; or an iterable of
                batches, such as a `keras.data.Dataset`.
            steps: How many batches are taken of an iterable.
        """
        self.reset_state()
        if isinstance(data, (list, tuple)) or dispatch.is_tensor(data) or hasattr(data, "dtype"):
            values = self._values(data)
            self.update_state(values[:, None] if values.ndim == 1 else values)
        else:
            for batch in batches_of(data, steps):
                self.update_state(batch)
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Counts the tokens of a batch; one axis is one document."""
        values = self._values(data)
        rows = values.reshape(1, -1) if values.ndim < 2 else values
        self._count(row.ravel().tolist() for row in rows)

    def _count(self, documents: Iterable[list[Any]]) -> None:
        if self._has_input_vocabulary:
            raise ValueError(
                f"Cannot adapt layer '{self.name}', which was given its vocabulary with the "
                "`vocabulary` argument."
            )
        for tokens in documents:
            self._token_counts.update(tokens)
            self._num_documents += 1
            if self.output_mode == "tf_idf":
                self._document_counts.update(set(tokens))

    def finalize_state(self) -> None:
        """Makes the vocabulary of what was counted."""
        if self._has_input_vocabulary or not self._token_counts:
            return
        for special in (self.mask_token, self.oov_token):
            self._token_counts.pop(special, None)
        ordered = sorted(
            self._token_counts.items(), key=lambda x: (x[1], self._sort_key(x[0])), reverse=True
        )
        if self.max_tokens is not None:
            ordered = ordered[: max(0, self.max_tokens - self._token_start_index())]
        tokens = [token for token, _ in ordered]
        self._take(tokens)
        if self.output_mode == "tf_idf":
            found = np.array([self._document_counts[token] for token in tokens], "float64")
            weights = np.log(1 + self._num_documents / (1 + found))
            self._set_idf(weights, len(tokens), has_special=False)
        self.reset_state()

    def reset_state(self) -> None:
        """Forgets what was counted; the vocabulary stays."""
        self._token_counts: Counter[Any] = Counter()
        self._document_counts: Counter[Any] = Counter()
        self._num_documents = 0

    # Using it -----------------------------------------------------------------------------------

    def call(self, inputs: Any) -> Any:
        if self.invert:
            return self._tokens_of(np.asarray(inputs))
        values = self._values(inputs)
        numbers = self.numbers_of(values.ravel().tolist()).reshape(values.shape)
        if self.output_mode == "int":
            return numbers
        return self.encoded(numbers[None] if numbers.ndim == 0 else numbers)

    def numbers_of(self, tokens: list[Any]) -> np.ndarray[Any, Any]:
        """The number of each token; -1 for the mask where it is left out.

        Raises:
            ValueError: for a token that is not in the vocabulary, without numbers for such.
        """
        found = np.array([self._table.get(token, -1) for token in tokens], np.int64)
        unknown = found < 0
        if self.mask_token is not None:
            masked = np.array([token == self.mask_token for token in tokens], bool)
            found[masked] = 0 if self.output_mode == "int" else -1
            unknown &= ~masked
        if unknown.any():
            found[unknown] = self._unknown(list(itertools.compress(tokens, unknown)))
        return found

    def _unknown(self, tokens: list[Any]) -> Any:
        if self.num_oov_indices == 0:
            raise ValueError(
                "When `num_oov_indices=0` all inputs should be in vocabulary, found OOV values "
                f"{tokens[:10]}, consider setting `num_oov_indices=1`."
            )
        start = self._oov_start_index()
        return start if self.num_oov_indices == 1 else start + self._oov_numbers(tokens)

    def encoded(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Encodes numbers of tokens in an output mode other than "int"."""
        mode = "count" if self.output_mode == "tf_idf" else self.output_mode
        rows = encode_on_host(numbers, mode, self._depth(), config.floatx())
        if self.output_mode != "tf_idf":
            return rows
        if self._idf is None:
            raise ValueError(f"The layer '{self.name}' has no `idf_weights` yet: call `adapt`.")
        return rows * self._idf

    def _tokens_of(self, numbers: np.ndarray[Any, Any]) -> Any:
        known = dict(enumerate(self._tokens, self._token_start_index()))
        if self.mask_token is not None:
            known[0] = self.mask_token
        found = [known.get(number, self.oov_token) for number in numbers.ravel().tolist()]
        return self._values(found).reshape(numbers.shape)

    def compute_output_shape(self, input_shape: Any) -> Any:
        if self.output_mode == "int":
            return tuple(input_shape)
        return encoded_shape(tuple(input_shape), self.output_mode, self._depth())

    def compute_output_spec(self, inputs: Any) -> Any:
        shape = self.compute_output_shape(inputs.shape)
        if self.invert:
            return KerasTensor(shape, self.vocabulary_dtype)
        return KerasTensor(shape, "int64" if self.output_mode == "int" else config.floatx())

    # Files --------------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "invert": self.invert,
            "max_tokens": self.max_tokens,
            "num_oov_indices": self.num_oov_indices,
            "oov_token": self.oov_token,
            "mask_token": self.mask_token,
            "output_mode": self.output_mode,
            "sparse": False,
            "pad_to_max_tokens": self.pad_to_max_tokens,
            "vocabulary_dtype": self.vocabulary_dtype,
            "idf_weights": self.input_idf_weights,
            "vocabulary": self.input_vocabulary,
            "vocabulary_size": self._frozen_vocab_size,
            "oov_method": self.oov_method,
            "salt": self.salt,
        }

    def get_build_config(self) -> dict[str, Any]:
        """Returns None: there are no weights to build."""
        return {}

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Does nothing: there are no weights to build."""

    def save_own_variables(self, store: Any) -> None:
        if self.output_mode == "tf_idf" and self._idf is not None:
            store["idf_weights"] = self._idf

    def load_own_variables(self, store: Any) -> None:
        if self.output_mode == "tf_idf" and "idf_weights" in store:
            self._idf = np.asarray(store["idf_weights"], config.floatx())

    def save_assets(self, dir_path: str) -> None:
        """Writes a vocabulary that was learned; one that was given is in the configuration."""
        if self.input_vocabulary is not None:
            return
        lines = [str(token) for token in self.get_vocabulary()]
        broken = next((line for line in lines if "\n" in line), None)
        if broken is not None:
            raise ValueError(
                f"The vocabulary of layer '{self.name}' has a token with a line break, {broken!r}, "
                "which its file cannot hold: standardize the text, or pass the vocabulary as "
                "`vocabulary`."
            )
        with open(os.path.join(dir_path, _FILE), "w", encoding="utf-8", newline="\n") as file:
            file.write("\n".join(lines))

    def load_assets(self, dir_path: str) -> None:
        """Reads what `save_assets` wrote."""
        path = os.path.join(dir_path, _FILE)
        if self.input_vocabulary is not None or not os.path.exists(path):
            return
        with open(path, encoding="utf-8", newline="\n") as file:
            tokens = self._of_lines(file.read().split("\n"))
        if len(tokens) <= self._token_start_index():
            return  # the layer was saved before it had learned anything
        self.set_vocabulary(tokens, None if self._idf is None else self._idf[: len(tokens)])


def checked_salt(salt: Any, layer: str) -> list[int]:
    """The key of a keyed hash, two numbers; one stands for both.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(salt, (tuple, list)) and len(salt) == 2:
        return [int(salt[0]), int(salt[1])]
    if isinstance(salt, int) and not isinstance(salt, bool):
        return [salt, salt]
    raise ValueError(
        f"The `salt` argument for `{layer}` can only be a tuple of size 2 integers, or a single "
        f"integer. Received: salt={salt}."
    )


def _listed(values: Any) -> Any:
    return None if values is None else np.asarray(values).tolist()
