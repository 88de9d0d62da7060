"""Tests of the ops."""

# References register themselves: whoever looks one up finds those of all files.
from . import (  # noqa: F401
    reference_batches,
    reference_fourier,
    reference_losses,
    reference_optimizers,
    reference_random,
    reference_recurrent,
    reference_sequences,
)
