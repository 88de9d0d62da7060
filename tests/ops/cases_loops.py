"""Rows of ops that own graphs. Each body is written twice, as a graph and in NumPy."""

from __future__ import annotations

import numpy as np

from kerascnn import _core

from .case import Bad, normal, row, zeros
from .reference import numpy_dtype, reference

MEANING = {}  # maps a body to a function of its inputs
_BODIES = {}


def body(name, dtype, shapes, build, meaning):
    """Traces `build(graph, *inputs)`, which returns the outputs; a shape may name its own dtype."""
    if (name, dtype) not in _BODIES:
        graph = _core.Graph()
        inputs = []
        for i, shape in enumerate(shapes):
            shape, own = (
                shape if isinstance(shape, tuple) and shape[1:] == ("int64",) else (shape, dtype)
            )
            inputs.append(graph.input(f"x{i}", list(shape), own))
        made = _core.Body(graph, inputs, build(graph, *inputs))
        _BODIES[name, dtype] = made
        MEANING[made] = meaning
    return _BODIES[name, dtype]


def release_bodies():
    MEANING.clear()
    _BODIES.clear()


def call(graph, op, *inputs, **attributes):
    return graph.apply(op, list(inputs), attributes)[0]


def _rows(length, like):
    return np.zeros((length, *np.shape(like)), np.asarray(like).dtype)


@reference("loop")
def loop(*inputs, bodies, length, reverse, counted, carries, slices):
    inputs = list(inputs)
    count = min(max(int(inputs.pop(0)), 0), length) if counted else length
    state, rows, others = inputs[:carries], inputs[carries:][:slices], inputs[carries + slices :]
    stacks, saved, steps = {}, [_rows(max(length, 0), c) for c in state], 0
    while steps < count or count < 0:
        if len(bodies) == 2 and not MEANING[bodies[1]](*state, *others):
            break
        place = count - 1 - steps if reverse else steps
        for stack, carry in zip(saved, state, strict=True):
            if length >= 0:
                stack[place] = carry
        results = MEANING[bodies[0]](*state, *(x[place] for x in rows), *others)
        state = results[:carries]
        for i, y in enumerate(results[carries:]):
            stacks.setdefault(i, _rows(length, y))[place] = y
        steps += 1
    outputs = [*state, *(stacks[i] for i in sorted(stacks))]
    if len(bodies) == 2:
        outputs.append(np.int64(steps))
    return (*outputs, *saved) if length >= 0 else tuple(outputs)


@reference("switch")
def switch(index, *operands, bodies):
    return tuple(MEANING[bodies[min(max(int(index), 0), len(bodies) - 1)]](*operands))


def _recurrent(dtype):
    """The body computes h = tanh(h w + x), and h * x."""

    def build(graph, h, x, w):
        product = call(graph, "matmul", h, w, transpose_a=False, transpose_b=False)
        after = call(graph, "tanh", call(graph, "add", product, x))
        return [after, call(graph, "multiply", after, x)]

    def meaning(h, x, w):
        after = np.tanh(h @ w + x)
        return [after, after * x]

    return body("recurrent", dtype, [(3, 4), (3, 4), (4, 4)], build, meaning)


def _running_sum(dtype):
    return body(
        "sum",
        dtype,
        [(5,), (5,)],
        lambda graph, c, x: [call(graph, "add", c, x)] * 2,
        lambda c, x: [c + x, c + x],
    )


def _scan(rng, dtype, reverse, length=6):
    attributes = {"length": length, "reverse": reverse, "counted": False, "carries": 1, "slices": 1}
    inputs = [normal(rng, 3, 4), normal(rng, length, 3, 4), 0.5 * normal(rng, 4, 4)]
    return inputs, {"bodies": [_recurrent(dtype)], **attributes}


def _counted(rng, dtype, count, reverse):
    attributes = {"length": 5, "reverse": reverse, "counted": True, "carries": 1, "slices": 1}
    inputs = [np.array(count, np.int64), normal(rng, 3, 4), normal(rng, 5, 3, 4)]
    return [*inputs, 0.5 * normal(rng, 4, 4)], {"bodies": [_recurrent(dtype)], **attributes}


