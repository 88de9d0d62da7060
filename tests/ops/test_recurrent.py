"""Sequences of recurrent cells are compared with PyTorch, and step by step with Keras."""

from __future__ import annotations

import numpy as np
import pytest

import kerascnn
from kerascnn import _core, ops
from kerascnn.ops import dispatch
from kerascnn.ops.recurrent import gru_sequence, lstm_sequence

from . import harness
from .cases_recurrent import CASES
from .reference import REFERENCES

keras = pytest.importorskip("keras")
torch = pytest.importorskip("torch")

# Float32 states pass through some steps, each of which rounds the state that the next one reads.
TOLERANCE = 1e-5
SIZES = [(1, 1, 1), (3, 7, 5), (4, 28, 33), (2, 5, 128)]


@pytest.fixture(autouse=True)
def exact_arithmetic():
    with harness.tf32_off():
        yield


def assert_near(actual, wanted, what):
    wanted = np.asarray(wanted, np.float64)
    # States and gradients are sums of terms near 1, which may cancel.
    size = float(np.sqrt(wanted.size))
    harness.assert_close(np.asarray(actual), wanted, TOLERANCE, what, least_norm=size)


def reordered(array, gates, order):
    """Puts the blocks of gates along the first axis into another order."""
    blocks = np.split(array, gates)
    return np.concatenate([blocks[i] for i in order])


def gradients_of(function, arrays, weights, device):
    with kerascnn.device(device):
        variables = [kerascnn.Variable(a) for a in arrays]
        with kerascnn.GradientTape() as tape:
            results = function(*variables)
            loss = sum(ops.sum(ops.multiply(r, w)) for r, w in zip(results, weights, strict=True))
        gradients = tape.gradient(loss, variables)
    return [r.numpy() for r in results], [g.numpy() for g in gradients]


@pytest.mark.parametrize(("batch", "time", "units"), SIZES)
def test_lstm_against_torch(batch, time, units, device, rng):
    # PyTorch has the same order of gates, i, f, c, o.
    x = rng.standard_normal((batch, time, 3)).astype("float32")
    kernel = rng.standard_normal((3, 4 * units)).astype("float32")
    recurrent = (rng.standard_normal((units, 4 * units)) / np.sqrt(units)).astype("float32")
    h, c = (rng.standard_normal((batch, units)).astype("float32") for _ in range(2))
    shapes = [(batch, time, units), (batch, units), (batch, units)]
    weights = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    layer = torch.nn.LSTM(3, units, batch_first=True, bias=False)
    leaves = [torch.tensor(a, requires_grad=True) for a in (x, h, c)]
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.tensor(kernel.T))
        layer.weight_hh_l0.copy_(torch.tensor(recurrent.T))
    outputs, (last_h, last_c) = layer(leaves[0], (leaves[1][None], leaves[2][None]))
    wanted = [outputs, last_h[0], last_c[0]]
    sum((y * torch.tensor(w)).sum() for y, w in zip(wanted, weights, strict=True)).backward()
    results, gradients = gradients_of(
        lambda x, h, c, kernel, recurrent: lstm_sequence(ops.matmul(x, kernel), h, c, recurrent),
        [x, h, c, kernel, recurrent],
        weights,
        device,
    )
    for i, y in enumerate(wanted):
        assert_near(results[i], y.detach().numpy(), f"result {i}")
    slopes = [leaf.grad for leaf in leaves]
    slopes += [layer.weight_ih_l0.grad.T, layer.weight_hh_l0.grad.T]
    for i, slope in enumerate(slopes):
        assert_near(gradients[i], slope.numpy(), f"gradient {i}")


