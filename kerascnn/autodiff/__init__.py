"""Gradients of what was computed at once, and functions compiled by hand.

One set of gradient rules, those of the core's ops, serves compiled steps, tapes and compiled
functions alike. docs/autodiff.md tells how.
"""

from kerascnn.autodiff.custom import custom_gradient
from kerascnn.autodiff.functional import grad, value_and_grad
from kerascnn.autodiff.jit import jit
from kerascnn.autodiff.remat import remat
from kerascnn.autodiff.remat_scope import RematScope
from kerascnn.autodiff.tape import GradientTape

__all__ = [
    "GradientTape",
    "RematScope",
    "custom_gradient",
    "grad",
    "jit",
    "remat",
    "value_and_grad",
]
