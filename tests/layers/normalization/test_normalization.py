"""Normalization layers give what Keras' layers give."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn
from kerascnn import layers

from ..comparing import keras, relative_error, run_here
from ..parity import FEW, check_signature
from ..several import check_description, check_layer, draw_inputs

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning", "ignore:.*rms_scaling.*"
)

NAMES = ["LayerNormalization", "RMSNormalization", "GroupNormalization", "UnitNormalization"]
WEIGHTS = {
    "beta_initializer": "he_normal",
    "gamma_regularizer": "l2",
    "gamma_constraint": "non_neg",
}


@st.composite
def configurations(draw, name):
    """Draws arguments and the shape of an input."""
    rank = draw(st.integers(2, 4))
    shape = [2, *(draw(st.integers(3, 5)) for _ in range(rank - 1))]
    arguments = {}
    if name in ("LayerNormalization", "RMSNormalization"):
        # Only the last axes are drawn: the meaning of others depends on Keras' backend (see below).
        count = draw(st.integers(1, rank - 1))
        axes = list(range(-count, 0))
        arguments["axis"] = draw(st.sampled_from([axes, axes[::-1]])) if count > 1 else -1
    elif name == "UnitNormalization":
        axes = st.integers(-rank, rank - 1)
        arguments["axis"] = draw(
            st.one_of(
                axes, st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True)
            )
        )
    else:
        axis = draw(st.integers(1, rank - 1))
        groups = draw(st.sampled_from([1, 2, 3] if rank == 2 else [1, 2, 3, -1]))
        # A single element would equal its mean.
        shape[axis] = abs(groups) * draw(st.integers(3, 4))
        arguments = {"groups": groups, "axis": draw(st.sampled_from([axis, axis - rank]))}
    if name != "UnitNormalization":
        arguments["epsilon"] = draw(st.sampled_from([1e-3, 0.1]))
    if name in ("LayerNormalization", "GroupNormalization"):
        arguments |= {"center": draw(st.booleans()), "scale": draw(st.booleans())}
    return arguments, tuple(shape)


@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_keras(name, device):
    @FEW
    @given(configuration=configurations(name), seed=st.integers(0, 2**16))
    def check(configuration, seed):
        arguments, shape = configuration
        # Keras on PyTorch computes these layers in float32 whatever their dtype. Where the few
        # elements are close to one another, gradients are small differences of large numbers.
        check_layer(name, arguments, [shape], "float32", seed, device, 5e-4)

    check()


@pytest.mark.parametrize("name", NAMES)
def test_descriptions_are_those_of_keras(name):
    @FEW
    @given(configuration=configurations(name))
    def check(configuration):
        arguments, shape = configuration
        check_description(name, arguments, [shape])
        if name in ("LayerNormalization", "GroupNormalization"):
            check_description(name, {**arguments, **WEIGHTS}, [shape])

    check()
    check_signature(name)


@pytest.mark.parametrize("axis", [1, [1, 2], [1, 3], [2]])
def test_axes_are_those_that_were_named(axis, device, rng):
    """Keras on PyTorch uses the last axes instead where the named ones are adjacent."""
    x = rng.standard_normal((2, 3, 4, 5))
    axes = tuple(np.atleast_1d(axis))
    centred = x - x.mean(axes, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-3)
    size = x / np.sqrt((x**2).mean(axes, keepdims=True) + 1e-6)
    with kerascnn.device(device):
        actual = layers.LayerNormalization(axis=axis, dtype="float64")(x).numpy()
        scaled = layers.RMSNormalization(axis=axis, dtype="float64")(x).numpy()
    # Elements near the mean lose digits when it is taken off: of numbers of size 1, some 1e-16.
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(scaled, size, rtol=1e-10, atol=1e-13)


def group_normalized(x, gamma, beta, groups, epsilon, gradient):
    """Returns the output and the gradients of x, gamma and beta, in float64."""
    images = (len(x), -1, groups, x.shape[-1] // groups)
    over = {"axis": (1, 3), "keepdims": True}
    wide = x.astype("float64").reshape(images)
    inverse = 1 / np.sqrt(wide.var(**over) + epsilon)
    z = (wide - wide.mean(**over)) * inverse
    y = z.reshape(x.shape) * gamma + beta
    by_z = (gradient * gamma).reshape(images)
    by_x = inverse * (by_z - by_z.mean(**over) - z * (by_z * z).mean(**over))
    axes = tuple(range(x.ndim - 1))
    by_gamma = (gradient * z.reshape(x.shape)).sum(axes)
    return y, by_x.reshape(x.shape), by_gamma, gradient.sum(axes)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "groups"),
    [
        ((3, 5, 7, 12), 4),
        ((2, 9, 10), 5),
        ((1, 3, 2, 3, 9), 1),
        ((4, 6, 5), -1),
        ((2, 1, 1, 8), 2),
        ((5, 70, 70, 6), 3),
    ],
)
def test_groups_far_from_zero(shape, groups, dtype, compiled, device, rng, monkeypatch):
    """The mean is 20 deviations or more, and its square must not cost any digits."""
    for name, choice in (("CUDA", "2"), ("CPU", "1")):
        monkeypatch.setenv(f"KERASCNN_{name}_REGIONS", choice)  # this includes small regions
    x = (rng.standard_normal(shape) + 20).astype(dtype)
    gradient = rng.standard_normal(shape).astype(dtype)
    gamma, beta = rng.standard_normal((2, shape[-1])).astype(dtype)
    with kerascnn.device(device):
        layer = layers.GroupNormalization(groups, dtype=dtype)
        layer.build(shape)
        layer.set_weights([gamma, beta])
        inputs = kerascnn.ops.convert_to_tensor(x)
        given = kerascnn.ops.convert_to_tensor(gradient)

        def normalize(inputs, given):
            with kerascnn.GradientTape() as tape:
                tape.watch(inputs)
                y = layer(inputs)
            return [y, *tape.gradient(y, [inputs, layer.gamma, layer.beta], given)]

        found = (kerascnn.jit(normalize) if compiled else normalize)(inputs, given)
    wide = [each.astype("float64") for each in (gamma, beta)]
    expected = group_normalized(x, *wide, layer.groups, layer.epsilon, gradient.astype("float64"))
    # A mean of 20 is rounded to 2^-24 of that, and divided by the deviation, which may be small in
    # four elements. Sums of n products, and of a group's elements, add up about sqrt(n) roundings.
    images = x.astype("float64").reshape(len(x), -1, layer.groups, shape[-1] // layer.groups)
    deviations = np.sqrt(images.var((1, 3)) + layer.epsilon)
    unit = 20 / min(1, deviations.min()) * (2.0**-23 if dtype == "float32" else 2.0**-52)
    most = 8 + np.sqrt(x.size / min(len(x) * layer.groups, shape[-1]))
    for own, wanted in zip(found, expected, strict=True):
        atol = most * unit * np.abs(wanted).max()
        np.testing.assert_allclose(own.numpy(), wanted, rtol=8 * unit, atol=atol)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_groups_may_have_one_kernel_in_each_pass_of_a_step(dtype, cuda_device, monkeypatch):
    """The activation behind them is in it, and no activation is cast by itself."""
    monkeypatch.setenv("KERASCNN_GROUP_NORM_KERNELS", "1")
    policy = kerascnn.DTypePolicy(dtype)
    with kerascnn.device(cuda_device):
        inputs = kerascnn.Input((24, 20, 3))
        x = layers.Conv2D(16, 1, use_bias=False, dtype=policy)(inputs)
        x = layers.GroupNormalization(4, dtype=policy)(x)
        x = layers.Activation("silu", dtype=policy)(x)
        model = kerascnn.Model(inputs, layers.Conv2D(4, 1, dtype=policy)(x))
        model.compile("sgd", "mse")
        rng = np.random.default_rng(8)
        images, targets = rng.normal(size=(8, 24, 20, 3)), rng.normal(size=(8, 24, 20, 4))
        model.fit(images, targets, batch_size=8, verbose=0)
    (step,) = model._programs.values()
    calls = step.program.describe()
    own = [call["attributes"]["fusion"] for call in calls if "fusion" in call["attributes"]]
    assert [name for name in own if name.startswith("group_norm")] == [
        "group_norm",
        "group_norm_grad",
    ]
    text = step.program.to_string()
    assert "column_moments" not in text
    if dtype == "mixed_bfloat16":
        assert "float32 (8, 24, 20, 16)" not in text


def test_groups_of_no_sample(device):
    with kerascnn.device(device):
        y = layers.GroupNormalization(2)(np.zeros((0, 3, 4), "float32"))
    assert y.shape == (0, 3, 4)


def test_layer_normalization_by_the_variance_alone(device, rng):
    arguments = {"rms_scaling": True, "epsilon": 1e-2}
    check_layer("LayerNormalization", arguments, [(3, 4, 5)], "float32", 1, device)
    check_description("LayerNormalization", arguments, [(3, 4, 5)])


def test_half_floats_are_computed_in_float32(device, rng):
    x = (rng.standard_normal((4, 6)) * 200 + 2000).astype("float16")  # The squares overflow.
    for name in ("LayerNormalization", "GroupNormalization"):
        arguments = {"groups": 2} if name.startswith("Group") else {}
        with kerascnn.device(device):
            actual = getattr(layers, name)(**arguments, dtype="float16")(x).numpy()
        expected = getattr(keras.layers, name)(**arguments, dtype="float16")(x)
        # float16 keeps 11 bits.
        assert relative_error(actual, keras.ops.convert_to_numpy(expected)) < 2e-3


def test_zeros_have_no_length_and_stay(device):
    with kerascnn.device(device):
        y = layers.UnitNormalization()(np.zeros((2, 3), "float32")).numpy()
    np.testing.assert_array_equal(y, 0)


@pytest.mark.parametrize("inner", ["Dense", "Conv2D", "Embedding"])
def test_spectral_normalization_divides_as_keras_does(inner, device, rng):
    make = {
        "Dense": lambda m: m.layers.Dense(4),
        "Conv2D": lambda m: m.layers.Conv2D(3, 2),
        "Embedding": lambda m: m.layers.Embedding(6, 3),
    }[inner]
    shape = {"Dense": (3, 5), "Conv2D": (2, 5, 5, 2), "Embedding": (4,)}[inner]
    x = rng.integers(0, 6, shape).astype("int32" if inner == "Embedding" else "float32")
    pair = [m.layers.SpectralNormalization(make(m), power_iterations=2) for m in (kerascnn, keras)]
    if inner == "Embedding":  # Keras gives the output the dtype of the input.
        with kerascnn.device(device):
            assert pair[0](x[:, None], training=True).dtype == "int32"
        return
    with kerascnn.device(device):
        here, there = pair
        here.build(shape)
        there.build(shape)
        assert [w.name for w in here.weights] == [w.name for w in there.weights]
        values = [rng.standard_normal(w.shape).astype("float32") for w in here.weights]
        here.set_weights(values)
        there.set_weights(values)
        for training in (True, True, False):
            actual = here(x, training=training).numpy()
            expected = keras.ops.convert_to_numpy(there(x, training=training))
            assert relative_error(actual, expected) < 1e-5
        for own, other in zip(here.get_weights(), there.get_weights(), strict=True):
            assert relative_error(own, other) < 1e-5


def test_spectral_normalization_in_a_compiled_step(device, rng):
    """As in Keras, the gradient is by the divided kernel, and the layer keeps that kernel."""
    x = rng.standard_normal((3, 5)).astype("float32")
    values = [rng.standard_normal(s).astype("float32") for s in ((5, 4), (1, 4), (4,))]
    direction = rng.standard_normal((3, 4)).astype("float32")
    with kerascnn.device(device):
        here = layers.SpectralNormalization(layers.Dense(4))
        here.build((3, 5))
        here.set_weights(values)
        results = run_here(here, [x], direction, device, True)
        kernel = here.layer.kernel.numpy()
    there = keras.layers.SpectralNormalization(keras.layers.Dense(4))
    there.build((3, 5))
    there.set_weights(values)
    expected = keras.ops.convert_to_numpy(there(x, training=True))
    assert relative_error(results[0], expected) < 1e-5
    assert relative_error(kernel, keras.ops.convert_to_numpy(there.layer.kernel)) < 1e-5
    assert relative_error(results[2], x.T @ direction) < 1e-5


def test_spectral_normalization_leaves_zeros_alone(device):
    with kerascnn.device(device):
        layer = layers.SpectralNormalization(layers.Dense(2, kernel_initializer="zeros"))
        layer(np.ones((2, 3), "float32"), training=True)
        np.testing.assert_array_equal(layer.layer.kernel.numpy(), 0)


def test_spectral_normalization_has_keras_configuration():
    def make(m):
        return m.layers.SpectralNormalization(m.layers.Dense(2, name="in"), 3, name="out")

    here, there = make(kerascnn), make(keras)
    assert here.get_config()["power_iterations"] == there.get_config()["power_iterations"] == 3
    again = layers.deserialize(keras.layers.serialize(there))
    assert again.layer.units == 2
    assert again.get_config()["layer"]["config"] == here.get_config()["layer"]["config"]


@pytest.mark.parametrize(
    "make",
    [
        lambda m: m.LayerNormalization(axis="1"),
        lambda m: m.LayerNormalization(axis=3).compute_output_shape((2, 3)),
        lambda m: m.RMSNormalization(axis=3).compute_output_shape((2, 3)),
        lambda m: m.UnitNormalization(axis="1"),
        lambda m: m.UnitNormalization(axis=2).compute_output_shape((2, 3)),
        lambda m: m.GroupNormalization(groups=0),
        lambda m: m.GroupNormalization(groups=1.5),
        lambda m: m.GroupNormalization(groups=4)(np.ones((2, 3), "float32")),
        lambda m: m.GroupNormalization(groups=2)(np.ones((2, 3), "float32")),
        lambda m: m.GroupNormalization(groups=2).build((2, None)),
        lambda m: m.SpectralNormalization(m.Dense(2), power_iterations=0),
        lambda m: m.SpectralNormalization(m.Flatten())(np.ones((2, 3), "float32")),
        lambda m: m.SpectralNormalization("dense"),
    ],
)
def test_what_keras_refuses_is_refused_with_the_same_class(make):
    with pytest.raises((ValueError, TypeError)) as theirs:
        make(keras.layers)
    with pytest.raises(theirs.type):
        make(layers)


def test_penalties_and_constraints_are_on_the_right_weights(rng):
    arguments = {
        "gamma_regularizer": "l2",
        "beta_regularizer": "l1",
        "gamma_constraint": "non_neg",
    }
    x = draw_inputs([(2, 4)], "float32", rng)[0]
    for name in ("LayerNormalization", "GroupNormalization"):
        extra = {"groups": 2} if name.startswith("Group") else {}
        layer = getattr(layers, name)(**arguments, **extra)
        layer(x)
        assert layer.gamma.regularizer.l2 > 0
        assert layer.beta.regularizer.l1 > 0
        assert layer.gamma.constraint is not None


def test_batch_normalization_reads_its_weights_in_float32(device, rng):
    """As in Keras, mixed precision rounds neither the weights nor their gradients to 16 bits."""
    with kerascnn.device(device):
        layer = layers.BatchNormalization(epsilon=0.0, dtype="mixed_bfloat16")
        layer.build((None, 3))
        # bfloat16 has eight bits and would round the factor to 1.
        gamma, beta = np.full(3, 1 + 2.0**-9, "float32"), np.full(3, -256.0, "float32")
        layer.set_weights([gamma, beta, np.zeros(3, "float32"), np.ones(3, "float32")])
        halves = layer(np.full((2, 3), 256.0, "float32")).numpy()
        np.testing.assert_array_equal(halves.astype("float64"), np.full((2, 3), 0.5))

        x = kerascnn.ops.cast(rng.normal(size=(64, 3)), "bfloat16")
        # Without beta no two terms of the sum below cancel.
        layer.beta.assign(np.zeros(3, "float32"))
        with kerascnn.GradientTape() as tape:
            y = kerascnn.ops.cast(layer(x, training=True), "float32")
            total = kerascnn.ops.sum(kerascnn.ops.square(y))
        found = tape.gradient(total, layer.gamma).numpy()
    wide = x.numpy().astype("float64")
    gradients = 2 * y.numpy().astype("float64")  # These have eight bits, as the outputs do.
    expected = (gradients * (wide - wide.mean(0)) / wide.std(0)).sum(0)
    # Sums of 64 products in float32 err by less than 72 halves of their last place. A result
    # in bfloat16 would be off by 2^-10 or more in most cases.
    assert relative_error(found, expected) < 72 * 2.0**-24
