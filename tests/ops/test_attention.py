"""Attention and its gradients, whatever kernels compute them, against float64."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from kerascnn import _core

from . import fusion_cases_attention, fusions, harness

# cuDNN compiles a kernel for each dtype and kind of call, so few are in float16.
CASES = [
    pytest.param(case, dtype, id=f"{case.id}-{dtype}")
    for dtype in ("bfloat16", "float16")
    for case in fusion_cases_attention.GRADIENTS
    if dtype == "bfloat16" or case.id in ("odd", "mask")
]
# Relative errors of norms. Inputs are exact. Where nodes run one by one, products, shares and their
# gradients are rounded to 16 bits, with units of 2^-8 and 2^-11; products of a size of up to 4 put
# four of these units into a share.
TOLERANCE = {"bfloat16": 2.0**-5, "float16": 2.0**-8}
# Gradients are differences of numbers as large as results. Of one key they are 0, and what is left
# is float32's rounding of these numbers.
LEAST = 2.0**-16


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


@pytest.mark.parametrize(("case", "dtype"), CASES)
def test_attention_and_its_gradients(case, dtype, device, rng):
    """On a GPU cuDNN takes what it can."""
    taken = device != "cpu" and case.id not in fusion_cases_attention.NOT_TAKEN
    check_gradients(case, dtype, device, rng, taken)


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(case, dtype, id=f"{case.id}-{dtype}")
        for case in fusion_cases_attention.SHORT
        for dtype in ("bfloat16", "float16")[: 2 if case.id == "odd" else 1]
    ],
)
def test_gradients_of_short_attention(case, dtype, device, rng):
    """Hopper has an own kernel for them."""
    check_gradients(case, dtype, device, rng, device != "cpu")


def test_hopper_takes_the_kernel_of_short_attention(cuda_device, rng):
    (description,) = [d for n, _, d in _core.list_devices() if n == cuda_device]
    if "9.0" not in description:
        pytest.skip(f"{description}: other kernels than on compute capability 9.0")
    case = fusion_cases_attention.SHORT[0]
    inputs, attributes = harness.draw(case, rng, "bfloat16")
    program = fusions.compile_nodes(case.op, inputs, attributes, cuda_device, optimize=True)
    assert "kerascnn short_attention_grad" in [row["kernel"] for row in program.describe()]


def check_gradients(case, dtype, device, rng, taken):
    """Compares the results with float64; two runs have the same bits."""
    inputs, attributes = harness.draw(case, rng, dtype)
    program = fusions.compile_nodes(case.op, inputs, attributes, device, optimize=True)
    assert fusions.is_fused(program, "attention") == taken
    assert fusions.is_fused(program, "attention_grad") == taken
    first, second = (fusions.run(program, inputs, device) for _ in range(2))
    wanted = reference(*inputs, **attributes)
    least = LEAST * np.linalg.norm(wanted[0])
    for got, again, expected in zip(first, second, wanted, strict=True):
        assert got.tobytes() == again.tobytes()
        error = np.linalg.norm(got.astype(np.float64) - expected)
        assert error <= TOLERANCE[dtype] * max(np.linalg.norm(expected), least)


@pytest.mark.parametrize("allow_tf32", [False, True])
@pytest.mark.parametrize("case", fusion_cases_attention.FORWARD, ids=lambda case: case.id)
def test_float32_transposes_nothing(case, allow_tf32, device, rng):
    inputs, attributes = harness.draw(case, rng, "float32")
    program = fusions.compile_nodes(
        case.op, inputs, attributes, device, optimize=True, allow_tf32=allow_tf32
    )
    taken = device != "cpu" and case.id in fusion_cases_attention.PRODUCTS
    assert fusions.is_fused(program, "attention") == taken
    got = fusions.run(program, inputs, device)[0]
    result = np.zeros_like(got)  # the gradient is of no interest here
    wanted = reference(*inputs[:3], result, *inputs[3:], **attributes)[0]
    # TF32 rounds what is multiplied to 11 bits. In both, products of a size of up to 4 put four
    # units into a share.
    unit = 2.0**-11 if allow_tf32 and device != "cpu" else 2.0**-21
    assert np.linalg.norm(got - wanted) <= 8 * unit * np.linalg.norm(wanted)


def test_gradients_in_float32_stay_as_they_are(device, rng):
    case = next(case for case in fusion_cases_attention.GRADIENTS if case.id == "square")
    inputs, attributes = harness.draw(case, rng, "float32")
    program = fusions.compile_nodes(case.op, inputs, attributes, device, optimize=True)
    assert not fusions.is_fused(program, "attention")
    assert not fusions.is_fused(program, "attention_grad")


STEP_WITH_ATTENTION = """
import numpy as np
import kerascnn as keras
keras.utils.set_random_seed(0)
keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
x = keras.Input((128, 32))
attended = keras.layers.MultiHeadAttention(2, 16, use_bias=False)(x, x)
model = keras.Model(x, keras.layers.Dense(1, use_bias=False)(attended))
model.compile("sgd", "mse")
data = np.random.default_rng(0).standard_normal((16, 128, 32), np.float32)
print(*[model.train_on_batch(data, data[..., :1]) for _ in range(2)])
"""


def test_what_cudnn_compiled_is_kept_for_the_next_process(device, tmp_path):
    """A process that can use a file as it is leaves it; one that can't writes it anew."""
    if device == "cpu":
        pytest.skip("cuDNN runs on a GPU")
    env = {**os.environ, "KERASCNN_HOME": str(tmp_path), "KERASCNN_DEVICE": device}
    folder = tmp_path / "kernels" / "compiled"

    def train():
        command = [sys.executable, "-c", STEP_WITH_ATTENTION]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, {path.name: path.stat().st_ino for path in folder.glob("*.kernel")}

    losses, files = train()
    plans = [path for path in folder.iterdir() if b"cudnn_backend_data" in path.read_bytes()]
    assert len(plans) == 2  # attention and its gradients
    assert train() == (losses, files)
    plans[0].write_bytes(plans[0].read_bytes()[:-1])
    assert train()[0] == losses
    assert plans[0].stat().st_ino != files[plans[0].name]
