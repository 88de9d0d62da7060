"""What Keras 3 keeps of the ways of older versions."""

from kerascnn.legacy import saving

__all__ = ["saving"]
