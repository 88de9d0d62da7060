"""Rows of reductions, of ops that move or select elements, and of matrix products."""

from __future__ import annotations

import numpy as np

from .case import (
    INTEGERS,
    Bad,
    Case,
    distinct,
    few_values,
    fixed,
    integers,
    large,
    limits,
    normal,
    positive,
    row,
    zeros,
)
from .reference import REFERENCES


def _of(generate, *shape, **attributes):
    """Makes a call with one input of that shape."""
    return lambda rng: ([generate(rng, *shape)], attributes)


def _softmax():
    axes = {
        "last": ((5, 10), -1),
        "first": ((7, 3), 0),
        "middle": ((3, 6, 4), 1),
        "vector": ((9,), 0),
    }
    axes |= {"one": ((4, 1), 1), "empty": ((0, 3), 1), "image": ((2, 3, 5, 6), 3)}
    rows = []
    for op in ("softmax", "log_softmax"):
        for id, (shape, axis) in axes.items():
            rows.append(row(op, id, _of(normal, *shape, axis=axis)))

            def gradient_call(rng, op=op, shape=shape, axis=axis):
                x = normal(rng, *shape)
                y = REFERENCES[op](x, axis) if x.size else x
                return [normal(rng, *shape), y], {"axis": axis}

            rows.append(row(f"{op}_grad", id, gradient_call))
        big = np.array([[1000.0, 0.0, -1000.0], [-500.0, -500.0, -500.5]])
        rows.append(row(op, "extreme", fixed([big], {"axis": 1}), gradient=False))
        rows.append(row(op, "wide", _of(normal, 3, 5000, axis=1), gradient=False))
        rows.append(large(op, _of(normal, 65_600, 3, axis=1)))
        rows.append(large(op, _of(normal, 3, 65_600, axis=0), "large_inner"))
        rows.append(large(f"{op}_grad", lambda rng: ([normal(rng, 65_600, 3)] * 2, {"axis": 1})))
    return rows


def _drawn_reduction(generate):
    def make(rng):
        shape = rng.integers(1, 6, rng.integers(1, 6))
        axes = rng.permutation(shape.size)[: rng.integers(1, shape.size + 1)]
        signed = [int(axis) - int(rng.integers(2)) * shape.size for axis in axes]
        return [generate(rng, *shape)], {"axes": signed, "keepdims": bool(rng.integers(2))}

    return make


def _reductions():
    calls = {
        "all": ((4, 5), [], False),
        "all_kept": ((4, 5), [], True),
        "rows": ((6, 9), [1], False),
        "columns": ((130, 7), [0], False),
        "channels": ((3, 5, 4, 6), [0, 1, 2], False),
        "spatial": ((3, 5, 4, 6), [1, 2], True),
        "apart": ((3, 5, 4, 2), [0, 2], False),
        "groups": ((2, 9, 3, 5), [1, 3], True),
        "wide_groups": ((3, 150, 2, 40), [1, 3], False),
        "negative": ((3, 5, 4), [-1, 0], False),
        "none_left": ((1, 1, 6), [2], False),
        "scalar": ((), [], False),
        "alternating": ((5, 2, 3, 2, 7), [1, 3], True),
        "alternating_rows": ((2, 3, 2, 5, 2, 3), [0, 2, 4], False),
        "rows_apart": ((3, 2, 17, 2, 19), [0, 2, 4], False),
        "short_rows": ((9, 5, 3), [2], False),
        "long": ((1, 100_003), [1], False),
        "tall": ((100_003, 1), [0], False),
    }
    rows = []
    for op in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min"):
        generate = distinct if op in ("reduce_max", "reduce_min") else normal
        for id, (shape, axes, keepdims) in calls.items():
            is_long = id in ("long", "tall")  # these have one sign, so that nothing cancels
            make = _of(positive if is_long else generate, *shape, axes=axes, keepdims=keepdims)
            rows.append(row(op, id, make, gradient=not is_long))
        rows.append(row(op, "drawn", _drawn_reduction(generate)))
        rows.append(row(op, "empty_result", _of(normal, 3, 0, axes=[0], keepdims=False)))
        rows.append(large(op, _of(normal, 65_600, 3, axes=[1], keepdims=False)))
        rows.append(large(op, _of(normal, 3, 65_600, axes=[0], keepdims=False), "large_inner"))
        rows.append(
            large(op, _of(normal, 2, 3, 65_600, axes=[0, 2], keepdims=False), "large_apart")
        )
        # These have more than 2^20 elements. A GPU reads several outputs' elements in one access,
        # and sums many rows in several blocks.
        for id, shape in {
            "wide": (3, 1031, 344),
            "tall_wide": (8209, 136),
            "flat": (700, 3, 504),
            "many_apart": (1201, 3, 7, 41),  # more blocks than have their places listed
        }.items():
            axes = {2: [0], 3: [1], 4: [0, 2]}[len(shape)]
            make = _of(generate, *shape, axes=axes, keepdims=False)
            dtypes = ("float32", "float16", "bfloat16")
            rows.append(row(op, id, make, dtypes=dtypes, gradient=False))
    rows.append(row("reduce_sum", "of_nothing", _of(normal, 0, 3, axes=[0], keepdims=False)))
    groups = _of(normal, 2, 0, 3, 4, axes=[1, 3], keepdims=False)
    rows.append(row("reduce_sum", "groups_of_nothing", groups))
    # Many numbers have one sign, and a plain float32 loop would lose digits of their sum.
    drift = _of(lambda rng, n: 1.0 + rng.random(n), 2_000_003, axes=[0], keepdims=False)
    rows += [large(op, drift, "drift") for op in ("reduce_sum", "reduce_mean")]
    nan = np.array([[1.0, np.nan, 3.0], [np.nan, 5.0, np.inf]])
    for op in ("reduce_max", "reduce_min"):
        rows.append(row(op, "nan", fixed([nan], {"axes": [1], "keepdims": False}), gradient=False))
    for op in ("reduce_sum", "reduce_max", "reduce_min"):
        make = lambda rng, dtype: (  # noqa: E731
            [integers(rng, dtype, 4, 6)],
            {"axes": [1], "keepdims": False},
        )
        rows.append(Case(op, "integers", make, dtypes=INTEGERS, gradient=False))
    return rows


