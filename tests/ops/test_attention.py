"""Attention and its gradients in 16 bits, whatever kernels compute them, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from . import fusion_cases_attention, fusions, harness

CASES = [case for case in fusion_cases_attention.CASES if case.op == "attention_grad"]
# Relative errors of norms. Inputs are exact. Where nodes run one by one, products, shares and their
# gradients are rounded to 16 bits, with units of 2^-8 and 2^-11; products of a size of up to 4 put
# four of these units into a share.
TOLERANCE = {"bfloat16": 2.0**-5, "float16": 2.0**-8}


def by_heads(x, heads_behind):
    return x.swapaxes(1, 2) if heads_behind else x


def reference(q, k, v, gy, *added, scale, is_causal, one_batch, heads_behind):
    q, k, v, gy = (by_heads(x.astype(np.float64), heads_behind) for x in (q, k, v, gy))
    factor = 1.0 if scale is None else scale
    logits = q @ k.swapaxes(2, 3) * factor
    sees = np.tri(*logits.shape[2:], dtype=bool) if is_causal else np.True_
    for each in added:
        if each.dtype == bool:
            sees = sees & each
        else:
            logits = logits + each.astype(np.float64)
    logits = np.where(sees, logits, -1e30)  # equal shares where a query sees nothing
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    shares = powers / powers.sum(-1, keepdims=True)
    of_shares = gy @ v.swapaxes(2, 3)
    of_logits = shares * (of_shares - (of_shares * shares).sum(-1, keepdims=True)) * factor
    of_logits = np.where(sees, of_logits, 0.0)
    results = (
        shares @ v,
        of_logits @ k,
        of_logits.swapaxes(2, 3) @ q,
        shares.swapaxes(2, 3) @ gy,
    )
    return [by_heads(x, heads_behind) for x in results]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention_and_its_gradients(case, dtype, device, rng):
    inputs, attributes = harness.draw(case, rng, dtype)
    received = fusions.call(case.op, inputs, attributes, device)
    for got, expected in zip(received, reference(*inputs, **attributes), strict=True):
        error = np.linalg.norm(got.astype(np.float64) - expected)
        assert error <= TOLERANCE[dtype] * (np.linalg.norm(expected) + fusions.rounding(expected))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_two_runs_have_the_same_bits(case, cuda_device, rng):
    inputs, attributes = harness.draw(case, rng, "bfloat16")
    first, second = (fusions.call(case.op, inputs, attributes, cuda_device) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cudnn_takes_attention(case, dtype, cuda_device, rng):
    inputs, attributes = harness.draw(case, rng, dtype)
    program = fusions.compile_nodes(case.op, inputs, attributes, cuda_device, optimize=True)
    taken = case.id not in fusion_cases_attention.NOT_TAKEN
    assert fusions.is_fused(program, "attention") == taken
    assert fusions.is_fused(program, "attention_grad") == taken


def test_float32_stays_as_it_is(device, rng):
    case = next(case for case in CASES if case.id == "square")
    inputs, attributes = harness.draw(case, rng, "float32")
    program = fusions.compile_nodes(case.op, inputs, attributes, device, optimize=True)
    assert not fusions.is_fused(program, "attention")
    assert not fusions.is_fused(program, "attention_grad")
