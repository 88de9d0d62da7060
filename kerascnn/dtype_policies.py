"""The dtypes in which layers compute and keep their weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from kerascnn import config, dtypes

__all__ = [
    "DTypePolicy",
    "DTypePolicyMap",
    "FloatDTypePolicy",
    "QuantizedDTypePolicy",
    "deserialize",
    "dtype_policy",
    "get",
    "serialize",
    "set_dtype_policy",
]

_MIXED = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}
# These are Keras' modes of quantization. Only "int8" is available here.
_MODES = ("int8", "int4", "float8", "gptq", "awq")
_AVAILABLE = "int8"


class DTypePolicy:
    """What layers compute in, and what they keep their weights in.

    With "mixed_bfloat16" or "mixed_float16" a layer casts its inputs and (when it reads them) its
    weights to the shorter type, while the weights themselves stay float32: half of the memory for
    activations, and the fast units of GPUs (Micikevicius et al., 2018, "Mixed Precision Training").
    `compile` puts a `LossScaleOptimizer` around the optimizer of a "mixed_float16" model.

    Args:
        name: "float32", "bfloat16", "float16", "float64" (or another dtype) for both, or
            "mixed_float16" or "mixed_bfloat16"; None for `config.dtype_policy()`.

    Raises:
        ValueError: for another name.
        TypeError: for something that is no string.

    Example:

    >>> import kerascnn as keras
    >>> policy = keras.DTypePolicy("mixed_bfloat16")
    >>> policy.compute_dtype, policy.variable_dtype
    ('bfloat16', 'float32')
    >>> keras.layers.Dense(2, dtype=policy)(keras.ops.ones((1, 3))).dtype
    'bfloat16'
    """

    def __init__(self, name: str | None = None) -> None:
        if name is None:
            name = dtype_policy().name
        self._name = name
        self._compute_dtype, self._variable_dtype = _parse(name)

    @property
    def name(self) -> str:
        """What `get` makes the policy of, such as "mixed_bfloat16"."""
        return self._name

    @property
    def compute_dtype(self) -> str:
        """What layers compute in, and cast their inputs to."""
        return self._compute_dtype

    @property
    def variable_dtype(self) -> str:
        """What layers keep their weights in."""
        return self._variable_dtype

    @property
    def quantization_mode(self) -> str | None:
        """How layers are quantized: "int8", or None where they are not."""
        return None

    def convert_input(self, x: Any, autocast: bool, dtype: Any) -> Any:
        """`x` as a tensor; a floating one in `dtype` where `autocast` says so.

        Args:
            x: A tensor, a KerasTensor or an array; anything else comes back as it is.
            autocast: Whether to cast floating values.
            dtype: What to cast them to.
        """
        from kerascnn import ops
        from kerascnn.ops import dispatch
        from kerascnn.symbolic.keras_tensor import KerasTensor

        dtype = dtypes.standardize_dtype(dtype)
        if not isinstance(x, KerasTensor) and not dispatch.is_tensor(x):
            if not dispatch.is_array_like(x):
                return x
            x = dispatch.convert(x)
        casts = autocast and dtypes.is_float(x.dtype) and x.dtype != dtype
        return ops.cast(x, dtype) if casts else x

    def get_config(self) -> dict[str, Any]:
        """The arguments that make another one like it; values of JSON.

        Returns:
            A dictionary, which `from_config` takes.
        """
        return {"name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DTypePolicy:
        """Makes one of what `get_config` returned.

        Args:
            config: The dictionary.
        """
        return cls(**config)

    def __eq__(self, other: object) -> bool:
        plain = (DTypePolicy, FloatDTypePolicy)
        if type(self) in plain:
            return type(other) in plain and other.name == self.name  # type: ignore[attr-defined]
        return type(other) is type(self) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f'<{"DTypePolicy" if name == "FloatDTypePolicy" else name} "{self.name}">'


class FloatDTypePolicy(DTypePolicy):
    """An older name of `DTypePolicy`.

    Args:
        name: See `DTypePolicy`.

    Example:

    >>> import kerascnn as keras
    >>> keras.dtype_policies.FloatDTypePolicy("mixed_float16").compute_dtype
    'float16'
    """


class QuantizedDTypePolicy(DTypePolicy):
    """The policy of quantized layers: their kernels are integers, the rest is as in another policy.

    Args:
        mode: "int8".
        source_name: The name of the other policy, None for that of `config.dtype_policy()`.

    Raises:
        ValueError: for another mode, and with float16 as what layers compute in, where products
            of integers do not fit.

    Example:

    >>> import kerascnn as keras
    >>> policy = keras.dtype_policies.QuantizedDTypePolicy("int8", "mixed_bfloat16")
    >>> policy.name, policy.compute_dtype, policy.quantization_mode
    ('int8_from_mixed_bfloat16', 'bfloat16', 'int8')
    """

    def __init__(self, mode: str, source_name: str | None = None) -> None:
        if source_name is None:
            source_name = dtype_policy().name
        check_quantization_mode(mode)
        self._compute_dtype, self._variable_dtype = _parse(source_name)
        if self._compute_dtype == "float16":
            raise ValueError(
                "The products of integers that int8 layers form do not fit into float16. Take "
                f"'float32' or 'mixed_bfloat16'. Received: source_name={source_name!r}"
            )
        self._name = f"{mode}_from_{source_name}"
        self._source_name = source_name
        self._mode = mode

    @property
    def quantization_mode(self) -> str:
        return self._mode

    def get_config(self) -> dict[str, Any]:
        return {"mode": self._mode, "source_name": self._source_name}


def check_quantization_mode(mode: Any) -> None:
    """Raises a ValueError for a mode of quantization that is not available."""
    if mode == _AVAILABLE:
        return
    known = f"Keras' mode {mode!r} is not" if mode in _MODES else f"{mode!r} is no mode that is"
    raise ValueError(f"quantize: {known} available here; take mode='int8'.")


class DTypePolicyMap(DTypePolicy, MutableMapping):
    """Policies by the paths of layers: a dictionary whose keys are paths or regular expressions.

    A key that equals a layer's path goes first; else the one expression that matches the whole path
    counts; else the default policy.

    Args:
        default_policy: For layers that no key stands for; None for `config.dtype_policy()`.
        policy_map: Policies (or their names) by path.

    Raises:
        TypeError: where `policy_map` is no dictionary.
        ValueError: for a key that is there already, a value that is no policy, and a path that
            several expressions match.

    Example:

    >>> import kerascnn as keras
    >>> policies = keras.dtype_policies.DTypePolicyMap(default_policy="float32")
    >>> policies["encoder/.*"] = "bfloat16"
    >>> policies["encoder/dense"].name, policies["decoder/dense"].name
    ('bfloat16', 'float32')
    """

    def __init__(
        self, default_policy: Any = None, policy_map: Mapping[str, Any] | None = None
    ) -> None:
        if policy_map is not None and not isinstance(policy_map, dict):
            raise TypeError(
                "`policy_map` must be a dictionary from paths to policies. Received: policy_map="
                f"{policy_map!r} of type {type(policy_map)}"
            )
        self._default_argument = default_policy
        self._default = None if default_policy is None else get(default_policy)
        self._policies: dict[str, DTypePolicy] = dict(policy_map or {})

    @property
    def name(self) -> str:
        """ "map_" and the name of the default policy."""
        return f"map_{self.default_policy.name}"

    @property
    def default_policy(self) -> DTypePolicy:
        """The policy of layers that no key stands for."""
        return dtype_policy() if self._default is None else self._default

    @property
    def compute_dtype(self) -> str:
        return self.default_policy.compute_dtype

    @property
    def variable_dtype(self) -> str:
        return self.default_policy.variable_dtype

    @property
    def quantization_mode(self) -> str | None:
        return self.default_policy.quantization_mode

    def __getitem__(self, key: str) -> DTypePolicy:
        if key in self._policies:
            return self._policies[key]
        matches = [pattern for pattern in self._policies if re.fullmatch(pattern, key)]
        if len(matches) > 1:
            raise ValueError(
                f"The path '{key}' matches several keys of the DTypePolicyMap, {matches}. Each "
                "path may match one of them only."
            )
        return self._policies[matches[0]] if matches else self.default_policy

    def __setitem__(self, key: str, policy: Any) -> None:
        if key in self._policies:
            raise ValueError(
                f"{key} is in the DTypePolicyMap already, with {self._policies[key]}. Delete it "
                "first."
            )
        try:
            self._policies[key] = get(policy)
        except Exception:
            raise ValueError(
                f"A DTypePolicyMap holds dtype policies. Received: {policy!r} of type "
                f"{type(policy)}"
            ) from None

    def __delitem__(self, key: str) -> None:
        del self._policies[key]

    def __contains__(self, key: object) -> bool:
        return key in self._policies

    def __len__(self) -> int:
        return len(self._policies)

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DTypePolicyMap)
            and self.default_policy == other.default_policy
            and self._policies == other._policies
        )

    __hash__ = DTypePolicy.__hash__

    def get_config(self) -> dict[str, Any]:
        default = self._default_argument
        return {
            "default_policy": serialize(default) if isinstance(default, DTypePolicy) else default,
            "policy_map": {key: serialize(policy) for key, policy in self._policies.items()},
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> DTypePolicyMap:
        policies = {key: get(value) for key, value in (config.get("policy_map") or {}).items()}
        return cls(config.get("default_policy"), policies)

    def __repr__(self) -> str:
        default = None if self._default is None else self._default.name
        mapping = [(key, policy.name) for key, policy in self._policies.items()]
        return f"<DTypePolicyMap default_policy={default}, mapping={mapping}>"


_global_policy: DTypePolicy | None = None


def dtype_policy() -> DTypePolicy:
    """The policy of layers that are given none: `floatx()` unless `set_dtype_policy` was called.

    Returns:
        A `DTypePolicy`.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.dtype_policy()
    <DTypePolicy "float32">
    """
    return DTypePolicy(config.floatx()) if _global_policy is None else _global_policy


def set_dtype_policy(policy: Any) -> None:
    """Sets the policy of layers that are given none, from now on.

    Args:
        policy: A `DTypePolicy` or the name of one, such as "mixed_bfloat16".

    Raises:
        ValueError: for anything else.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.set_dtype_policy("mixed_bfloat16")
    >>> keras.layers.Dense(2).compute_dtype
    'bfloat16'
    >>> keras.config.set_dtype_policy("float32")
    """
    global _global_policy
    if not isinstance(policy, (DTypePolicy, str)):
        raise ValueError(
            "A dtype policy is a DTypePolicy or the name of one, such as 'mixed_float16'. "
            f"Received: policy={policy!r} (of type {type(policy)})"
        )
    _global_policy = get(policy)


def reset() -> None:
    """Forgets the policy that was set; `clear_session` calls it."""
    global _global_policy
    _global_policy = None


def serialize(dtype_policy: DTypePolicy) -> dict[str, Any]:
    """The configuration of a policy.

    Args:
        dtype_policy: A policy.

    Returns:
        A dictionary, which `deserialize` makes a policy of.

    Example:

    >>> from kerascnn import dtype_policies
    >>> dtype_policies.serialize(dtype_policies.DTypePolicy("mixed_float16"))["config"]
    {'name': 'mixed_float16'}
    """
    from kerascnn import serialization

    return serialization.serialize_object(dtype_policy)


def deserialize(config: dict[str, Any], custom_objects: Any = None) -> DTypePolicy:
    """The policy of a configuration.

    Args:
        config: What `serialize` returned.
        custom_objects: Classes of your own by name.

    Returns:
        A policy.

    Raises:
        ValueError: for a class that is no policy.

    Example:

    >>> from kerascnn import dtype_policies
    >>> config = dtype_policies.serialize(dtype_policies.DTypePolicy("mixed_float16"))
    >>> dtype_policies.deserialize(config)
    <DTypePolicy "mixed_float16">
    """
    name = config.get("class_name")
    custom = (custom_objects or {}).get(name)
    classes = (DTypePolicy, FloatDTypePolicy, QuantizedDTypePolicy, DTypePolicyMap)
    cls = custom or {c.__name__: c for c in classes}.get(str(name))
    if cls is None:
        raise ValueError(f"The class {name!r} is not a dtype policy. Received: config={config}")
    return cls.from_config(config["config"])


def get(identifier: Any) -> DTypePolicy:
    """A policy from a policy, a name, a dtype, a configuration or None (`dtype_policy()`).

    Args:
        identifier: One of them.

    Returns:
        A policy.

    Raises:
        ValueError: for anything else.

    Example:

    >>> from kerascnn import dtype_policies
    >>> dtype_policies.get("mixed_float16")
    <DTypePolicy "mixed_float16">
    """
    if identifier is None:
        return dtype_policy()
    if isinstance(identifier, DTypePolicy):
        return identifier
    if isinstance(identifier, dict):
        return deserialize(identifier)
    if isinstance(identifier, str):
        mode, of, source = identifier.partition("_from_")
        if of and mode.startswith(_MODES):  # as in "int4/128"
            return QuantizedDTypePolicy(mode, source)
        return DTypePolicy(identifier)
    try:
        return DTypePolicy(dtypes.standardize_dtype(identifier))
    except TypeError:
        raise ValueError(
            "A layer's `dtype` is a name, such as 'float32' or 'mixed_bfloat16', or a DTypePolicy. "
            f"Received: dtype={identifier!r}"
        ) from None


def _parse(name: Any) -> tuple[str, str]:
    """Returns the dtypes for computing and for weights that a policy of this name has."""
    if not isinstance(name, str):
        raise TypeError(
            "The name of a dtype policy must be a string, such as 'mixed_float16'. Received: "
            f"name={name!r} (of type {type(name)})"
        )
    if name in _MIXED:
        return _MIXED[name], "float32"
    if name.startswith(_MODES) and "_from_" in name:
        raise ValueError(
            f"'{name}' is the name of a QuantizedDTypePolicy: keras.dtype_policies.get makes one."
        )
    try:
        dtype = dtypes.standardize_dtype(name)
    except TypeError:
        raise ValueError(
            f"'{name}' is not a dtype policy. It can be 'mixed_float16', 'mixed_bfloat16' or the "
            "name of a dtype, such as 'float32' or 'bfloat16'."
        ) from None
    return dtype, dtype
