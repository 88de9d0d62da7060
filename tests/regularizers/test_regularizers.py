"""Regularizers equal Keras' alone and as part of the loss."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kerascnn as keras
from kerascnn import regularizers

other = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

weights = st.floats(0.0, 2.0)
CONFIGURATIONS = st.one_of(
    st.builds(lambda w: ("L1", {"l1": w}), weights),
    st.builds(lambda w: ("L2", {"l2": w}), weights),
    st.builds(lambda a, b: ("L1L2", {"l1": a, "l2": b}), weights, weights),
    st.builds(
        lambda w, m: ("OrthogonalRegularizer", {"factor": w, "mode": m}),
        weights,
        st.sampled_from(["rows", "columns"]),
    ),
)


@settings(max_examples=40, deadline=None, database=None)
@given(configuration=CONFIGURATIONS, seed=st.integers(0, 2**16))
def test_values_and_configurations_are_those_of_keras(configuration, seed):
    name, arguments = configuration
    own = getattr(regularizers, name)(**arguments)
    theirs = getattr(other.regularizers, name)(**arguments)
    x = np.random.default_rng(seed).normal(size=(5, 7)).astype("float32")
    expected = float(theirs(other.ops.convert_to_tensor(x)))
    # A penalty sums up to 49 rounded terms.
    assert float(own(x)) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert own.get_config() == theirs.get_config()
    assert regularizers.serialize(own) == other.regularizers.serialize(theirs)
    again = regularizers.deserialize(other.regularizers.serialize(theirs))
    assert again.get_config() == own.get_config()


@pytest.mark.parametrize("name", ["L1", "l1", "L2", "l2", "L1L2", "l1_l2", "OrthogonalRegularizer"])
def test_get_by_name(name):
    found = regularizers.get(name)
    cls = "L1L2" if name == "l1_l2" else name
    assert type(found).__name__.lower() == cls.lower()


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: regularizers.L1(-1.0), "l1=-1.0"),
        (lambda: regularizers.L2(float("nan")), "l2=nan"),
        (lambda: regularizers.L1L2(0.0, "big"), "l2='big'"),
        (lambda: regularizers.OrthogonalRegularizer(float("inf")), "factor=inf"),
        (lambda: regularizers.OrthogonalRegularizer(mode="row"), "mode='row'"),
        (lambda: regularizers.OrthogonalRegularizer()(np.ones((2, 2, 2))), "(2, 2, 2)"),
        (lambda: regularizers.get("l3"), "Could not interpret regularizer identifier: 'l3'"),
        (lambda: regularizers.get(3), "Could not interpret regularizer identifier: 3"),
    ],
)
def test_wrong_arguments(make, part):
    import re

    with pytest.raises(ValueError, match=re.escape(part)):
        make()


def network(module):
    image = module.Input((6, 6, 2))
    # Weights with a penalty of |w| start at 1: at 0, rounding would choose the sign of the
    # gradient.
    x = module.layers.Conv2D(
        3,
        3,
        kernel_regularizer="l2",
        bias_regularizer=module.regularizers.L1(0.1),
        bias_initializer="ones",
    )(image)
    x = module.layers.BatchNormalization(
        gamma_regularizer=module.regularizers.L2(0.02),
        beta_regularizer="l1",
        beta_initializer="ones",
    )(x)
    x = module.layers.Flatten()(x)
    x = module.layers.Dense(
        4,
        activation="relu",
        activity_regularizer=module.regularizers.L1L2(0.01, 0.02),
        kernel_regularizer=module.regularizers.OrthogonalRegularizer(0.5),
    )(x)
    x = module.layers.Dense(2, kernel_regularizer=lambda w: 0.03 * module.ops.sum(w * w))(x)
    return module.Model(image, x)


def test_penalties_are_part_of_the_loss(device):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(40, 6, 6, 2)).astype("float32")
    y = rng.normal(size=(40, 2)).astype("float32")
    # What the losses of nine steps differ by depends on the weights, whose draws are fixed here.
    keras.utils.set_random_seed(3)
    with keras.device(device):
        own = network(keras)
    theirs = network(other)
    theirs.set_weights(own.get_weights())
    results = []
    for module, model in ((keras, own), (other, theirs)):
        # At 0.05, training diverges for one in some thousand draws of the weights.
        model.compile(module.optimizers.SGD(0.01), "mse", metrics=["mae"])
        before = model.evaluate(x, y, batch_size=16, verbose=0)
        # The last batch is smaller, since activity penalties are divided by the number of samples.
        history = model.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0)
        results.append((before, history.history["loss"], history.history["mae"]))
    # There are nine float32 steps through convolution and batch statistics.
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)
    own(x[:8]), theirs(x[:8])
    mine = [float(np.asarray(loss)) for loss in own.losses]
    assert len(mine) == len(theirs.losses) == 7
    assert mine == pytest.approx([float(loss.detach()) for loss in theirs.losses], rel=1e-3)


def test_losses_can_be_read_after_fit():
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(2, kernel_regularizer="l2", activity_regularizer="l1"),
        ]
    )
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    kernel = model.get_weights()[0]
    # Penalties that depended on a batch ended with it.
    assert [float(loss) for loss in model.losses] == pytest.approx([0.01 * np.sum(kernel**2)])
    model(np.ones((4, 3), "float32"))
    assert len(model.losses) == 2


def test_frozen_weights_have_no_penalty():
    layer = keras.layers.Dense(2, kernel_regularizer="l2")
    layer(np.ones((1, 3), "float32"))
    assert len(layer.losses) == 1
    layer.trainable = False
    assert layer.losses == []


def test_configurations_of_layers_are_those_of_keras():
    for module in (keras, other):
        layer = module.layers.Dense(
            2,
            kernel_regularizer="l2",
            activity_regularizer=module.regularizers.L1(0.5),
            kernel_constraint=module.constraints.MaxNorm(3),
            name="d",
        )
        config = layer.get_config()
        kept = {k: v for k, v in config.items() if "regularizer" in k or "constraint" in k}
        if module is keras:
            expected = kept
            again = keras.layers.Dense.from_config(config)
            assert again.get_config() == config
    assert kept == expected
