"""Rows of the ops that work on one element at a time."""

from __future__ import annotations

import numpy as np

from .case import (
    INTEGERS,
    Bad,
    Case,
    away_from,
    few_values,
    fixed,
    integers,
    large,
    normal,
    positive,
    row,
    zeros,
)
from .reference import DTYPE_NAMES, ELEMENT_FUNCTIONS

# Each op with two inputs is broadcast in all these ways.
SHAPES = {
    "same": ((5, 7), (5, 7)),
    "scalar": ((3, 5, 2), ()),
    "row": ((6, 5), (5,)),
    "column": ((4, 1), (4, 9)),
    "both": ((3, 1, 5), (4, 1)),
    "crossed": ((2, 1, 3, 1, 2), (1, 4, 1, 5, 2)),
    "one_element": ((1, 1), (1,)),
    "empty": ((0, 3), (3,)),
}


def _generated(*generators_and_shapes):
    """Returns inputs from alternating generators and shapes."""
    generators, shapes = generators_and_shapes[::2], generators_and_shapes[1::2]
    pairs = list(zip(generators, shapes, strict=True))
    return lambda rng: ([generate(rng, *shape) for generate, shape in pairs], {})


def _drawn_shapes(rng):
    """Draws two shapes that can be broadcast to one."""
    full = rng.integers(1, 6, rng.integers(1, 6))
    first, second = (np.where(rng.random(full.size) < 0.4, 1, full) for _ in range(2))
    return tuple(map(int, first)), tuple(map(int, second[rng.integers(0, full.size) :]))


def _binary(op, first, second, **options):
    """Makes the rows of an op; `first` and `second` generate the inputs from a shape."""

    def at(a, b):
        return _generated(first, a, second, b)

    def drawn(rng):
        a, b = _drawn_shapes(rng)
        return [first(rng, *a), second(rng, *b)], {}

    rows = [row(op, id, at(a, b), **options) for id, (a, b) in SHAPES.items()]
    rows.append(row(op, "drawn", drawn, **options))
    rows.append(large(op, at((65_600, 3), (65_600, 1))))
    return rows


def _integer_binary(op, **second_options):
    def make(rng, dtype):
        return [integers(rng, dtype, 4, 5), integers(rng, dtype, 5, **second_options)], {}

    return Case(op, "integers", make, dtypes=INTEGERS, gradient=False)


def _grid(offset):
    """Draws multiples of 0.1 plus an offset; numbers of two grids are never nearly equal."""
    return lambda rng, *shape: rng.integers(-15, 15, shape) * 0.1 + offset


def _halves(offset, low=0.0):
    """Draws multiples of a half of both signs, plus an offset; `low` keeps them away from 0."""

    def draw(rng, *shape):
        size = low + rng.integers(0, 6, shape) * 0.5
        return np.where(rng.random(shape) < 0.5, -size, size) + offset

    return draw


def _bools(rng, *shape):
    return rng.random(shape) < 0.5


def _arithmetic():
    rows = []
    for op in ("add", "subtract", "multiply"):
        rows += [*_binary(op, normal, normal), _integer_binary(op)]
    rows += _binary("divide", normal, positive)
    rows += [*_binary("power", positive, normal), _integer_binary("power", low=0, high=6)]
    for op in ("maximum", "minimum"):
        rows += [*_binary(op, _grid(0.0), _grid(0.05)), _integer_binary(op)]
        nan = np.array([np.nan, 1.0, np.nan, np.inf])
        rows.append(row(op, "nan", fixed([nan, nan[::-1].copy()]), gradient=False))

    def negative_base(rng):
        return [normal(rng, 9), rng.integers(-3, 4, 9).astype(np.float64)], {}

    rows.append(row("power", "negative_base", negative_base, gradient=False))
    rows += _binary("arctan2", _kinks(0.0), _kinks(0.0))
    for op in ("mod", "floor_divide"):
        # The functions jump at integers, and these quotients stay away from them.
        rows += _binary(op, _halves(0.25), _halves(0.0, 1.0))
        rows.append(_integer_binary(op))
        a, b = (x.ravel() for x in np.meshgrid([-7.0, -2.5, 0.0, 2.5, 7.0], [-2.5, 2.0, np.inf]))
        rows.append(row(op, "signs", fixed([a, b]), gradient=False))
        rows.append(
            row(op, "by_zero", fixed([np.array([1.0, -1.0, 0.0]), np.zeros(3)]), gradient=False)
        )
        lowest = [np.array([-(2**63), 2**63 - 1]), np.array([-1, -1])]
        rows.append(
            Case(
                op,
                "lowest",
                lambda rng, dtype, x=lowest: (x, {}),
                dtypes=("int64",),
                gradient=False,
            )
        )
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        rows.append(_integer_binary(op))
    for op in ("left_shift", "right_shift"):
        rows.append(_integer_binary(op, low=0, high=7))
    return rows


