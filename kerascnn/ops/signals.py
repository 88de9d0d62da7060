"""Window functions, pieces of sequences, several labels at once, and the noise of a signal."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from kerascnn import config, dtypes, file_budget
from kerascnn.ops import creation, dispatch, element_functions, elementwise, reduction, shaping
from kerascnn.symbolic.operation import op

__all__ = [
    "bartlett",
    "blackman",
    "extract_sequences",
    "hamming",
    "hanning",
    "kaiser",
    "multi_hot",
    "psnr",
]

Array = np.ndarray[Any, Any]


def _window(name: str, x: Any, make: Callable[[int], Array]) -> Any:
    try:
        length = operator.index(x.item() if hasattr(x, "item") else x)
    except TypeError:
        raise TypeError(
            f"{name}: the length of a window is an integer that is known. Received: {x!r}"
        ) from None
    return dispatch.convert(make(length).astype(dtypes.numpy_dtype(config.floatx())))


def bartlett(x: Any) -> Any:
    """The triangular window, 1 - |2 i / (x - 1) - 1| for i from 0 to x - 1.

    Args:
        x: Its length, an integer that is known.

    Returns:
        (x,) in `floatx`; no elements for a length of 0 or less, and [1] for 1.

    Raises:
        TypeError: for a length that is no integer, or known only in the step.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.bartlett.html

    Example:

    >>> from kerascnn import ops
    >>> ops.bartlett(5).numpy().tolist()
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    return _window("bartlett", x, np.bartlett)


def blackman(x: Any) -> Any:
    """The Blackman window, 0.42 - 0.5 cos(a) + 0.08 cos(2 a) with a = 2 pi i / (x - 1).

    Args:
        x: Its length, an integer that is known.

    Returns:
        (x,) in `floatx`; no elements for a length of 0 or less, and [1] for 1.

    Raises:
        TypeError: for a length that is no integer, or known only in the step.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.blackman.html

    Example:

    >>> from kerascnn import ops
    >>> [round(float(w), 2) for w in ops.blackman(5)[1:4]]
    [0.34, 1.0, 0.34]
    """
    return _window("blackman", x, np.blackman)


def hamming(x: Any) -> Any:
    """The Hamming window, 0.54 - 0.46 cos(2 pi i / (x - 1)).

    Args:
        x: Its length, an integer that is known.

    Returns:
        (x,) in `floatx`; no elements for a length of 0 or less, and [1] for 1.

    Raises:
        TypeError: for a length that is no integer, or known only in the step.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.hamming.html

    Example:

    >>> from kerascnn import ops
    >>> [round(float(w), 2) for w in ops.hamming(5)]
    [0.08, 0.54, 1.0, 0.54, 0.08]
    """
    return _window("hamming", x, np.hamming)


