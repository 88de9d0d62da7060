"""Changes that batch hooks make to a model take effect between the steps, however these run."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core

from .helpers import blobs, classifier

BATCH = 4


def compiled(device):
    keras.utils.set_random_seed(4)
    with keras.device(device):
        model = classifier()
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5), "sparse_categorical_crossentropy")
    return model


def halve_kernel(model):
    kernel = model.layers[0].kernel
    kernel.assign(kernel * 0.5)


def change_rate(model):
    model.optimizer.learning_rate = 0.02


def set_weights(model):
    model.set_weights([np.ones(w.shape, "float32") for w in model.get_weights()])


def nothing(model):
    pass


CHANGES = {3: halve_kernel, 4: change_rate, 11: halve_kernel, 40: set_weights, 41: change_rate}


class Change(keras.callbacks.Callback):
    """Changes the model at the beginning or the end of some batches, and can look at it."""

    def __init__(self, at_end, look=None):
        super().__init__()
        self.at_end, self.look, self.seen = at_end, look, []

    def _act(self, batch):
        CHANGES.get(batch, nothing)(self.model)
        if self.look is not None and batch % 7 == 2:
            self.seen.append(self.look(self.model))

    def on_train_batch_begin(self, batch, logs=None):
        if not self.at_end:
            self._act(batch)

    def on_train_batch_end(self, batch, logs=None):
        if self.at_end:
            self._act(batch)


def by_hand(device, x, y, at_end):
    """Runs the same steps with one call each; returns weights and losses."""
    model = compiled(device)
    seen = []
    for batch in range(len(x) // BATCH):
        if not at_end:
            CHANGES.get(batch, nothing)(model)
            if batch % 7 == 2:
                seen.append(model.get_weights())
        rows = slice(batch * BATCH, (batch + 1) * BATCH)
        model.train_on_batch(x[rows], y[rows])
        if at_end:
            CHANGES.get(batch, nothing)(model)
            if batch % 7 == 2:
                seen.append(model.get_weights())
    return model.get_weights(), seen


LOOKS = {
    "nowhere": None,
    "weights": lambda model: model.get_weights(),
    "arrays": lambda model: [np.asarray(w.value).copy() for w in model.weights],
}


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("look", LOOKS)
def test_changes_lie_between_the_steps(device, at_end, look):
    x, y = blobs(60 * BATCH)
    expected, expected_seen = by_hand(device, x, y, at_end)
    for _ in range(2):
        model = compiled(device)
        hooks = Change(at_end, LOOKS[look])
        model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[hooks])
        for received, weight in zip(model.get_weights(), expected, strict=True):
            np.testing.assert_array_equal(received, weight)
        if LOOKS[look] is not None:
            for received, weights in zip(hooks.seen, expected_seen, strict=True):
                for one, weight in zip(received, weights, strict=True):
                    np.testing.assert_array_equal(one, weight)


def test_logs_of_a_batch_are_those_after_its_step(device):
    x, y = blobs(30 * BATCH)
    losses = []

    class Read(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch % 5 == 4:
                losses.append(logs["loss"])

    model = compiled(device)
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[Read()])
    expected, total = [], 0.0
    model = compiled(device)
    for batch in range(30):
        rows = slice(batch * BATCH, (batch + 1) * BATCH)
        total += float(np.float32(model.train_on_batch(x[rows], y[rows])))
        if batch % 5 == 4:
            expected.append(total / (batch + 1))
    # The device adds up to 30 float32 losses in float32; here they are added in float64.
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def counting_program(device):
    """Returns a program that adds a value to a variable, its input, and the variable."""
    graph = _core.Graph()
    total = _core.Variable("total", _core.zeros([3], "float32", device))
    x = graph.input("x", [3], "float32")
    (added,) = graph.apply("add", [graph.read(total), x], {})
    graph.assign(total, added)
    value = _core.from_numpy(np.array([1, 2, 3], "float32"), device)
    return _core.Program.compile(graph, [added], device), value, total


def test_steps_that_start_later_keep_their_order_with_everything_else(device):
    program, one, total = counting_program(device)
    ten = _core.from_numpy(np.array([10, 20, 30], "float32"), device)
    other, _, other_total = counting_program(device)
    drawn = np.random.default_rng(2)
    expected, expected_other = 0, 0
    for _ in range(300):
        match drawn.integers(8):
            case 0 | 1 | 2 | 3:
                program.run([one], 1, later=True)
                expected += 1
            case 4:
                steps = int(drawn.integers(1, 4))
                program.run([ten], steps, later=False)
                expected += 10 * steps
                assert program.outputs()[0].numpy()[0] == expected
            case 5:
                other.run([one], 2, later=True)
                expected_other += 2
            case 6:
                total.assign(_core.from_numpy(np.array([7, 14, 21], "float32"), device))
                expected = 7
            case _:
                assert total.value.numpy()[2] == 3 * expected
    np.testing.assert_array_equal(total.value.numpy(), np.array([1, 2, 3]) * expected)
    np.testing.assert_array_equal(other_total.value.numpy(), np.array([1, 2, 3]) * expected_other)


def test_steps_that_start_later_run_though_the_program_is_gone(device):
    program, one, total = counting_program(device)
    for _ in range(50):
        program.run([one], 1, later=True)
    del program, one
    np.testing.assert_array_equal(total.value.numpy(), [50, 100, 150])
