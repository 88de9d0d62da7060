"""A step's memory is known before it is allocated; the sizes follow by hand from the nets."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, layers

# Values of the arena begin at multiples of this many bytes.
ALIGNMENT = 256


@pytest.fixture(autouse=True)
def on_a_cpu():
    """Runs on a CPU, whose kernels need the same workspaces at every size."""
    with keras.device("cpu"):
        yield


@pytest.fixture
def regions(monkeypatch):
    """Forms regions as a GPU does for large tensors."""
    monkeypatch.setenv("KERASCNN_CPU_REGIONS", "1")


def dense_net(depth, width, activation):
    model = keras.Sequential(
        [keras.Input((width,))]
        + [layers.Dense(width, activation=activation) for _ in range(depth)]
        + [layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    return model


def test_nothing_is_allocated_for_it():
    model = dense_net(1, 1000, "relu")
    x, y = np.zeros((1, 1000), "float32"), np.zeros((1, 1), "float32")
    model.step_memory(x, y)  # this allocates what stays afterwards
    before = _core.memory_stats("cpu")["allocated"]
    batch = 100_000_000  # each result has 400 GB
    plan = model.step_memory(x, y, batch_size=batch)
    assert plan.batch_size == batch
    assert plan.intermediate >= 2 * 4000 * batch
    assert plan.total == plan.intermediate + plan.weights
    assert plan.weights >= (1000 * 1001 + 1001) * 4
    assert _core.memory_stats("cpu")["allocated"] - before < 1 << 20
    text = str(plan)
    assert f"batch_size={batch}" in text and "MiB" in text
    assert [v.bytes for v in plan.at_peak] == sorted((v.bytes for v in plan.at_peak), reverse=True)
    assert sum(value.bytes for value in plan.at_peak) <= plan.intermediate


def test_the_default_batch_is_that_of_fit():
    model = dense_net(1, 8, "relu")
    assert model.step_memory(np.zeros((100, 8)), np.zeros((100, 1))).batch_size == 32
    assert model.step_memory(np.zeros((7, 8)), np.zeros((7, 1))).batch_size == 7


def test_what_it_does_not_take():
    model = dense_net(1, 8, "relu")
    x, y = np.zeros((4, 8), "float32"), np.zeros((4, 1), "float32")
    with pytest.raises(ValueError, match="needs arrays"):
        model.step_memory(iter([(x, y)]))
    with pytest.raises(ValueError, match="batch_size"):
        model.step_memory(x, y, batch_size=0)
    model.compile("sgd", "mse", run_eagerly=True)
    with pytest.raises(ValueError, match="run_eagerly"):
        model.step_memory(x, y)
    with pytest.raises(ValueError, match="compile"):
        keras.Sequential([keras.Input((8,)), layers.Dense(1)]).step_memory(x, y)


def results_for_each_layer(make, width, batch=512):
    """Returns how many float32 values of (batch, width) each layer adds to the planned step."""
    x, y = np.zeros((1, width), "float32"), np.zeros((1, 1), "float32")
    sizes = [make(n).step_memory(x, y, batch_size=batch).intermediate for n in (4, 12)]
    return (sizes[1] - sizes[0]) / 8 / (batch * width * 4)


@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_of_dense_layers_one_value_each_is_kept(regions, activation):
    # The gradient of the activation reads the product's result. The gradient of the next weights
    # reads the activation, which is computed again from that result. A step needs the most memory
    # when the backward pass begins, and then there are no gradients of weights yet. 2% are for
    # alignment.
    kept = results_for_each_layer(lambda n: dense_net(n, 64, activation), 64)
    assert kept <= 1.02


def test_without_regions_two_values_are_kept():
    kept = results_for_each_layer(lambda n: dense_net(n, 64, "gelu"), 64)
    assert kept >= 1.9


def test_of_a_normalized_convolution_its_output_is_kept(regions):
    def make(depth):
        inputs = x = keras.Input((12, 10, 8))
        for _ in range(depth):
            x = layers.Conv2D(8, 3, padding="same", use_bias=False)(x)
            x = layers.Activation("relu")(layers.BatchNormalization()(x))
        model = keras.Model(inputs, layers.GlobalAveragePooling2D()(x))
        model.compile("sgd", "mse")
        return model

    x, y = np.zeros((1, 12, 10, 8), "float32"), np.zeros((1, 8), "float32")
    batch = 64
    sizes = []
    for depth in (4, 12):
        plan = make(depth).step_memory(x, y, batch_size=batch)
        # Workspaces depend on the convolutions, so only the kept values are counted.
        sizes.append(sum(v.bytes for v in plan.at_peak if v.op != "workspace"))
    value = batch * 12 * 10 * 8 * 4
    # These are values with one number for each channel, and gradients of weights.
    small = 40 * ALIGNMENT
    assert sizes[1] - sizes[0] <= 8 * (value + small)


def test_gradients_are_those_of_float64(regions, rng, monkeypatch):
    x = rng.normal(size=(8, 9, 7, 5))
    y = rng.integers(0, 3, 8)

    def gradients(policy):
        keras.utils.set_random_seed(1)
        inputs = keras.Input((9, 7, 5), dtype=policy)
        h = layers.Conv2D(16, 3, use_bias=False, dtype=policy)(inputs)
        h = layers.BatchNormalization(dtype=policy)(h)
        h = layers.Activation("relu", dtype=policy)(h)
        h = layers.Conv2D(16, 3, activation="gelu", dtype=policy)(h)
        h = layers.LayerNormalization(dtype=policy)(h)
        h = layers.Flatten(dtype=policy)(h)
        h = layers.Dense(20, activation="silu", dtype=policy)(h)
        model = keras.Model(inputs, layers.Dense(3, dtype=policy)(h))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype=policy)
        model.compile(keras.optimizers.SGD(1.0), loss)
        starts = np.random.default_rng(2)
        for variable in model.trainable_variables:
            variable.assign(starts.normal(size=variable.shape) * 0.3)
        before = [np.array(v, "float64") for v in model.trainable_variables]
        model.train_on_batch(x.astype(policy), y)
        after = [np.array(v, "float64") for v in model.trainable_variables]
        return [a - b for a, b in zip(before, after, strict=True)]

    received = gradients("float32")
    monkeypatch.delenv("KERASCNN_CPU_REGIONS")
    for a, b in zip(received, gradients("float64"), strict=True):
        # Float32 rounds through six layers, and gradients are subtracted from weights of up to 1.5.
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5 * max(1.0, np.abs(b).max()))
