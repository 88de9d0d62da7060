"""The ops of losses and of the accuracy, in NumPy and float64.

A label outside [0, classes) makes a loss NaN.
"""

from __future__ import annotations

import numpy as np

from .reference import Array, before_activation, log_softmax, one_hot, reference, softmax
from .reference_random import dropout


def _at_labels(rows: Array, labels: Array) -> Array:
    picked = rows[np.arange(labels.size), np.clip(labels, 0, rows.shape[1] - 1)]
    return np.where((labels >= 0) & (labels < rows.shape[1]), picked, np.nan)


@reference("sparse_cross_entropy")
def sparse_cross_entropy(probabilities, labels, epsilon):
    p = _at_labels(probabilities / probabilities.sum(axis=1, keepdims=True), labels)
    return -np.log(np.clip(p, epsilon, 1 - epsilon))


@reference("sparse_cross_entropy_grad")
def sparse_cross_entropy_grad(gy, probabilities, labels, epsilon):
    total = probabilities.sum(axis=1)
    p = _at_labels(probabilities / total[:, None], labels)
    hot = one_hot(labels, probabilities.shape[1], "float64")
    # This is d(-log p_l) / d q_j with p = q / sum(q).
    slope = 1 / total[:, None] - hot / _at_labels(probabilities, labels)[:, None]
    inside = (p >= epsilon) & (p <= 1 - epsilon)
    return np.where(inside[:, None], gy[:, None] * slope, 0.0)


@reference("sparse_softmax_cross_entropy")
def sparse_softmax_cross_entropy(logits, labels, gy=None, *, epsilon):
    p = softmax(logits, -1)
    if epsilon == 0:
        loss = -_at_labels(log_softmax(logits, -1), labels)
    else:
        loss = -np.log(np.clip(_at_labels(p, labels), epsilon, 1 - epsilon))
    if gy is None:
        return loss, p
    return loss, p, sparse_softmax_cross_entropy_grad(gy, p, labels, epsilon)


@reference("sparse_softmax_cross_entropy_grad")
def sparse_softmax_cross_entropy_grad(gy, probabilities, labels, epsilon):
    hot = one_hot(labels, probabilities.shape[1], "float64")
    p = _at_labels(probabilities, labels)
    inside = (epsilon == 0) | np.isnan(p) | ((p >= epsilon) & (p <= 1 - epsilon))
    # NaN: there is no such label.
    slope = probabilities - np.where(np.isnan(p)[:, None], np.nan, hot)
    return np.where(inside[:, None], gy[:, None] * slope, 0.0)


def dense_sparse_softmax_cross_entropy(x, kernel, *inputs, epsilon):
    *bias, labels, gy = inputs
    logits = x @ kernel + (bias[0] if bias else 0.0)
    return sparse_softmax_cross_entropy(logits, labels, gy, epsilon=epsilon)


def dense_sparse_softmax_cross_entropy_dgrad(
    x, kernel, *inputs, epsilon, activation, activation_alpha, rate=None, stream=0
):
    def drop(values):
        return values if rate is None else dropout(values, inputs[-1], rate, stream)

    given = drop(x)
    others = inputs if rate is None else inputs[:-1]
    outputs = dense_sparse_softmax_cross_entropy(given, kernel, *others, epsilon=epsilon)
    dx = before_activation(drop(outputs[2] @ kernel.T), x, activation, activation_alpha)
    return (*outputs, dx) if rate is None else (*outputs, dx, given)
