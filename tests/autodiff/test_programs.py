"""Random programs with tapes give what `Meaning` says, at once and compiled."""

from __future__ import annotations

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import ops

from .programs import NUM_INPUTS, TRAINABLE, Generator, Machine, Meaning, run

# A program has some hundred float64 operations on bounded numbers. Each has an error of a few
# 1e-16, which products and sums carry on.
RTOL = 1e-11


def numbers_of(results):
    return [
        None if x is None else np.asarray(x.value if hasattr(x, "value") else x.numpy())
        for x in results
    ]


def expected_of(program, inputs, values):
    meaning = Meaning(inputs, values)
    outputs = numbers_of(run(program, meaning, []))
    return outputs, [v.value for v in meaning.variables], RTOL * meaning.largest**2


def found_of(program, inputs, values, wrap):
    variables = [
        keras.Variable(v, dtype="float64", trainable=t)
        for v, t in zip(values, TRAINABLE, strict=True)
    ]
    tensors = [ops.convert_to_tensor(x) for x in inputs]
    function = wrap(lambda *tensors: run(program, Machine(tensors, variables), []))
    return numbers_of(function(*tensors)), [v.numpy() for v in variables]


def check(program, inputs, values, wrap):
    expected, held, atol = expected_of(program, inputs, values)
    found, held_found = found_of(program, inputs, values, wrap)
    assert [x is None for x in found] == [x is None for x in expected]
    for a, b in zip([*found, *held_found], [*expected, *held], strict=True):
        if b is not None:
            np.testing.assert_allclose(a, b, rtol=RTOL, atol=atol)


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("assigns", [False, True], ids=["no_assignments", "assignments"])
@pytest.mark.parametrize("late", [False, True], ids=["watched_first", "watched_late"])
def test_programs(rng, number, assigns, late):
    for _ in range(20):
        program = Generator(rng, assigns, late).program(int(rng.integers(4, 14)))
        inputs = rng.uniform(-1.0, 1.0, (NUM_INPUTS, 2))
        values = rng.uniform(-1.0, 1.0, (len(TRAINABLE), 2))
        try:
            check(program, inputs, values, keras.jit)
            if not late:
                check_at_once(program, inputs, values, assigns)
        except Exception:
            print(f"{program=}\n{inputs=}\n{values=}")
            raise


def check_at_once(program, inputs, values, assigns):
    try:
        check(program, inputs, values, lambda f: f)
    except ValueError as error:
        # At once nothing keeps the value that an assignment overwrites.
        if not assigns or "written to after" not in str(error):
            raise
