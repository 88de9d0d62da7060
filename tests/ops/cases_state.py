"""Rows of random numbers and optimizer updates."""

from __future__ import annotations

import math

import numpy as np

from .case import TOLERANCE, Bad, large, normal, row, zeros
from .reference import numpy_dtype


def _state(rng):
    return rng.integers(-(2**62), 2**62, 2)


def _drawn(op, attributes, *shape):
    """Makes a call from a random state, with the tested dtype as an attribute."""

    def make(rng, dtype):
        stream = int(rng.integers(0, 2**32))
        named = {"shape": list(shape), "dtype": dtype, "stream": stream}
        return [_state(rng)], {**attributes, **named}

    return make


_KINDS = {
    "random_uniform": {
        "unit": {"minval": 0.0, "maxval": 1.0},
        "around_zero": {"minval": -0.05, "maxval": 0.05},
        "constant": {"minval": 2.0, "maxval": 2.0},
    },
    "random_normal": {
        "standard": {"mean": 0.0, "stddev": 1.0},
        "shifted": {"mean": -3.0, "stddev": 0.5},
        "constant": {"mean": 1.0, "stddev": 0.0},
    },
    "random_bernoulli": {"often": {"p": 0.8}, "never": {"p": 0.0}, "always": {"p": 1.0}},
}


def _random():
    rows = []
    shapes = {"matrix": (13, 7), "scalar": (), "odd": (4099,), "empty": (0, 3)}
    for op, kinds in _KINDS.items():
        for kind, attributes in kinds.items():
            for id, shape in shapes.items():
                # A single normal number may be close to 0, where its cosine has fewer digits.
                few = (
                    {"tolerance": {"float32": 1e-3}} if op == "random_normal" and not shape else {}
                )
                rows.append(row(op, f"{kind}_{id}", _drawn(op, attributes, *shape), **few))
        rows.append(large(op, _drawn(op, next(iter(kinds.values())), 65_537, 5)))
    for dtype in ("bool", "uint8", "int32"):
        make = _drawn("random_bernoulli", {"p": 0.3}, 50)
        rows.append(row("random_bernoulli", f"to_{dtype}", make, dtypes=(dtype,)))
    for rate in (0.0, 0.25, 0.5, 1.0):
        for id, shape in shapes.items():

            def dropout(rng, rate=rate, shape=shape):
                attributes = {"rate": rate, "stream": int(rng.integers(0, 2**32))}
                return [normal(rng, *shape), _state(rng)], attributes

            rows.append(row("dropout", f"{rate}_{id}", dropout, gradient=id != "odd"))
    drop = {"rate": 0.5, "stream": 3}
    rows.append(large("dropout", lambda rng: ([normal(rng, 65_537, 5), _state(rng)], drop)))
    for amount in (1, 7):

        def advance(rng, amount=amount):
            return [_state(rng)], {"amount": amount}

        rows.append(row("random_advance", f"by_{amount}", advance, dtypes=("int64",)))
    return rows


_SHAPES = [(3, 3, 2, 4), (4,), (7, 5), (1,), (), (1000,), (0, 2)]


def _tensors(rng, shapes, groups):
    return [normal(rng, *shape) for _ in range(groups) for shape in shapes]


def _sgd(momentum, nesterov, shapes):
    def make(rng):
        tensors = _tensors(rng, shapes, 3 if momentum else 2)
        attributes = {"count": len(shapes), "momentum": momentum, "nesterov": nesterov}
        return [np.float32(0.01), *tensors], attributes

    return make


def _adam(shapes, iterations=None):
    def make(rng):
        count = len(shapes)
        tensors = _tensors(rng, shapes, 4)
        tensors[3 * count :] = [np.square(v) for v in tensors[3 * count :]]
        done = np.int64(rng.integers(0, 2000) if iterations is None else iterations)
        attributes = {"count": count, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}
        return [np.float32(0.003), done, *tensors], attributes

    return make


