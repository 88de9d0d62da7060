"""BatchNormalization with `renorm=True` gives what Keras' layer gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn
from kerascnn import layers

from ..comparing import keras, relative_error, run_here, run_keras
from ..parity import FEW
from ..several import check_description

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

LIMITS = st.sampled_from([None, {"rmax": 1.2}, {"rmin": 0.8, "rmax": 1.5, "dmax": 0.3}])


@st.composite
def configurations(draw):
    shape = draw(st.sampled_from([(8, 3), (4, 5, 4, 3), (4, 3, 5, 4)]))
    return {
        "axis": 1 if shape == (4, 3, 5, 4) else -1,
        "momentum": draw(st.sampled_from([0.5, 0.99])),
        "epsilon": draw(st.sampled_from([1e-3, 0.1])),
        "center": draw(st.booleans()),
        "scale": draw(st.booleans()),
        "renorm": True,
        "renorm_clipping": draw(LIMITS),
        "renorm_momentum": draw(st.sampled_from([0.5, 0.9])),
    }, shape


def test_values_gradients_and_averages_are_those_of_keras(device):
    @FEW
    @given(configuration=configurations(), seed=st.integers(0, 2**16))
    def check(configuration, seed):
        arguments, shape = configuration
        rng = np.random.default_rng(seed)
        x, direction = (rng.standard_normal(shape).astype("float32") for _ in range(2))
        with kerascnn.device(device):
            here = layers.BatchNormalization(**arguments)
            here.build(shape)
        there = keras.layers.BatchNormalization(**arguments)
        there.build(shape)
        assert [w.name for w in here.weights] == [w.name for w in there.weights]
        for own, other in zip(here.get_weights(), there.get_weights(), strict=True):
            np.testing.assert_allclose(own, other)
        values = [rng.uniform(0.5, 1.5, w.shape).astype("float32") for w in here.weights]
        here.set_weights(values)
        there.set_weights(values)
        for training in (True, False):
            expected = run_keras(there, [x], direction, training)
            for other in there.trainable_weights:
                other.value.grad = None
            actual = run_here(here, [x], direction, device, training)
            for a, e in zip(actual, expected, strict=True):
                # Gradients by x are differences of terms that cancel, for batches of 8 or more.
                assert relative_error(a, e) < 2e-4
            for own, other in zip(here.get_weights(), there.get_weights(), strict=True):
                assert relative_error(own, other) < 1e-5

    check()


def test_descriptions_are_those_of_keras():
    @FEW
    @given(configuration=configurations())
    def check(configuration):
        check_description("BatchNormalization", configuration[0], [configuration[1]])

    check()


@pytest.mark.parametrize("limits", [{"max": 1.0}, {"rmin": 2.0, "rmax": 1.0}, {"dmax": -1.0}])
def test_limits_that_keras_refuses(limits):
    for module in (layers, keras.layers):
        with pytest.raises(ValueError):
            module.BatchNormalization(renorm=True, renorm_clipping=limits)


def test_renormalization_in_fit(device, rng):
    x = rng.standard_normal((16, 4)).astype("float32")
    y = rng.standard_normal((16, 2)).astype("float32")

    def make(m):
        model = m.Sequential(
            [m.Input((4,)), m.layers.BatchNormalization(renorm=True), m.layers.Dense(2)]
        )
        model.compile(m.optimizers.SGD(0.1), "mse")
        return model

    with kerascnn.device(device):
        here, there = make(kerascnn), make(keras)
        values = [rng.uniform(0.5, 1.0, w.shape).astype("float32") for w in here.weights]
        here.set_weights(values)
        there.set_weights(values)
        for model in (here, there):
            model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        # The tolerance covers four float32 steps.
        for own, other in zip(here.get_weights(), there.get_weights(), strict=True):
            assert relative_error(own, other) < 1e-4