def _comparison():
    rows = []
    for op in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        rows += _binary(op, few_values, few_values)
        rows.append(_integer_binary(op))
    for op in ("logical_and", "logical_or"):
        for id, (a, b) in SHAPES.items():
            rows.append(row(op, id, _generated(_bools, a, _bools, b), dtypes=("bool",)))
    rows.append(row("logical_not", "same", lambda rng: ([_bools(rng, 5, 3)], {}), dtypes=("bool",)))
    for id, (a, b) in SHAPES.items():
        rows.append(row("where", id, _generated(_bools, b, normal, a, normal, b)))
    rows.append(
        Case(
            "where",
            "integers",
            lambda rng, dtype: (
                [_bools(rng, 4, 1), integers(rng, dtype, 3), integers(rng, dtype, 4, 3)],
                {},
            ),
            dtypes=INTEGERS,
            gradient=False,
        )
    )
    return rows


def _unary(op, generate, attributes=None, id="", **options):
    """Makes the rows of an op; `generate` gives the input from a shape."""
    attributes = attributes or {}
    shapes = {"vector": (37,), "matrix": (3, 11), "scalar": (), "empty": (2, 0), "one": (1, 1, 1)}
    rows = [
        row(
            op,
            f"{id}{name}",
            lambda rng, shape=shape: ([generate(rng, *shape)], attributes),
            **options,
        )
        for name, shape in shapes.items()
    ]
    rows.append(large(op, lambda rng: ([generate(rng, 65_537 * 3)], attributes), f"{id}large"))
    return rows


def _kinks(*points):
    """Draws numbers off the kinks and above -2.5, since 1 + erf in gelu cancels below that."""
    return lambda rng, *shape: np.maximum(away_from(rng, points, *shape), -2.5)


def inside(rng, *shape):
    """Draws numbers within (-1, 1)."""
    return rng.uniform(-0.9, 0.9, shape)


def _functions():
    rows = [
        *_unary("negative", normal),
        *_unary("absolute", _kinks(0.0)),
        *_unary("sign", _kinks(0.0)),
        *_unary("reciprocal", positive),
        *_unary("square", normal),
        *_unary("sqrt", positive),
        *_unary("rsqrt", positive),
        *_unary("exp", normal),
        *_unary("log", positive),
        *_unary("log1p", positive),
        *_unary("floor", _kinks(-2.0, -1.0, 0.0, 1.0, 2.0)),
        *_unary("ceil", _kinks(-2.0, -1.0, 0.0, 1.0, 2.0)),
        *_unary(
            "round", lambda rng, *shape: rng.integers(-3, 4, shape) + 0.4 * inside(rng, *shape)
        ),
        *_unary("sin", normal),
        *_unary("cos", normal),
        *_unary("tan", inside),
        *_unary("arcsin", inside),
        *_unary("arccos", inside),
        *_unary("arctan", normal),
        *_unary("sinh", normal),
        *_unary("cosh", normal),
        *_unary("arcsinh", normal),
        *_unary("arccosh", lambda rng, *shape: 1.1 + positive(rng, *shape)),
        *_unary("arctanh", inside),
        *_unary("expm1", normal),
        *_unary("erf", normal),
        # Beyond 2.5 the result is so small that float16 has few digits for it.
        *_unary("erfc", lambda rng, *shape: np.clip(normal(rng, *shape), -2.5, 2.5)),
        *_unary("erfinv", inside),
        *_unary("clip", _kinks(-0.5, 0.75), {"min": -0.5, "max": 0.75}),
        *_unary("isfinite", normal),
    ]
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -1.5, 65504.0])
    for op in (
        "isfinite",
        "absolute",
        "sign",
        "square",
        "negative",
        "floor",
        "ceil",
        "round",
        "arctan",
        "arcsinh",
        "erf",
        "erfc",
    ):
        rows.append(row(op, "special", fixed([special]), gradient=False))
    for op in ("negative", "absolute", "sign", "square"):
        rows.append(_integer_unary(op, {}))
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, np.nan, -np.inf])
    rows.append(row("round", "halves", fixed([halves]), gradient=False))
    limits = np.array([1.0, -1.0, 1.5, np.nan, 0.0])
    rows.append(row("erfinv", "limits", fixed([limits]), gradient=False))
    tails = np.array([1 - 2.0**-30, 2.0**-52 - 1, 1e-300, 0.999, -0.99999])
    rows.append(row("erfinv", "tails", fixed([tails]), dtypes=("float64",), gradient=False))
    tails = np.array([1 - 2.0**-24, 2.0**-22 - 1, 1e-30, 0.999, -0.99999], "float32")
    make = fixed([tails.astype("float64")])
    rows.append(row("erfinv", "float32_tails", make, dtypes=("float32",), gradient=False))
    rows.append(_integer_unary("clip", {"min": 2, "max": 7}))
    return rows


