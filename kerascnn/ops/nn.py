"""Convolution, pooling and normalization of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import config, dtypes
from kerascnn.ops import dispatch, elementwise, reduction, shaping
from kerascnn.symbolic.operation import op

_TO_LAST = (0, 2, 3, 1)
_TO_FIRST = (0, 3, 1, 2)


def pair(value: int | Sequence[int], name: str) -> list[int]:
    """A number for both axes of an image, or one for each, as two integers."""
    values = [value, value] if isinstance(value, int) else [int(v) for v in value]
    if len(values) != 2 or any(v < 1 for v in values):
        raise ValueError(
            f"`{name}` must be a positive integer or two of them. Received: {name}={value}"
        )
    return values


def same_padding(
    sizes: Sequence[int], window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Zeros at (top, bottom, left, right) that make the output ceil(size / stride) long.

    What is odd goes to the bottom and to the right.
    """
    padding = []
    for n, k, s, d in zip(sizes, window, strides, dilations, strict=True):
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        padding += [total // 2, total - total // 2]
    return padding


def _padding(
    padding: str,
    sizes: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int] = (1, 1),
) -> list[int]:
    name = str(padding).lower()
    if name == "valid":
        return [0, 0, 0, 0]
    if name == "same":
        return same_padding(sizes, window, strides, dilations)
    raise ValueError(f"`padding` must be 'valid' or 'same'. Received: padding={padding!r}")


def _images(x: Any, name: str) -> Any:
    x = dispatch.convert(x)
    if len(x.shape) != 4:
        raise ValueError(
            f"{name}: images need 4 axes (batch, height, width, channels). Received: "
            f"shape={tuple(x.shape)}"
        )
    return x if dtypes.is_float(x.dtype) else dispatch.convert(x, dtypes.float_result_type(x.dtype))


@op
def conv(
    inputs: Any,
    kernel: Any,
    strides: int | Sequence[int] = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: int | Sequence[int] = 1,
) -> Any:
    """Convolution of images with a kernel (cross-correlation, as everywhere in deep learning).

    Args:
        inputs: (n, h, w, c), or (n, c, h, w) with data_format "channels_first".
        kernel: (kernel height, kernel width, c / groups, filters); the number of groups follows
            from the channels.
        strides: Steps between outputs.
        padding: "valid" or "same".
        data_format: By default `config.image_data_format()`.
        dilation_rate: Steps between the kernel's elements.

    Returns:
        (n, oh, ow, filters), or (n, filters, oh, ow).

    Raises:
        ValueError: for channels that don't fit the kernel, or a kernel larger than the images.

    Example:

    >>> from kerascnn import ops
    >>> ops.conv(ops.ones((1, 5, 5, 1)), ops.ones((3, 3, 1, 2))).shape
    (1, 3, 3, 2)
    """
    return conv_bias(inputs, kernel, None, strides, padding, data_format, dilation_rate)


@op
def conv_bias(
    inputs: Any,
    kernel: Any,
    bias: Any = None,
    strides: int | Sequence[int] = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: int | Sequence[int] = 1,
) -> Any:
    """As `conv`, with a bias (filters,) added in the same pass."""
    first = config.standardize_data_format(data_format) == "channels_first"
    x = _images(inputs, "conv")
    kernel = dispatch.convert(kernel, x.dtype)
    if first:
        x = shaping.transpose(x, _TO_LAST)
    window, channels = list(kernel.shape[:2]), x.shape[3]
    if len(kernel.shape) != 4 or channels % kernel.shape[2]:
        raise ValueError(
            f"conv: a kernel of shape {tuple(kernel.shape)} (height, width, channels per group, "
            f"filters) does not fit images of {channels} channels."
        )
    steps, dilations = pair(strides, "strides"), pair(dilation_rate, "dilation_rate")
    attributes = {
        "strides": steps,
        "padding": _padding(padding, x.shape[1:3], window, steps, dilations),
        "dilations": dilations,
        "groups": channels // kernel.shape[2],
        "activation": "linear",
        "activation_alpha": 0.0,
    }
    operands = [x, kernel] if bias is None else [x, kernel, dispatch.convert(bias, x.dtype)]
    y = dispatch.apply_one("conv2d", operands, attributes)
    return shaping.transpose(y, _TO_FIRST) if first else y


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


def _pool(
    name: str, inputs: Any, pool_size: Any, strides: Any, padding: str, data_format: str | None
) -> Any:
    first = config.standardize_data_format(data_format) == "channels_first"
    x = _images(inputs, name)
    if first:
        x = shaping.transpose(x, _TO_LAST)
    window = pair(pool_size, "pool_size")
    steps = window if strides is None else pair(strides, "strides")
    attributes = {
        "window": window,
        "strides": steps,
        "padding": _padding(padding, x.shape[1:3], window, steps),
    }
    y = dispatch.apply_one(name, [x], attributes)
    return shaping.transpose(y, _TO_FIRST) if first else y


@op
def max_pool(
    inputs: Any,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int] | None = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> Any:
    """The largest element of each window of an image.

    Args:
        inputs: (n, h, w, c), or (n, c, h, w) with data_format "channels_first".
        pool_size: Size of the window.
        strides: Steps between windows, by default their size.
        padding: "valid" or "same"; what is added never wins.
        data_format: By default `config.image_data_format()`.

    Example:

    >>> from kerascnn import ops
    >>> ops.max_pool(ops.ones((1, 4, 4, 3)), 2).shape
    (1, 2, 2, 3)
    """
    return _pool("max_pool2d", inputs, pool_size, strides, padding, data_format)


@op
def average_pool(
    inputs: Any,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int] | None = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> Any:
    """The mean of the elements of each window that lie inside the image; see `max_pool`."""
    return _pool("avg_pool2d", inputs, pool_size, strides, padding, data_format)


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
