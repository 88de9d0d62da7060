"""The projections that attention layers are made of."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from kerascnn import dtype_policies, initializers
from kerascnn.layers.einsum_dense import EinsumDense


def make_projection(
    name: str,
    shape: Sequence[int | None],
    sizes: Sequence[int],
    use_bias: bool,
    summed: int = 1,
    *,
    kernel_initializer: Any,
    bias_initializer: Any,
    **kwargs: Any,
) -> EinsumDense:
    """A built layer that sums over the last axes and puts axes of the given sizes there.

    Args:
        name: Of the layer.
        shape: Of its input.
        sizes: Of the axes that come in the place of those that are summed over.
        use_bias: Whether there is a number for each of their elements.
        summed: How many of the last axes are summed over.
        kernel_initializer: Copied, so that no two projections begin with the same numbers.
        bias_initializer: Copied too.
        **kwargs: Further arguments of `EinsumDense`.

    Raises:
        ValueError: for more axes than an equation has letters for.
    """
    letters = iter(string.ascii_lowercase)
    if len(shape) + len(sizes) > len(string.ascii_lowercase):
        raise ValueError(
            f"Attention takes inputs of at most {len(string.ascii_lowercase) - len(sizes)} axes. "
            f"Received for its projection '{name}': shape={tuple(shape)}"
        )
    free = "".join(next(letters) for _ in range(len(shape) - summed))
    inner = "".join(next(letters) for _ in range(summed))
    made = "".join(next(letters) for _ in sizes)
    dense = EinsumDense(
        f"{free}{inner},{inner}{made}->{free}{made}",
        output_shape=[*(None for _ in free[1:]), *sizes],
        bias_axes=made if use_bias else None,
        kernel_initializer=_copy(kernel_initializer),
        bias_initializer=_copy(bias_initializer),
        name=name,
        **kwargs,
    )
    dense.build(tuple(shape))
    return dense


def policy_in_config(layer: Any) -> dict[str, Any]:
    """The entry `dtype` of a configuration, where projections have become int8: else nothing.

    Projections are made anew by the layer, which has to know which of them are quantized.
    """
    parts = [part for part in layer._flatten_layers(include_self=False) if part._is_quantized]
    policy = layer._dtype_policy
    if not parts or isinstance(policy, dtype_policies.DTypePolicyMap):
        return {}
    policies = {part.path: part.dtype_policy for part in parts}
    return {"dtype": dtype_policies.serialize(dtype_policies.DTypePolicyMap(policy.name, policies))}


def check_lengths(name: str, value_shape: Any, key_shape: Any) -> None:
    """Raises a ValueError if value and key differ in any size but the last."""
    if tuple(value_shape[1:-1]) != tuple(key_shape[1:-1]):
        raise ValueError(
            f"Layer '{name}': value and key must have the same sizes but for the last. "
            f"Received: value_shape={tuple(value_shape)}, key_shape={tuple(key_shape)}"
        )


def _copy(initializer: Any) -> Any:
    if not isinstance(initializer, initializers.Initializer):
        return initializer
    return type(initializer).from_config(initializer.get_config())