def _integer_unary(op, attributes, id="integers", **options):
    def make(rng, dtype):
        return [integers(rng, dtype, 3, 7, **options)], attributes

    return Case(op, id, make, dtypes=INTEGERS, gradient=False)


def _casts():
    def quarters(rng):  # these are exact in every dtype, and the fractions test truncation
        return [rng.integers(0, 400, (4, 5)) / 4]

    rows = []
    for target in DTYPE_NAMES:
        attributes = {"dtype": target}
        rows += [
            row("cast", f"to_{target}", _with(quarters, attributes), gradient=False),
            _integer_unary("cast", attributes, f"integers_to_{target}", low=0),
            row(
                "cast",
                f"bool_to_{target}",
                _with(lambda rng: [_bools(rng, 9)], attributes),
                dtypes=("bool",),
                gradient=False,
            ),
        ]
    # Blocks of 32 elements: with and without what a 32-bit integer can't be, and a part of one.
    mixed = np.arange(-75.0, 75.0).reshape(2, 75)
    mixed[0, 40:43] = [2.0**40, -(2.0**40), 2.0**31]
    for target in ("int64", "int32", "uint8", "int8"):
        make = fixed([mixed], {"dtype": target})
        rows.append(
            row("cast", f"far_to_{target}", make, dtypes=("float32", "float64"), gradient=False)
        )
    to_float64 = {"dtype": "float64"}
    rows.append(row("cast", "same", _with(lambda rng: [normal(rng, 3, 4)], to_float64)))
    rows.append(large("cast", _with(lambda rng: [normal(rng, 65_537, 3)], to_float64)))
    return rows


def _with(generate, attributes):
    return lambda rng: (generate(rng), attributes)


ACTIVATIONS = {
    "relu": {},
    "leaky_relu": {"negative_slope": 0.3},
    "clipped_relu": {"max_value": 0.8},
    "elu": {"alpha": 0.7},
    "sigmoid": {},
    "tanh": {},
    "gelu": {"approximate": False},
    "silu": {},
    "softplus": {},
}
_KINKS = {"relu": (0.0,), "leaky_relu": (0.0,), "clipped_relu": (0.0, 0.8), "elu": (0.0,)}
_USES_INPUT = ("gelu", "silu", "softplus")


def _activations():
    rows = []
    calls = [(op, attributes, "") for op, attributes in ACTIVATIONS.items()]
    calls.append(("gelu", {"approximate": True}, "approximate_"))
    calls.append(("leaky_relu", {"negative_slope": 0.0}, "flat_"))
    for op, attributes, id in calls:
        points = _KINKS.get(op, ())
        rows += _unary(op, _kinks(*points), attributes, id)
        special = np.array([np.nan, 30.0, -30.0, 1000.0, -1000.0])
        rows.append(row(op, f"{id}special", fixed([special], attributes), gradient=False))

        def gradient_call(rng, op=op, attributes=attributes, points=points, shape=(4, 9)):
            # The second input is the activation's output or its input.
            x = away_from(rng, points, *shape)
            if op in _USES_INPUT:
                return [normal(rng, *shape), x], attributes
            y = ELEMENT_FUNCTIONS[op](x, **attributes)
            if op == "clipped_relu":  # the output must not lie at the kinks, 0 and max_value
                y = np.where(x <= 0, -0.2, np.where(x >= 0.8, 1.0, y))
            return [normal(rng, *shape), np.where(y == 0, -0.2, y)], attributes

        rows.append(row(f"{op}_grad", f"{id}matrix", gradient_call))
        rows.append(
            large(
                f"{op}_grad",
                lambda rng, call=gradient_call: call(rng, shape=(65_537, 3)),
                f"{id}large",
            )
        )
        empty = [zeros(0, 2, dtype="float64")] * 2
        rows.append(row(f"{op}_grad", f"{id}empty", fixed(empty, attributes)))
    return rows


