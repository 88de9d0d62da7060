"""All rows: each op has one or a few, and a call that must fail. The tests run them all."""

from __future__ import annotations

import atexit

from . import (
    cases_batches,
    cases_custom,
    cases_elementwise,
    cases_fourier,
    cases_images,
    cases_loops,
    cases_network,
    cases_recurrent,
    cases_regions,
    cases_sequences,
    cases_shape,
    cases_state,
)
from .case import Bad, Case

_FILES = (
    cases_elementwise,
    cases_shape,
    cases_batches,
    cases_loops,
    cases_regions,
    cases_network,
    cases_images,
    cases_custom,
    cases_sequences,
    cases_recurrent,
    cases_fourier,
    cases_state,
)

# Only a pass makes this op, together with its kernel. test_fusions.py has its cases.
OF_PASSES = {"fused"}

CASES: list[Case] = [case for file in _FILES for case in file.CASES]
BAD: list[Bad] = [bad for file in _FILES for bad in file.BAD]


@atexit.register
def _release_bodies() -> None:
    """Drops the graphs of the rows: once PyTorch is imported, modules outlive the core."""
    for bad in BAD:
        bad.attributes.clear()
    cases_loops.release_bodies()
