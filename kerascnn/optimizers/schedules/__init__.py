"""Learning rates as functions of the count of steps, computed on the device."""

from typing import Any

from kerascnn import serialization
from kerascnn.optimizers.schedules.cosine import CosineDecay, CosineDecayRestarts
from kerascnn.optimizers.schedules.decay import (
    ExponentialDecay,
    InverseTimeDecay,
    PiecewiseConstantDecay,
    PolynomialDecay,
)
from kerascnn.optimizers.schedules.learning_rate_schedule import LearningRateSchedule


def serialize(learning_rate_schedule: LearningRateSchedule) -> dict[str, Any]:
    """The configuration of a schedule.

    Args:
        learning_rate_schedule: A schedule.

    Returns:
        A dictionary, which `deserialize` makes a schedule of.

    Example:

    >>> schedules = keras.optimizers.schedules
    >>> schedules.serialize(schedules.ExponentialDecay(0.5, 10, 0.9))["class_name"]
    'ExponentialDecay'
    """
    return serialization.serialize_object(learning_rate_schedule)


def deserialize(
    config: dict[str, Any], custom_objects: dict[str, Any] | None = None
) -> LearningRateSchedule:
    """The schedule that a configuration describes.

    Args:
        config: What `serialize` returned.
        custom_objects: Classes of your own by name.

    Returns:
        A schedule.

    Raises:
        ValueError: for a class that is not known.

    Example:

    >>> schedules = keras.optimizers.schedules
    >>> config = schedules.serialize(schedules.ExponentialDecay(0.5, 10, 0.9))
    >>> schedules.deserialize(config).decay_steps
    10
    """
    return serialization.deserialize_object(config, custom_objects, "kerascnn.optimizers.schedules")


__all__ = [
    "CosineDecay",
    "CosineDecayRestarts",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LearningRateSchedule",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
    "deserialize",
    "serialize",
]