CASES = [
    *_arithmetic(),
    *_comparison(),
    *_functions(),
    *_casts(),
    *_activations(),
]


def _bad():
    rows = []
    two, three = zeros(2), zeros(3)
    binary = ("add", "subtract", "multiply", "divide", "power", "maximum", "minimum")
    compare = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    for op in binary + compare:
        rows += [
            Bad(op, [two, three], {}, ValueError, f"{op}: shapes (2,) and (3,) can't be broadcast"),
            Bad(
                op,
                [two, zeros(2, dtype="int32")],
                {},
                TypeError,
                f"{op}: all inputs must have one dtype",
            ),
        ]
    flags = zeros(2, dtype="bool")
    for op in (*binary, "less", "greater"):
        rows.append(
            Bad(
                op,
                [flags, flags],
                {},
                TypeError,
                f"{op}: the first input must be integer or floating",
            )
        )
    whole = zeros(2, dtype="int32")
    rows.append(
        Bad("divide", [whole, whole], {}, TypeError, "divide: the first input must be floating")
    )
    for op in ("logical_and", "logical_or"):
        rows.append(Bad(op, [two, two], {}, TypeError, f"{op}: the first input must be bool"))
    rows += [
        Bad("logical_not", [two], {}, TypeError, "logical_not: the input must be bool"),
        Bad("where", [two, two, two], {}, TypeError, "where: the condition must be bool"),
        Bad("where", [flags, two, whole], {}, TypeError, "where: all inputs must have one dtype"),
        Bad("clip", [two], {"min": 1.0, "max": 0.0}, ValueError, "clip: min must not exceed max"),
        Bad("cast", [two], {"dtype": "complex64"}, TypeError, 'cast: dtype "complex64" is not'),
        Bad("isfinite", [flags], {}, TypeError, "isfinite: the input must be integer or floating"),
        Bad(
            "leaky_relu", [two], {"negative_slope": -1.0}, ValueError, "leaky_relu: negative_slope"
        ),
        Bad("elu", [two], {"alpha": -0.1}, ValueError, "elu: alpha must not be negative"),
        Bad("clipped_relu", [two], {"max_value": 0.0}, ValueError, "clipped_relu: max_value"),
    ]
    for op in ("negative", "absolute", "sign", "square"):
        rows.append(Bad(op, [flags], {}, TypeError, f"{op}: the input must be integer or floating"))
    for op in ("reciprocal", "sqrt", "rsqrt", "exp", "log", "log1p", "floor"):
        rows.append(Bad(op, [whole], {}, TypeError, f"{op}: the input must be floating"))
    for op in (
        "ceil",
        "round",
        "sin",
        "cos",
        "tan",
        "arcsin",
        "arccos",
        "arctan",
        "sinh",
        "cosh",
        "arcsinh",
        "arccosh",
        "arctanh",
        "expm1",
        "erf",
        "erfc",
        "erfinv",
    ):
        rows.append(Bad(op, [whole], {}, TypeError, f"{op}: the input must be floating"))
    rows.append(
        Bad("arctan2", [whole, whole], {}, TypeError, "arctan2: the first input must be floating")
    )
    for op in ("mod", "floor_divide"):
        rows.append(Bad(op, [two, three], {}, ValueError, f"{op}: shapes (2,) and (3,) can't be"))
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"):
        rows.append(Bad(op, [two, two], {}, TypeError, f"{op}: the first input must be integer"))
    for op, attributes in ACTIVATIONS.items():
        rows += [
            Bad(op, [whole], attributes, TypeError, f"{op}: the input must be floating"),
            Bad(
                f"{op}_grad",
                [two, three],
                attributes,
                ValueError,
                f"{op}_grad: all inputs must have one shape",
            ),
        ]
    return rows


BAD = _bad()
