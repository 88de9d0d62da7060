"""Cross-entropy of 16-bit logits forms a region, here on a CPU with the limits of a GPU."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from .helpers import Tracer, tensor

pytestmark = pytest.mark.usefixtures("regions")

NARROW = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
# This is half a unit in the last place of a number just below 1.
ROUNDING = {"bfloat16": 2.0**-9, "float16": 2.0**-12}


def reference(logits, labels, of_loss, epsilon):
    """Loss, probabilities and logits' gradient in float64; rows without a label are NaN."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = powers / powers.sum(axis=1, keepdims=True)
    classes = logits.shape[1]
    valid = (labels >= 0) & (labels < classes)
    rows = np.arange(len(labels)), np.where(valid, labels, 0)
    right = probabilities[rows]
    loss = np.where(valid, -np.log(np.clip(right, epsilon, 1 - epsilon)), np.nan)
    slope = probabilities.copy()
    slope[rows] -= 1
    clipped = (right < epsilon) | (right > 1 - epsilon)
    factor = np.where(valid, np.where(clipped, 0.0, of_loss), np.nan)
    return loss, probabilities, slope * factor[:, None]


def traced(shape, dtype, labels_dtype, epsilon, at_once):
    """Traces a graph of logits, labels and the loss's gradient; it has the reference's outputs."""
    t = Tracer()
    logits = t.input(list(shape), dtype)
    labels = t.input([shape[0]], labels_dtype, "labels")
    of_loss = t.input([shape[0]], "float32", "of_loss")
    wide = t.cast(logits, dtype="float32")
    if at_once:
        loss, probabilities, gradient = t.all(
            "sparse_softmax_cross_entropy", wide, labels, of_loss, epsilon=epsilon
        )
    else:
        loss, probabilities = t.all("sparse_softmax_cross_entropy", wide, labels, epsilon=epsilon)
        gradient = t.sparse_softmax_cross_entropy_grad(
            of_loss, probabilities, labels, epsilon=epsilon
        )
    return t, [loss, probabilities, t.cast(gradient, dtype=dtype)]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3])
@pytest.mark.parametrize("labels_dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((7, 10), "bfloat16"), ((5, 2), "float16"), ((4, 1), "float16"), ((3, 1001), "bfloat16")],
)
def test_loss_and_gradient(rng, shape, dtype, labels_dtype, epsilon, at_once):
    logits = (rng.standard_normal(shape) * 4).astype(NARROW[dtype])
    labels = rng.integers(0, shape[1], shape[0]).astype(labels_dtype)
    labels[1], labels[2] = -1, shape[1]
    if labels_dtype == "int64":
        labels[2] = 2**32  # the lower 32 bits are class 0
    of_loss = rng.uniform(0.1, 1.0, shape[0]).astype("float32")
    t, outputs = traced(shape, dtype, labels_dtype, epsilon, at_once)
    program = t.compile(*outputs)
    ops = [call["op"] for call in program.describe()]
    assert (set(ops) == {"region"}) == (shape[1] > 1)
    program.run([tensor(array) for array in (logits, labels, of_loss)])
    own = [np.array(output.numpy()).astype("float64") for output in program.outputs()]
    wanted = reference(logits.astype("float64"), labels, of_loss, epsilon)
    # float32 rounds the sums of up to 1001 powers, and the loss is as large as the logits.
    for received, expected in zip(own[:2], wanted[:2], strict=True):
        np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(own[2], wanted[2], rtol=1e-5, atol=ROUNDING[dtype] + 1e-5)
    assert np.isnan(own[0][[1, 2]]).all()
    assert np.isnan(own[2][[1, 2]]).all()


def test_float32_logits_keep_their_kernel():
    t = Tracer()
    logits, labels = t.input([4, 3]), t.input([4], "int32", "labels")
    loss, _ = t.all("sparse_softmax_cross_entropy", logits, labels, epsilon=0.0)
    assert [call["op"] for call in t.compile(loss).describe()] == ["sparse_softmax_cross_entropy"]


def test_infinite_logits_do_not_reach_other_rows(rng):
    logits = rng.standard_normal((6, 9)).astype(NARROW["bfloat16"])
    logits[1, 3], logits[2, 4], logits[3, 5], logits[4, :] = -np.inf, np.inf, np.nan, -np.inf
    labels = np.array([0, 1, 2, 3, 4, 5], "int32")
    t, outputs = traced((6, 9), "bfloat16", "int32", 0.0, at_once=True)
    arrays = [logits, labels, np.ones(6, "float32")]
    own = t.run(outputs, arrays)
    plain = t.run(outputs, arrays, optimize=False)
    for received, expected in zip(own, plain, strict=True):
        received, expected = (np.asarray(a).astype("float64") for a in (received, expected))
        np.testing.assert_array_equal(np.isnan(received), np.isnan(expected))
        np.testing.assert_allclose(received, expected, atol=2.0**-8)
