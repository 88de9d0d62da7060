"""Sequences of recurrent cells against PyTorch's layers and Keras' step by step."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import torch

import kerascnn
from kerascnn import ops
from kerascnn.ops.recurrent import gru_sequence, lstm_sequence

from . import harness

# Float32 states of some steps, of which each rounds what the next one begins with.
TOLERANCE = 1e-5
SIZES = [(1, 1, 1), (3, 7, 5), (4, 28, 33), (2, 5, 128)]


@pytest.fixture(autouse=True)
def exact_arithmetic():
    with harness.tf32_off():
        yield


def assert_near(actual, wanted, what):
    wanted = np.asarray(wanted, np.float64)
    # States and gradients are sums of terms of the size of 1, which may cancel one another.
    size = float(np.sqrt(wanted.size))
    harness.assert_close(np.asarray(actual), wanted, TOLERANCE, what, least_norm=size)


def reordered(array, gates, order):
    """Blocks of gates along the first axis in another order."""
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
    # PyTorch orders the gates i, f, c, o too.
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
    # PyTorch orders the gates r, z, h, and has its biases inside.
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