# Gradients are stacks of partial sums. There are as many copies as a block has rows of threads and
# loads at a time, or more, or fewer. Sizes are no multiples of vectors, and plain gradients stand
# between the stacks.
_COPIES = [1, 2, 3, None, 16, 17, 128, 131, 300, 5, None, 4]
_STACKED_SHAPES = [
    (3, 2), (), (4,), (7, 5), (3, 3, 2, 4), (33,), (5, 5, 1, 32), (64,), (2, 2), (0, 2), (1000,),
    (515,),
]  # fmt: skip


def _stacked(make, shapes=_STACKED_SHAPES, copies=_COPIES):
    """Makes the call of `make` for the shapes, with stacks in place of some gradients."""

    def make_stacked(rng):
        inputs, attributes = make(rng)
        scalars = 2 if "beta_1" in attributes else 1
        for i, (shape, n) in enumerate(zip(shapes, copies, strict=True)):
            if n is not None:
                inputs[scalars + len(shapes) + i] = normal(rng, n, *shape)
        return inputs, attributes

    return make_stacked


def _narrow(make, count):
    """Makes the call of `make` with gradients of 16 bits for parameters in float32."""

    def make_narrow(rng, dtype):
        inputs, attributes = make(rng)
        first = (2 if "beta_1" in attributes else 1) + count
        for i in range(count):
            name = ("bfloat16", "float16", "float32")[i % 3]
            inputs[first + i] = inputs[first + i].astype(numpy_dtype(name))
        return inputs, attributes

    return make_narrow


def _optimizers():
    many = [(int(i % 5 + 1), 3) for i in range(150)]
    big = [(65_537, 3), (2,)]
    only = {"dtypes": ("float32",)}
    return [
        row("sgd_update", "plain", _sgd(0.0, False, _SHAPES)),
        row("sgd_update", "momentum", _sgd(0.9, False, _SHAPES)),
        row("sgd_update", "nesterov", _sgd(0.9, True, _SHAPES)),
        row("sgd_update", "one", _sgd(0.9, False, [(5,)])),
        row("sgd_update", "many", _sgd(0.9, True, many)),
        large("sgd_update", _sgd(0.9, False, big)),
        row("adam_update", "later", _adam(_SHAPES)),
        row("adam_update", "first_step", _adam(_SHAPES, 0)),
        row("adam_update", "millionth_step", _adam(_SHAPES, 10**6)),
        row("adam_update", "many", _adam(many)),
        large("adam_update", _adam(big)),
        row("sgd_update", "narrow_gradients", _narrow(_sgd(0.9, True, _SHAPES), 7), **only),
        row("adam_update", "narrow_gradients", _narrow(_adam(_SHAPES), 7), **only),
        row("sgd_update", "many_narrow", _narrow(_sgd(0.0, False, many), 150), **only),
        row("sgd_update", "stacks", _stacked(_sgd(0.0, False, _STACKED_SHAPES))),
        row("sgd_update", "momentum_stacks", _stacked(_sgd(0.9, False, _STACKED_SHAPES))),
        row("sgd_update", "nesterov_stacks", _stacked(_sgd(0.9, True, _STACKED_SHAPES))),
        row("adam_update", "stacks", _stacked(_adam(_STACKED_SHAPES))),
        row("sgd_update", "one_stack", _stacked(_sgd(0.0, False, [(12,)]), [(12,)], [6])),
        row(
            "adam_update",
            "many_stacks",
            _stacked(_adam(many), many, [i % 7 or None for i in range(150)]),
        ),
        large("sgd_update", _stacked(_sgd(0.9, False, big), big, [3, None]), id="large_stack"),
    ]


def _cast_all():
    def make(shapes, dtype):
        return lambda rng: ([normal(rng, *shape) for shape in shapes], {"dtype": dtype})

    many = [(int(i % 5 + 1), 3) for i in range(250)]
    big = [(65_537, 3), (2,), (5000, 7)]
    rows = []
    for dtype in ("float16", "bfloat16"):
        # Each element is rounded to 16 bits: by 2^-11 for float16, by 2^-8 for bfloat16.
        options = {
            "dtypes": ("float32",),
            "gradient": False,
            "result_dtype": dtype,
            "tolerance": {"float32": TOLERANCE[dtype]},
            "reason": "its results have 16 bits",
        }
        rows += [
            row("cast_all", f"several_{dtype}", make(_SHAPES, dtype), **options),
            row("cast_all", f"one_{dtype}", make([(4097, 2)], dtype), **options),
            row("cast_all", f"many_{dtype}", make(many, dtype), **options),
            row("cast_all", f"large_{dtype}", make(big, dtype), **options, large=True),
        ]
    return rows


