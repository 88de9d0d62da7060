"""Recurrent layers in NumPy and float64, step by step, written from the papers."""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def simple_step(x, states, weights):
    kernel, recurrent, bias = weights
    h = np.tanh(x @ kernel + states[0] @ recurrent + bias)
    return h, [h]


def lstm_step(x, states, weights):
    kernel, recurrent, bias = weights
    h, c = states
    i, f, g, o = np.split(x @ kernel + h @ recurrent + bias, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return h, [h, c]


def gru_step(x, states, weights, reset_after=True):
    kernel, recurrent, bias = weights
    (h,) = states
    units = h.shape[-1]
    if reset_after:
        a, b = x @ kernel + bias[0], h @ recurrent + bias[1]
        r = sigmoid(a[:, units : 2 * units] + b[:, units : 2 * units])
        candidate = np.tanh(a[:, 2 * units :] + r * b[:, 2 * units :])
    else:
        a, b = x @ kernel + bias, h @ recurrent
        r = sigmoid(a[:, units : 2 * units] + b[:, units : 2 * units])
        candidate = np.tanh(a[:, 2 * units :] + (r * h) @ recurrent[:, 2 * units :])
    z = sigmoid(a[:, :units] + b[:, :units])
    h = z * h + (1 - z) * candidate
    return h, [h]


def run(step, x, states, weights, mask=None, backwards=False, zero_masked=False):
    """Returns (outputs in the order of computation, last output, last states)."""
    steps = range(x.shape[1])
    outputs = []
    before = 0.0
    for t in reversed(steps) if backwards else steps:
        output, after = step(x[:, t], states, weights)
        if mask is not None:
            on = mask[:, t, None]
            output = np.where(on, output, 0.0 if zero_masked else before)
            after = [np.where(on, a, s) for a, s in zip(after, states, strict=True)]
        before, states = output, after
        outputs.append(output)
    return np.stack(outputs, 1), before, states
