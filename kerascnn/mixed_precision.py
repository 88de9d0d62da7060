"""Older names of `kerascnn.dtype_policies`, and the optimizer that scales losses.

>>> import kerascnn as keras
>>> keras.mixed_precision.set_global_policy("mixed_bfloat16")
>>> keras.mixed_precision.global_policy()
<DTypePolicy "mixed_bfloat16">
>>> keras.mixed_precision.set_global_policy("float32")
"""

from kerascnn.dtype_policies import (
    DTypePolicy,
    dtype_policy,
    set_dtype_policy,
)
from kerascnn.optimizers import LossScaleOptimizer

Policy = DTypePolicy
global_policy = dtype_policy
set_global_policy = set_dtype_policy

__all__ = [
    "DTypePolicy",
    "LossScaleOptimizer",
    "Policy",
    "dtype_policy",
    "global_policy",
    "set_dtype_policy",
    "set_global_policy",
]
