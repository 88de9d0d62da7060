"""Dense products and normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import dtypes
from kerascnn.ops import dispatch, elementwise, reduction, shaping
from kerascnn.symbolic.operation import op

__all__ = [
    "batch_normalization",
    "dense",
    "moments",
]


@op
def dense(x: Any, kernel: Any, bias: Any = None) -> Any:
    """x @ kernel + bias over the last axis, in one pass.

    Args:
        x: (..., inputs).
        kernel: (inputs, units).
        bias: (units,), or None.

    Returns:
        (..., units)
    """
    x = dispatch.convert(x)
    if not dtypes.is_float(x.dtype):
        x = dispatch.convert(x, dtypes.float_result_type(x.dtype))
    kernel = dispatch.convert(kernel, x.dtype)
    leading = tuple(x.shape[:-1])
    if len(leading) != 1:
        rows = 1
        for n in leading:
            rows *= n
        x = shaping.reshape(x, (rows, x.shape[-1]))
    operands = [x, kernel] if bias is None else [x, kernel, dispatch.convert(bias, x.dtype)]
    attributes = {"activation": "linear", "activation_alpha": 0.0}
    y = dispatch.apply_one("dense", operands, attributes)
    return y if len(leading) == 1 else shaping.reshape(y, (*leading, y.shape[-1]))


@op
def moments(
    x: Any, axes: int | Sequence[int], keepdims: bool = False, synchronized: bool = False
) -> tuple[Any, Any]:
    """Mean and population variance along axes.

    Raises:
        ValueError: for synchronized=True, which would need several devices.
    """
    if synchronized:
        raise ValueError("moments: synchronized=True is not available, this is one device.")
    x = dispatch.convert(x)
    return reduction.mean(x, axes, keepdims), reduction.var(x, axes, keepdims)


@op
def batch_normalization(
    x: Any,
    mean: Any,
    variance: Any,
    axis: int,
    offset: Any = None,
    scale: Any = None,
    epsilon: float = 1e-3,
) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, each per element of one axis.

    Args:
        x: Input.
        mean: (c,), c being the size of `axis`.
        variance: (c,)
        axis: The axis that keeps its own statistics.
        offset: (c,), or None.
        scale: (c,), or None.
        epsilon: Keeps the root from 0.
    """
    x = dispatch.convert(x)
    rank = len(x.shape)
    shape = [x.shape[axis] if i == axis % rank else 1 for i in range(rank)]

    def per_axis(v: Any) -> Any:
        return v if axis % rank == rank - 1 else shaping.reshape(v, shape)

    factor = elementwise.rsqrt(elementwise.add(dispatch.convert(variance), epsilon))
    if scale is not None:
        factor = elementwise.multiply(factor, scale)
    shift = elementwise.negative(elementwise.multiply(mean, factor))
    if offset is not None:
        shift = elementwise.add(shift, offset)
    factor = dispatch.convert(per_axis(factor), x.dtype)
    shift = dispatch.convert(per_axis(shift), x.dtype)
    return elementwise.add(elementwise.multiply(x, factor), shift)
