"""Numbers of few bits: trainable rounding, pairs of integers in a byte, scales of float8."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import dtypes

__all__ = [
    "compute_float8_amax_history",
    "compute_float8_scale",
    "fake_quant_with_min_max_vars",
    "pack_int4",
    "unpack_int4",
]


def fake_quant_with_min_max_vars(
    inputs: Any,
    min_vals: Any,
    max_vals: Any,
    num_bits: int = 8,
    narrow_range: bool = False,
    axis: int | None = None,
) -> Any:
    """Numbers rounded to those that an integer of few bits would stand for.

    They lie evenly between two limits, which are moved so that 0 is one of them. Gradients pass
    where a number is inside of the limits; those of the others go to the limit that they were cut
    at, so that limits can be trained (Jacob et al., 2018, "Quantization and Training of Neural
    Networks for Efficient Integer-Arithmetic-Only Inference").

    Args:
        inputs: A floating tensor.
        min_vals: The lower limit, one number, or with `axis` one for each place along it.
        max_vals: The upper limit, in the shape of `min_vals`.
        num_bits: How many bits an integer has.
        narrow_range: Whether the integers begin with 1 instead of 0.
        axis: The axis with limits of its own in each place.

    Returns:
        A tensor in the shape and dtype of `inputs`.

    Raises:
        ValueError: for an axis that `inputs` does not have, or fewer than 2 bits.

    Example:

    >>> import kerascnn as keras
    >>> x = [-2.0, 0.1, 0.4, 5.0]
    >>> keras.quantizers.fake_quant_with_min_max_vars(x, -1.0, 2.0, num_bits=2).numpy().tolist()
    [-1.0, 0.0, 0.0, 2.0]
    """
    from kerascnn import ops
    from kerascnn.symbolic.operation import op

    if int(num_bits) < 2:
        raise ValueError(f"fake_quant_with_min_max_vars: num_bits={num_bits} are fewer than 2.")
    steps = (1 << int(num_bits)) - 1
    first = 1 if narrow_range else 0

    @ops.custom_gradient
    def quantize(x: Any, low: Any, high: Any) -> Any:
        lower, upper, step = _limits(_along(low, x, axis), _along(high, x, axis), first, steps)
        inside = ops.clip(ops.cast(x, lower.dtype), lower, upper)
        zero = ops.floor(-lower / step + 0.5)
        result = ops.floor((inside - lower) / step - zero + 0.5) * step
        others = [i for i in range(len(x.shape)) if axis is None or i != axis % len(x.shape)]

        def gradient(upstream: Any) -> tuple[Any, Any, Any]:
            def cut(places: Any, limit: Any) -> Any:
                total = ops.sum(ops.where(places, upstream, 0.0), axis=others)
                return ops.cast(ops.reshape(total, limit.shape), limit.dtype)

            passes = ops.logical_and(x >= lower, x <= upper)
            return ops.where(passes, upstream, 0.0), cut(x <= lower, low), cut(x >= upper, high)

        return ops.cast(result, x.dtype), gradient

    @op
    def fake_quant(x: Any, low: Any, high: Any) -> Any:
        return quantize(*map(ops.convert_to_tensor, (x, low, high)))

    return fake_quant(inputs, min_vals, max_vals)


def _along(limit: Any, x: Any, axis: int | None) -> Any:
    """Reshapes a limit to broadcast over `x`, in at least float32."""
    from kerascnn import ops

    limit = ops.cast(limit, dtypes.result_type(str(limit.dtype), "float32"))
    if axis is None:
        return ops.reshape(limit, ()) if limit.shape else limit
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise ValueError(
            f"fake_quant_with_min_max_vars: axis {axis} does not exist in a tensor of {rank} axes."
        )
    return ops.reshape(limit, [-1 if i == axis % rank else 1 for i in range(rank)])


def _limits(low: Any, high: Any, first: int, last: int) -> tuple[Any, Any, Any]:
    """Returns limits moved so that an integer stands for 0, and the step between two integers."""
    from kerascnn import ops

    step = (high - low) / (last - first)
    zero = ops.round(ops.clip(first - low / step, first, last))
    return (first - zero) * step, (last - zero) * step, step


def compute_float8_scale(amax: Any, scale: Any, dtype_max: float, margin: int = 0) -> Any:
    """The scale that takes a largest magnitude to the end of a dtype's range.

    Args:
        amax: The largest magnitude.
        scale: What stays where `amax` is 0 or not finite.
        dtype_max: The largest number of the dtype.
        margin: Powers of two that are kept free.

    Returns:
        amax * 2 ** margin / dtype_max, what numbers are to be divided by.

    Source: NVIDIA, documentation of Transformer Engine, "delayed scaling"

    Example:

    >>> import kerascnn as keras
    >>> float(keras.quantizers.compute_float8_scale(keras.ops.ones(()) * 896.0, 1.0, 448.0))
    2.0
    """
    from kerascnn import ops

    scale = ops.convert_to_tensor(scale, dtype=str(amax.dtype))
    usable = ops.logical_and(amax > 0.0, ops.isfinite(amax))
    return ops.where(usable, amax * (2**margin / dtype_max), scale)


def compute_float8_amax_history(x: Any, amax_history: Any) -> Any:
    """The largest magnitudes of the last tensors, with that of `x` in the first place.

    Args:
        x: A tensor.
        amax_history: (n,), of which the first one is left out and the others move by one place.

    Returns:
        (n,), of the dtype of `amax_history`.

    Example:

    >>> import kerascnn as keras
    >>> history = keras.ops.convert_to_tensor([1.0, 2.0, 3.0])
    >>> x = keras.ops.convert_to_tensor([0.5, -4.0])
    >>> keras.quantizers.compute_float8_amax_history(x, history).numpy().tolist()
    [4.0, 3.0, 1.0]
    """
    from kerascnn import ops

    newest = ops.cast(ops.reshape(ops.max(ops.abs(x)), (1,)), amax_history.dtype)
    return ops.concatenate([newest, ops.roll(amax_history, -1)[1:]], axis=0)


def pack_int4(arr: Any, axis: int = 0, dtype: str = "int8") -> tuple[Any, tuple[int, ...], int]:
    """Two integers of 4 bits in each byte.

    Args:
        arr: Integers from -8 to 7 as int8, or from 0 to 15 as uint8.
        axis: The axis along which neighbours share a byte, the first one in its lower bits.
        dtype: "int8" or "uint8", of `arr` and of the bytes.

    Returns:
        The bytes, their shape, and how long the axis was: a 0 is added to an odd number.

    Raises:
        ValueError: for another dtype.
        TypeError: where `arr` has another one than `dtype`.

    Example:

    >>> import kerascnn as keras
    >>> packed, _, length = keras.quantizers.pack_int4(np.array([-3, 7, 1], "int8"))
    >>> keras.quantizers.unpack_int4(packed, length).numpy().tolist()
    [-3, 7, 1]
    """
    from kerascnn import ops

    _check_bytes("pack_int4", dtype)
    array = np.asarray(ops.convert_to_numpy(arr))
    if array.dtype != dtype:
        raise TypeError(f"pack_int4: expected a tensor of {dtype}. Received: {array.dtype}")
    rows = np.moveaxis(array, axis, 0)
    length = rows.shape[0]
    if length % 2:
        rows = np.concatenate([rows, np.zeros_like(rows[:1])])
    bits = rows.view("uint8") if rows.flags.c_contiguous else rows.astype("uint8")
    packed = (bits[::2] & 0x0F) | ((bits[1::2] & 0x0F) << 4)
    packed = np.ascontiguousarray(np.moveaxis(packed, 0, axis)).view(dtype)
    return ops.convert_to_tensor(packed), packed.shape, length


def unpack_int4(packed: Any, orig_len: int, axis: int = 0, dtype: str = "int8") -> Any:
    """The integers of `pack_int4`, as int8 from -8 to 7 or as uint8 from 0 to 15.

    Args:
        packed: Bytes, int8 or uint8.
        orig_len: How long the axis was.
        axis: The axis along which they were packed.
        dtype: "int8" for numbers with a sign, "uint8" for those without.

    Returns:
        Of the shape of the bytes, but `orig_len` along `axis`.

    Raises:
        ValueError: for another dtype.
        TypeError: where `packed` has another one than these.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> packed, shape, _ = keras.quantizers.pack_int4(np.array([-8, 3, 7], "int8"))
    >>> keras.quantizers.unpack_int4(packed, orig_len=3).numpy().tolist()
    [-8, 3, 7]
    """
    from kerascnn import ops

    _check_bytes("unpack_int4", dtype)
    packed = ops.convert_to_tensor(packed)
    if str(packed.dtype) not in ("int8", "uint8"):
        raise TypeError(f"unpack_int4: expected int8 or uint8. Received: {packed.dtype}")
    axis = axis % len(packed.shape)
    bits = ops.cast(packed, "int32") & 0xFF
    halves = ops.stack([bits & 0x0F, bits // 16], axis=axis + 1)
    if dtype == "int8":
        halves = (halves ^ 8) - 8
    shape = list(packed.shape)
    shape[axis] *= 2
    whole = ops.reshape(ops.cast(halves, dtype), shape)
    return ops.take(whole, np.arange(orig_len), axis=axis)


def _check_bytes(name: str, dtype: str) -> None:
    if dtype not in ("int8", "uint8"):
        raise ValueError(f"{name}: dtype must be 'int8' or 'uint8'. Received: dtype={dtype!r}")