def _sums(rng, dtype):
    attributes = {"length": 7, "reverse": True, "counted": False, "carries": 1, "slices": 1}
    x = rng.integers(0, 9, (7, 5)).astype(numpy_dtype(dtype))
    return [x[0], x], {"bodies": [_running_sum(dtype)], **attributes}


def _while(rng, dtype, length):
    """The loop doubles its carry until the largest element is 50 or more."""
    double = body(
        "double",
        dtype,
        [(4,), (4,)],
        lambda graph, c, f: [call(graph, "multiply", c, f)],
        lambda c, f: [c * f],
    )

    def is_small(graph, c, f):
        largest = call(graph, "reduce_max", c, axes=[], keepdims=False)
        return [call(graph, "less", largest, graph.full([], dtype, 50.0))]

    condition = body("small", dtype, [(4,), (4,)], is_small, lambda c, f: c.max() < 50.0)
    attributes = {"length": length, "reverse": False, "counted": False, "carries": 1, "slices": 0}
    inputs = [rng.uniform(0.5, 1.0, 4), np.full(4, 2.0)]
    return inputs, {"bodies": [double, condition], **attributes}


def _choice(rng, dtype, index):
    shapes = [(2, 3), (2, 3)]
    branches = [
        body(
            "product",
            dtype,
            shapes,
            lambda graph, a, b: [call(graph, "multiply", a, b)],
            lambda a, b: [a * b],
        ),
        body(
            "sine",
            dtype,
            shapes,
            lambda graph, a, b: [call(graph, "sin", a)],
            lambda a, b: [np.sin(a)],
        ),
        body("second", dtype, shapes, lambda graph, a, b: [b], lambda a, b: [b]),
    ]
    return [np.array(index, np.int32), normal(rng, 2, 3), normal(rng, 2, 3)], {"bodies": branches}


# Each step rounds its carry and the product with x once more.
_STEPS = {"tolerance": {"float16": 2.0**-7, "bfloat16": 2.0**-4}, "reason": "roundings add up"}

CASES = [
    row("loop", "forward", lambda rng, dtype: _scan(rng, dtype, False), **_STEPS),
    row("loop", "reverse", lambda rng, dtype: _scan(rng, dtype, True), **_STEPS),
    row("loop", "one_step", lambda rng, dtype: _scan(rng, dtype, False, 1), **_STEPS),
    row("loop", "counted", lambda rng, dtype: _counted(rng, dtype, 3, False), **_STEPS),
    row("loop", "counted_back", lambda rng, dtype: _counted(rng, dtype, 4, True), **_STEPS),
    row("loop", "counted_more", lambda rng, dtype: _counted(rng, dtype, 9, True), **_STEPS),
    row(
        "loop",
        "sums",
        _sums,
        dtypes=("int32", "int64", "int16", "uint8", "float32"),
        gradient=False,
    ),
    row("loop", "while", lambda rng, dtype: _while(rng, dtype, 9), **_STEPS),
    row("loop", "while_stopped", lambda rng, dtype: _while(rng, dtype, 3), **_STEPS),
    row("loop", "no_limit", lambda rng, dtype: _while(rng, dtype, -1), gradient=False, **_STEPS),
    *(
        row("switch", f"index_{index}", lambda rng, dtype, index=index: _choice(rng, dtype, index))
        for index in (-3, 0, 1, 2, 7)
    ),
]

_LOOP = {"length": 3, "reverse": False, "counted": False, "carries": 1, "slices": 1}

BAD = [
    Bad(
        "loop",
        [zeros(5), zeros(2, 5)],
        {"bodies": [_running_sum("float32")], **_LOOP},
        ValueError,
        "must have 3 rows along its first axis",
    ),
    Bad(
        "loop",
        [zeros(4), zeros(3, 5)],
        {"bodies": [_running_sum("float32")], **_LOOP},
        ValueError,
        "the body takes float32 (5,) as input 0, received float32 (4,)",
    ),
    Bad("loop", [zeros(5)], {"bodies": [3], **_LOOP}, ValueError, "must be a list of bodies"),
    Bad(
        "switch",
        [zeros(), zeros(5)],
        {"bodies": [_running_sum("float32")]},
        ValueError,
        "the index must be int32 ()",
    ),
]
