"""Tests of the ops."""

# References register themselves: whoever looks one up finds those of all files.
from . import reference_losses, reference_optimizers, reference_random  # noqa: F401
