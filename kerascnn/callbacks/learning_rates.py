"""Reads and sets the learning rates of a model's optimizer, or of several."""

from collections.abc import Iterator
from typing import Any

import numpy as np


def optimizers_of(model: Any) -> Iterator[tuple[str, Any]]:
    """Yields each optimizer with its log key: "learning_rate", or those of a `MultiOptimizer`."""
    several = getattr(model.optimizer, "optimizers", None)
    if several is None:
        yield "learning_rate", model.optimizer
        return
    for optimizer in several:
        yield f"learning_rate_{optimizer.name}", optimizer


def read_rate(optimizer: Any) -> float:
    """Returns the current learning rate."""
    return float(np.asarray(optimizer.learning_rate))


def learning_rate_logs(model: Any) -> dict[str, float]:
    """Returns the current learning rates by log key."""
    return {key: read_rate(optimizer) for key, optimizer in optimizers_of(model)}
