"""Small helpers: seeds, one-hot labels, clean starts."""

from __future__ import annotations

import random as _python_random
from typing import Any

import numpy as np

__all__ = ["clear_session", "set_random_seed", "to_categorical"]


def set_random_seed(seed: int) -> None:
    """Makes everything that is random repeatable: Python's, NumPy's and kerascnn's generators.

    Args:
        seed: From 0 to 2**32 - 1.

    Raises:
        ValueError: for anything else.

    Example:

    >>> import kerascnn as keras
    >>> keras.utils.set_random_seed(1)
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
        raise ValueError(f"A seed must be an integer from 0 to 2**32 - 1. Received: seed={seed!r}")
    from kerascnn import random

    _python_random.seed(int(seed))
    np.random.seed(int(seed))  # noqa: NPY002 (the one that users' scripts draw from)
    random.reset_global_generator(int(seed))


def clear_session() -> None:
    """Starts automatic names anew, and gives cached device memory back."""
    from kerascnn import config, naming

    naming.reset()
    for name, usable, _ in config.list_devices():
        if usable:
            config.release_cached_memory(name)


def to_categorical(x: Any, num_classes: int | None = None) -> np.ndarray[Any, Any]:
    """Class numbers as rows with one 1.

    Args:
        x: Integers of any shape from 0 on; a last axis of size 1 is left out.
        num_classes: By default the largest number plus 1.

    Returns:
        float32 of the shape of x with an axis of `num_classes` at the end.

    Raises:
        ValueError: for a number that is negative or not below num_classes.

    Example:

    >>> from kerascnn.utils import to_categorical
    >>> to_categorical([0, 2], 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    labels = np.asarray(x, dtype="int64")
    if labels.ndim > 1 and labels.shape[-1] == 1:
        labels = labels[..., 0]
    largest = int(labels.max()) if labels.size else -1
    classes = largest + 1 if num_classes is None else int(num_classes)
    if labels.size and (labels.min() < 0 or largest >= classes):
        raise ValueError(
            f"Class numbers must be from 0 to {classes - 1}. Received: from {labels.min()} to "
            f"{largest}"
        )
    return np.eye(classes, dtype="float32")[labels]
