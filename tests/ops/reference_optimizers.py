"""The ops of the optimizers, in NumPy and float64."""

from __future__ import annotations

import math

import numpy as np

from .reference import reference


def _whole(gradients, parameters):
    """Adds up gradients that are stacks of partial sums."""
    return [
        g.sum(axis=0) if g.ndim > p.ndim else g for g, p in zip(gradients, parameters, strict=True)
    ]


@reference("sgd_update")
def sgd_update(learning_rate, *tensors, count, momentum, nesterov):
    groups = [list(tensors[i : i + count]) for i in range(0, len(tensors), count)]
    groups[1] = _whole(groups[1], groups[0])
    if momentum == 0:
        return tuple(p - learning_rate * g for p, g in zip(*groups, strict=True))
    momenta = [momentum * m - learning_rate * g for _, g, m in zip(*groups, strict=True)]
    parameters = [
        p + (momentum * m - learning_rate * g if nesterov else m)
        for p, g, m in zip(groups[0], groups[1], momenta, strict=True)
    ]
    return (*parameters, *momenta)


@reference("adam_update")
def adam_update(learning_rate, iterations, *tensors, count, beta_1, beta_2, epsilon):
    parameters, gradients, first, second = (
        list(tensors[i : i + count]) for i in range(0, len(tensors), count)
    )
    gradients = _whole(gradients, parameters)
    step = int(iterations) + 1
    alpha = learning_rate * math.sqrt(1 - beta_2**step) / (1 - beta_1**step)
    first = [m + (g - m) * (1 - beta_1) for m, g in zip(first, gradients, strict=True)]
    second = [v + (g * g - v) * (1 - beta_2) for v, g in zip(second, gradients, strict=True)]
    updated = [
        p - m * alpha / (np.sqrt(v) + epsilon)
        for p, m, v in zip(parameters, first, second, strict=True)
    ]
    return (*updated, *first, *second)


@reference("cast_all")
def cast_all(*tensors, dtype):
    return tensors


@reference("reduce_to_owners")
def reduce_to_owners(*tensors, processes, owners, factor):
    assert processes == 1 and not any(owners)
    return tuple(x * factor for x in tensors)


@reference("broadcast_from_owners")
def broadcast_from_owners(*tensors, processes, owners):
    assert processes == 1 and not any(owners)
    return tensors


@reference("all_reduce")
def all_reduce(*tensors, processes, scale, factor):
    assert processes == 1  # sums over several are those of tests/distribution
    return tuple(x * scale * factor if scale else np.zeros_like(x) for x in tensors)