def _all_reduce():
    def make(shapes, scale, factor):
        attributes = {"processes": 1, "scale": scale, "factor": factor}
        return lambda rng: ([normal(rng, *shape) for shape in shapes], attributes)

    return [
        row("all_reduce", "one", make([(3, 4)], 1.0, 1.0)),
        row("all_reduce", "several", make(_SHAPES, 0.5, 3.0)),
        row("all_reduce", "many", make([(int(i % 5 + 1), 3) for i in range(250)], 1.0, 0.25)),
        row("all_reduce", "of_nothing", make([(0, 3), (2,)], 1.0, 1.0)),
        row("all_reduce", "without_a_share", make(_SHAPES, 0.0, 1.0)),
        row("all_reduce", "large", make([(65_537, 3), (2,)], 1.0, 0.5), large=True, gradient=False),
    ]


def _owned_tensors():
    """Of one process; tests/distribution has several."""

    def make(shapes, **more):
        attributes = {"processes": 1, "owners": [0] * len(shapes), **more}
        return lambda rng: ([normal(rng, *shape) for shape in shapes], attributes)

    rows = []
    for op, more in (("reduce_to_owners", {"factor": 3.0}), ("broadcast_from_owners", {})):
        rows += [
            row(op, "one", make([(3, 4)], **more), gradient=False),
            row(op, "several", make(_SHAPES, **more), gradient=False),
            row(op, "of_nothing", make([(0, 3), (2,)], **more), gradient=False),
            row(op, "large", make([(65_537, 3), (2,)], **more), large=True, gradient=False),
        ]
    return rows


CASES = [*_random(), *_optimizers(), *_cast_all(), *_all_reduce(), *_owned_tensors()]


