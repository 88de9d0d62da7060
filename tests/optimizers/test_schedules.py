"""Learning-rate schedules are compared with Keras: values, configurations, use in fit."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kerascnn as keras
from kerascnn import _core, ops, optimizers
from kerascnn.optimizers import schedules
from kerascnn.tracing import Trace

other = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

rates = st.floats(1e-4, 1.0)
steps = st.integers(1, 40)
CONFIGURATIONS = st.one_of(
    st.builds(
        lambda name, r, s, d, c: (name, (r, s, d, c)),
        st.sampled_from(["ExponentialDecay", "InverseTimeDecay"]),
        rates,
        steps,
        st.floats(0.1, 0.99),
        st.booleans(),
    ),
    st.builds(
        lambda r, s, e, p, c: ("PolynomialDecay", (r, s, e, p, c)),
        rates,
        steps,
        rates,
        st.sampled_from([0.5, 1.0, 2.0, 3.0]),
        st.booleans(),
    ),
    st.builds(
        lambda b, r: ("PiecewiseConstantDecay", (sorted(b), r[: len(b) + 1])),
        st.lists(st.integers(0, 90), min_size=1, max_size=5, unique=True),
        st.lists(rates, min_size=6, max_size=6),
    ),
    st.builds(
        lambda r, s, a, w, n: ("CosineDecay", (r, s, a, "c", w, n)),
        rates,
        steps,
        st.floats(0.0, 0.5),
        st.one_of(st.none(), rates),
        steps,
    ),
    st.builds(
        lambda r, s, t, m, a: ("CosineDecayRestarts", (r, s, t, m, a)),
        rates,
        st.sampled_from([4, 8, 16, 10]),
        st.sampled_from([1.0, 2.0]),
        st.floats(0.5, 1.0),
        st.floats(0.0, 0.5),
    ),
)


def compiled_values(schedule, count, device):
    """Runs a schedule from a counter on the device, in a program that takes one step at a time."""
    counter = keras.Variable(0, dtype="int64", trainable=False, device_name=device)
    with keras.device(device), Trace(device) as trace:
        rate = schedule(counter)
        counter.assign(ops.add(counter.value, 1))
    program = _core.Program.compile(trace.graph, [rate], device)
    values = []
    for _ in range(count):
        program.run([], 1)
        values.append(float(program.outputs()[0].to("cpu").numpy()))
    return values


@settings(max_examples=60, deadline=None, database=None)
@given(configuration=CONFIGURATIONS)
def test_values_and_configurations_are_those_of_keras(configuration):
    name, arguments = configuration
    own = getattr(schedules, name)(*arguments)
    theirs = getattr(other.optimizers.schedules, name)(*arguments)
    expected = [float(theirs(step)) for step in range(100)]
    # About ten roundings of 6e-8 affect numbers as large as the first rate and the cosine's
    # argument.
    tolerance = {"rtol": 2e-5, "atol": 1e-6}
    np.testing.assert_allclose(compiled_values(own, 100, "cpu"), expected, **tolerance)
    for step in (0, 7, 99):
        np.testing.assert_allclose(float(own(step)), expected[step], **tolerance)
    assert own.get_config() == theirs.get_config()
    assert schedules.serialize(own) == other.optimizers.schedules.serialize(theirs)
    again = schedules.deserialize(other.optimizers.schedules.serialize(theirs))
    assert type(again) is type(own)
    assert again.get_config() == own.get_config()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ExponentialDecay", (0.5, 7, 0.5, True)),
        ("InverseTimeDecay", (0.5, 7, 0.5)),
        ("PolynomialDecay", (0.5, 7, 0.1, 2.0, True)),
        ("PiecewiseConstantDecay", ([3, 7], [0.5, 0.25, 0.125])),
        ("CosineDecay", (0.1, 20, 0.1, "c", 0.5, 5)),
        ("CosineDecayRestarts", (0.5, 4, 2.0, 0.5, 0.1)),
    ],
)
def test_every_schedule_on_every_device(name, arguments, device):
    theirs = getattr(other.optimizers.schedules, name)(*arguments)
    values = compiled_values(getattr(schedules, name)(*arguments), 30, device)
    expected = [float(theirs(step)) for step in range(30)]
    # The tolerance is the one above.
    np.testing.assert_allclose(values, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in schedules.__all__ if n[0].isupper()])
def test_signatures_are_those_of_keras(name):
    cls, theirs = getattr(schedules, name), getattr(other.optimizers.schedules, name)
    own, expected = (inspect.signature(c.__init__).parameters for c in (cls, theirs))
    defaults = {k: p.default for k, p in expected.items() if k not in ("args", "kwargs")}
    assert {k: p.default for k, p in own.items() if k not in ("args", "kwargs")} == defaults


@pytest.mark.parametrize("name", sorted(n for n in dir(other.optimizers.schedules) if n[0] != "_"))
def test_every_name_of_keras(name):
    assert hasattr(schedules, name)


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: schedules.ExponentialDecay(0.1, 0, 0.5), "decay_steps=0"),
        (lambda: schedules.InverseTimeDecay(0.1, -1, 0.5), "decay_steps=-1"),
        (lambda: schedules.PolynomialDecay(0.1, 0), "decay_steps=0"),
        (lambda: schedules.CosineDecay(0.1, 0), "decay_steps=0"),
        (lambda: schedules.CosineDecayRestarts(0.1, 0), "first_decay_steps=0"),
        (lambda: schedules.PiecewiseConstantDecay([1], [0.1]), "one value more"),
        (lambda: schedules.deserialize({"class_name": "Up", "config": {}}), "'Up'"),
    ],
)
def test_wrong_arguments(make, part):
    with pytest.raises(ValueError, match=part):
        make()


def test_a_scheduled_rate_is_read_and_not_set():
    optimizer = optimizers.SGD(schedules.ExponentialDecay(1.0, 1, 0.5))
    weight = keras.Variable([0.0])
    for _ in range(3):
        optimizer.apply([np.ones(1, "float32")], [weight])
    assert float(optimizer.learning_rate) == 0.125
    assert weight.numpy()[0] == -1.75
    with pytest.raises(TypeError, match="no value can be set"):
        optimizer.learning_rate = 0.1
    optimizer.learning_rate = schedules.PiecewiseConstantDecay([3], [0.0, 1.0])
    optimizer.apply([np.ones(1, "float32")])
    assert weight.numpy()[0] == -1.75


def test_a_number_gives_way_to_a_schedule():
    optimizer = optimizers.SGD(0.5)
    assert len(optimizer.variables) == 2
    optimizer.learning_rate = schedules.ExponentialDecay(1.0, 1, 0.5)
    assert [v.path.split("/")[1] for v in optimizer.variables] == ["iteration"]


def test_a_callable_rate():
    weight = keras.Variable([0.0])
    optimizers.SGD(lambda: 0.25).apply([np.ones(1, "float32")], [weight])
    assert weight.numpy()[0] == -0.25
