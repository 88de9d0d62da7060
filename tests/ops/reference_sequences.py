"""The ops on sequences, in NumPy and float64."""

from __future__ import annotations

import numpy as np

from .reference import log_softmax, one_hot, reference


def _log_sum(x, axis):
    return np.logaddexp.reduce(x, axis=axis)


def _steps(states, blank):
    """Returns (samples, from, to): 0 where a path may go in a frame, and -inf elsewhere."""
    count = states.shape[1]
    ahead = np.arange(count)[None, :] - np.arange(count)[:, None]
    allowed = np.broadcast_to((ahead == 0) | (ahead == 1), (len(states), count, count)).copy()
    # A path may skip the blank between two different labels.
    differs = states[:, :, None] != states[:, None, :]
    allowed |= (ahead == 2) & (np.arange(count) % 2 == 1) & differs
    return np.where(allowed, 0.0, -np.inf)


def _ctc_in_range(logits, target, target_length, output_length, mask_index):
    samples, frames, classes = logits.shape
    scores = log_softmax(logits, -1)
    # Paths only go forward, so none comes back from the labels that do not count.
    target = target[:, : np.max(target_length, initial=0)]
    states = np.full((samples, 2 * target.shape[1] + 1), mask_index)
    states[:, 1::2] = target
    emitted = np.take_along_axis(scores, states[:, None, :], axis=2)
    steps = _steps(states, mask_index)
    place = np.arange(states.shape[1])[None, :]
    end = 2 * target_length[:, None]
    is_end = np.where((place == end) | (place == end - 1), 0.0, -np.inf)
    # In the first frame a path is at the first blank or at the first label.
    alpha = np.empty((frames, *states.shape))
    for t in range(frames):
        into = np.where(place < 2, 0.0, -np.inf)
        if t:
            into = _log_sum(alpha[t - 1][:, :, None] + steps, 1)
        alpha[t] = into + emitted[:, t]
    beta = np.full((frames + 1, *states.shape), -np.inf)
    for t in reversed(range(frames)):
        on = beta[t + 1] + (emitted[:, t + 1] if t + 1 < frames else 0.0)
        is_last = output_length[:, None] == t + 1
        beta[t] = np.where(is_last, is_end, _log_sum(on[:, None, :] + steps, 2))
    likelihood = np.where(target_length == 0, 0.0, -np.inf)
    if frames:
        first = _log_sum(alpha[0] + beta[0], 1)
        likelihood = np.where(output_length > 0, first, likelihood)
    shares = np.exp((alpha + beta[:frames]).transpose(1, 0, 2) - likelihood[:, None, None])
    slope = np.exp(scores) - np.einsum("nts,nsc->ntc", shares, one_hot(states, classes, "float64"))
    slope[np.isinf(likelihood)] = np.nan
    slope[np.arange(frames)[None, :] >= output_length[:, None]] = 0.0
    return -likelihood, slope


@reference("ctc_loss")
def ctc_loss(logits, target, target_length, output_length, mask_index):
    counted = np.arange(target.shape[1])[None, :] < target_length[:, None]
    known = (target >= 0) & (target < logits.shape[2])
    right = (known | ~counted).all(axis=1)
    for length, most in ((target_length, target.shape[1]), (output_length, logits.shape[1])):
        right &= (length >= 0) & (length <= most)
    loss = np.full(len(logits), np.nan)
    slope = np.full(logits.shape, np.nan)
    loss[right], slope[right] = _ctc_in_range(
        logits[right],
        np.where(counted, target, 0)[right],
        target_length[right],
        output_length[right],
        mask_index,
    )
    return loss, slope