def _argmax():
    shapes = {
        "last": ((6, 10), -1),
        "first": ((5, 4), 0),
        "middle": ((2, 6, 3), 1),
        "one": ((4, 1), 1),
    }
    rows = [
        row("argmax", id, _of(normal, *shape, axis=axis)) for id, (shape, axis) in shapes.items()
    ]
    rows.append(row("argmax", "ties", _of(few_values, 50, 20, axis=1)))
    rows.append(row("argmax", "empty", _of(normal, 0, 4, axis=1)))
    rows.append(large("argmax", _of(normal, 65_600, 3, axis=1)))
    rows.append(large("argmax", _of(normal, 3, 65_600, axis=0), "large_inner"))
    make = lambda rng, dtype: ([integers(rng, dtype, 4, 30)], {"axis": 1})  # noqa: E731
    rows.append(Case("argmax", "integers", make, dtypes=INTEGERS, gradient=False))
    return rows


def _argsort():
    rows = []
    for descending in (False, True):

        def of(generate, *shape, axis, descending=descending):
            return _of(generate, *shape, axis=axis, descending=descending)

        id = "descending_" if descending else ""
        nan = np.array([[1.0, np.nan, -np.inf, 3.0], [np.nan, 5.0, np.inf, np.nan]])
        both_zeros = np.array([[0.0, -0.0, 1.0, -0.0, 0.0, -1.0] * 20])
        attributes = {"axis": 1, "descending": descending}
        rows += [
            row("argsort", f"{id}last", of(normal, 6, 10, axis=-1)),
            row("argsort", f"{id}first", of(normal, 5, 4, axis=0)),
            row("argsort", f"{id}middle", of(few_values, 2, 33, 3, axis=1)),
            row("argsort", f"{id}one", of(normal, 4, 1, axis=1)),
            row("argsort", f"{id}empty", of(normal, 0, 4, axis=1)),
            row("argsort", f"{id}of_nothing", of(normal, 4, 0, axis=1)),
            row("argsort", f"{id}ties", of(few_values, 5, 700, axis=1)),
            row("argsort", f"{id}long", of(few_values, 2, 2100, 2, axis=1)),
            row("argsort", f"{id}drawn", of(normal, 3, 300, axis=1)),
            row("argsort", f"{id}zeros", fixed([both_zeros], attributes)),
            row("argsort", f"{id}nan", fixed([nan], attributes)),
            large("argsort", of(normal, 65_600, 3, axis=1), f"{id}large"),
            large("argsort", of(normal, 3, 65_600, axis=0), f"{id}large_inner"),
            large("argsort", of(normal, 70_000, axis=0), f"{id}large_axis"),
        ]
        make = lambda rng, dtype, a=attributes: ([integers(rng, dtype, 4, 30)], a)  # noqa: E731
        rows.append(Case("argsort", f"{id}integers", make, dtypes=INTEGERS, gradient=False))
        make = lambda rng, dtype, a=attributes: ([limits(rng, dtype, 2, 90)], a)  # noqa: E731
        rows.append(Case("argsort", f"{id}limits", make, dtypes=INTEGERS, gradient=False))
    return rows


