"""Random calls of every public op, by the names of its parameters, at once and compiled.

`op_calls` knows what NumPy says of some ops. Here are all of them with arguments that are mostly
wrong: a call gives the same at once and compiled, or an error, and the process goes on.
"""

from __future__ import annotations

import functools
import inspect
from random import Random
from typing import Any

import numpy as np

from .op_calls import _words, make_array

_DTYPES = (
    *("float32",) * 6,
    *("float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"),
)
_LAYOUTS = ("plain", "plain", "strided", "reversed", "transposed", "broadcast", "big_endian")
# Functions of functions, and those that stop, read text or draw at random.
_LEFT_OUT = frozenset(
    _words(
        """
    associative_scan cond custom_gradient fori_loop jvp map scan switch vectorize
    vectorized_map while_loop rnn custom_op cpp_elements cuda_elements at_once empty
    empty_like convert_to_numpy is_tensor shape ndim size dtype barrier shard_map Function
    """
    )
)
_TENSORS = frozenset(
    _words(
        """
    x x1 x2 a b y inputs tensor image images array query key value kernel bias target output
    depthwise_kernel pointwise_kernel recurrent_kernel h0 c0 mean variance offset scale
    gamma beta sorted_sequence values bins weights mask indices segment_ids data updates
    predictions targets condition labels logits recurrent_bias start_points end_points
    transform coordinates matrix sequences boxes xs v variable real imag arrays
    """
    )
)
# These may be left out, or are something else for some ops.
_OPTIONAL_TENSORS = frozenset({"weights", "mask", "bias", "offset", "scale", "gamma", "beta"})
_INTEGERS = frozenset(
    _words(
        """
    indices segment_ids targets labels target_length output_length sequence_lengths
    """
    )
)
_MANY = frozenset({"xs", "condlist", "choicelist", "operands", "arrays"})
_SHAPES = frozenset({"shape", "newshape", "target_shape", "output_shape"})
_WILD: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 7, -9, 2**31 - 1, 2**31, -(2**31), 2**32, 2**62, 2**63 - 1, 2**63, -(2**63)),
    *(10**30, 0.5, -0.5, 1e300, float("nan"), float("inf"), None, True, "x", ""),
    *([], [0, 0], [[1]], [None], [2**62, 2**62], [-1, -1], [1.5], {}, {"a": 1}, [1] * 70),
)
_VALUES: dict[str, list[Any]] = {
    "keepdims": [True, False],
    "dtype": ["float32", "int32", "float16", "bool", "float7", None],
    "data_format": ["channels_last", "channels_first", None],
    "padding": ["valid", "same", 1, "causal"],
    "mode": ["constant", "reflect", "symmetric", "valid", "same", "full", "reduced", "complete"],
    "pool_size": [1, 2, [2, 1], 3],
    "kernel_size": [1, 2, [2, 2]],
    "strides": [1, 2, [1, 2]],
    "stride": [1, 2],
    "dilation_rate": [1, 2],
    "dilation": [1, 2],
    "num_classes": [1, 3, 5],
    "pad_width": [0, 1, [1, 2], [[0, 1], [1, 0]], [[1, 1]]],
    "repeats": [1, 2, 3, [1, 2]],
    "shift": [0, 1, -2, [1, 2]],
    "subscripts": ["ij,jk->ik", "ij->ji", "...i,...i->...", "ii", "ij,kl", "i->", "a,->"],
    "pattern": ["h w -> w h", "(h a) w -> h a w", "h w -> (h w)"],
    "indices_or_sections": [1, 2, 3, [1], [1, 2]],
    "start_indices": [[0], [0, 0], [1, 1], [0, 1, 0]],
    "sequence_length": [1, 2, 4],
    "sequence_stride": [1, 2],
    "fft_length": [1, 2, 4, 8],
    "window": ["hann", "hamming", None],
    "size": [[2, 2], [3, 5], 4],
    "output_size": [1, 2, [2, 2]],
    "interpolation": ["bilinear", "nearest", "bicubic", "lanczos3"],
    "fill_mode": ["constant", "nearest", "reflect", "wrap"],
    "order": [0, 1, 2],
    "k": [0, 1, 2, -1],
    "N": [0, 1, 3],
    "M": [0, 1, 3],
    "n": [0, 1, 2],
    "num": [0, 1, 3],
    "axes": [0, 1, 2, [0], [1, 0], [[0], [0]]],
    "axis": [0, 1, -1, 2, -2, None, [0, 1], [0], 1, 0],
    "num_segments": [1, 3, 8],
    "q": [0.5, [0.1, 0.9], 50],
    "ord": [None, 1, 2, "fro"],
    "shape": [[2, 3], [6], [-1], [3, 2, 1], []],
    "newshape": [[-1], [6], [2, -1], [3, 2]],
    "block_size": [1, 2],
    "index": [0, 1],
}
# Shapes that fit together, for ops that would refuse nearly all others.
_FITTING: dict[str, list[list[list[int]]]] = {
    "conv": [[[2, 5, 4, 2], [2, 3, 2, 3]], [[1, 6, 3], [2, 3, 2]], [[2, 0, 4, 2], [1, 1, 2, 3]]],
    "conv_transpose": [[[2, 3, 4, 2], [2, 3, 3, 2]], [[1, 4, 3], [2, 2, 3]]],
    "depthwise_conv": [[[2, 5, 4, 2], [2, 3, 2, 2]], [[1, 6, 3], [2, 3, 1]]],
    "separable_conv": [[[2, 5, 4, 2], [2, 2, 2, 1], [1, 1, 2, 3]]],
    "max_pool": [[[2, 5, 4, 2]], [[2, 5, 3]], [[1, 3, 3, 3, 1]], [[0, 4, 4, 1]]],
    "average_pool": [[[2, 5, 4, 2]], [[2, 5, 3]], [[1, 3, 3, 3, 1]], [[2, 4, 4, 0]]],
    "adaptive_max_pool": [[[2, 5, 4, 2]], [[2, 5, 3]]],
    "adaptive_average_pool": [[[2, 5, 4, 2]], [[2, 5, 3]]],
    "matmul": [[[2, 3], [3, 4]], [[5, 2, 3], [3, 1]], [[0, 3], [3, 2]], [[2, 0], [0, 3]]],
    "dense": [[[2, 3], [3, 4], [4]]],
    "dot_product_attention": [[[2, 3, 2, 4]] * 3, [[1, 5, 4, 2], [1, 2, 2, 2], [1, 2, 2, 2]]],
    "lstm_sequence": [[[2, 3, 8], [2, 2], [2, 2], [2, 8]]],
    "gru_sequence": [[[2, 3, 6], [2, 2], [2, 6]]],
    "batch_normalization": [[[4, 3], [3], [3]]],
    "solve": [[[3, 3], [3, 2]], [[2, 3, 3], [2, 3]]],
    "inv": [[[3, 3]], [[2, 2, 2]], [[0, 0]]],
    "det": [[[3, 3]]],
    "cholesky": [[[2, 2]]],
    "qr": [[[3, 2]], [[2, 3]]],
    "ctc_loss": [[[2, 3], [2, 5, 4], [2], [2]]],
    "sparse_categorical_crossentropy": [[[4], [4, 3]]],
    "categorical_crossentropy": [[[4, 3], [4, 3]]],
    "binary_crossentropy": [[[4, 3], [4, 3]]],
    "scatter": [[[3, 1], [3]], [[2, 2], [2]]],
    "scatter_update": [[[5], [2, 1], [2]], [[3, 4], [2, 2], [2]], [[3, 4], [2, 1], [2, 4]]],
    "slice_update": [[[4, 3], [2, 2]]],
    "take_along_axis": [[[3, 4], [3, 2]], [[5], [2]]],
    "rearrange": [[[4, 3]]],
    "fft": [[[2, 4], [2, 4]]],
    "einsum": [[[2, 3], [3, 2]], [[3, 3]]],
}