def hanning(x: Any) -> Any:
    """The Hann window, 0.5 - 0.5 cos(2 pi i / (x - 1)).

    Args:
        x: Its length, an integer that is known.

    Returns:
        (x,) in `floatx`; no elements for a length of 0 or less, and [1] for 1.

    Raises:
        TypeError: for a length that is no integer, or known only in the step.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.hanning.html

    Example:

    >>> from kerascnn import ops
    >>> ops.hanning(5).numpy().tolist()
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    return _window("hanning", x, np.hanning)


def kaiser(x: Any, beta: float) -> Any:
    """The Kaiser window, I0(beta sqrt(1 - (2 i / (x - 1) - 1)^2)) / I0(beta).

    I0 is the modified Bessel function of order 0.

    Args:
        x: Its length, an integer that is known.
        beta: 0 for ones only; the larger it is, the narrower is the window.

    Returns:
        (x,) in `floatx`; no elements for a length of 0 or less, and [1] for 1.

    Raises:
        TypeError: for a length that is no integer, or known only in the step.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.kaiser.html

    Example:

    >>> from kerascnn import ops
    >>> [round(float(w), 3) for w in ops.kaiser(3, 5.0)]
    [0.037, 1.0, 0.037]
    """
    return _window("kaiser", x, lambda n: np.kaiser(n, float(beta)))


@op
def extract_sequences(x: Any, sequence_length: int, sequence_stride: int) -> Any:
    """Pieces of the last axis, each a stride further on; what is left at the end is in none.

    Args:
        x: (..., n) of any dtype.
        sequence_length: Elements of a piece.
        sequence_stride: Elements from one piece to the next; pieces overlap where it is smaller
            than their length.

    Returns:
        (..., 1 + (n - sequence_length) // sequence_stride, sequence_length) in the dtype of `x`.

    Raises:
        ValueError: for a length or stride below 1, or a length above n.

    Example:

    >>> from kerascnn import ops
    >>> ops.extract_sequences([1, 2, 3, 4], 2, 1).numpy().tolist()
    [[1, 2], [2, 3], [3, 4]]
    """
    x = dispatch.convert(x)
    if sequence_length < 1 or sequence_stride < 1 or sequence_length > x.shape[-1]:
        raise ValueError(
            "extract_sequences: the pieces must be of positive length and stride and fit the last "
            f"axis. Received: shape={tuple(x.shape)}, sequence_length={sequence_length}, "
            f"sequence_stride={sequence_stride}"
        )
    file_budget.check_positions(
        x.shape[-1] // sequence_stride * sequence_length, "extract_sequences"
    )
    first = np.arange(0, x.shape[-1] - sequence_length + 1, sequence_stride)
    return shaping.take(x, (first[:, None] + np.arange(sequence_length)).astype("int32"), -1)


@op
def multi_hot(
    inputs: Any,
    num_classes: int | None = None,
    axis: int = -1,
    dtype: Any = None,
    sparse: bool = False,
    **kwargs: Any,
) -> Any:
    """1 at the places that the integers of a sample name and 0 elsewhere.

    Args:
        inputs: (labels,) or (n, labels, ...) integers; others than 0 to num_classes - 1 count as
            none.
        num_classes: Size of the new axis.
        axis: Where the new axis goes, before that of the labels is dropped.
        dtype: By default `floatx`.
        sparse: Only False: there are no sparse tensors.
        kwargs: `num_tokens`, an old name of num_classes.

    Returns:
        (num_classes,) or (n, ..., num_classes) in `dtype`.

    Raises:
        ValueError: without a number of classes, and for sparse=True.

    Example:

    >>> from kerascnn import ops
    >>> ops.multi_hot([0, 2], num_classes=4).numpy().tolist()
    [1.0, 0.0, 1.0, 0.0]
    >>> ops.multi_hot([[0, 2], [1, 1]], num_classes=3, dtype="int32").numpy().tolist()
    [[1, 0, 1], [0, 1, 0]]
    """
    if num_classes is None and "num_tokens" in kwargs:
        num_classes = kwargs.pop("num_tokens")
    if num_classes is None:
        raise ValueError("Argument `num_classes` must be specified.")
    if sparse:
        raise ValueError("multi_hot: there are no sparse tensors. Received: sparse=True")
    x = creation.cast(inputs, "int32")
    hot = shaping.one_hot(x, num_classes, axis, dtypes.standardize_dtype(dtype))
    return reduction.max(hot, 1 if len(x.shape) > 1 else 0)


@op
def psnr(x1: Any, x2: Any, max_val: Any) -> Any:
    """The peak signal-to-noise ratio in decibels, 20 log10(max_val) - 10 log10(mean((x1 - x2)^2)).

    Args:
        x1: Tensor of any shape; integers become `floatx`.
        x2: What it is compared with, of the same shape.
        max_val: The largest value that the signal can have.

    Returns:
        One number, in the dtype of the inputs if that is floating, else `floatx`; inf for equal
        ones.

    Raises:
        ValueError: where the shapes differ.

    Source: https://en.wikipedia.org/wiki/Peak_signal-to-noise_ratio

    Example:

    >>> from kerascnn import ops
    >>> round(float(ops.psnr([1.0, 2.0], [1.0, 1.0], max_val=10.0)), 3)
    23.01
    """
    # Differences of unsigned integers would wrap around.
    x1, x2 = dispatch.operands(x1, x2, result=dtypes.float_result_type)
    if tuple(x1.shape) != tuple(x2.shape):
        raise ValueError(
            f"Input shapes {tuple(x1.shape)} and {tuple(x2.shape)} must match for PSNR calculation."
        )
    error = reduction.mean(elementwise.square(elementwise.subtract(x1, x2)))
    most = element_functions.log10(dispatch.convert(max_val, error.dtype))
    return elementwise.subtract(
        elementwise.multiply(most, 20), elementwise.multiply(element_functions.log10(error), 10)
    )