def _moving():
    rows = [
        row("barrier", "matrix", _of(normal, 3, 4)),
        row("barrier", "empty", _of(normal, 0, 4)),
        row("stop_gradient", "matrix", _of(normal, 3, 4), gradient=False),
        row("stop_gradient", "empty", _of(normal, 0, 4), gradient=False),
        row("reshape", "merge", _of(normal, 3, 4, 5, shape=[12, 5])),
        row("reshape", "scalar", _of(normal, 1, 1, shape=[])),
        row("reshape", "empty", _of(normal, 0, 4, shape=[2, 0])),
        row("transpose", "matrix", _of(normal, 5, 7, permutation=[1, 0])),
        row("transpose", "nothing", _of(normal, 5, 7, permutation=[0, 1])),
        row("transpose", "to_channels_first", _of(normal, 2, 5, 4, 3, permutation=[0, 3, 1, 2])),
        row("transpose", "reverse", _of(normal, 2, 3, 4, 5, 2, permutation=[4, 3, 2, 1, 0])),
        row("transpose", "empty", _of(normal, 0, 3, permutation=[1, 0])),
        row("transpose", "tiles", _of(normal, 3, 37, 5, 21, permutation=[2, 3, 0, 1])),
        row("transpose", "tiled_planes", _of(normal, 2, 19, 17, 21, permutation=[0, 3, 1, 2])),
        row("transpose", "tiled_apart", _of(normal, 18, 3, 2, 33, permutation=[3, 1, 2, 0])),
        row("transpose", "big_matrix", _of(normal, 129, 257, permutation=[1, 0]), gradient=False),
        large("transpose", _of(normal, 65_600, 2, 3, permutation=[0, 2, 1])),
        large("transpose", _of(normal, 65_600, 3, permutation=[1, 0]), "large_matrix"),
        row("broadcast_to", "row", _of(normal, 5, shape=[3, 5])),
        row("broadcast_to", "column", _of(normal, 4, 1, shape=[4, 6])),
        row("broadcast_to", "scalar", _of(normal, shape=[2, 3])),
        row("broadcast_to", "middle", _of(normal, 2, 1, 3, shape=[4, 2, 5, 3])),
        row("broadcast_to", "empty", _of(normal, 1, 3, shape=[0, 3])),
        large("broadcast_to", _of(normal, 65_600, 1, shape=[65_600, 3])),
    ]

    def drawn_transpose(rng):
        shape = rng.integers(1, 6, rng.integers(1, 6))
        return [normal(rng, *shape)], {"permutation": [int(i) for i in rng.permutation(shape.size)]}

    rows.append(row("transpose", "drawn", drawn_transpose))
    for op, attributes in (
        ("reshape", {"shape": [6, 2]}),
        ("transpose", {"permutation": [1, 0]}),
        ("broadcast_to", {"shape": [2, 3, 4]}),
    ):
        make = lambda rng, dtype, a=attributes: ([integers(rng, dtype, 3, 4)], a)  # noqa: E731
        rows.append(Case(op, "integers", make, dtypes=INTEGERS, gradient=False))
    return rows


def _concatenate():
    def make(axis, *shapes):
        return lambda rng: ([normal(rng, *shape) for shape in shapes], {"axis": axis})

    return [
        row("concatenate", "rows", make(0, (2, 3), (4, 3))),
        row("concatenate", "columns", make(-1, (3, 2), (3, 1), (3, 4))),
        row("concatenate", "channels", make(3, (2, 3, 3, 2), (2, 3, 3, 5))),
        row("concatenate", "one_input", make(0, (2, 3))),
        row("concatenate", "with_empty", make(1, (2, 0), (2, 3))),
        row("concatenate", "many", make(0, *[(i % 3 + 1, 2) for i in range(40)])),
        large("concatenate", make(1, (65_600, 2), (65_600, 1))),
        Case(
            "concatenate",
            "integers",
            lambda rng, dtype: (
                [integers(rng, dtype, 2, 3), integers(rng, dtype, 1, 3)],
                {"axis": 0},
            ),
            dtypes=INTEGERS,
            gradient=False,
        ),
    ]


