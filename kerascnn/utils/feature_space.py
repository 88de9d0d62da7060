"""Tables whose columns are prepared and encoded by their kinds."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kerascnn import layers, naming, ops, saving, serialization
from kerascnn.data import Dataset
from kerascnn.layers.layer import Layer

# Configurations may name these.
__all__ = ["Cross", "Feature", "FeatureSpace", "TFDIdentity"]

_MODES = ("int", "one_hot", "float")
_KERAS_MODULE = "keras.src.layers.preprocessing.feature_space"


class TFDIdentity(layers.Identity):
    """Returns a column unchanged; Keras' files use this name."""

    _module_in_configs = _KERAS_MODULE


class _Part:
    """A part of a FeatureSpace's configuration."""

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Another one, of what `get_config` returned."""
        return cls(**config)


class Cross(_Part):
    """Columns whose combinations are put into buckets.

    Args:
        feature_names: The columns.
        crossing_dim: How many buckets there are.
        output_mode: "one_hot" or "int".
    """

    _module_in_configs = _KERAS_MODULE

    def __init__(
        self, feature_names: Sequence[str], crossing_dim: int, output_mode: str = "one_hot"
    ):
        if output_mode not in ("int", "one_hot"):
            raise ValueError(
                "`output_mode` of a cross must be 'int' or 'one_hot'. Received: "
                f"output_mode={output_mode!r}"
            )
        self.feature_names = tuple(feature_names)
        self.crossing_dim = crossing_dim
        self.output_mode = output_mode

    @property
    def name(self) -> str:
        """The names of the columns, joined."""
        return "_X_".join(self.feature_names)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make another like this one."""
        return {
            "feature_names": self.feature_names,
            "crossing_dim": self.crossing_dim,
            "output_mode": self.output_mode,
        }


class Feature(_Part):
    """The preparation of one column.

    Args:
        dtype: Of the column, "string" for text.
        preprocessor: A layer.
        output_mode: "float" for what the layer gives, "int" for numbers of categories, "one_hot"
            for rows with a 1.
    """

    _module_in_configs = _KERAS_MODULE

    def __init__(self, dtype: str, preprocessor: Any, output_mode: str):
        if output_mode not in _MODES:
            raise ValueError(
                f"`output_mode` of a feature must be one of {_MODES}. Received: "
                f"output_mode={output_mode!r}"
            )
        self.dtype = dtype
        if isinstance(preprocessor, dict):
            preprocessor = serialization.deserialize_keras_object(preprocessor)
        if not callable(preprocessor):
            raise ValueError(
                "The `preprocessor` of a feature must be a layer. Received: "
                f"preprocessor={preprocessor!r}"
            )
        self.preprocessor = preprocessor
        self.output_mode = output_mode

    def get_config(self) -> dict[str, Any]:
        """The arguments that make another like this one."""
        return {
            "dtype": self.dtype,
            "preprocessor": serialization.serialize_keras_object(self.preprocessor),
            "output_mode": self.output_mode,
        }


