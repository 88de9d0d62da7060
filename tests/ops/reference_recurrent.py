"""The ops of recurrent layers, in NumPy and float64."""

from __future__ import annotations

import numpy as np

from .reference import reference


def _sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def _steps(time, reverse):
    return range(time)[::-1] if reverse else range(time)


def _counts(mask, batch, time):
    """Returns (time, batch, 1), which says which steps count."""
    mask = np.ones((batch, time), bool) if mask is None else mask
    return mask.T[:, :, None]


@reference("lstm")
def lstm(x, h, c, kernel, mask=None, *, reverse, masked):
    batch, time, columns = x.shape
    units = columns // 4
    assert masked == (mask is not None)
    outputs, cells, previous = (np.zeros((batch, time, units)) for _ in range(3))
    gates = np.zeros((batch, time, columns))
    counts = _counts(mask, batch, time)
    for t in _steps(time, reverse):
        previous[:, t] = h
        sums = np.split(x[:, t] + h @ kernel, 4, axis=1)
        i, f, o = (_sigmoid(sums[k]) for k in (0, 1, 3))
        candidate = np.tanh(sums[2])
        gates[:, t] = np.concatenate([i, f, candidate, o], axis=1)
        new_c = f * c + i * candidate
        c, h = np.where(counts[t], new_c, c), np.where(counts[t], o * np.tanh(new_c), h)
        cells[:, t], outputs[:, t] = c, h
    return h, c, outputs, gates, cells, previous


@reference("gru")
def gru(x, h, kernel, bias, mask=None, *, reverse, masked):
    batch, time, columns = x.shape
    units = columns // 3
    assert masked == (mask is not None)
    outputs, previous = (np.zeros((batch, time, units)) for _ in range(2))
    gates = np.zeros((batch, time, 4 * units))
    counts = _counts(mask, batch, time)
    for t in _steps(time, reverse):
        previous[:, t] = h
        from_x = np.split(x[:, t], 3, axis=1)
        from_h = np.split(h @ kernel + bias, 3, axis=1)
        z, r = (_sigmoid(a + b) for a, b in zip(from_x[:2], from_h[:2], strict=True))
        candidate = np.tanh(from_x[2] + r * from_h[2])
        gates[:, t] = np.concatenate([z, r, candidate, from_h[2]], axis=1)
        h = np.where(counts[t], z * h + (1 - z) * candidate, h)
        outputs[:, t] = h
    return h, outputs, gates, previous


def _optional(values, **has):
    """Returns the inputs that a call has, and None for the others."""
    values = iter(values)
    return [next(values) if there else None for there in has.values()]


@reference("lstm_grad")
def lstm_grad(
    kernel, gates, cells, c0, *rest, reverse, masked, has_last_h, has_last_c, has_outputs
):
    batch, time, units = cells.shape
    mask, gh, gc, gy = _optional(rest, m=masked, h=has_last_h, c=has_last_c, y=has_outputs)
    gh, gc = (np.zeros((batch, units)) if g is None else g for g in (gh, gc))
    counts = _counts(mask, batch, time)
    gx = np.zeros((batch, time, 4 * units))
    order = list(_steps(time, reverse))
    for step, t in reversed(list(enumerate(order))):
        i, f, candidate, o = np.split(gates[:, t], 4, axis=1)
        before = cells[:, order[step - 1]] if step else c0
        bounded = np.tanh(cells[:, t])
        gh = gh if gy is None else gh + gy[:, t]
        total = gc + gh * o * (1 - bounded**2)
        parts = [
            total * candidate * i * (1 - i),
            total * before * f * (1 - f),
            total * i * (1 - candidate**2),
            gh * bounded * o * (1 - o),
        ]
        gx[:, t] = np.where(counts[t], np.concatenate(parts, axis=1), 0.0)
        gh = np.where(counts[t], 0.0, gh) + gx[:, t] @ kernel.T
        gc = np.where(counts[t], total * f, gc)
    return gx, gh, gc


@reference("gru_grad")
def gru_grad(kernel, gates, previous, *rest, reverse, masked, has_last_h, has_outputs):
    batch, time, units = previous.shape
    mask, gh, gy = _optional(rest, m=masked, h=has_last_h, y=has_outputs)
    gh = np.zeros((batch, units)) if gh is None else gh
    counts = _counts(mask, batch, time)
    gx, recurrent = (np.zeros((batch, time, 3 * units)) for _ in range(2))
    for t in reversed(list(_steps(time, reverse))):
        z, r, candidate, inner = np.split(gates[:, t], 4, axis=1)
        gh = gh if gy is None else gh + gy[:, t]
        g = gh * (1 - z) * (1 - candidate**2)
        gz = gh * (previous[:, t] - candidate) * z * (1 - z)
        gr = g * inner * r * (1 - r)
        gx[:, t] = np.where(counts[t], np.concatenate([gz, gr, g], axis=1), 0.0)
        recurrent[:, t] = np.where(counts[t], np.concatenate([gz, gr, g * r], axis=1), 0.0)
        gh = np.where(counts[t], gh * z, gh) + recurrent[:, t] @ kernel.T
    return gx, recurrent, gh