@pytest.mark.parametrize(("batch", "time", "units"), SIZES)
def test_gru_against_torch(batch, time, units, device, rng):
    # PyTorch has the order r, z, h, and other places for the biases.
    order = [1, 0, 2]
    x = rng.standard_normal((batch, time, 3)).astype("float32")
    kernel = rng.standard_normal((3, 3 * units)).astype("float32")
    recurrent = (rng.standard_normal((units, 3 * units)) / np.sqrt(units)).astype("float32")
    bias = rng.standard_normal(3 * units).astype("float32")
    h = rng.standard_normal((batch, units)).astype("float32")
    shapes = [(batch, time, units), (batch, units)]
    weights = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    layer = torch.nn.GRU(3, units, batch_first=True)
    leaves = [torch.tensor(a, requires_grad=True) for a in (x, h)]
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.tensor(reordered(kernel.T, 3, order)))
        layer.weight_hh_l0.copy_(torch.tensor(reordered(recurrent.T, 3, order)))
        layer.bias_ih_l0.zero_()
        layer.bias_hh_l0.copy_(torch.tensor(reordered(bias, 3, order)))
    outputs, last_h = layer(leaves[0], leaves[1][None])
    wanted = [outputs, last_h[0]]
    sum((y * torch.tensor(w)).sum() for y, w in zip(wanted, weights, strict=True)).backward()
    results, gradients = gradients_of(
        lambda x, h, kernel, recurrent, bias: gru_sequence(
            ops.matmul(x, kernel), h, recurrent, bias
        ),
        [x, h, kernel, recurrent, bias],
        weights,
        device,
    )
    for i, y in enumerate(wanted):
        assert_near(results[i], y.detach().numpy(), f"result {i}")
    slopes = [leaf.grad.numpy() for leaf in leaves]
    slopes += [
        reordered(g.numpy(), 3, order).T
        for g in (layer.weight_ih_l0.grad, layer.weight_hh_l0.grad, layer.bias_hh_l0.grad)
    ]
    for i, slope in enumerate(slopes):
        assert_near(gradients[i], slope, f"gradient {i}")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_order_and_mask_against_keras(cell, reverse, masked, device, rng):
    batch, time, units = 4, 6, 5
    gates = 4 if cell == "LSTM" else 3
    x = rng.standard_normal((batch, time, 3)).astype("float32")
    layer = getattr(keras.layers, cell)(
        units, return_sequences=True, return_state=True, go_backwards=reverse
    )
    layer.build(x.shape)
    values = [rng.standard_normal(w.shape).astype("float32") for w in layer.weights]
    layer.set_weights(values)
    states = [rng.standard_normal((batch, units)).astype("float32") for _ in range(gates - 2)]
    mask = rng.random((batch, time)) < 0.6 if masked else None
    if masked:
        mask[0] = False
        mask[1] = [False, True, True, False, True, False]
    initial = [torch.tensor(s) for s in states]
    wanted = layer(
        torch.tensor(x),
        initial_state=initial,
        mask=None if mask is None else torch.tensor(mask),
    )
    kernel, recurrent, bias = values
    with kerascnn.device(device):
        if cell == "LSTM":
            projected = ops.add(ops.matmul(x, kernel), bias)
            results = lstm_sequence(projected, *states, recurrent, mask, reverse)
        else:
            projected = ops.add(ops.matmul(x, kernel), bias[0])
            results = gru_sequence(projected, *states, recurrent, bias[1], mask, reverse)
    for i, (result, y) in enumerate(zip(results, wanted, strict=True)):
        assert_near(result.numpy(), y.detach().numpy(), f"result {i}")


def given_gradients(cell, arrays, mask, reverse, weights):
    """Returns NumPy's float64 results and gradients of the sequence, as sums over `weights`."""
    attributes = {"reverse": reverse, "masked": mask is not None}
    rest = [] if mask is None else [mask]
    names = ["has_last_h", "has_last_c", "has_outputs"] if cell == "lstm" else []
    attributes_of_gradient = attributes | dict.fromkeys(
        names or ["has_last_h", "has_outputs"], True
    )
    slopes = [*weights[1:], weights[0]]
    results = REFERENCES[cell](*arrays, *rest, **attributes)
    gradient = REFERENCES[f"{cell}_grad"]
    if cell == "lstm":
        h, c, outputs, gates, cells, previous = results
        saved = [arrays[3], gates, cells, arrays[2]]
        gx, gh, gc = gradient(*saved, *rest, *slopes, **attributes_of_gradient)
        return [outputs, h, c], [gx, gh, gc, np.einsum("ntu,ntv->uv", previous, gx)]
    h, outputs, gates, previous = results
    saved = [arrays[2], gates, previous]
    gx, recurrent, gh = gradient(*saved, *rest, *slopes, **attributes_of_gradient)
    kernel = np.einsum("ntu,ntv->uv", previous, recurrent)
    return [outputs, h], [gx, gh, kernel, recurrent.sum((0, 1))]