def functions() -> dict[str, Any]:
    """The ops by name, those of images, linear algebra and random-free networks included."""
    import kerascnn.ops as ops

    found = {}
    for prefix, place in (("", ops), ("image.", getattr(ops, "image", None))):
        for name in sorted(getattr(place, "__all__", ())):
            function = getattr(place, name)
            if inspect.isfunction(function) and name not in _LEFT_OUT:
                found[prefix + name] = function
    return found


@functools.cache
def _parameters() -> dict[str, tuple[inspect.Parameter, ...]]:
    return {n: tuple(inspect.signature(f).parameters.values()) for n, f in functions().items()}


def _array(rng: Random, shape: list[int], name: str) -> dict[str, Any]:
    kinds = ("int32", "int64", "int32", "uint8", "float32") if name in _INTEGERS else _DTYPES
    return {
        "shape": shape,
        "dtype": rng.choice(kinds),
        "layout": rng.choice(_LAYOUTS),
        "seed": rng.randrange(1 << 30),
        "special": rng.random() < 0.1,
    }


def _any_shape(rng: Random, base: list[int]) -> list[int]:
    kind = rng.randrange(6)
    if kind < 3:
        return list(base)
    if kind == 3 and base:
        return base[rng.randrange(len(base)) :]
    if kind == 4:
        return [rng.choice([1, n]) for n in base]
    return [rng.choice([0, 1, 2, 3, 5]) for _ in range(rng.randrange(5))]


