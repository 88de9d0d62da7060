"""Which program of a step runs where optimizers gather gradients, within one process."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core
from kerascnn.distribution import replicas
from kerascnn.optimizers.due_updates import DueUpdates, StepCounts, case_of
from kerascnn.training.steps import AccumulatingStep

pytestmark = pytest.mark.usefixtures("on_cpu")


class Twins:
    """Two processes that do the same: what the other one sends is what this one sends."""

    rank, size = 0, 2

    def __init__(self):
        self.messages = 0
        _core.set_collectives("a test", 0, 2, self.exchange, self.gather)
        replicas.activate(replicas.Replicas(self))

    def gather(self, send, receive, block):
        self.messages += 1
        own = ctypes.string_at(send, block)
        ctypes.memmove(receive, own + own, 2 * block)

    exchange = gather

    def gather_array(self, array):
        return np.stack([array, array])

    def gather_objects(self, value, times=1):
        return [value, value]


@pytest.fixture
def twins(alone_afterwards):
    return Twins()


def test_sums_take_the_gradients_that_layers_make(alone_afterwards):
    """In mixed precision these have 16 bits, and neither sums nor updates cast them."""
    replicas.activate(replicas.Replicas(Twins()), reduce_dtype="bfloat16")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, dtype="mixed_bfloat16")])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(X, np.zeros((2, 3)), verbose=0)
    (step,) = model._programs.values()
    rows = step.program.describe()
    gradients = [("bfloat16", (2, 3)), ("bfloat16", (3,))]
    sums = [row["inputs"] for row in rows if row["op"] == "all_reduce"]
    assert sorted(gradients) in [sorted(inputs) for inputs in sums]
    (update,) = [row["inputs"] for row in rows if row["op"] == "sgd_update"]
    assert update[-2:] == gradients
    casts = [row["inputs"][0] for row in rows if row["op"] == "cast"]
    # Those of the weights.
    assert [entry for entry in casts if entry[1] in [(2, 3), (3,)]] == [
        ("float32", (2, 3)),
        ("float32", (3,)),
    ]


def test_processes_that_round_gradients_differently(alone_afterwards):
    class Others(Twins):
        def gather_objects(self, value, times=1):
            if not isinstance(value, dict):
                return [value, value]
            return [value, {**value, "DataParallel(reduce_dtype)": "None"}]

    replicas.activate(replicas.Replicas(Others()), reduce_dtype="bfloat16")
    with pytest.raises(
        ValueError, match=r"reduce_dtype\) is different: process 0 has bfloat16, .*"
    ):
        gatherer().fit(X, Y, verbose=0)


def gatherer(every=3):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=every), "mse")
    return model


X = np.array([[1.0, 2.0], [1.0, 2.0]], "float32")  # each process has one of two equal samples
Y = np.zeros((2, 1), "float32")


def test_cases_of_a_step():
    a, b = (keras.optimizers.SGD(gradient_accumulation_steps=n) for n in (3, 2))
    updates = DueUpdates()
    assert [updates.is_due(one) for one in (a, a, b)] == [True, False, True]
    others = {case_of(updates.calls, one._positions) for one in updates.other_cases()}
    # Of two updates of `a` in a row the first is due, the second or none; `b` is due or not.
    assert {updates.case, *others} == {
        (x, y, z) for x, y in ((True, False), (False, True), (False, False)) for z in (True, False)
    }
    assert len(others) == 5


def test_steps_in_a_row_that_are_alike():
    optimizer = keras.optimizers.SGD(gradient_accumulation_steps=4)
    optimizer.build([keras.Variable([1.0])])
    counts, found = StepCounts([optimizer]), []
    for limit in (2, 5, 5, 5):
        case, steps = counts.next_case(limit)
        found.append((case, steps))
        counts.took(steps)
    assert found == [((False,), 2), ((False,), 1), ((True,), 1), ((False,), 3)]
    # Whoever writes to the counter is believed.
    optimizer._iterations.assign(3)
    assert counts.next_case(9) == ((True,), 1)


def test_the_other_process_is_met_where_an_update_is_due(twins):
    model = gatherer()
    seen = []
    for _ in range(7):
        before = twins.messages, model.layers[-1].kernel.numpy()
        model.train_on_batch(X, Y)
        changed = bool((model.layers[-1].kernel.numpy() != before[1]).any())
        seen.append((twins.messages - before[0], changed))
    assert seen == [(0, False), (0, False), (1, True)] * 2 + [(0, False)]
    assert int(model.optimizer.iterations) == 2


def test_a_count_that_is_set_between_steps(twins):
    model = gatherer()
    model.train_on_batch(X, Y)
    state = [v.numpy() for v in model.optimizer.variables]
    state[0] = np.int64(2)  # an update is due, of the sum of one gradient and the next one
    model.optimizer.set_weights(state)
    model.train_on_batch(X, Y)
    assert twins.messages == 1
    # The loss is (w1 + 2 w2)^2 for both samples: a gradient of 2 * 3 * (1, 2), twice of three.
    expected = 1 - 0.1 * 2 * 6 * np.array([[1.0], [2.0]]) / 3
    np.testing.assert_allclose(model.layers[-1].kernel.numpy(), expected, rtol=1e-6)


def test_one_process_has_one_program():
    model = gatherer()
    model.train_on_batch(X, Y)
    assert not any(isinstance(step, AccumulatingStep) for step in model._programs.values())


def test_a_step_that_updates_another_number_of_times(twins):
    class Fickle(keras.Sequential):
        recorded = 0

        def train_step(self, data):
            x, y, _ = data
            Fickle.recorded += 1
            for _ in range(min(2, Fickle.recorded)):
                loss = keras.ops.mean(keras.ops.square(self(x) - y))
                gradients = keras.gradients(loss, self.trainable_variables)
                self.optimizer.apply(gradients, self.trainable_variables)
            return {"loss": loss}

    model = Fickle([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=3), "mse")
    with pytest.raises(RuntimeError, match="updated weights 1 times and then 2 times"):
        model.train_on_batch(X, Y)