def _bad():
    state = zeros(2, dtype="int64")
    drawn = {"shape": [3], "dtype": "float32", "stream": 0}
    uniform = {**drawn, "minval": 0.0, "maxval": 1.0}
    gaussian = {**drawn, "mean": 0.0, "stddev": 1.0}
    rate = np.float32(0.1)
    x, whole = zeros(3), zeros(2, dtype="int32")
    sgd = {"count": 1, "momentum": 0.0, "nesterov": False}
    adam = {"count": 1, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}
    step = np.int64(0)
    alone = {"processes": 1, "scale": 1.0, "factor": 1.0}
    given = {"processes": 1, "owners": [0]}
    owned = {**given, "factor": 1.0}
    v = ValueError
    return [
        Bad("random_uniform", [whole], uniform, v, "the random state must be int64 (2,)"),
        Bad(
            "random_uniform",
            [state],
            {**uniform, "minval": 2.0},
            v,
            "minval must not exceed maxval",
        ),
        Bad(
            "random_uniform",
            [state],
            {**uniform, "dtype": "int32"},
            TypeError,
            "the result must be floating",
        ),
        Bad(
            "random_uniform", [state], {**uniform, "shape": [-1]}, v, "extents must be non-negative"
        ),
        Bad(
            "random_normal", [state], {**gaussian, "stddev": -1.0}, v, "stddev must not be negative"
        ),
        Bad("random_normal", [state], {**gaussian, "stream": -1}, v, "stream must be in [0, 2^32)"),
        Bad(
            "random_bernoulli",
            [state],
            {**drawn, "p": 1.5},
            v,
            "random_bernoulli: p must be in [0, 1]",
        ),
        Bad(
            "dropout", [x, state], {"rate": -0.1, "stream": 0}, v, "dropout: rate must be in [0, 1]"
        ),
        Bad("dropout", [x, x], {"rate": 0.1, "stream": 0}, v, "dropout: the random state must be"),
        Bad("random_advance", [x], {"amount": 1}, v, "random_advance: the random state must be"),
        Bad(
            "sgd_update",
            [rate, x, zeros(4)],
            sgd,
            v,
            "sgd_update: input 2 has shape (4,), but parameter 0",
        ),
        Bad("sgd_update", [rate, x, zeros(0, 3)], sgd, v, "sgd_update: input 2 has shape (0, 3)"),
        Bad(
            "adam_update",
            [rate, step, x, x, zeros(2, 3), x],
            adam,
            v,
            "adam_update: input 4 has shape (2, 3), but parameter 0",
        ),
        Bad("sgd_update", [rate, x], sgd, v, "sgd_update: expected 3 inputs, received 2"),
        Bad("sgd_update", [x, x, x], sgd, v, "the learning rate must be float32 ()"),
        Bad("sgd_update", [rate, x, x], {**sgd, "momentum": 1.0}, v, "momentum must be in [0, 1)"),
        Bad(
            "sgd_update",
            [rate, x, zeros(3, dtype="float64")],
            sgd,
            TypeError,
            "must have one dtype",
        ),
        Bad(
            "sgd_update",
            [rate, x, zeros(2, 3, dtype="float16")],
            sgd,
            TypeError,
            "must have one dtype",
        ),
        Bad(
            "sgd_update",
            [rate, zeros(3, dtype="float16"), x],
            sgd,
            TypeError,
            "must have one dtype",
        ),
        Bad("all_reduce", [], alone, v, "all_reduce: expected at least 1 input"),
        Bad("all_reduce", [whole], alone, TypeError, "all_reduce: the inputs must be floating"),
        Bad("all_reduce", [x, zeros(3, dtype="float64")], alone, TypeError, "must have one dtype"),
        Bad("all_reduce", [x], {**alone, "processes": 0}, v, "processes must be positive"),
        Bad("all_reduce", [x], {**alone, "scale": math.inf}, v, "scale must be finite"),
        Bad("reduce_to_owners", [], {**owned, "owners": []}, v, "expected at least 1 input"),
        Bad("reduce_to_owners", [x, x], owned, v, "expected 1 inputs, one for each"),
        Bad("reduce_to_owners", [x], {**owned, "owners": [1]}, v, "owners must be from 0 to 0"),
        Bad("reduce_to_owners", [x], {**owned, "processes": 0}, v, "processes must be positive"),
        Bad("reduce_to_owners", [x], {**owned, "factor": math.nan}, v, "factor must be finite"),
        Bad("reduce_to_owners", [whole], owned, TypeError, "the inputs must be floating"),
        Bad(
            "broadcast_from_owners", [x], {**given, "owners": [-1]}, v, "owners must be from 0 to 0"
        ),
        Bad("broadcast_from_owners", [whole], given, TypeError, "the inputs must be floating"),
        Bad(
            "cast_all", [x], {"dtype": "float32"}, v, "cast_all: dtype must be float16 or bfloat16"
        ),
        Bad("cast_all", [], {"dtype": "float16"}, v, "cast_all: expected at least 1 input"),
        Bad(
            "cast_all",
            [x, zeros(2, dtype="float64")],
            {"dtype": "float16"},
            TypeError,
            "inputs must be float32, but input 1 is float64 (2,)",
        ),
        Bad(
            "adam_update",
            [rate, step, x, x, x],
            adam,
            v,
            "adam_update: expected 6 inputs, received 5",
        ),
        Bad("adam_update", [rate, rate, x, x, x, x], adam, v, "the iterations must be int64 ()"),
        Bad(
            "adam_update",
            [rate, step, x, x, x, x],
            {**adam, "beta_1": 1.0},
            v,
            "beta_1 must be in [0, 1)",
        ),
        Bad(
            "adam_update",
            [rate, step, x, x, x, x],
            {**adam, "count": 0},
            v,
            "count must be positive",
        ),
    ]


BAD = _bad()
