"""Large steps of one model use one block of memory in turns."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, layers

# A float32 result has 17 MiB, which is above the size from which steps share an arena.
ROWS, WIDTH = 1100, 4096
RESULT = ROWS * WIDTH * 4


def product(arena, seed, rows=ROWS, **options):
    """Returns a program with two large results and a small output, its inputs, and its output."""
    x = np.random.default_rng(seed).normal(size=(rows, 3)).astype("float32")
    w = np.random.default_rng(seed + 1).normal(size=(3, WIDTH)).astype("float32")
    graph = _core.Graph()
    inputs = [graph.input("x", list(x.shape), "float32"), graph.input("w", [3, WIDTH], "float32")]
    flags = {"transpose_a": False, "transpose_b": False}
    (y,) = graph.apply("matmul", inputs, flags)
    (y,) = graph.apply("softmax", [y], {"axis": -1})
    (y,) = graph.apply("reduce_max", [y], {"axes": [1], "keepdims": False})
    program = _core.Program.compile(graph, [y], "cpu", arena=arena, **options)
    z = x.astype("float64") @ w
    e = np.exp(z - z.max(1, keepdims=True))
    expected = (e / e.sum(1, keepdims=True)).max(1)
    return program, [_core.from_numpy(a, "cpu") for a in (x, w)], expected


def close(tensors, expected):
    # The softmax is of sums of three products: a few units of 2^-24, of numbers up to 1.
    np.testing.assert_allclose(tensors[0].numpy(), expected, rtol=0, atol=2e-6)


def test_outputs_stay_when_another_program_runs():
    arena = _core.ArenaMemory("cpu")
    first, inputs, expected = product(arena, 0)
    second, others, expected_of_second = product(arena, 5)
    assert arena.bytes >= first.stats()["arena_bytes"] >= RESULT
    assert arena.bytes < first.stats()["arena_bytes"] + RESULT
    first.run(inputs)
    kept = first.outputs()
    second.run(others)
    close(kept, expected)
    close(second.outputs(), expected_of_second)
    first.run(inputs, 3)
    close(first.outputs(), expected)


def test_memory_follows_the_largest_program():
    _core.release_cached("cpu")  # Otherwise the arena might get a part of a larger cached block.
    arena = _core.ArenaMemory("cpu")
    small, inputs, expected = product(arena, 0)
    small.run(inputs)
    before = arena.bytes
    allocated = _core.memory_stats("cpu")["allocated"]
    large, others, expected_of_large = product(arena, 5, 2 * ROWS)
    assert arena.bytes == large.stats()["arena_bytes"] > before
    # The large block replaces the smaller one. Inputs and outputs are at most 2200 rows of 4
    # numbers, and the allocator rounds blocks of this size up by at most 2 MiB.
    more = _core.memory_stats("cpu")["allocated"] - allocated
    assert more <= arena.bytes - before + (4 << 20)
    large.run(others)
    small.run(inputs)  # The program is bound to memory in another place now.
    close(small.outputs(), expected)
    close(large.outputs(), expected_of_large)
    del large
    assert arena.bytes == 0  # There is no arena until the next run.
    small.run(inputs)
    close(small.outputs(), expected)
    assert arena.bytes == before
    del small
    assert arena.bytes == 0


def test_the_first_run_allocates_what_was_only_planned():
    arena = _core.ArenaMemory("cpu")
    program, inputs, expected = product(arena, 0, allocates=False)
    assert arena.bytes == 0 and program.stats()["arena_bytes"] >= RESULT
    program.run(inputs)
    assert arena.bytes == program.stats()["arena_bytes"]
    close(program.outputs(), expected)


def test_a_program_that_does_not_fit_leaves_the_others_theirs():
    arena = _core.ArenaMemory("cpu")
    program, inputs, expected = product(arena, 0)
    graph = _core.Graph()
    x = graph.input("x", [1 << 20, 1], "float32")
    (y,) = graph.apply("broadcast_to", [x], {"shape": [1 << 20, 1 << 20]})
    (y,) = graph.apply("softmax", [y], {"axis": -1})
    (y,) = graph.apply("reduce_max", [y], {"axes": [0, 1], "keepdims": False})
    with pytest.raises(keras.OutOfMemoryError):
        _core.Program.compile(graph, [y], "cpu", arena=arena)
    program.run(inputs)
    close(program.outputs(), expected)
    assert arena.bytes == program.stats()["arena_bytes"]


def test_small_programs_have_memory_of_their_own():
    arena = _core.ArenaMemory("cpu")
    program, inputs, expected = product(arena, 0, rows=10)
    program.run(inputs)
    close(program.outputs(), expected)
    assert arena.bytes == 0


def make_model():
    keras.utils.set_random_seed(4)
    model = keras.Sequential(
        [keras.Input((3,)), layers.Dense(WIDTH, activation="tanh"), layers.Dense(2)]
    )
    model.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
    return model


def test_steps_of_a_model_share_and_disturb_nobody(rng):
    x = rng.normal(size=(2 * ROWS + 1050, 3)).astype("float32")
    y = rng.normal(size=(len(x), 2)).astype("float32")
    plain, mixed = make_model(), make_model()
    arguments = {"batch_size": ROWS, "epochs": 1, "shuffle": False, "verbose": 0}
    before = mixed.predict(x, batch_size=ROWS, verbose=0)
    losses = []
    for model in (plain, mixed):
        histories = []
        for _ in range(2):
            histories.append(model.fit(x, y, **arguments).history)
            if model is mixed:
                evaluated = mixed.evaluate(x, y, batch_size=1090, verbose=0)
                predicted = mixed.predict(x, batch_size=ROWS, verbose=0)
        losses.append(histories)
    assert losses[0] == losses[1]
    for a, b in zip(plain.get_weights(), mixed.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(predicted, plain.predict(x, batch_size=ROWS, verbose=0))
    assert evaluated == plain.evaluate(x, y, batch_size=1090, verbose=0)
    assert not np.array_equal(before, predicted)
    sizes = [step.program.stats()["arena_bytes"] for step in mixed._programs.values()]
    # There are two for fit, one for evaluate, and one for predict.
    assert sum(size >= 16 << 20 for size in sizes) >= 4
    assert mixed._state.arena.bytes == max(sizes)