def _drawn_slice(rng):
    shape = [int(n) for n in rng.integers(1, 8, rng.integers(1, 5))]
    starts, sizes, strides = [], [], []
    for extent in shape:
        start = int(rng.integers(extent))
        stride = int(rng.choice([-2, -1, 1, 2, 3]))
        room = (extent - 1 - start) // stride if stride > 0 else start // -stride
        starts.append(start)
        strides.append(stride)
        sizes.append(int(rng.integers(0, room + 2)))
    return shape, {"starts": starts, "sizes": sizes, "strides": strides}


def _slices():
    calls = {
        "middle": ((6, 5), [1, 2], [3, 2], [1, 1]),
        "strided": ((7, 9), [0, 1], [4, 3], [2, 3]),
        "reversed": ((5, 3), [4, 0], [5, 3], [-1, 1]),
        "all": ((4, 3), [0, 0], [4, 3], [1, 1]),
        "nothing": ((4, 3), [2, 0], [0, 3], [1, 1]),
        "image": ((2, 6, 5, 3), [0, 1, 1, 0], [2, 4, 3, 3], [1, 1, 1, 1]),
        "large": ((65_600, 3), [1, 0], [65_590, 2], [1, 2]),
    }
    rows = []
    for id, (shape, starts, sizes, strides) in calls.items():
        attributes = {"starts": starts, "sizes": sizes, "strides": strides}
        options = (
            {"gradient": False, "large": True, "dtypes": ("float32",)} if id == "large" else {}
        )
        rows.append(row("slice", id, _of(normal, *shape, **attributes), **options))
        attributes = {**attributes, "input_shape": list(shape)}
        rows.append(row("slice_grad", id, _of(normal, *sizes, **attributes), **options))

    def drawn(rng):
        shape, attributes = _drawn_slice(rng)
        return [normal(rng, *shape)], attributes

    def drawn_grad(rng):
        shape, attributes = _drawn_slice(rng)
        return [normal(rng, *attributes["sizes"])], {**attributes, "input_shape": shape}

    rows += [row("slice", "drawn", drawn), row("slice_grad", "drawn", drawn_grad)]
    ints = lambda rng, dtype: (  # noqa: E731
        [integers(rng, dtype, 5, 4)],
        {"starts": [1, 0], "sizes": [2, 4], "strides": [2, 1]},
    )
    rows.append(Case("slice", "integers", ints, dtypes=INTEGERS, gradient=False))
    return rows


def _indexing():
    # Indices repeat, so that gradients add up; some are outside, and are clamped.
    calls = {
        "rows": ((5, 4), (7,), 0, 0),
        "columns": ((3, 6), (2, 2), 1, 0),
        "last": ((2, 3, 4), (5,), -1, 0),
        "scalar_index": ((4, 3), (), 0, 0),
        "outside": ((4, 3), (9,), 0, 3),
        "none": ((4, 3), (0,), 0, 0),
        "repeated": ((2, 3), (300,), 0, 0),
        "large": ((70_000, 2), (65_600,), 0, 0),
    }
    rows = []
    for id, (shape, count, axis, outside) in calls.items():
        for index_dtype in ("int32", "int64"):
            options = (
                {"gradient": False, "large": True, "dtypes": ("float32",)} if id == "large" else {}
            )
            draw = lambda rng, n=shape[axis], s=count, d=index_dtype, o=outside: rng.integers(  # noqa: E731
                -o, n + o, s
            ).astype(d)

            def make(rng, shape=shape, axis=axis, draw=draw):
                return [normal(rng, *shape), np.asarray(draw(rng))], {"axis": axis}

            def make_grad(rng, shape=shape, count=count, axis=axis, draw=draw):
                at = axis % len(shape)
                gy = normal(rng, *shape[:at], *count, *shape[at + 1 :])
                attributes = {"axis": axis, "input_shape": list(shape)}
                return [gy, np.asarray(draw(rng))], attributes

            rows.append(row("gather", f"{id}_{index_dtype}", make, **options))
            rows.append(row("gather_grad", f"{id}_{index_dtype}", make_grad, **options))
    for index_dtype in ("int32", "int64"):
        for target in ("float32", "float64", "float16", "bfloat16", "int32", "bool"):
            make = lambda rng, d=index_dtype, t=target: (  # noqa: E731
                [rng.integers(-2, 8, (6, 3)).astype(d)],
                {"depth": 6, "dtype": t},
            )
            rows.append(row("one_hot", f"{index_dtype}_to_{target}", make, dtypes=(target,)))
    big = lambda rng: (  # noqa: E731
        [rng.integers(0, 3, 65_600).astype("int32")],
        {"depth": 3, "dtype": "float32"},
    )
    rows.append(large("one_hot", big))
    return rows


