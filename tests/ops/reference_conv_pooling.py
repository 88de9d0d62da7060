"""The fusions of a convolution and its pooling, in NumPy and float64."""

from __future__ import annotations

from .reference import (
    before_activation,
    conv2d,
    conv2d_dgrad,
    conv2d_wgrad,
    max_pool2d,
    max_pool2d_grad,
    windows,
)


def _before_pooling(gy, y, index, shape, *, activation, activation_alpha, pool):
    """Returns the gradient before the activation, spread to the convolution's output."""
    gy = before_activation(gy, y, activation, activation_alpha)
    return max_pool2d_grad(gy, index, shape, **pool)


def _conv_shape(x, kernel, strides, padding, dilations):
    *_, (_, _, rows, columns) = windows(x, kernel[:2], strides, padding, dilations)
    count = [len(range(part.start, part.stop, part.step)) for part in (rows, columns)]
    return [x[0], *count, kernel[3]]


def conv2d_max_pool2d(x, kernel, bias=0.0, *, window, pool_strides, pool_padding, **attributes):
    return max_pool2d(conv2d(x, kernel, bias, **attributes), window, pool_strides, pool_padding)


def conv2d_max_pool2d_dgrad(
    gy, y, index, kernel, *, input_shape, strides, padding, dilations, groups,
    window, pool_strides, pool_padding, **activation,
):  # fmt: skip
    shape = _conv_shape(input_shape, kernel.shape, strides, padding, dilations)
    pool = {"window": window, "strides": pool_strides, "padding": pool_padding}
    wide = _before_pooling(gy, y, index, shape, pool=pool, **activation)
    conv = {"strides": strides, "padding": padding, "dilations": dilations, "groups": groups}
    return conv2d_dgrad(wide, kernel, input_shape=input_shape, **conv)


def conv2d_max_pool2d_wgrad(
    x, gy, y, index, *, kernel_shape, strides, padding, dilations, groups,
    window, pool_strides, pool_padding, **activation,
):  # fmt: skip
    shape = _conv_shape(x.shape, kernel_shape, strides, padding, dilations)
    pool = {"window": window, "strides": pool_strides, "padding": pool_padding}
    wide = _before_pooling(gy, y, index, shape, pool=pool, **activation)
    conv = {"strides": strides, "padding": padding, "dilations": dilations, "groups": groups}
    return conv2d_wgrad(x, wide, kernel_shape=kernel_shape, **conv), wide.sum(axis=(0, 1, 2))
