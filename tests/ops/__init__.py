"""Tests of the ops."""

# The references of all files register themselves on import, so that any of them can be found.
from . import (  # noqa: F401
    reference_batches,
    reference_fourier,
    reference_images,
    reference_losses,
    reference_optimizers,
    reference_random,
    reference_recurrent,
    reference_sequences,
)