def draw(rng: Random) -> dict[str, Any]:
    """A random call: {"op", "arguments"}, where arrays are {"array": description}."""
    parameters = _parameters()
    op = rng.choice(list(parameters))
    base = [rng.choice([0, 1, 2, 3, 3, 4]) for _ in range(rng.choice([0, 1, 2, 2, 2, 3, 4]))]
    fitting = list(rng.choice(_FITTING[op])) if op in _FITTING and rng.random() < 0.8 else []
    arguments: dict[str, Any] = {}
    for parameter in parameters[op]:
        name, default = parameter.name, parameter.default
        if parameter.kind == parameter.VAR_KEYWORD or name in ("sparse", "ragged"):
            continue
        is_needed = default is parameter.empty
        if not is_needed and rng.random() < 0.55:
            continue
        if name in _MANY or parameter.kind == parameter.VAR_POSITIONAL:
            shapes = fitting or [_any_shape(rng, base) for _ in range(rng.choice([0, 1, 2, 3]))]
            value: Any = [{"array": _array(rng, s, name)} for s in shapes]
        elif name in _TENSORS and (is_needed or name in _OPTIONAL_TENSORS):
            shape = fitting.pop(0) if fitting else _any_shape(rng, base)
            value = {"array": _array(rng, shape, name)}
        elif name in _VALUES:
            value = rng.choice(_VALUES[name])
        elif isinstance(default, bool):
            value = not default
        elif isinstance(default, float):
            value = rng.choice([0.0, 0.1, 2.5, -1.0])
        else:
            value = rng.choice([0, 1, 2, 3, -1])
        wild = 0.04 if isinstance(value, (dict, list)) and str(value).count("array") else 0.12
        if rng.random() < wild:
            value = rng.choice(_WILD)
        arguments[name] = value
    return {"op": op, "arguments": arguments}