# In 16-bit dtypes the results of a step are rounded, by 2^-12 or 2^-9 on average. These are the
# state that all later steps depend on, and the gates that gradients are computed from.
DTYPES = {"float32": TOLERANCE, "float16": 2.0**-8, "bfloat16": 2.0**-5}
# Batches are odd and lie around 8 and 16 rows; units lie around 128, 256 and 512.
WIDE = [(9, 5, 300, False, True), (17, 3, 512, True, False), (35, 4, 130, True, True)]
WIDE += [(5, 6, 70, False, False), (1, 4, 511, True, True), (67, 2, 257, False, True)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "time", "units", "reverse", "masked"), WIDE)
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gradients_of_wide_sequences(cell, batch, time, units, reverse, masked, dtype, device, rng):
    gates = 4 if cell == "lstm" else 3
    shapes = [(batch, time, gates * units), *[(batch, units)] * (gates - 2)]
    arrays = [rng.standard_normal(shape) for shape in shapes]
    arrays.append(rng.standard_normal((units, gates * units)) / np.sqrt(units))
    if cell == "gru":
        arrays.append(rng.standard_normal(gates * units))
    weights = [rng.standard_normal((batch, time, units)), *map(np.copy, arrays[1 : gates - 1])]
    mask = rng.random((batch, time)) < 0.7 if masked else None
    with kerascnn.device(device):
        variables = [kerascnn.Variable(a.astype("float32"), dtype=dtype) for a in arrays]
        factors = [ops.cast(w.astype("float32"), dtype) for w in weights]
        with kerascnn.GradientTape() as tape:
            inputs = [*variables, *([] if mask is None else [mask])]
            found = dispatch.apply(
                cell, list(map(dispatch.convert, inputs)), {"reverse": reverse, "masked": masked}
            )
            last = gates - 2  # the last states come first, then all outputs
            results = [found[last], *found[:last]]
            loss = sum(
                ops.sum(ops.cast(ops.multiply(r, w), "float32"))
                for r, w in zip(results, factors, strict=True)
            )
        gradients = tape.gradient(loss, variables)
        rounded = [np.asarray(v.numpy(), np.float64) for v in variables]
        factors = [np.asarray(w.numpy(), np.float64) for w in factors]
    wanted, slopes = given_gradients(cell, rounded, mask, reverse, factors)
    for what, actual, correct in (("result", results, wanted), ("gradient", gradients, slopes)):
        for i, (a, c) in enumerate(zip(actual, correct, strict=True)):
            a = np.asarray(a.numpy(), np.float64)
            harness.assert_close(a, c, DTYPES[dtype], f"{what} {i} of {cell} in {dtype}")


@pytest.mark.parametrize("case", [c for c in CASES if not c.large], ids=str)
def test_tf32(case, cuda_device, rng):
    inputs, attributes = harness.draw(case, rng, "float32")
    wanted = harness.expected(case, inputs, attributes)
    _core.set_allow_tf32(True)  # exact_arithmetic restores it after the test
    outputs = harness.run_eager(case, inputs, attributes, cuda_device)
    for i, (actual, correct) in enumerate(zip(outputs, wanted, strict=True)):
        # Both factors of a product are rounded to 11 significant bits, by up to 2^-11. The slope of
        # a sum in a state is below 1, but a few steps add up.
        harness.assert_close(actual, correct, 2.0**-9, f"{case} with TF32, output {i}")


def test_states_of_none_are_zeros(device, rng):
    x = rng.standard_normal((2, 4, 12)).astype("float32")
    kernel = rng.standard_normal((3, 12)).astype("float32")
    zeros = np.zeros((2, 3), "float32")
    mask = np.array([[False, True, False, True], [False] * 4])[:, :, None]
    with kerascnn.device(device):
        for cell in (lstm_sequence, lambda x, h, c, r, m: gru_sequence(x, h, r, None, m)):
            width = 12 if cell is lstm_sequence else 9
            arguments = (x[:, :, :width], kernel[:, :width])
            given = cell(arguments[0], zeros, zeros, arguments[1], mask)
            omitted = cell(arguments[0], None, None, arguments[1], mask)
            for a, b in zip(given, omitted, strict=True):
                np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_reset_before_is_refused():
    with pytest.raises(ValueError, match="reset_after=False"):
        gru_sequence(np.zeros((1, 2, 3)), None, np.zeros((1, 3)), reset_after=False)
