"""Constraints give Keras' results when they are called and after updates of a model."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kerascnn as keras
from kerascnn import constraints

other = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

limits = st.floats(0.1, 3.0)
axes = st.sampled_from([0, 1, -1, [0, 1], [0, 1, 2]])
CONFIGURATIONS = st.one_of(
    st.builds(lambda m, a: ("MaxNorm", {"max_value": m, "axis": a}), limits, axes),
    st.just(("NonNeg", {})),
    st.builds(lambda a: ("UnitNorm", {"axis": a}), axes),
    st.builds(
        lambda low, span, rate, a: (
            "MinMaxNorm",
            {"min_value": low, "max_value": low + span, "rate": rate, "axis": a},
        ),
        limits,
        limits,
        st.floats(0.0, 1.0),
        axes,
    ),
)


@settings(max_examples=40, deadline=None, database=None)
@given(configuration=CONFIGURATIONS, seed=st.integers(0, 2**16))
def test_values_and_configurations_are_those_of_keras(configuration, seed):
    name, arguments = configuration
    own = getattr(constraints, name)(**arguments)
    theirs = getattr(other.constraints, name)(**arguments)
    w = np.random.default_rng(seed).normal(size=(3, 2, 4, 2)).astype("float32")
    w[0, :, 0] = 0.0
    expected = other.ops.convert_to_numpy(theirs(other.ops.convert_to_tensor(w)))
    # A result is a root, a sum of up to 24 squares and a quotient, each rounded to 6e-8.
    np.testing.assert_allclose(own(w).numpy(), expected, rtol=2e-6, atol=1e-7)
    assert own.get_config() == theirs.get_config()
    assert constraints.serialize(own) == other.constraints.serialize(theirs)
    again = constraints.deserialize(other.constraints.serialize(theirs))
    assert again.get_config() == own.get_config()
    assert constraints.get(constraints.serialize(own)).get_config() == own.get_config()


@pytest.mark.parametrize("name", ["MaxNorm", "max_norm", "NonNeg", "non_neg", "unit_norm"])
def test_get_by_name(name):
    assert type(constraints.get(name)).__name__ == type(other.constraints.get(name)).__name__
    assert isinstance(constraints.get(name), constraints.Constraint)


def test_get_leaves_what_it_can_use():
    halve = lambda w: w * 0.5  # noqa: E731
    assert constraints.get(halve) is halve
    assert constraints.get(None) is None
    assert isinstance(constraints.get(constraints.NonNeg), constraints.NonNeg)


@pytest.mark.parametrize("bad", ["max_nrom", 7])
def test_wrong_identifiers(bad):
    with pytest.raises(ValueError, match=r"Could not interpret constraint identifier: .*"):
        constraints.get(bad)


def test_layers_hold_their_constraints_in_training(device):
    def network(module):
        return module.Sequential(
            [
                module.Input((6, 6, 2)),
                module.layers.Conv2D(
                    3, 3, kernel_constraint=module.constraints.MaxNorm(0.5, [0, 1, 2])
                ),
                module.layers.BatchNormalization(gamma_constraint="non_neg"),
                module.layers.Flatten(),
                module.layers.Dense(2, kernel_constraint="unit_norm", bias_constraint="non_neg"),
            ]
        )

    rng = np.random.default_rng(3)
    x = rng.normal(size=(32, 6, 6, 2)).astype("float32")
    y = rng.normal(size=(32, 2)).astype("float32")
    with keras.device(device):
        own = network(keras)
    theirs = network(other)
    theirs.set_weights(own.get_weights())
    for module, model in ((keras, own), (other, theirs)):
        model.compile(module.optimizers.SGD(0.1), "mse")
        model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
    # There are twelve float32 steps through convolution and batch statistics. Each step enlarges
    # rounding errors of 1e-6.
    for a, b in zip(own.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    kernel, bias = own.layers[-1].get_weights()
    np.testing.assert_allclose(np.linalg.norm(kernel, axis=0), 1.0, rtol=1e-5)
    assert (bias >= 0).all()
    filters = own.layers[0].get_weights()[0].reshape(-1, 3)
    assert (np.linalg.norm(filters, axis=0) <= 0.5 + 1e-5).all()
