"""What the ops mean that join gradients of dense layers, in NumPy and float64."""

from __future__ import annotations

from .reference import reference


@reference("dense_wgrad")
def dense_wgrad(x, g):
    return x.T @ g, g.sum(axis=0)
