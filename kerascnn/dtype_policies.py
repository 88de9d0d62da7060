"""Which dtype a layer computes in and keeps its weights in."""

from __future__ import annotations

from typing import Any

from kerascnn import config, dtypes


class DTypePolicy:
    """One floating type for both computing and weights.

    Args:
        name: "float32", "bfloat16", "float16" or "float64"; None for `floatx`.

    Raises:
        ValueError: for another name.

    Example:

    >>> from kerascnn.dtype_policies import DTypePolicy
    >>> DTypePolicy("float32").compute_dtype
    'float32'
    """

    def __init__(self, name: str | None = None) -> None:
        name = config.floatx() if name is None else name
        try:
            dtype = dtypes.standardize_dtype(name)
        except TypeError:
            raise ValueError(
                f"{name!r} is not a dtype policy. A layer's dtype is the name of one type, such as "
                "'float32' or 'bfloat16'."
            ) from None
        self.name = dtype
        self.compute_dtype = dtype
        self.variable_dtype = dtype

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DTypePolicy:
        return cls(**config)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DTypePolicy) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f'<DTypePolicy "{self.name}">'


def get(identifier: Any) -> DTypePolicy:
    """A policy from a policy, a name, a dtype, a configuration or None (`floatx`)."""
    if isinstance(identifier, DTypePolicy):
        return identifier
    if isinstance(identifier, dict):
        return DTypePolicy.from_config(identifier["config"])
    if identifier is None or isinstance(identifier, str):
        return DTypePolicy(identifier)
    return DTypePolicy(dtypes.standardize_dtype(identifier))
