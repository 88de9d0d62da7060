"""Convolution over 1, 2 and 3 spatial axes: plain, by channel, separable and transposed.

The core convolves images. A sequence is an image of one row. In a volume, the planes that the
kernel sees at once are laid side by side as channels of one image, so that one convolution of
images does all taps along the depth, and nothing is rounded between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn.ops import dispatch, elementwise, indexing, joining, shaping, windows
from kerascnn.symbolic.operation import op

__all__ = [
    "conv",
    "conv_bias",
    "conv_transpose",
    "depthwise_conv",
    "separable_conv",
]

Sizes = int | Sequence[int]


@op
def conv(
    inputs: Any,
    kernel: Any,
    strides: Sizes = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Sizes = 1,
) -> Any:
    """Convolution with a kernel (cross-correlation, as everywhere in deep learning).

    Args:
        inputs: (n, *spatial, c), or (n, c, *spatial) with data_format "channels_first"; 1 to 3
            spatial axes. Integers become `floatx`.
        kernel: (*window, c / groups, filters), converted to the dtype of `inputs`; the number of
            groups follows from the channels.
        strides: Steps between outputs.
        padding: "valid" or "same".
        data_format: By default `config.image_data_format()`.
        dilation_rate: Steps between the kernel's elements.

    Returns:
        (n, *outputs, filters), or (n, filters, *outputs), in the dtype of `inputs`.

    Raises:
        ValueError: for another padding, channels that don't fit the kernel, or a kernel larger than
            the input.

    Example:

    >>> from kerascnn import ops
    >>> ops.conv(ops.ones((1, 5, 5, 1)), ops.ones((3, 3, 1, 2))).shape
    (1, 3, 3, 2)
    >>> ops.conv(ops.ones((1, 6, 5, 5, 4)), ops.ones((2, 3, 3, 4, 8)), strides=(2, 1, 1)).shape
    (1, 3, 3, 3, 8)
    """
    _check_padding(padding)
    return conv_bias(inputs, kernel, None, strides, padding, data_format, dilation_rate)


@op
def conv_bias(
    inputs: Any,
    kernel: Any,
    bias: Any = None,
    strides: Sizes = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Sizes = 1,
) -> Any:
    """As `conv`, with a bias added in the same pass.

    Args:
        inputs: As for `conv`.
        kernel: As for `conv`.
        bias: (filters,), converted to the dtype of `inputs`, or None.
        strides: Steps between outputs.
        padding: "valid", "same", or on one spatial axis "causal": an output sees no input behind
            its own place.
        data_format: By default `config.image_data_format()`.
        dilation_rate: Steps between the kernel's elements.

    Returns:
        (n, *outputs, filters), or (n, filters, *outputs), in the dtype of `inputs`.

    Raises:
        ValueError: for another padding, channels that don't fit the kernel, or a kernel larger than
            the input.

    Example:

    >>> from kerascnn import ops
    >>> x, kernel = ops.ones((1, 4, 1)), ops.ones((2, 1, 1))
    >>> ops.conv_bias(x, kernel, [0.5], padding="causal").numpy().ravel().tolist()
    [1.5, 2.5, 2.5, 2.5]
    """
    x, first = windows.channels_last("conv", inputs, data_format)
    y = _conv(x, kernel, bias, strides, padding, dilation_rate)
    return windows.restore_format(y, first)


@op
def depthwise_conv(
    inputs: Any,
    kernel: Any,
    strides: Sizes = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Sizes = 1,
) -> Any:
    """Convolution of each channel with kernels of its own.

    Args:
        inputs: (n, *spatial, c), or (n, c, *spatial) with data_format "channels_first"; 1 to 3
            spatial axes. Integers become `floatx`.
        kernel: (*window, c, multiplier), converted to the dtype of `inputs`.
        strides: Steps between outputs.
        padding: "valid" or "same".
        data_format: By default `config.image_data_format()`.
        dilation_rate: Steps between the kernel's elements.

    Returns:
        (n, *outputs, c * multiplier), or with the channels first, in the dtype of `inputs`; the
        outputs of one channel are neighbours.

    Raises:
        ValueError: for another padding, channels that don't fit the kernel, or a kernel larger than
            the input.

    Example:

    >>> from kerascnn import ops
    >>> ops.depthwise_conv(ops.ones((1, 5, 5, 3)), ops.ones((3, 3, 3, 2))).shape
    (1, 3, 3, 6)
    """
    _check_padding(padding)
    return depthwise_conv_bias(inputs, kernel, None, strides, padding, data_format, dilation_rate)


def depthwise_conv_bias(
    inputs: Any,
    kernel: Any,
    bias: Any,
    strides: Sizes,
    padding: str,
    data_format: str | None,
    dilation_rate: Sizes,
) -> Any:
    """As `depthwise_conv`, with a bias (c * multiplier,) added in the same pass."""
    x, first = windows.channels_last("depthwise_conv", inputs, data_format)
    y = _conv(x, _by_channel(x, kernel), bias, strides, padding, dilation_rate)
    return windows.restore_format(y, first)


@op
def separable_conv(
    inputs: Any,
    depthwise_kernel: Any,
    pointwise_kernel: Any,
    strides: Sizes = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Sizes = 1,
) -> Any:
    """`depthwise_conv`, then a `conv` of single pixels that mixes the channels.

    Args:
        inputs: (n, *spatial, c), or (n, c, *spatial) with data_format "channels_first"; 1 to 3
            spatial axes. Integers become `floatx`.
        depthwise_kernel: (*window, c, multiplier).
        pointwise_kernel: (*ones, c * multiplier, filters).
        strides: Steps between outputs.
        padding: "valid" or "same".
        data_format: By default `config.image_data_format()`.
        dilation_rate: Steps between the depthwise kernel's elements.

    Returns:
        (n, *outputs, filters), or (n, filters, *outputs), in the dtype of `inputs`.

    Raises:
        ValueError: for another padding, channels that don't fit the kernels, or a kernel larger
            than the input.

    Example:

    >>> from kerascnn import ops
    >>> kernels = ops.ones((3, 3, 4, 2)), ops.ones((1, 1, 8, 16))
    >>> ops.separable_conv(ops.ones((1, 5, 5, 4)), *kernels).shape
    (1, 3, 3, 16)
    """
    _check_padding(padding)
    return separable_conv_bias(
        inputs,
        depthwise_kernel,
        pointwise_kernel,
        None,
        strides,
        padding,
        data_format,
        dilation_rate,
    )


def separable_conv_bias(
    inputs: Any,
    depthwise_kernel: Any,
    pointwise_kernel: Any,
    bias: Any,
    strides: Sizes,
    padding: str,
    data_format: str | None,
    dilation_rate: Sizes,
) -> Any:
    """As `separable_conv`, with a bias (filters,) added in the same pass."""
    x, first = windows.channels_last("separable_conv", inputs, data_format)
    x = _conv(x, _by_channel(x, depthwise_kernel), None, strides, padding, dilation_rate)
    return windows.restore_format(_conv(x, pointwise_kernel, bias, 1, "valid", 1), first)


def _check_padding(padding: str) -> None:
    if str(padding).lower() not in ("valid", "same"):
        raise ValueError(f"`padding` must be 'valid' or 'same'. Received: padding={padding!r}")


def _by_channel(x: Any, kernel: Any) -> Any:
    """Reshapes a depthwise kernel (*window, c, m) to c groups, (*window, 1, c * m)."""
    kernel = dispatch.convert(kernel, x.dtype, like=x)
    shape = tuple(kernel.shape)
    if len(shape) != len(x.shape) or shape[-2] != x.shape[-1]:
        raise ValueError(
            f"depthwise_conv: a kernel of shape {shape} (window, channels, multiplier) does not "
            f"fit an input of {len(x.shape) - 2} spatial axes and {x.shape[-1]} channels."
        )
    return shaping.reshape(kernel, (*shape[:-2], 1, shape[-2] * shape[-1]))


def _conv(
    x: Any, kernel: Any, bias: Any, strides: Sizes, padding: str, dilation_rate: Sizes
) -> Any:
    """Convolves channels-last inputs."""
    kernel = dispatch.convert(kernel, x.dtype, like=x)
    rank, channels = len(x.shape) - 2, x.shape[-1]
    if len(kernel.shape) != rank + 2 or not kernel.shape[-2] or channels % kernel.shape[-2]:
        raise ValueError(
            f"conv: a kernel of shape {tuple(kernel.shape)} (window, channels per group, filters) "
            f"does not fit an input of {rank} spatial axes and {channels} channels."
        )
    window, lengths = list(kernel.shape[:-2]), list(x.shape[1:-1])
    steps = windows.sizes(strides, rank, "strides")
    dilations = windows.sizes(dilation_rate, rank, "dilation_rate")
    pads = windows.padding_of(padding, lengths, window, steps, dilations)
    groups = channels // kernel.shape[-2]
    if rank == 3:
        windows.check_fits("conv", lengths, window, pads, dilations)
        depth = _output_length(lengths[0], window[0], steps[0], pads[0], dilations[0])
        x = _depth_as_channels(x, window[0], steps[0], pads[0], dilations[0], depth, groups)
        kernel = _depth_into_channels(kernel)
        steps, dilations, pads = steps[1:], dilations[1:], pads[1:]
    elif rank == 1:
        x, kernel = shaping.expand_dims(x, 1), shaping.expand_dims(kernel, 0)
        steps, dilations, pads = [1, *steps], [1, *dilations], [(0, 0), *pads]
    attributes = {
        "strides": steps,
        "padding": [n for pair in pads for n in pair],
        "dilations": dilations,
        "groups": groups,
        "activation": "linear",
        "activation_alpha": 0.0,
    }
    operands = [x, kernel]
    if bias is not None:
        operands.append(dispatch.convert(bias, x.dtype, like=x))
    y = dispatch.apply_one("conv2d", operands, attributes)
    if rank == 3:
        return shaping.reshape(y, (y.shape[0] // depth if depth else 0, depth, *y.shape[1:]))
    return shaping.squeeze(y, 1) if rank == 1 else y


def _output_length(n: int, window: int, stride: int, pad: tuple[int, int], dilation: int) -> int:
    return (n + pad[0] + pad[1] - dilation * (window - 1) - 1) // stride + 1


def _depth_as_channels(
    x: Any, window: int, stride: int, pad: tuple[int, int], dilation: int, outputs: int, groups: int
) -> Any:
    """Maps (n, d, h, w, c) to (n * outputs, h, w, window * c), by groups of channels."""
    if pad != (0, 0):
        x = shaping.pad(x, ((0, 0), pad, (0, 0), (0, 0), (0, 0)))
    n, _, h, w, c = x.shape
    taps = []
    for tap in range(window):
        begin = tap * dilation
        planes = slice(begin, begin + (outputs - 1) * stride + 1, stride)
        tap_planes = indexing.get_item(x, (slice(None), planes))
        taps.append(shaping.reshape(tap_planes, (n * outputs, h, w, groups, c // groups)))
    joined = joining.concatenate(taps, axis=4)
    return shaping.reshape(joined, (n * outputs, h, w, window * c))


def _depth_into_channels(kernel: Any) -> Any:
    """Maps (kd, kh, kw, c, k) to (kh, kw, kd * c, k)."""
    kd, kh, kw, c, k = kernel.shape
    return shaping.reshape(shaping.transpose(kernel, (1, 2, 0, 3, 4)), (kh, kw, kd * c, k))


@op
def conv_transpose(
    inputs: Any,
    kernel: Any,
    strides: Sizes = 1,
    padding: str = "valid",
    output_padding: Sizes | None = None,
    data_format: str | None = None,
    dilation_rate: Sizes = 1,
) -> Any:
    """The transpose of a convolution: each input spreads the kernel over the output.

    Args:
        inputs: (n, *spatial, c), or (n, c, *spatial) with data_format "channels_first"; 1 to 3
            spatial axes. Integers become `floatx`.
        kernel: (*window, filters, c), converted to the dtype of `inputs`.
        strides: Steps between the places that two neighbouring inputs spread to.
        padding: "valid" for all of the output (at least a stride for each input), "same" for
            inputs * strides.
        output_padding: How much longer each axis gets than the shortest output that belongs to
            these inputs; by default as `padding` says.
        data_format: By default `config.image_data_format()`.
        dilation_rate: Steps between the kernel's elements.

    Returns:
        (n, *outputs, filters), or (n, filters, *outputs), in the dtype of `inputs`.

    Raises:
        ValueError: for another padding, channels that don't fit the kernel, or an output without
            elements.

    Example:

    >>> from kerascnn import ops
    >>> ops.conv_transpose(ops.ones((1, 4, 4, 3)), ops.ones((3, 3, 8, 3)), 2, "same").shape
    (1, 8, 8, 8)
    """
    _check_padding(padding)
    x, first = windows.channels_last("conv_transpose", inputs, data_format)
    kernel = dispatch.convert(kernel, x.dtype, like=x)
    rank = len(x.shape) - 2
    if len(kernel.shape) != rank + 2 or kernel.shape[-1] != x.shape[-1]:
        raise ValueError(
            f"conv_transpose: a kernel of shape {tuple(kernel.shape)} (window, filters, channels) "
            f"does not fit an input of {rank} spatial axes and {x.shape[-1]} channels."
        )
    steps = windows.sizes(strides, rank, "strides")
    dilations = windows.sizes(dilation_rate, rank, "dilation_rate")
    extra: Sequence[int | None] = [None] * rank
    if output_padding is not None:
        extra = windows.sizes(output_padding, rank, "output_padding", lowest=0)
    reaches = [d * (k - 1) + 1 for k, d in zip(kernel.shape[:-2], dilations, strict=True)]
    crops = [
        transposed_crop(k, s, padding, e) for k, s, e in zip(reaches, steps, extra, strict=True)
    ]
    lengths = [
        (n - 1) * s + k - before - after
        for n, s, k, (before, after) in zip(x.shape[1:-1], steps, reaches, crops, strict=True)
    ]
    if any(n < 1 for n in lengths):
        raise ValueError(
            f"conv_transpose: the output would have the size {tuple(lengths)}. Received: inputs of "
            f"shape {tuple(x.shape)}, strides={strides}, padding={padding!r}, "
            f"output_padding={output_padding}"
        )
    y = _conv_transpose(x, kernel, steps, dilations, crops, lengths)
    return windows.restore_format(y, first)


def transposed_crop(
    reach: int, stride: int, padding: str, output_padding: int | None
) -> tuple[int, int]:
    """Returns how much of the spread, (n - 1) * stride + reach, is cut off before and after.

    Negative where zeros follow instead. The sizes are those of Keras on TensorFlow and JAX.

    Args:
        reach: Size of the kernel with its dilation.
        stride: Steps between the spreads of two inputs.
        padding: "valid" or "same".
        output_padding: None for the default length.
    """
    if padding.lower() == "valid":
        return 0, -(max(stride - reach, 0) if output_padding is None else output_padding)
    # This is one less than the number of positions of a kernel with this reach over one input's
    # result.
    kept = stride + reach - 2 if output_padding is None else reach + reach % 2 - 2 + output_padding
    before = min(kept - kept // 2, reach - 1)
    return reach - 1 - before, reach - 1 - (kept - before)


def _conv_transpose(
    x: Any,
    kernel: Any,
    steps: list[int],
    dilations: list[int],
    crops: windows.Pairs,
    lengths: list[int],
) -> Any:
    rank, channels = len(steps), kernel.shape[-2]
    if rank == 3:
        n, planes = x.shape[:2]
        taps = kernel.shape[0]
        y = _spread_images(
            shaping.reshape(x, (n * planes, *x.shape[2:])),
            _depth_into_channels(kernel),
            steps[1:],
            dilations[1:],
            crops[1:],
            lengths[1:],
        )
        y = shaping.reshape(y, (n, planes, *lengths[1:], taps, channels))
        return _spread_planes(y, steps[0], dilations[0], crops[0][0], lengths[0])
    if rank == 1:
        x, kernel = shaping.expand_dims(x, 1), shaping.expand_dims(kernel, 0)
        steps, dilations, crops = [1, *steps], [1, *dilations], [(0, 0), *crops]
        return shaping.squeeze(_spread_images(x, kernel, steps, dilations, crops, [1, *lengths]), 1)
    return _spread_images(x, kernel, steps, dilations, crops, lengths)


def _spread_images(
    x: Any,
    kernel: Any,
    steps: list[int],
    dilations: list[int],
    crops: windows.Pairs,
    lengths: list[int],
) -> Any:
    """Computes the transposed convolution of images as a gradient by the input."""
    # A convolution leaves out less than a stride at the end, so zeros are added for the positions
    # beyond.
    beyond = [max(-after - (s - 1), 0) for (_, after), s in zip(crops, steps, strict=True)]
    inside = [n - b for n, b in zip(lengths, beyond, strict=True)]
    attributes = {
        "strides": steps,
        "padding": [n for before, after in crops for n in (before, max(after, 0))],
        "dilations": dilations,
        "groups": 1,
        "input_shape": [x.shape[0], *inside, kernel.shape[-2]],
    }
    y = dispatch.apply_one("conv2d_dgrad", [x, kernel], attributes)
    if any(beyond):
        y = shaping.pad(y, ((0, 0), *((0, b) for b in beyond), (0, 0)))
    return y


def _spread_planes(y: Any, stride: int, dilation: int, crop: int, depth: int) -> Any:
    """Moves each tap's planes, (n, planes, h, w, taps, c), into place: (n, depth, h, w, c)."""
    n, planes, h, w, taps, c = y.shape
    if taps == stride and (dilation == 1 or taps == 1) and crop == 0 and depth == planes * taps:
        # Taps of neighbouring planes follow one another without overlap.
        y = shaping.transpose(y, (0, 1, 4, 2, 3, 5))
        return shaping.reshape(y, (n, depth, h, w, c))
    total = None
    for tap in range(taps):
        offset = tap * dilation - crop
        first = max(-(offset // stride), 0)
        last = min((depth - 1 - offset) // stride, planes - 1)
        if last < first:
            continue
        key = (slice(None), slice(first, last + 1), slice(None), slice(None), tap)
        placed = dispatch.apply_one(
            "slice_grad",
            [indexing.get_item(y, key)],
            {
                "input_shape": [n, depth, h, w, c],
                "starts": [0, offset + first * stride, 0, 0, 0],
                "sizes": [n, last + 1 - first, h, w, c],
                "strides": [1, stride, 1, 1, 1],
            },
        )
        total = placed if total is None else elementwise.add(total, placed)
    return total