class FeatureSpace(Layer):
    """Prepares and encodes the columns of a table, by their kinds.

    Kinds are "float", "float_rescaled", "float_normalized", "float_discretized",
    "integer_categorical", "string_categorical", "integer_hashed" and "string_hashed"; the methods
    of these names take their options, and `feature` takes a custom layer.

    Called on a dictionary of columns it gives their encoding at once, also in a data set's `map`.
    `get_inputs` and `get_encoded_features` put it at the beginning of a functional model, with
    which it is saved; `save` writes it by itself.

    Args:
        features: A kind, or what one of these methods returned, for each name of a column.
        output_mode: "concat" for one row of all encodings, by name; "dict" for a dictionary.
        crosses: Tuples of names, whose combinations are hashed.
        crossing_dim: How many buckets a cross has.
        hashing_dim: How many buckets hashed columns have by default.
        num_discretization_bins: How many ranges "float_discretized" has by default.
        name: By default feature_space, feature_space_1, ...

    Raises:
        ValueError: for unknown kinds, modes and names.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> space = keras.utils.FeatureSpace(
    ...     {"age": "float_normalized", "color": "string_categorical"}
    ... )
    >>> table = {"age": np.array([20.0, 40.0]), "color": np.array(["red", "blue"])}
    >>> space.adapt(table)
    >>> space(table).numpy().tolist()
    [[-1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]]
    """

    def __init__(
        self,
        features: dict[str, Any],
        output_mode: str = "concat",
        crosses: Any = None,
        crossing_dim: int = 32,
        hashing_dim: int = 32,
        num_discretization_bins: int = 32,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if not features:
            raise ValueError("The `features` argument cannot be None or empty.")
        if output_mode not in ("concat", "dict"):
            raise ValueError(
                f"`output_mode` must be 'concat' or 'dict'. Received: output_mode={output_mode!r}"
            )
        self.output_mode = output_mode
        self.crossing_dim = crossing_dim
        self.hashing_dim = hashing_dim
        self.num_discretization_bins = num_discretization_bins
        self.features = {key: self._feature(key, value) for key, value in features.items()}
        self.crosses = [self._cross(cross) for cross in crosses or ()]
        self.preprocessors = {key: value.preprocessor for key, value in self.features.items()}
        self.crossers = {
            cross.name: layers.HashedCrossing(cross.crossing_dim, name=cross.name)
            for cross in self.crosses
        }
        self.inputs = {
            key: layers.Input((1,), dtype=value.dtype, name=key)
            for key, value in self.features.items()
        }
        self.one_hot_encoders: dict[str, Any] = {}
        self.concat = layers.Concatenate(axis=-1)
        self._encoded: Any = None
        self.built = not self._adaptable()

    # Kinds of columns ---------------------------------------------------------------------------

    @classmethod
    def cross(cls, feature_names: Any, crossing_dim: int, output_mode: str = "one_hot") -> Cross:
        """Combinations of columns."""
        return Cross(feature_names, crossing_dim, output_mode)

    @classmethod
    def feature(cls, dtype: str, preprocessor: Any, output_mode: str) -> Feature:
        """A column that a custom layer prepares."""
        return Feature(dtype, preprocessor, output_mode)

    @classmethod
    def float(cls, name: str | None = None) -> Feature:
        """Numbers as they are."""
        return Feature("float32", TFDIdentity(name=_inner(name, "float")), "float")

    @classmethod
    def float_rescaled(
        cls, scale: Any = 1.0, offset: Any = 0.0, name: str | None = None
    ) -> Feature:
        """Numbers times `scale`, plus `offset`."""
        own = _inner(name, "float_rescaled")
        return Feature("float32", layers.Rescaling(scale, offset, name=own), "float")

    @classmethod
    def float_normalized(cls, name: str | None = None) -> Feature:
        """Numbers brought to mean 0 and variance 1."""
        own = _inner(name, "float_normalized")
        return Feature("float32", layers.Normalization(axis=-1, name=own), "float")

    @classmethod
    def float_discretized(
        cls,
        num_bins: int | None,
        bin_boundaries: Any = None,
        output_mode: str = "one_hot",
        name: str | None = None,
    ) -> Feature:
        """The ranges that numbers lie in."""
        own = _inner(name, "float_discretized")
        layer = layers.Discretization(bin_boundaries, num_bins, name=own)
        return Feature("float32", layer, output_mode)

    @classmethod
    def integer_categorical(
        cls,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        output_mode: str = "one_hot",
        name: str | None = None,
    ) -> Feature:
        """Integers that are numbers of categories."""
        own = _inner(name, "integer_categorical")
        return Feature(
            "int32", layers.IntegerLookup(max_tokens, num_oov_indices, name=own), output_mode
        )

    @classmethod
    def string_categorical(
        cls,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        output_mode: str = "one_hot",
        name: str | None = None,
    ) -> Feature:
        """Words that are names of categories."""
        own = _inner(name, "string_categorical")
        return Feature(
            "string", layers.StringLookup(max_tokens, num_oov_indices, name=own), output_mode
        )

    @classmethod
    def string_hashed(
        cls, num_bins: int, output_mode: str = "one_hot", name: str | None = None
    ) -> Feature:
        """Words, put into buckets by their hashes."""
        own = _inner(name, "string_hashed")
        return Feature("string", layers.Hashing(num_bins, name=own), output_mode)

    @classmethod
    def integer_hashed(
        cls, num_bins: int, output_mode: str = "one_hot", name: str | None = None
    ) -> Feature:
        """Integers, put into buckets by their hashes."""
        own = _inner(name, "integer_hashed")
        return Feature("int32", layers.Hashing(num_bins, name=own), output_mode)

    def _feature(self, name: str, value: Any) -> Feature:
        if isinstance(value, Feature):
            return value
        if isinstance(value, dict):
            return Feature(**value.get("config", value))
        made = {
            "float": lambda: self.float(name),
            "float_rescaled": lambda: self.float_rescaled(name=name),
            "float_normalized": lambda: self.float_normalized(name),
            "float_discretized": lambda: self.float_discretized(
                self.num_discretization_bins, name=name
            ),
            "integer_categorical": lambda: self.integer_categorical(name=name),
            "string_categorical": lambda: self.string_categorical(name=name),
            "integer_hashed": lambda: self.integer_hashed(self.hashing_dim, name=name),
            "string_hashed": lambda: self.string_hashed(self.hashing_dim, name=name),
        }
        if value not in made:
            raise ValueError(f"A feature is one of {list(made)}. Received: {name}={value!r}")
        return made[value]()

    def _cross(self, value: Any) -> Cross:
        if isinstance(value, dict):
            value = Cross(**value.get("config", value))
        elif not isinstance(value, Cross):
            value = Cross(value, self.crossing_dim)
        unknown = [name for name in value.feature_names if name not in self.features]
        if unknown:
            raise ValueError(
                "All features referenced in the `crosses` argument should be present in the "
                f"`features` dict. Received unknown features: {unknown}"
            )
        return value

    # Learning and using -------------------------------------------------------------------------

    def _adaptable(self) -> list[str]:
        """Returns the columns whose layers learn from data."""
        found = []
        for name, layer in self.preprocessors.items():
            given = getattr(layer, "input_mean", None) is not None
            lookup = getattr(layer, "_lookup_layer", layer)
            given = given or getattr(lookup, "_has_input_vocabulary", False)
            given = given or (isinstance(layer, layers.Discretization) and layer.num_bins is None)
            if hasattr(layer, "adapt") and not given:
                found.append(name)
        return found

    def adapt(self, dataset: Any) -> None:
        """Lets the layers learn vocabularies, ranges, means and variances.

        Args:
            dataset: A dictionary of columns, or a `keras.data.Dataset` of such dictionaries, of
                rows or batches of them.

        Raises:
            ValueError: for anything else.
        """
        if isinstance(dataset, dict):
            self._check_columns(dataset, self._adaptable())
            dataset = Dataset.from_tensor_slices(dataset)
        if not isinstance(dataset, Dataset):
            raise ValueError(
                "`adapt()` can only be called on a keras.data.Dataset or a dict of arrays/lists. "
                f"Received: {type(dataset).__name__}{_advice(dataset)}"
            )

        def pick(row: Any, *more: Any, name: str) -> Any:
            if more or not isinstance(row, dict):
                kind = "tuple" if more else type(row).__name__
                raise ValueError(
                    f"FeatureSpace '{self.name}' learns from a data set of dictionaries, with a "
                    f"column for each feature. Received elements: {kind}. Map it "
                    "first: `adapt(dataset.map(lambda features, label: features))`."
                )
            self._check_columns(row, self._adaptable())
            return row[name]

        for name in self._adaptable():
            column = dataset.map(functools.partial(pick, name=name))
            rank = np.ndim(next(iter(column)))
            if rank == 0:
                column = column.batch(1024)
            if rank < 2:
                column = column.map(lambda values: np.asarray(values)[..., None])
            self.preprocessors[name].adapt(column)
        self.built = True
        self._encoded = None
        self.one_hot_encoders.clear()

    def _check_adapted(self) -> None:
        if not self.built:
            raise ValueError(
                "You need to call `.adapt(dataset)` on the FeatureSpace before you can start "
                "using it."
            )

    def _check_columns(self, data: dict[str, Any], names: Iterable[str]) -> None:
        missing = [name for name in names if name not in data]
        if missing:
            raise ValueError(
                f"FeatureSpace '{self.name}' needs a column for each of its features "
                f"{list(self.features)}. Missing: {missing}. Received: {list(data)}. Add them, or "
                "make a FeatureSpace without them."
            )

    def get_inputs(self) -> dict[str, Any]:
        """Returns an input for each column, for a functional model."""
        self._check_adapted()
        return self.inputs

    def get_encoded_features(self) -> Any:
        """Returns the encoded features for these inputs."""
        self._check_adapted()
        if self._encoded is None:
            self._encoded = self._encode(self.inputs)
        return self._encoded

    def _encode(self, columns: dict[str, Any]) -> Any:
        prepared = {name: layer(columns[name]) for name, layer in self.preprocessors.items()}
        specs: dict[str, Any] = {name: self.features[name] for name in sorted(prepared)}
        crossed = {
            cross.name: self.crossers[cross.name]([prepared[n] for n in cross.feature_names])
            for cross in self.crosses
        }
        specs.update({cross.name: cross for cross in sorted(self.crosses, key=lambda c: c.name)})
        prepared.update(crossed)
        results = {}
        for name, spec in specs.items():
            value = prepared[name]
            if spec.output_mode == "one_hot":
                value = self._encoder(name)(value)
            elif self.output_mode == "concat" and not str(value.dtype).startswith("float"):
                raise ValueError(
                    f"Cannot concatenate features because feature '{name}' has not been encoded "
                    f"(it has dtype {value.dtype}). Consider using `output_mode='dict'`."
                )
            results[name] = value
        if self.output_mode == "dict":
            return results
        values = list(results.values())
        return self.concat(values) if len(values) > 1 else values[0]

    def _encoder(self, name: str) -> Any:
        if name not in self.one_hot_encoders:
            count = self._cardinality(name)
            self.one_hot_encoders[name] = layers.CategoryEncoding(count, "multi_hot")
        return self.one_hot_encoders[name]

    def _cardinality(self, name: str) -> int:
        layer = self.preprocessors.get(name) or self.crossers[name]
        if isinstance(layer, (layers.IntegerLookup, layers.StringLookup)):
            return layer.vocabulary_size()
        if isinstance(layer, layers.Discretization):
            return layer._depth()
        if isinstance(layer, (layers.HashedCrossing, layers.Hashing)):
            return layer.num_bins
        if isinstance(layer, layers.CategoryEncoding):
            return layer.num_tokens
        raise ValueError(
            f"Feature '{name}' has output_mode='one_hot', but how many categories its layer "
            f"{type(layer).__name__} has is not known. Use output_mode='int'."
        )

    def __call__(self, data: Any) -> Any:
        """Returns the encoding of a dictionary of columns (n,) or (n, 1), or of single values.

        Columns that are no features are left out.

        Raises:
            ValueError: before `adapt`, where a feature is missing, and for anything else.
        """
        self._check_adapted()
        if not isinstance(data, dict):
            raise ValueError(
                "A FeatureSpace can only be called with a dict. Received: "
                f"{type(data).__name__}{_advice(data)}"
            )
        self._check_columns(data, self.features)
        columns = {name: np.asarray(data[name]) for name in self.features}
        single = any(column.ndim == 0 for column in columns.values())
        columns = {
            name: x.reshape(1, 1) if x.ndim == 0 else x[:, None] if x.ndim == 1 else x
            for name, x in columns.items()
        }
        found = self._encode(columns)
        if not single:
            return found
        if self.output_mode == "concat":
            return ops.squeeze(found, 0)
        return {name: ops.squeeze(x, 0) for name, x in found.items()}

    def save(self, filepath: str | os.PathLike[str]) -> None:
        """Writes this, and all that it has learned, to a file.

        Keras reads it, and `saving.load_model` reads it and those of Keras.

        Args:
            filepath: Ends in ".keras".

        Raises:
            ValueError: for another ending.

        Example:

        >>> import os, tempfile
        >>> import kerascnn as keras
        >>> space = keras.utils.FeatureSpace({"color": "string_categorical"})
        >>> space.adapt({"color": ["red", "blue"]})
        >>> path = os.path.join(tempfile.mkdtemp(), "space.keras")
        >>> space.save(path)
        >>> keras.saving.load_model(path)({"color": ["blue"]}).numpy().tolist()
        [[0.0, 0.0, 1.0]]
        """
        if not str(filepath).endswith(".keras"):
            raise ValueError(
                "A FeatureSpace is saved to a file whose name ends in '.keras'. Received: "
                f"filepath={str(filepath)!r}"
            )
        saving.save_model(self, filepath)

    def get_build_config(self) -> dict[str, Any] | None:
        """Returns the shapes that the layers have seen, or None before they have learned."""
        if not self.built:
            return None
        return {name: layer.get_build_config() for name, layer in self.preprocessors.items()}

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Marks the layers as adapted: what they have learned is in the same file."""
        for name, shapes in config.items():
            layer = self.preprocessors[name]
            if shapes and not layer.built:
                layer.build_from_config(shapes)
        self.built = True

    def get_config(self) -> dict[str, Any]:
        return {
            "features": serialization.serialize_keras_object(self.features),
            "output_mode": self.output_mode,
            "crosses": serialization.serialize_keras_object(self.crosses),
            "crossing_dim": self.crossing_dim,
            "hashing_dim": self.hashing_dim,
            "num_discretization_bins": self.num_discretization_bins,
            "name": self.name,
        }


def _inner(name: str | None, kind: str) -> str:
    """Returns the name of a column's layer."""
    return f"{name or naming.auto_name(kind)}_preprocessor"


def _advice(data: Any) -> str:
    """Returns what to do with a table, for an error."""
    return ". Pass `dict(table)`." if hasattr(data, "columns") else ""
