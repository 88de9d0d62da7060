"""Random calls of ops, and of programs of several ops, against NumPy in float64.

A call is a dictionary that JSON can hold, so that the corpus has calls that failed once. Arrays are
drawn from a seed in it, in any dtype, layout and byte order, with sizes of zero too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

_FLOATS = ("float32", "float32", "float64", "float16", "bfloat16")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "bool")
_LAYOUTS = ("plain", "strided", "reversed", "transposed", "broadcast", "big_endian", "unaligned")
_WILD = (-5, 7, 2**31, -(2**31) - 1, 2**62, 2**63, -(2**64), 1.5, "x", None, True, [0, 0], [[1]])


def _words(text: str) -> list[str]:
    return text.split()


_UNARY = _words(
    """
    abs ceil floor square sign negative sqrt exp expm1 log1p sin cos tanh arctan sinh cosh
    round isnan isinf isfinite logical_not reciprocal trunc exp2 arcsinh cbrt signbit
    rad2deg sinc
    """
)
_BINARY = _words(
    """
    add subtract multiply maximum minimum equal not_equal less less_equal greater
    greater_equal logical_and logical_or logical_xor arctan2 hypot logaddexp
    """
)
_INTEGER_BINARY = ["bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm"]
_REDUCTIONS = _words(
    """
    sum prod mean max min any all var std argmax argmin median count_nonzero nansum nanmax
    ptp
    """
)
_SCANS = ["cumsum", "cumprod", "sort", "flip"]
# Results of these jump, so that rounding of narrow numbers may give the neighbor.
_JUMPS = frozenset({"ceil", "floor", "round", "trunc", "sign", "equal", "not_equal", "less"})


def make_array(spec: dict[str, Any]) -> Any:
    """The array of a description: small numbers, at times NaN and infinity."""
    import ml_dtypes

    rng = np.random.default_rng(spec["seed"])
    name, layout, shape = spec["dtype"], spec["layout"], tuple(spec["shape"])
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    drawn = shape
    if layout == "strided" and shape:
        drawn = (*shape[:-1], shape[-1] * 2)
    elif layout == "transposed":
        drawn = shape[::-1]
    elif layout == "broadcast" and shape:
        drawn = (1, *shape[1:])
    if name == "bool":
        array = rng.integers(0, 2, drawn).astype(dtype)
    elif dtype.kind in "iu":
        array = rng.integers(0 if dtype.kind == "u" else -4, 5, drawn).astype(dtype)
    else:
        array = np.asarray(rng.uniform(-3, 3, drawn)).astype(dtype)
        if spec.get("special") and array.size:
            array.reshape(-1)[rng.integers(array.size)] = rng.choice(
                [np.nan, np.inf, -np.inf, -0.0]
            )
    if layout == "strided" and shape:
        return array[..., ::2]
    if layout == "reversed" and shape:
        return array[::-1]
    if layout == "transposed":
        return array.T
    if layout == "broadcast" and shape:
        return np.broadcast_to(array, shape)
    if layout == "big_endian" and name != "bfloat16":
        return array.astype(dtype.newbyteorder(">"))
    if layout == "unaligned" and array.size:
        raw = np.empty(array.nbytes + 1, np.uint8)[1:]
        raw[:] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        return raw.view(dtype).reshape(shape)
    return array


def _shape(rng: Random, rank: int | None = None) -> list[int]:
    rank = rng.choice([0, 1, 1, 2, 2, 3, 4]) if rank is None else rank
    return [rng.choice([0, 1, 1, 2, 3, 4, 5, 7]) for _ in range(rank)]


def _array(rng: Random, shape: list[int] | None = None, dtypes: Any = None) -> dict[str, Any]:
    dtypes = dtypes or rng.choice([_FLOATS, _FLOATS, _INTEGERS])
    return {
        "shape": _shape(rng) if shape is None else shape,
        "dtype": rng.choice(dtypes),
        "layout": rng.choice(_LAYOUTS),
        "seed": rng.randrange(1 << 30),
        "special": rng.random() < 0.1,
    }


def _axis(rng: Random, rank: int) -> Any:
    if rng.random() < 0.12:
        return rng.choice(_WILD)
    return rng.randrange(-rank, rank) if rank else 0


def draw(rng: Random) -> dict[str, Any]:
    """A random call."""
    kind = rng.choice(
        ["unary", "binary", "integers", "reduce", "scan", *["shape"] * 3, "make", "dot"]
    )
    x = _array(rng)
    shape, rank = x["shape"], len(x["shape"])
    call: dict[str, Any] = {"arrays": [x], "kwargs": {}}
    if kind == "unary":
        call["op"] = rng.choice(_UNARY)
        if call["op"] in ("reciprocal", "negative"):
            x["dtype"] = rng.choice(_FLOATS)
    elif kind in ("binary", "integers"):
        call["op"] = rng.choice(_BINARY if kind == "binary" else _INTEGER_BINARY)
        kinds = None if kind == "binary" else ("int8", "int32", "int64", "uint8")
        other = [n if rng.random() < 0.8 else rng.choice([1, n + 1]) for n in shape]
        call["arrays"] = [
            _array(rng, shape, kinds),
            _array(rng, other[rng.randrange(rank + 1) :], kinds),
        ]
    elif kind == "reduce":
        call["op"] = rng.choice(_REDUCTIONS)
        x["special"] = False
        axis = rng.choice([None, _axis(rng, rank)])
        if rank > 1 and rng.random() < 0.2 and not call["op"].startswith("arg"):
            axis = [0, rng.choice([-1, 1, 0])]
        call["kwargs"]["axis"] = axis
        if rng.random() < 0.4:
            call["kwargs"]["keepdims"] = True
    elif kind == "scan":
        call["op"] = rng.choice(_SCANS)
        if call["op"].startswith("cum"):  # narrow integers stay what they are
            x["dtype"] = rng.choice((*_FLOATS, "int32"))
        x["special"] = False
        call["kwargs"]["axis"] = _axis(rng, rank)
    elif kind == "shape":
        _draw_shaping(rng, call)
    elif kind == "make":
        _draw_making(rng, call)
    else:
        x["special"] = False
        if x["dtype"] in ("int8", "uint8", "bool", "int16"):  # sums of integers stay narrow
            x["dtype"] = "int32"
        call["op"] = rng.choice(["matmul", "dot", "outer", "tensordot", "inner", "vdot", "kron"])
        second = [*shape[:-2], *reversed(shape[-2:])] if rng.random() < 0.8 else _shape(rng)
        call["arrays"] = [x, _array(rng, second, [x["dtype"]])]
        call["arrays"][1]["special"] = False
        if call["op"] == "tensordot":
            call["kwargs"]["axes"] = rng.choice(
                [0, 1, 2, [[0], [-1]], [[5], [0]], rng.choice(_WILD)]
            )
    if rng.random() < 0.03 and call["kwargs"]:
        call["kwargs"][rng.choice(list(call["kwargs"]))] = rng.choice(_WILD)
    return call


def _draw_shaping(rng: Random, call: dict[str, Any]) -> None:
    (x,) = call["arrays"]
    shape, rank = x["shape"], len(x["shape"])
    size = math.prod(shape)
    op = rng.choice(
        _words(
            """
            reshape transpose moveaxis swapaxes squeeze expand_dims broadcast_to tile repeat
            roll concatenate stack split take take_along_axis pad diagonal trace tril triu
            argsort where clip rot90 diff ravel unravel_index searchsorted
            """
        )
    )
    call["op"] = op
    wild = [2**31, 2**32, 2**62, -1, -2, 0]
    k: dict[str, Any] = call["kwargs"]
    if op == "reshape":
        k["newshape"] = rng.choice(
            [[-1], [size], shape[::-1], [*shape, 1], [-1, -1], [2**32, 2**32], [0, -1], [size + 1]]
        )
    elif op == "transpose":
        axes = list(range(rank))
        rng.shuffle(axes)
        k["axes"] = rng.choice([axes, None, [0] * rank, [*axes, 0], [a - rank for a in axes]])
    elif op in ("moveaxis", "swapaxes"):
        names = ("source", "destination") if op == "moveaxis" else ("axis1", "axis2")
        k.update({n: _axis(rng, rank) for n in names})
    elif op in ("squeeze", "argsort", "diff", "expand_dims"):
        k["axis"] = _axis(rng, rank + 1 if op == "expand_dims" else rank)
        if op == "argsort":  # equal numbers may come in any order
            x.update(dtype="float64", layout="plain", special=False)
    elif op == "broadcast_to":
        front = rng.choice([[], [1], [3], [2**32, 2**32], [-1], [0], [2**31]])
        k["shape"] = [*front, *shape]
    elif op == "tile":
        k["repeats"] = rng.choice([2, [2, 1], [0], [1, 3, 1], [2**40, 2**40], -1, [1] * 12])
    elif op == "repeat":
        k.update(
            repeats=rng.choice([0, 1, 3, -1, 2**62, [1] * (shape or [1])[0]]), axis=_axis(rng, rank)
        )
    elif op == "roll":
        k.update(shift=rng.choice([0, 1, -3, 100, 2**40, -(2**62)]), axis=_axis(rng, rank))
    elif op in ("concatenate", "stack"):
        other = {**x, "seed": x["seed"] + 1, "layout": rng.choice(_LAYOUTS)}
        if rng.random() < 0.2:
            other["shape"] = _shape(rng)
        call["arrays"] = [x, other, x][: rng.choice([1, 2, 3])]
        k["axis"] = _axis(rng, rank + (op == "stack"))
    elif op == "split":
        k["indices_or_sections"] = rng.choice([1, 2, 3, 0, -1, 10**4, [1, 2], [5, 2], [], [-1]])
        k["axis"] = _axis(rng, rank)
    elif op in ("take", "take_along_axis"):
        axis = _axis(rng, rank)
        length = shape[axis] if type(axis) is int and -rank <= axis < rank else 3
        limit = max(length, 1)
        indexes = {
            "shape": _shape(rng),
            "dtype": "int32",
            "layout": "plain",
            "seed": 1,
            "mod": limit,
        }
        if op == "take_along_axis":
            indexes["shape"] = shape
        call["arrays"].append(indexes)
        k["axis"] = axis
    elif op == "pad":
        k["pad_width"] = rng.choice(
            [1, [[1, 0]] * rank, [[0, 2]], [[-1, 0]] * rank, [[2**40, 2**40]] * rank]
        )
        if rng.random() < 0.3:
            k["mode"] = rng.choice(["constant", "reflect", "symmetric", "nothing"])
    elif op in ("diagonal", "trace"):
        k.update(
            offset=rng.choice([0, 1, -1, 100, *wild]),
            axis1=_axis(rng, rank),
            axis2=_axis(rng, rank),
        )
    elif op in ("tril", "triu"):
        k["k"] = rng.choice([0, 1, -1, 100, *wild])
    elif op == "where":
        call["arrays"] = [{**x, "dtype": "bool"}, _array(rng, shape), _array(rng, shape[-1:])]
    elif op == "clip":
        fraction = x["dtype"] in _FLOATS  # of integers, limits become integers, as in Keras
        k.update(x_min=rng.choice([-1, 0.5, 5]), x_max=rng.choice([1, 2.5, -3]))
        if not fraction:
            k.update(x_min=0, x_max=rng.choice([1, 3]))
    elif op == "rot90":
        k["k"] = rng.choice([0, 1, 2, 3, -1, 7, 2**40])
    elif op == "unravel_index":
        call["arrays"] = [
            {"shape": _shape(rng), "dtype": "int32", "layout": "plain", "seed": 1, "mod": 6}
        ]
        k["shape"] = rng.choice([[2, 3], [6], [1, 2, 3]])
    elif op == "searchsorted":
        call["arrays"] = [_array(rng, [5], ["float32"]), _array(rng, None, ["float32"])]
        for a in call["arrays"]:
            a["special"] = False
        call["arrays"][0]["sorted"] = True


def _draw_making(rng: Random, call: dict[str, Any]) -> None:
    call["arrays"] = []
    sizes = [0, 1, 3, 5, -1, 2**31, 2**40, 2**62, 2**63, 1.5]
    op = call["op"] = rng.choice(
        ["zeros", "ones", "full", "eye", "arange", "linspace", "tri", "identity"]
    )
    k: dict[str, Any] = call["kwargs"]
    if op in ("zeros", "ones", "full"):
        wild = [[2**32, 2**32], [2**31, 2**33, 4], [-1, 2], [2**62, 4], [0, 2**62], [1.5]]
        k["shape"] = rng.choice([_shape(rng), _shape(rng), rng.choice(wild)])
        if op == "full":
            k["fill_value"] = rng.choice([0, 1.5, -2])
        k["dtype"] = rng.choice(["float32", "int8", "bool", "float64"])
    elif op in ("eye", "tri"):
        k.update(N=rng.choice(sizes), k=rng.choice([0, 1, -1, 9]))
        if rng.random() < 0.5:
            k["M"] = rng.choice(sizes)
    elif op == "identity":
        k["n"] = rng.choice(sizes)
    elif op == "arange":
        k.update(
            start=rng.choice([0, -3, 2**62]),
            stop=rng.choice([5, 0, 2**62, 1e300]),
            step=rng.choice([1, 2, -1, 0]),
        )
    else:
        k.update(start=0, stop=rng.choice([1, 5, -2]), num=rng.choice([0, 1, 5, -1, 2**62]))


def inputs_of(call: dict[str, Any]) -> list[Any]:
    found = []
    for spec in call["arrays"]:
        array = make_array({"special": False, **spec})
        if "mod" in spec:
            array = np.abs(array).astype("int32") % spec["mod"]
        found.append(np.sort(array) if spec.get("sorted") else array)
    return found


_MANY = frozenset({"concatenate", "stack"})
_CHANGED = {"newshape": "shape", "x_min": "a_min", "x_max": "a_max"}


def run_here(call: dict[str, Any], arrays: list[Any]) -> Any:
    import kerascnn

    function = getattr(kerascnn.ops, call["op"])
    if call["op"] in _MANY:
        return function(arrays, **call["kwargs"])
    return function(*arrays, **call["kwargs"])


def run_numpy(call: dict[str, Any], arrays: list[Any]) -> Any:
    """The result in float64, None where it is too large to be computed."""
    op, kwargs = call["op"], dict(call["kwargs"])
    numbers = [v for v in kwargs.values() if isinstance(v, (int, float)) and abs(v) > 10**6]
    numbers += [
        n for v in kwargs.values() if isinstance(v, list) for n in _flat(v) if abs(n) > 10**6
    ]
    if numbers and op not in ("roll", "rot90"):
        return None
    logical = op.startswith(("logical", "bitwise")) or op not in _UNARY
    wide = [a.astype(bool if a.dtype == bool and logical else _WIDE[a.dtype.kind]) for a in arrays]
    kwargs = {_CHANGED.get(k, k): tuple(v) if isinstance(v, list) else v for k, v in kwargs.items()}
    if op in ("arctan2", "hypot", "logaddexp"):
        wide = [a.astype("float64") for a in wide]
    function: Callable[..., Any] = getattr(np, op)
    if op == "reshape":
        return np.reshape(wide[0], kwargs["shape"])
    if op == "tile":
        return np.tile(wide[0], kwargs["repeats"])
    if op in ("arange", "linspace"):
        return function(*kwargs.values()) if op == "arange" else function(**kwargs)
    return function(wide, **kwargs) if op in _MANY else function(*wide, **kwargs)


def _flat(value: Any) -> list[float]:
    if isinstance(value, list):
        return [n for v in value for n in _flat(v)]
    return [value] if isinstance(value, (int, float)) else []


def results_differ(call: dict[str, Any], ours: Any, theirs: Any, narrow: str | None = None) -> str:
    """Says how two results differ, "" where they don't."""
    ours = list(ours) if isinstance(ours, (list, tuple)) else [ours]
    theirs = list(theirs) if isinstance(theirs, (list, tuple)) else [theirs]
    if len(ours) != len(theirs):
        return f"{len(ours)} results, expected {len(theirs)}"
    for a, b in zip(ours, theirs, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape:
            return f"shape {a.shape}, expected {b.shape}"
        if a.size == 0:  # beside an axis without elements others may be larger than memory
            continue
        kinds = [
            np.dtype(s["dtype"]).name if s["dtype"] != "bfloat16" else "bfloat16"
            for s in call["arrays"]
        ]
        eps = max([_EPS.get(k, 0.0) for k in (*kinds, str(a.dtype))], default=0.0)
        # a sum or product of n numbers up to 3, or an exponential with its argument's error
        count = max([math.prod(s["shape"]) for s in call["arrays"]] or [1])
        allowed = 16 * eps * (8 + count)
        if a.dtype.kind in "iu" and b.dtype.kind in "iu":
            b = b.astype(a.dtype)  # what does not fit wraps around, as in NumPy
        x, y = a.astype("float64"), b.astype("float64")
        if call["op"] in _JUMPS and eps > 1e-6:
            continue
        with np.errstate(all="ignore"):
            near = np.isclose(x, y, rtol=allowed, atol=allowed, equal_nan=True)
            # what is infinite in the dtype of the result
            near |= np.isinf(x) & (np.abs(y) > _LARGEST.get(str(a.dtype), np.inf))
        if not near.all():
            place = tuple(int(i[0]) for i in np.nonzero(~near)) if x.ndim else ()
            return f"{x[place]!r} at {place}, expected {y[place]!r} (dtype {a.dtype})"
    return ""


_WIDE = {"f": "float64", "V": "float64", "i": "int64", "u": "int64", "b": "int64"}
_EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
_LARGEST = {"float16": 6.5e4, "bfloat16": 3.3e38, "float32": 3.4e38}
