"""Kernels for several nodes: each computes what the nodes do one by one.

A case names a fusion and has inputs; fusions.py traces the nodes that the fusion is for. The
program that has the device's kernel is compared with the one that runs each node by itself.
"""

from __future__ import annotations

import numpy as np
import pytest

from kerascnn import _core

from . import (
    fusion_cases_attention,
    fusion_cases_batch_norm,
    fusion_cases_batches,
    fusion_cases_conv_add,
    fusion_cases_conv_moments,
    fusion_cases_conv_pooling,
    fusion_cases_counting,
    fusion_cases_group_norm,
    fusion_cases_products,
    fusions,
    harness,
)

CASES = [
    *fusion_cases_attention.CASES,
    *fusion_cases_batch_norm.CASES,
    *fusion_cases_batches.CASES,
    *fusion_cases_conv_add.CASES,
    *fusion_cases_conv_moments.CASES,
    *fusion_cases_conv_pooling.CASES,
    *fusion_cases_counting.CASES,
    *fusion_cases_group_norm.CASES,
    *fusion_cases_products.CASES,
]

# These are relative errors of norms. TF32 rounds the factors of products to 11 bits. Where kernels
# take 16-bit numbers, a separate node rounds its result, and p - 1 keeps few digits of a rounded p.
TOLERANCE = {"float64": 1e-12, "float32": 2.0**-9, "float16": 2.0**-5, "bfloat16": 2.0**-2}
# These give integers, or copies.
EXACT = {"count_matches", "take_batches"}


@pytest.fixture(autouse=True)
def all_kernels(monkeypatch):
    monkeypatch.setenv(fusion_cases_group_norm.SWITCH, "1")


@pytest.mark.parametrize(
    ("case", "dtype"),
    [pytest.param(case, dtype, id=f"{case}-{dtype}") for case in CASES for dtype in case.dtypes],
)
def test_a_fused_kernel_computes_what_its_nodes_do(case, dtype, device, rng):
    inputs, attributes = harness.draw(case, rng, dtype)
    results = []
    for optimize in (True, False):
        program = fusions.compile_nodes(case.op, inputs, attributes, device, optimize=optimize)
        results.append(fusions.run(program, inputs, device))
    for received, expected in zip(*results, strict=True):
        received, expected = received.astype(np.float64), expected.astype(np.float64)
        at = np.isfinite(expected)
        np.testing.assert_array_equal(received[~at], expected[~at])
        error = np.linalg.norm((received - expected)[at])
        limit = 0.0 if case.op in EXACT else TOLERANCE[dtype]
        assert error <= limit * np.linalg.norm(expected[at])


def test_each_fusion_is_taken(device, rng):
    """Some case gets the kernel of each fusion that a backend lists; plain programs get none."""
    missing = set(_core.fusion_names(device))
    for case in CASES:
        # These are fused in 16 bits only.
        narrow = case.op in ("attention", "attention_grad", "conv2d_moments")
        narrow = narrow or case.op.endswith("_16_bits")
        dtype = "bfloat16" if narrow else "float32"
        inputs, attributes = harness.draw(case, rng, dtype)
        program = fusions.compile_nodes(case.op, inputs, attributes, device, optimize=True)
        if fusions.is_fused(program, case.op):
            assert case.op in _core.fusion_names(device)
            missing.discard(case.op)
        plain = fusions.compile_nodes(case.op, inputs, attributes, device, optimize=False)
        assert not fusions.is_fused(plain, case.op)
    assert not missing, f"no case in tests/ops/fusion_cases_*.py is fused as {sorted(missing)}"


def test_cases_are_complete():
    assert {case.op for case in CASES} == set(fusions.TRACE)
