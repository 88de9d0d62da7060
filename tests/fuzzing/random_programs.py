"""Random programs of ops, which give the same at once, compiled, in regions and on other devices.

A program is a dictionary that JSON can hold: descriptions of its input arrays, and calls, each of
an op on values. Values are the inputs and then what the calls gave. While a program is drawn it
runs at once, so that each call fits the shapes, dtypes and sizes of the values that are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from .op_calls import make_array

_FLOATS = ("float32", "float32", "float32", "float64", "float16", "bfloat16")
_INTEGERS = ("int32", "int64", "int8", "uint8", "bool")
_LAYOUTS = ("plain", "plain", "strided", "reversed", "transposed", "broadcast")
_EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
_LARGEST_SIZE = 50_000
_LARGEST_VALUE = 1e3  # no sum or product of values under it overflows in float16 by surprise

_SMOOTH = [
    "tanh",
    "sin",
    "cos",
    "sigmoid",
    "negative",
    "square",
    "softplus",
    "silu",
    "erf",
    "expm1",
    "arctan",
    "softsign",
]
_JUMPS = frozenset({"sign", "floor", "round", "trunc", "argmax", "argmin", "argsort"})
_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


class Value:
    """What is known of a value.

    Attributes:
        array: What it was at once.
        exact: Whether no rounding is in it, so that a function that jumps gives the same anywhere.
    """

    def __init__(self, array: Any, exact: bool) -> None:
        self.array, self.exact = np.asarray(array), exact
        self.shape, self.dtype = self.array.shape, self.array.dtype.name
        self.is_float = self.dtype in _EPS
        finite = self.array.size and self.is_float
        self.largest = float(np.abs(self.array.astype("float64")).max()) if finite else 0.0


Call = dict[str, Any]


def _unary(rng: Random, values: list[Value], smooth: bool) -> Call | None:
    i = rng.randrange(len(values))
    x = values[i]
    if not x.is_float:
        return {"op": rng.choice(["negative", "square", "abs", "sign"]), "of": [i]}
    names = [*_SMOOTH, *([] if smooth else ["relu", "abs", "relu6", "leaky_relu", *_JUMPS])]
    name = rng.choice([n for n in names if not n.startswith("arg")])
    if name in _JUMPS and not x.exact:
        return None
    if name in ("square", "expm1") and x.largest > 5:
        name = "tanh"
    return {"op": name, "of": [i]}


def _partner(rng: Random, values: list[Value], i: int) -> int | None:
    """A value that broadcasts with another."""
    fitting = []
    for j, other in enumerate(values):
        try:
            np.broadcast_shapes(values[i].shape, other.shape)
        except ValueError:
            continue
        fitting.append(j)
    return rng.choice(fitting) if fitting else None


def _binary(rng: Random, values: list[Value], smooth: bool) -> Call | None:
    i = rng.randrange(len(values))
    j = _partner(rng, values, i)
    if j is None:
        return None
    a, b = values[i], values[j]
    if a.exact and b.exact and not smooth and rng.random() < 0.3:
        return {"op": rng.choice(_COMPARISONS), "of": [i, j]}
    names = ["add", "subtract", "multiply", *([] if smooth else ["maximum", "minimum"])]
    if not a.is_float and not b.is_float and a.dtype != "bool" and b.dtype != "bool":
        names += ["bitwise_and", "bitwise_or", "bitwise_xor", "floor_divide", "mod"]
    return {"op": rng.choice(names), "of": rng.sample([i, j], 2)}


def _where(rng: Random, values: list[Value], _: bool) -> Call | None:
    conditions = [i for i, v in enumerate(values) if v.dtype == "bool"]
    if not conditions:
        return None
    c = rng.choice(conditions)
    i = _partner(rng, values, c)
    j = None if i is None else _partner(rng, values, i)
    return None if i is None or j is None else {"op": "where", "of": [c, i, j]}


def _reduction(rng: Random, values: list[Value], smooth: bool) -> Call | None:
    i = rng.randrange(len(values))
    x = values[i]
    rank = len(x.shape)
    names = ["sum", "mean", "var", "logsumexp", *([] if smooth else ["max", "min", "std", "amax"])]
    if not x.is_float:
        names = ["sum", "max", "min", "any", "all", "mean", "count_nonzero"]
    elif x.exact and not smooth:
        names += ["argmax", "argmin"]
    name = rng.choice(names)
    axis: Any = rng.choice([None, *range(-rank, rank)])
    if rank > 1 and rng.random() < 0.3 and not name.startswith("arg"):
        axis = rng.sample(range(rank), rng.randint(1, rank))
    keywords: dict[str, Any] = {"axis": axis}
    if name != "count_nonzero":
        keywords["keepdims"] = rng.random() < 0.5
    return {"op": name, "of": [i], "with": keywords}


def _along(rng: Random, values: list[Value], smooth: bool) -> Call | None:
    """Functions along one axis."""
    i = rng.randrange(len(values))
    x = values[i]
    if not x.shape:
        return None
    axis = rng.randrange(-len(x.shape), len(x.shape))
    names = ["cumsum", "flip", *([] if smooth else ["sort"])]
    if x.is_float:
        names += ["softmax", "log_softmax", "softmax"]
    name = rng.choice(names)
    return {"op": name, "of": [i], "with": {"axis": axis}}


def _movement(rng: Random, values: list[Value], _: bool) -> Call | None:
    i = rng.randrange(len(values))
    x = values[i]
    rank, shape = len(x.shape), x.shape
    kind = rng.randrange(11)
    if kind == 0:
        factors = [n for n in range(1, x.array.size + 1) if x.array.size % n == 0] or [0]
        first = rng.choice(factors)
        rest = x.array.size // first if first else 0
        to = rng.choice([[-1], [first, rest], [rest, first, 1]]) if x.array.size else [0]
        return {"op": "reshape", "of": [i], "with": {"newshape": to}}
    if kind == 1:
        return {"op": "transpose", "of": [i], "with": {"axes": rng.sample(range(rank), rank)}}
    if kind == 2:
        return {"op": "expand_dims", "of": [i], "with": {"axis": rng.randint(-rank - 1, rank)}}
    if kind == 3:
        width = [[rng.randint(0, 2), rng.randint(0, 2)] for _ in shape]
        mode = rng.choice(["constant", "constant", "reflect", "symmetric"])
        return {"op": "pad", "of": [i], "with": {"pad_width": width, "mode": mode}}
    if kind == 4:
        starts = [rng.randint(0, n) for n in shape]
        sizes = [rng.randint(0, n - s) for n, s in zip(shape, starts, strict=True)]
        return {"op": "slice", "of": [i], "with": {"start_indices": starts, "shape": sizes}}
    if kind == 5:
        alike = [j for j, v in enumerate(values) if v.shape[1:] == shape[1:] and v.shape]
        if not shape:
            return None
        of = [i, *(rng.choice(alike) for _ in range(rng.choice([1, 2])))]
        return {"op": "concatenate", "of": of, "many": True, "with": {"axis": 0}}
    if kind == 6:
        alike = [j for j, v in enumerate(values) if v.shape == shape]
        of = [i, *(rng.choice(alike) for _ in range(rng.choice([1, 2])))]
        return {
            "op": "stack", "of": of, "many": True, "with": {"axis": rng.randint(-rank - 1, rank)}
        }  # fmt: skip
    if kind == 7 and rank and shape[0]:
        picks = [rng.randrange(-shape[0], shape[0]) for _ in range(rng.randint(0, 4))]
        return {"op": "take", "of": [i], "with": {"indices": picks, "axis": 0}}
    if kind == 8:
        return {"op": "broadcast_to", "of": [i], "with": {"shape": [rng.randint(0, 3), *shape]}}
    if kind == 9 and rank:
        keywords = {"shift": rng.randint(-4, 4), "axis": rng.randrange(rank)}
        return {"op": "roll", "of": [i], "with": keywords}
    return {"op": "tile", "of": [i], "with": {"repeats": [rng.randint(1, 2) for _ in shape]}}


def _product(rng: Random, values: list[Value], smooth: bool) -> Call | None:
    i = rng.randrange(len(values))
    x = values[i]
    if not x.is_float or not x.shape:
        return None
    rank, last = len(x.shape), x.shape[-1]
    if rank == 4 and rng.random() < 0.7 and last:
        kind = rng.randrange(4 if not smooth else 3)
        keywords = {"strides": rng.randint(1, 2), "padding": rng.choice(["valid", "same"])}
        if kind >= 2:
            name = "average_pool" if kind == 2 else "max_pool"
            size = rng.randint(1, 2)
            return {"op": name, "of": [i], "with": {"pool_size": size, **keywords}}
        shape = [rng.randint(1, 3), rng.randint(1, 3), last, rng.randint(1, 3)]
        kernel = {"shape": shape, "dtype": x.dtype, "seed": rng.randrange(1 << 30)}
        name = "conv" if kind == 0 else "depthwise_conv"
        return {"op": name, "of": [i], "constants": [kernel], "with": keywords}
    kernel = {
        "shape": [last, rng.randint(1, 5)] if rank > 1 or rng.random() < 0.5 else [last],
        "dtype": x.dtype,
        "seed": rng.randrange(1 << 30),
    }
    return {"op": "matmul", "of": [i], "constants": [kernel]}


def _normalization(rng: Random, values: list[Value], _: bool) -> Call | None:
    i = rng.randrange(len(values))
    x = values[i]
    if not x.is_float or not x.shape or not x.shape[-1]:
        return None
    return {"op": "layer_normalization", "of": [i], "with": {"axis": -1, "epsilon": 0.1}}


def _cast(rng: Random, values: list[Value], smooth: bool) -> Call | None:
    i = rng.randrange(len(values))
    x = values[i]
    names = list(_EPS) if smooth or not x.exact or x.is_float else [*_EPS, *_INTEGERS]
    if x.dtype == "float64" and smooth:
        names = ["float64", "float32"]
    return {"op": "cast", "of": [i], "with": {"dtype": rng.choice(names)}}


def _control(rng: Random, values: list[Value], _: bool) -> Call | None:
    """A loop or a choice, whose body is a few functions that keep shape and dtype."""
    i = rng.randrange(len(values))
    x = values[i]
    if not x.is_float:
        return None
    body = [
        rng.choice(["tanh", "sin", "half", "add", "multiply"]) for _ in range(rng.randint(1, 4))
    ]
    same = [j for j, v in enumerate(values) if v.shape == x.shape and v.dtype == x.dtype]
    call: Call = {"of": [i, rng.choice(same)], "body": body}
    kind = rng.randrange(4)
    if kind == 0:
        return {**call, "op": "fori_loop", "times": rng.choice([0, 1, 2, 5])}
    if kind == 1:
        return {**call, "op": "while_loop", "times": rng.choice([0, 1, 3])}
    if kind == 2 and x.shape:
        return {**call, "op": "scan", "reverse": rng.random() < 0.4}
    return {**call, "op": "cond", "limit": rng.choice([-1e9, 1e9])}


_DRAWERS: list[tuple[Callable[..., Call | None], int]] = [
    (_unary, 5),
    (_binary, 6),
    (_where, 2),
    (_reduction, 5),
    (_along, 3),
    (_movement, 6),
    (_product, 3),
    (_normalization, 1),
    (_cast, 2),
    (_control, 1),
]


def _input(rng: Random, shape: list[int], smooth: bool) -> dict[str, Any]:
    while math.prod(shape) > _LARGEST_SIZE:
        shape = shape[1:]
    kinds = _FLOATS if smooth or rng.random() < 0.7 else _INTEGERS
    return {
        "shape": shape,
        "dtype": rng.choice(kinds),
        "layout": rng.choice(_LAYOUTS),
        "seed": rng.randrange(1 << 30),
    }


def draw(rng: Random) -> dict[str, Any]:
    """A random program. With "gradient" it has only functions without kinks and jumps."""
    smooth = rng.random() < 0.4
    sizes = rng.choice([[1, 2, 3, 4], [1, 2, 3, 5, 7], [0, 1, 2, 3], [1, 8, 16, 33], [1, 3, 130]])
    base = [rng.choice(sizes) for _ in range(rng.choice([0, 1, 2, 2, 3, 4]))]
    inputs = [_input(rng, base, smooth)]
    for _ in range(rng.choice([0, 1, 2, 3])):
        other = [n if rng.random() < 0.8 else 1 for n in base]
        inputs.append(_input(rng, other[rng.randrange(len(base) + 1) :], smooth))
    program: dict[str, Any] = {"inputs": inputs, "calls": [], "gradient": smooth}
    values = [Value(make_array(spec), True) for spec in inputs]
    drawers, weights = zip(*_DRAWERS, strict=True)
    for _ in range(rng.choice([1, 3, 5, 8, 12, 20])):
        (drawer,) = rng.choices(drawers, weights)
        # new values are taken more often
        near = values if rng.random() < 0.4 else values[-4:]
        call = drawer(rng, near, smooth)
        if call is None:
            continue
        call["of"] = [n + len(values) - len(near) for n in call["of"]]
        found = _tried(call, values)
        if found is not None:
            program["calls"].append(call)
            values.append(found)
    return program


def _tried(call: Call, values: list[Value]) -> Value | None:
    """The value of a call, None where it is refused, or too large for later calls."""
    try:
        result = apply(call, [values[n].array for n in call["of"]]).numpy()
    except (ValueError, TypeError, IndexError, NotImplementedError):
        return None
    exact = all(values[n].exact for n in call["of"]) and not call.get("constants")
    is_float = result.dtype.name in _EPS
    moves = call["op"] in (
        *("reshape", "transpose", "expand_dims", "pad", "slice", "concatenate", "stack", "take"),
        *("broadcast_to", "roll", "tile", "flip", "max", "min", "amax", "sort", "relu", "abs"),
        *("negative", "where", "maximum", "minimum", "sign", "floor", "round", "trunc", "relu6"),
    )
    found = Value(result, exact and (moves or not is_float))
    if result.size > _LARGEST_SIZE or found.largest > _LARGEST_VALUE:
        return None
    return found if not is_float or np.isfinite(result.astype("float64")).all() else None


def _step(body: list[str], x: Any, other: Any) -> Any:
    from kerascnn import ops

    for name in body:
        if name == "half":
            x = ops.multiply(x, 0.5)
        elif name in ("add", "multiply"):
            x = ops.multiply(ops.tanh(getattr(ops, name)(x, other)), 0.75)
        else:
            x = getattr(ops, name)(x)
    return x


def _applied_control(call: Call, x: Any, other: Any) -> Any:
    from kerascnn import ops

    body, op = call["body"], call["op"]
    if op == "fori_loop":
        return ops.fori_loop(0, call["times"], lambda _, c: _step(body, c, other), x)
    if op == "while_loop":
        return ops.while_loop(
            lambda n, _: n < call["times"],
            lambda n, c: (n + 1, _step(body, c, other)),
            (0, x),
            maximum_iterations=4,  # gradients need to know how often
        )[1]
    if op == "scan":

        def step(carry: Any, row: Any) -> Any:
            carry = _step(body, carry, row)
            return carry, carry

        return ops.scan(step, ops.zeros_like(x[0]), x, reverse=call["reverse"])[1]
    return ops.cond(
        ops.max(x) < call["limit"] if np.prod(x.shape) else ops.equal(1, 1),
        lambda: _step(body, x, other),
        lambda: other,
    )


def apply(call: Call, given: list[Any]) -> Any:
    """Calls an op on values."""
    from kerascnn import ops

    if "body" in call:
        return _applied_control(call, *[ops.convert_to_tensor(x) for x in given])
    constants = [make_array({"layout": "plain", **spec}) for spec in call.get("constants", ())]
    keywords = call.get("with", {})
    function = getattr(ops, call["op"])
    if call.get("many"):
        return function(given, **keywords)
    return function(*given, *constants, **keywords)


def run(program: dict[str, Any], given: list[Any]) -> list[Any]:
    """What the calls of a program give for its inputs."""
    values = list(given)
    for call in program["calls"]:
        values.append(apply(call, [values[n] for n in call["of"]]))
    return values[len(given) :]


def gradients(program: dict[str, Any], given: list[Any]) -> list[Any]:
    """The gradients of the mean of all float values by the inputs that are floats."""
    import kerascnn
    from kerascnn import ops

    with kerascnn.GradientTape() as tape:
        sources = [x for x in given if str(x.dtype) in _EPS]
        tape.watch(sources)
        found = [v for v in run(program, given) if str(v.dtype) in _EPS and 0 not in v.shape]
        total = sum((ops.mean(ops.cast(v, "float64")) for v in found), ops.zeros((), "float64"))
    return [
        ops.zeros_like(x) if g is None else g
        for x, g in zip(sources, tape.gradient(total, sources), strict=True)
    ]


def inputs_of(program: dict[str, Any]) -> list[Any]:
    return [make_array(spec) for spec in program["inputs"]]


def difference(program: dict[str, Any], ours: list[Any], others: list[Any]) -> str:
    """How values differ by more than rounding; "" where they don't.

    A rounding of the narrowest dtype of the program, in the largest number, is carried on by each
    call that comes later, at most some times larger.
    """
    arrays = [np.asarray(x) for x in ours]
    names = {spec["dtype"] for spec in program["inputs"]} | {a.dtype.name for a in arrays}
    # gradients come through values that are not among them
    names |= {call["with"]["dtype"] for call in program["calls"] if call["op"] == "cast"}
    eps = max((_EPS[n] for n in names if n in _EPS), default=0.0)
    largest = 1.0
    for number, (a, b) in enumerate(zip(arrays, map(np.asarray, others), strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"value {number}: {b.dtype} {b.shape}, at once {a.dtype} {a.shape}"
        if a.dtype.name not in _EPS:
            if not np.array_equal(a, b):
                return f"value {number}: {b.reshape(-1)[:4]}, at once {a.reshape(-1)[:4]}"
            continue
        x, y = a.astype("float64"), b.astype("float64")
        largest = max(largest, float(np.abs(x).max(initial=0.0)))
        allowed = 64 * eps * largest * (1 + number)
        if not np.allclose(y, x, rtol=64 * eps, atol=allowed, equal_nan=True):
            far = float(np.abs(x - y).max())
            return f"value {number}: {far:.3g} apart, {allowed:.3g} allowed ({a.dtype} {a.shape})"
    return ""
