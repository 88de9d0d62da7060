"""Sequences, under the name that Keras also has for it."""

from kerascnn.utils.sequence_utils import pad_sequences

__all__ = ["pad_sequences"]
