"""Which query may see which key."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import ops


def positions_mask(
    queries: int, keys: int, use_causal_mask: bool = False, sliding_window: int | None = None
) -> np.ndarray[Any, Any] | None:
    """Returns the mask by positions alone, bool (1, queries, keys); None if it hides nothing.

    Args:
        queries: Length of the query.
        keys: Length of the key.
        use_causal_mask: Whether later keys are hidden.
        sliding_window: Keys that are so far away, or further, are hidden.
    """
    rows = np.arange(queries)[None, :, None]
    columns = np.arange(keys)[None, None, :]
    mask = rows >= columns if use_causal_mask else None
    if sliding_window is not None:
        near = np.abs(rows - columns) < sliding_window
        mask = near if mask is None else mask & near
    return mask


def combined_mask(
    query: Any,
    value: Any,
    query_mask: Any = None,
    value_mask: Any = None,
    key_mask: Any = None,
    attention_mask: Any = None,
    use_causal_mask: bool = False,
    sliding_window: int | None = None,
) -> Any:
    """All that hides a key from a query in one mask, None where nothing does.

    Args:
        query: (n, t, ...)
        value: (n, s, ...)
        query_mask: (n, t), true for what counts.
        value_mask: (n, s), true for what counts.
        key_mask: (n, s), true for what counts.
        attention_mask: (n, t, s), true where a query may see a key.
        use_causal_mask: See `positions_mask`.
        sliding_window: See `positions_mask`.

    Returns:
        bool (n, t, s), where n can be 1.
    """
    masks = []
    if query_mask is not None:
        masks.append(ops.expand_dims(query_mask, -1))
    masks += [ops.expand_dims(m, -2) for m in (value_mask, key_mask) if m is not None]
    masks.append(positions_mask(query.shape[1], value.shape[1], use_causal_mask, sliding_window))
    masks.append(attention_mask)
    result = None
    for mask in masks:
        if mask is not None:
            mask = ops.cast(mask, "bool")
            result = mask if result is None else ops.logical_and(result, mask)
    return result
