"""Sequences, under the name that Keras also has for it."""

from kerascnn import former_names
from kerascnn.utils.sequence_utils import pad_sequences

__all__ = ["pad_sequences"]

# These names existed in older versions.
__getattr__ = former_names.module_getattr(__name__)