def _product_rows(id, suffix, shapes, transposed):
    """Makes rows of both products for matrices of these shapes."""

    def of_floats(rng):
        return [normal(rng, *shape) for shape in shapes], transposed

    def of_bytes(rng, dtype):
        # All bytes occur, including the lowest, whose negative is no byte.
        return [integers(rng, dtype, *shape, low=-128, high=128) for shape in shapes], transposed

    is_large = id.startswith("large")
    options = {"gradient": False, "large": True, "dtypes": ("float32",)} if is_large else {}
    bytes_only = {"gradient": False, "large": is_large, "dtypes": ("int8",)}
    return [
        row("matmul", id + suffix, of_floats, **options),
        row("integer_matmul", id + suffix, of_bytes, **bytes_only),
    ]


def _matmul():
    calls = {
        "plain": ((5, 7), (7, 3)),
        "one": ((1, 1), (1, 1)),
        "vector_row": ((1, 33), (33, 1)),
        "outer": ((17, 1), (1, 19)),
        "square": ((64, 64), (64, 64)),
        "odd": ((37, 129), (129, 43)),
        "fours": ((36, 132), (132, 68)),
        "batched": ((4, 5, 6), (4, 6, 3)),
        "deep_batch": ((2, 3, 5, 4), (2, 3, 4, 2)),
        "no_rows": ((0, 4), (4, 3)),
        "no_inner": ((3, 0), (0, 2)),
        "large": ((65_600, 2), (2, 3)),
        "large_batch": ((65_600, 2, 2), (65_600, 2, 1)),
    }
    rows = []
    for id, (a, b) in calls.items():
        for ta in (False, True):
            for tb in (False, True):
                shape_a = (*a[:-2], a[-1], a[-2]) if ta else a
                shape_b = (*b[:-2], b[-1], b[-2]) if tb else b

                suffix = ("_ta" if ta else "") + ("_tb" if tb else "")
                transposed = {"transpose_a": ta, "transpose_b": tb}
                rows += _product_rows(id, suffix, (shape_a, shape_b), transposed)
    return rows


CASES = [
    *_softmax(),
    *_reductions(),
    *_argmax(),
    *_argsort(),
    *_moving(),
    *_concatenate(),
    *_slices(),
    *_indexing(),
    *_matmul(),
]

_MATRIX = zeros(2, 3)
_WHOLE = zeros(2, 3, dtype="int32")
_FLAGS = zeros(2, 3, dtype="bool")
_INDEX = zeros(2, dtype="int32")
_REDUCE = {"axes": [0], "keepdims": False}
_NO_TRANSPOSE = {"transpose_a": False, "transpose_b": False}
_SLICE = {"starts": [0, 0], "sizes": [2, 2], "strides": [1, 1]}


