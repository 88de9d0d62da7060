"""The parts of older versions that Keras 3 keeps."""

from kerascnn.legacy import saving

__all__ = ["saving"]
