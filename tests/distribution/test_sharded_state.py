"""Optimizer state that processes share: what needs no second process; see `test_training.py`."""

from __future__ import annotations

import numpy as np
import pytest

import kerascnn as keras
from kerascnn.distribution import replicas
from kerascnn.distribution.sharded_state import Elsewhere, Shards, partition

from .conftest import start
from .test_due_updates import Twins
from .test_training import check_equal, results

pytestmark = pytest.mark.usefixtures("on_cpu")


@pytest.fixture
def sharing(alone_afterwards):
    """The first of two processes that share the state."""
    twins = Twins()
    replicas.activate(replicas.Replicas(twins, shares_state=True))
    return twins


# Places in the state of Adam for these weights that the first of two processes has: the count of
# steps, the learning rate, and the slots of the first and the last weight.
OWN = (0, 1, 2, 3, 8, 9)


def weights():
    return [keras.Variable(np.ones(n, "float32"), name=f"w{n}") for n in (4, 3, 2, 2)]


def test_the_largest_weights_are_spread_first():
    assert partition([10, 70, 40, 30], 2) == [0, 0, 1, 1]
    assert partition([5, 5, 5], 5) == [0, 1, 2]
    assert partition([], 2) == []
    loads = np.zeros(3)
    sizes = np.random.default_rng(0).integers(1, 100, 50)
    np.add.at(loads, partition(sizes.tolist(), 3), sizes)
    assert loads.max() - loads.min() < 10


def test_a_process_has_slots_of_its_weights_only(sharing):
    adam = keras.optimizers.Adam(use_ema=True, gradient_accumulation_steps=2)
    adam.build(weights())
    held = [v.name for v in adam.variables]
    # It adds up its own gradients of all weights, until they are averaged in the owners.
    assert held == [
        *("iteration", "learning_rate", "w4_average", "w2_average"),
        *(f"w{n}_gradient_accumulator" for n in (4, 3, 2, 2)),
        *("w4_momentum", "w4_velocity", "w2_momentum", "w2_velocity"),
    ]
    there = [entry for entry in adam._whole_state() if isinstance(entry, Elsewhere)]
    assert [(e.name, e.owner, e.shape) for e in there[:2]] == [
        ("w3_average", 1, (3,)),
        ("w2_average", 1, (2,)),
    ]
    assert len(there) == 6
    with pytest.raises(RuntimeError, match="'adam.*/w3_average' is in process 1"):
        there[0].numpy()


def test_an_optimizer_that_was_built_before(alone_afterwards):
    variables = weights()
    adam = keras.optimizers.Adam(0.1)
    adam.build(variables)
    whole = adam.variables
    replicas.activate(replicas.Replicas(Twins(), shares_state=True))
    adam.apply([np.ones(v.shape, "float32") for v in variables], variables)
    own = [v for i, v in enumerate(whole) if i in OWN]
    assert all(a is b for a, b in zip(adam.variables, own, strict=True))
    # The other process sends what this one sends: its weights are those of this one.
    assert all((v.numpy() < 0.95).all() for v in variables)


def test_state_of_no_weight_in_particular(sharing):
    class Odd(keras.optimizers.Optimizer):
        def build(self, variables):
            super().build(variables)
            self.factor = self.add_variable((), name="factor")  # each process has it
            self.history = self.add_variable((2, 3), name="history")

    with pytest.raises(
        ValueError, match=r"Odd has a variable 'history' of shape \(2, 3\) .* leave"
    ):
        Odd(0.1).build(weights())


def test_processes_that_no_longer_share(sharing):
    variables = weights()
    sgd = keras.optimizers.SGD(0.1, momentum=0.9)
    sgd.build(variables)
    replicas.activate(None)
    with pytest.raises(RuntimeError, match="one of 2, and there is no sharing now"):
        sgd.apply([np.ones(v.shape, "float32") for v in variables], variables)
    with pytest.raises(RuntimeError, match="Save the model while that is set"):
        sgd.save_own_variables({})


def test_a_file_that_one_process_saves_alone(sharing, tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)

    def gather_objects(value, times=1):
        raise TimeoutError("Process 0 of 2 has waited for process 1.")

    sharing.gather_objects = gather_objects
    with pytest.raises(
        TimeoutError, match="waited for process 1. .* call model.save\\(\\) in each"
    ):
        model.save(tmp_path / "model.keras")


def test_whole_state_is_loaded_in_parts(sharing):
    replicas.activate(None)
    variables = weights()
    whole, part = (keras.optimizers.Adam(0.1, name="adam") for _ in range(2))
    whole.apply([np.full(v.shape, i + 1.0, "float32") for i, v in enumerate(variables)], variables)
    store = {}
    whole.save_own_variables(store)
    replicas.activate(replicas.Replicas(sharing, shares_state=True))
    part.build(variables)
    part.load_own_variables(store)
    by_name = {v.path: v.numpy() for v in whole.variables}
    assert len(part.variables) == 6
    for i in OWN:
        entry = part._whole_state()[i]
        np.testing.assert_array_equal(entry.numpy(), store[str(i)])
        assert entry.path in by_name


def test_shards_of_one_weight_leave_processes_without():
    shards = Shards(weights()[:1], 1, 3)
    assert shards.owners == [0] and not shards.is_own(0)


@pytest.mark.parametrize("size", [2, 3])
def test_all_optimizers(mpi, tmp_path, amount, size):
    """Each ends with the bits of one whose processes have all state."""
    jobs = amount([], ["sharded_all"])
    for count in (1, size) if jobs else ():
        (tmp_path / str(count)).mkdir()
        outcome = start(count, tmp_path / str(count), *jobs)
        assert outcome.code == 0, outcome.output
    for job in jobs:
        found = results(tmp_path / str(size), job)
        check_equal(found, results(tmp_path / "1", job))
        same = {name: bool(value) for name, value in found.items() if name.endswith("_same")}
        assert len(same) == 20 and all(same.values())