def split(call: dict[str, Any]) -> tuple[list[Any], Any]:
    """The arrays of a call, and a function that puts others, as many, in their place and calls."""
    arrays: list[Any] = []

    def taken(value: Any) -> Any:
        if isinstance(value, dict) and "array" in value:
            spec = value["array"]
            array = make_array(spec)
            arrays.append(array)
            return len(arrays) - 1, None
        if isinstance(value, list) and any(isinstance(v, dict) and "array" in v for v in value):
            return [taken(v) for v in value]
        return (None, value)

    places = {name: taken(value) for name, value in call["arguments"].items()}

    def put(place: Any, given: Any) -> Any:
        if isinstance(place, list):
            return [put(p, given) for p in place]
        number, value = place
        return value if number is None else given[number]

    function = functions()[call["op"]]
    kinds = {p.name: p.kind for p in _parameters()[call["op"]]}
    has_many = inspect.Parameter.VAR_POSITIONAL in kinds.values()

    def run(*given: Any) -> Any:
        positional: list[Any] = []
        named = {}
        for name, place in places.items():
            value = put(place, given)
            if kinds[name] == inspect.Parameter.VAR_POSITIONAL:
                positional += value if isinstance(value, list) else [value]
            elif kinds[name] == inspect.Parameter.POSITIONAL_ONLY or (
                has_many and kinds[name] != inspect.Parameter.KEYWORD_ONLY
            ):
                positional.append(value)
            else:
                named[name] = value
        return function(*positional, **named)

    return arrays, run


def leaves(value: Any) -> list[Any]:
    """The numbers of a result, as arrays of NumPy."""
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in leaves(v)]
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in leaves(v)]
    return [np.asarray(value.numpy() if hasattr(value, "numpy") else value)]


# Sums in another order, and fusions that round once where two ops round twice.
_EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


# Their results are drawn, or one of many: of equal singular values, and of what is not finite.
_ANY_RESULT = frozenset(
    _words(
        """
    image.elastic_transform qr svd eigh cholesky cholesky_inverse inv solve solve_triangular
    det slogdet logdet lu_factor pinv lstsq
    """
    )
)


# The axes along which a number that is not finite spreads over the result of a transform.
_TRANSFORMED = {
    **dict.fromkeys(("fft", "rfft", "irfft", "stft", "istft"), (-1,)),
    **dict.fromkeys(("fft2", "ifft2"), (-2, -1)),
}


def difference(
    ours: Any, other: Any, op: str, places: tuple[str, str] = ("at once", "compiled")
) -> str:
    """How results of an op in two places differ; "" where they don't."""
    here, there = places
    a, b = leaves(ours), leaves(other)
    if len(a) != len(b):
        return f"{len(b)} results {there}, {len(a)} {here}"
    for x, y in zip(a, b, strict=True):
        if op == "bincount" and y.ndim:
            x = x[..., : y.shape[-1]]  # compiled it gives just `minlength` counts, as documented
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"{y.dtype} {y.shape} {there}, {x.dtype} {x.shape} {here}"
        if op in _ANY_RESULT:
            continue  # tests/api/test_ops_matrices.py compares values
        if x.dtype.kind not in "fVc" and x.dtype.name != "bfloat16":
            if not np.array_equal(x, y):
                return f"{y.reshape(-1)[:5]} {there}, {x.reshape(-1)[:5]} {here}"
            continue
        wide, again = x.astype("float64"), y.astype("float64")
        finite = np.abs(wide[np.isfinite(wide)])
        eps = _EPS.get(x.dtype.name, 2.0**-23)
        allowed = 64 * eps * max(1.0, float(finite.max(initial=0.0)))
        with np.errstate(all="ignore"):
            near = np.isclose(again, wide, rtol=64 * eps, atol=allowed, equal_nan=True)
        if op in _TRANSFORMED:
            near |= _not_finite_lines(a, op) & _not_finite_lines(b, op)
        if not near.all():
            return f"{again[~near][:3]} {there}, {wide[~near][:3]} {here} ({x.dtype})"
    return ""


def _not_finite_lines(parts: list[Any], op: str) -> Any:
    """Which lines of a transform, as axes of 1, have a number that is not finite in some part.

    Libraries multiply such a number by 0 or leave the product out; so which others of its line are
    NaN is known of none of them.
    """
    found = np.zeros((), bool)
    for part in parts:
        bad = ~np.isfinite(part.astype("float64"))
        found = found | bad.any(axis=_TRANSFORMED[op], keepdims=True)
    return found