def _bad():
    rows = []
    for op in ("softmax", "log_softmax"):
        rows += [
            Bad(op, [_MATRIX], {"axis": 2}, ValueError, f"{op}: axis 2 is out of range"),
            Bad(op, [_WHOLE], {"axis": 1}, TypeError, f"{op}: the input must be floating"),
            Bad(
                f"{op}_grad",
                [_MATRIX, zeros(3, 3)],
                {"axis": 1},
                ValueError,
                f"{op}_grad: all inputs must have one shape",
            ),
        ]
    for op in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min"):
        rows += [
            Bad(op, [_FLAGS], _REDUCE, TypeError, f"{op}: the input must be integer or floating"),
            Bad(
                op, [_MATRIX], {**_REDUCE, "axes": [3]}, ValueError, f"{op}: axis 3 is out of range"
            ),
            Bad(op, [_MATRIX], {**_REDUCE, "axes": [1, -1]}, ValueError, "name axis 1 twice"),
        ]
    nothing = zeros(0, 3)
    rows += [
        Bad("reduce_mean", [_WHOLE], _REDUCE, TypeError, "reduce_mean: the input must be floating"),
        Bad("reduce_max", [nothing], _REDUCE, ValueError, "reduce_max: no element to choose from"),
        Bad("reduce_min", [nothing], _REDUCE, ValueError, "reduce_min: no element to choose from"),
        Bad("argmax", [nothing], {"axis": 0}, ValueError, "argmax: no element to choose from"),
        Bad(
            "argsort",
            [_MATRIX],
            {"axis": 2, "descending": False},
            ValueError,
            "argsort: axis 2 is out of",
        ),
        Bad(
            "argsort",
            [_FLAGS],
            {"axis": 0, "descending": False},
            TypeError,
            "argsort: the input must be integer or",
        ),
        Bad("barrier", [_MATRIX] * 2, {}, ValueError, "barrier: expected 1 input"),
        Bad("stop_gradient", [_MATRIX] * 2, {}, ValueError, "stop_gradient: expected 1 input"),
        Bad("argmax", [_FLAGS], {"axis": 0}, TypeError, "argmax: the input must be integer or"),
        Bad("reshape", [_MATRIX], {"shape": [4, 2]}, ValueError, "reshape: shape (2, 3) with 6"),
        Bad("reshape", [_MATRIX], {"shape": [-1, 3]}, ValueError, "extents must be non-negative"),
        Bad("transpose", [_MATRIX], {"permutation": [0, 0]}, ValueError, "each axis 0 to rank - 1"),
        Bad("transpose", [_MATRIX], {"permutation": [0]}, ValueError, "received [0]"),
        Bad("broadcast_to", [_MATRIX], {"shape": [3]}, ValueError, "only extents of 1 can grow"),
        Bad(
            "broadcast_to", [_MATRIX], {"shape": [4, 3]}, ValueError, "can't be broadcast together"
        ),
        Bad("concatenate", [], {"axis": 0}, ValueError, "concatenate: expected at least 1 input"),
        Bad("concatenate", [_MATRIX, _WHOLE], {"axis": 0}, TypeError, "must have one dtype"),
        Bad(
            "concatenate",
            [_MATRIX, zeros(2, 4)],
            {"axis": 0},
            ValueError,
            "must agree but on axis 0",
        ),
        Bad("slice", [_MATRIX], {**_SLICE, "starts": [1, 0]}, ValueError, "leaves shape (2, 3)"),
        Bad("slice", [_MATRIX], {**_SLICE, "strides": [0, 1]}, ValueError, "strides must not be 0"),
        Bad("slice", [_MATRIX], {**_SLICE, "sizes": [1]}, ValueError, "sizes must be 2 integers"),
        Bad(
            "slice_grad",
            [_MATRIX],
            {**_SLICE, "input_shape": [2, 3]},
            ValueError,
            "slice_grad: the gradient must have shape (2, 2)",
        ),
        Bad("gather", [_MATRIX, zeros(2)], {"axis": 0}, TypeError, "must be int32 or int64"),
        Bad(
            "gather", [nothing, _INDEX], {"axis": 0}, ValueError, "there is nothing to select from"
        ),
        Bad("gather", [_MATRIX, _INDEX], {"axis": 5}, ValueError, "gather: axis 5 is out of range"),
        Bad(
            "gather_grad",
            [_MATRIX, _INDEX],
            {"axis": 0, "input_shape": [5, 4]},
            ValueError,
            "gather_grad: the gradient must have shape (2, 4)",
        ),
        Bad("one_hot", [zeros(2)], {"depth": 3, "dtype": "float32"}, TypeError, "int32 or int64"),
        Bad(
            "one_hot",
            [_INDEX],
            {"depth": 0, "dtype": "float32"},
            ValueError,
            "depth must be positive",
        ),
        Bad(
            "matmul",
            [_MATRIX, zeros(4, 2)],
            _NO_TRANSPOSE,
            ValueError,
            "the inner extents must be equal",
        ),
        Bad(
            "matmul",
            [zeros(2, 2, 3), zeros(3, 3, 2)],
            _NO_TRANSPOSE,
            ValueError,
            "all but the last two axes",
        ),
        Bad(
            "matmul",
            [_MATRIX, zeros(3)],
            _NO_TRANSPOSE,
            ValueError,
            "same number of axes, 2 or more",
        ),
        Bad("matmul", [_WHOLE, _WHOLE], _NO_TRANSPOSE, TypeError, "must be floating"),
        Bad("integer_matmul", [_WHOLE, _WHOLE], _NO_TRANSPOSE, TypeError, "must be int8"),
        Bad(
            "integer_matmul",
            [zeros(2, 3, dtype="int8"), zeros(4, 2, dtype="int8")],
            _NO_TRANSPOSE,
            ValueError,
            "integer_matmul: (2, 3) and (4, 2)",
        ),
    ]
    return rows


BAD = _bad()
