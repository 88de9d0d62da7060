"""EinsumDense, Embedding, Lambda, Identity and wrappers give what Keras' layers give."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn
from kerascnn import layers

from ..comparing import keras, relative_error, run_here, run_keras
from ..parity import FEW, check_signature, plain
from ..several import check_description, check_layer, draw_inputs

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

EQUATIONS = [
    ("ab,bc->ac", 4, "c", (2, 3)),
    ("abc,cd->abd", (5, 4), "d", (2, 5, 3)),
    ("abc,cd->abd", (5, 4), None, (2, 5, 3)),
    ("abc,cd->abd", (5, 4), "bd", (2, 5, 3)),
    ("...x,xy->...y", 4, "y", (2, 5, 3)),
    ("...x,xy->...y", 4, "y", (2, 3)),
    ("abc,cde->abde", (5, 2, 3), "de", (2, 5, 4)),
    ("abcd,cde->abe", (5, 6), "e", (2, 5, 2, 3)),
    ("abc,bd->adc", (6, 3), "d", (2, 4, 3)),
    ("ab...,bc->ac...", (4,), "c", (2, 3, 5)),
]


@pytest.mark.parametrize(("equation", "output_shape", "bias_axes", "shape"), EQUATIONS)
def test_einsum_dense_is_that_of_keras(equation, output_shape, bias_axes, shape, device):
    arguments = {"equation": equation, "output_shape": output_shape, "bias_axes": bias_axes}
    arguments["activation"] = "tanh"
    check_layer("EinsumDense", arguments, [shape], "float32", 3, device)
    check_layer("EinsumDense", arguments, [shape], "float64", 4, device)
    check_description("EinsumDense", arguments, [shape])


def test_einsum_dense_finds_sizes_that_were_left_open(device):
    with kerascnn.device(device):
        layer = layers.EinsumDense("abc,cd->abd", (None, 4))
        assert layer(np.ones((2, 5, 3), "float32")).shape == (2, 5, 4)
    assert layer.compute_output_shape((None, None, 3)) == (None, None, 4)


@pytest.mark.parametrize("name", ["glorot_uniform", "he_normal"])
def test_einsum_dense_scales_first_values_by_its_axes(name):
    """As in Keras, fan-in and fan-out are those of the product, not of the kernel's last axes."""
    here = layers.EinsumDense("abc,cde->abde", (5, 20, 30), kernel_initializer=name)
    there = keras.layers.EinsumDense("abc,cde->abde", (5, 20, 30), kernel_initializer=name)
    for layer in (here, there):
        layer.build((2, 5, 40))
    # The standard deviation of 24000 draws has a relative error of 0.5%.
    ours, theirs = (layer.get_weights()[0].std() for layer in (here, there))
    assert ours == pytest.approx(theirs, rel=0.03)


@pytest.mark.parametrize(
    ("equation", "output_shape", "bias_axes", "shape"),
    [
        ("abc,cd", 4, None, (2, 5, 3)),
        ("abc,cd->abd", (6, 4), None, (2, 5, 3)),
        ("abc,cd->abe", (5, 4), None, (2, 5, 3)),
        ("abc,cd->abd", (5, 4), "e", (2, 5, 3)),
        ("abc,cdz->abd", (5, 4), None, (2, 5, 3)),
    ],
)
def test_equations_that_keras_refuses(equation, output_shape, bias_axes, shape):
    for module in (layers, keras.layers):
        with pytest.raises(ValueError):
            module.EinsumDense(equation, output_shape, bias_axes=bias_axes).build(shape)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32"])
@pytest.mark.parametrize("shape", [(3,), (3, 4), (2, 3, 2)])
def test_embedding_is_that_of_keras(shape, dtype, device, rng):
    numbers = rng.integers(0, 6, shape).astype(dtype)
    vectors = rng.standard_normal((6, 5)).astype("float32")
    direction = rng.standard_normal((*shape, 5)).astype("float32")
    with kerascnn.device(device):
        here = layers.Embedding(6, 5, weights=vectors)
        eager = here(numbers).numpy()
        if dtype.startswith("int"):
            with kerascnn.tracing.Trace(device) as trace:
                x = trace.graph.input("x", list(shape), dtype)
                with kerascnn.GradientTape() as tape:
                    loss = kerascnn.ops.sum(here(x) * direction)
                gradients = tape.gradient(loss, [here.embeddings])
            program = kerascnn._core.Program.compile(trace.graph, gradients, device)
            program.run([kerascnn._core.from_numpy(numbers, device)])
            summed = program.outputs()[0].numpy()
            expected = np.zeros((6, 5))
            np.add.at(expected, numbers.ravel(), direction.reshape(-1, 5))
            assert relative_error(summed, expected) < 1e-6
    there = keras.layers.Embedding(6, 5, weights=vectors)
    np.testing.assert_array_equal(eager, keras.ops.convert_to_numpy(there(numbers)))


def test_embedding_description():
    arguments = {"input_dim": 6, "output_dim": 5, "embeddings_constraint": "unit_norm"}
    arguments |= {"embeddings_initializer": "he_normal", "embeddings_regularizer": "l2"}
    check_description("Embedding", arguments, [(2, 3)])
    check_signature("Embedding")
    for number in (6, -1):
        with pytest.raises(IndexError):
            layers.Embedding(6, 5)(np.array([number]))
    for bad in (0, 1.5, True, None):
        for module in (layers, keras.layers):
            with pytest.raises(ValueError):
                module.Embedding(bad, 5)
            with pytest.raises(ValueError):
                module.Embedding(5, bad)


def test_identity_takes_any_structure(device, rng):
    x = draw_inputs([(2, 3)], "float32", rng)[0]
    with kerascnn.device(device):
        result = layers.Identity()({"a": x, "b": [x]})
        np.testing.assert_array_equal(result["b"][0].numpy(), x)
    check_description("Identity", {}, [(2, 3)])
    assert layers.Identity()(kerascnn.Input((3,), dtype="int32")).dtype == "int32"


def double(x, factor=2.0, training=None):
    """Doubles the input, and quadruples it in training."""
    return x * factor * (2.0 if training else 1.0)


def test_lambda_passes_arguments_and_training(device, rng):
    for arguments in ({}, {"arguments": {"factor": 3.0}}):
        with kerascnn.device(device):
            here = layers.Lambda(double, **arguments)
            there = keras.layers.Lambda(double, **arguments)
            x = draw_inputs([(2, 3)], "float32", rng)[0]
            for training in (False, True):
                actual = run_here(here, [x], x, device, training)
                expected = run_keras(there, [x], x, training)
                for a, e in zip(actual, expected, strict=True):
                    assert relative_error(a, e) < 1e-6


def test_lambda_configurations_go_both_ways():
    here = layers.Lambda(double, output_shape=(3,), arguments={"factor": 3.0}, name="a")
    there = keras.layers.Lambda(double, output_shape=(3,), arguments={"factor": 3.0}, name="a")
    ours, theirs = plain(here.get_config()), plain(there.get_config())
    assert ours.pop("function")["config"] == theirs.pop("function")["config"] == "double"
    assert ours == theirs
    custom = {"double": double}
    again = layers.deserialize(layers.serialize(here), custom_objects=custom)
    assert again.function is double
    assert again.compute_output_shape((None, 3)) == (None, 3)


def test_lambdas_need_an_unsafe_reading():
    layer = layers.Lambda(lambda x: x + 1.0, output_shape=lambda shape: shape)
    config = layer.get_config()
    with pytest.raises(ValueError, match="safe_mode=False"):
        layers.Lambda.from_config(config)
    again = layers.Lambda.from_config(config, safe_mode=False)
    assert again(np.zeros((1, 2), "float32")).numpy().tolist() == [[1.0, 1.0]]
    assert again.compute_output_shape((None, 2)) == (None, 2)
    other = keras.layers.Lambda(lambda x: x + 2.0).get_config()
    with pytest.raises(ValueError):
        layers.Lambda.from_config(other)
    read = layers.Lambda.from_config(other, safe_mode=False)
    assert read(np.zeros((1,), "float32")).numpy().tolist() == [2.0]
    assert keras.layers.Lambda.from_config(
        layers.Lambda(lambda x: x + 3.0).get_config(), safe_mode=False
    ).name


def test_lambda_in_a_functional_model(device):
    with kerascnn.device(device):
        x = kerascnn.Input((4,))
        model = kerascnn.Model(x, layers.Lambda(lambda t: t[:, :2] * 2.0)(x))
        assert model.output.shape == (None, 2)
        y = model.predict(np.ones((3, 4), "float32"), verbose=0)
    np.testing.assert_array_equal(y, np.full((3, 2), 2.0))


def test_shapes_of_a_function_that_fails_have_to_be_given():
    def fail(x):
        raise RuntimeError("no")

    for module in (layers, keras.layers):
        with pytest.raises(NotImplementedError):
            module.Lambda(fail).compute_output_shape((None, 2))
        assert module.Lambda(fail, output_shape=(5,)).compute_output_shape((2, 3)) == (2, 5)


def test_wrapper_owns_its_layer(rng):
    class Halved(layers.Wrapper):
        def call(self, inputs):
            return self.layer(inputs) * 0.5

    layer = Halved(layers.Dense(3, name="inside"), name="outside")
    x = draw_inputs([(2, 4)], "float32", rng)[0]
    y = layer(x).numpy()
    np.testing.assert_allclose(y, layer.layer(x).numpy() / 2, rtol=1e-6)
    assert [w.path for w in layer.weights] == ["outside/inside/kernel", "outside/inside/bias"]
    again = Halved.from_config(layer.get_config())
    assert again.layer.get_config() == layer.layer.get_config()
    for module in (layers, keras.layers):
        with pytest.raises(ValueError):
            module.Wrapper("dense")


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda m: m.layers.Dense(4, activation="tanh"), (2, 3, 5)),
        (lambda m: m.layers.Conv2D(3, 2), (2, 3, 5, 5, 2)),
        (lambda m: m.layers.BatchNormalization(momentum=0.5), (4, 3, 5)),
        (lambda m: m.layers.Flatten(), (2, 3, 4, 2)),
    ],
)
def test_time_distributed_is_that_of_keras(make, shape, device, rng):
    x = draw_inputs([shape], "float32", rng)[0]
    here = layers.TimeDistributed(make(kerascnn))
    there = keras.layers.TimeDistributed(make(keras))
    with kerascnn.device(device):
        here.build(shape)
        there.build(shape)
        values = [rng.uniform(0.2, 1.0, w.shape).astype("float32") for w in here.weights]
        here.set_weights(values)
        there.set_weights(values)
        given_shape = (None, *shape[1:])
        output_shape = here.compute_output_shape(given_shape)
        assert output_shape == tuple(there.compute_output_shape(given_shape))
        assert here(kerascnn.Input(shape[1:])).shape == output_shape
        direction = rng.uniform(0.5, 1.5, (shape[0], *output_shape[1:])).astype("float32")
        actual = run_here(here, [x], direction, device, True)
        expected = run_keras(there, [x], direction, True)
    for a, e in zip(actual, expected, strict=True):
        # Normalization by a batch of 4 makes gradients small differences of large numbers.
        assert relative_error(a, e) < 5e-4
    if len(here.weights) == 4:  # The moving averages change in each step.
        for own, other in zip(here.get_weights(), there.get_weights(), strict=True):
            assert relative_error(own, other) < 1e-5


def test_time_distributed_description():
    here = layers.TimeDistributed(layers.Dense(2, name="in"), name="out")
    there = keras.layers.TimeDistributed(keras.layers.Dense(2, name="in"), name="out")
    ours, theirs = plain(here.get_config()), plain(there.get_config())
    assert ours["layer"]["config"] == theirs["layer"]["config"]
    assert ours.keys() == theirs.keys()
    again = layers.deserialize(keras.layers.serialize(there))
    assert again.get_config()["layer"] == here.get_config()["layer"]
    for module in (layers, keras.layers):
        with pytest.raises(ValueError):
            module.TimeDistributed("dense")
        with pytest.raises(ValueError):
            module.TimeDistributed(module.Flatten()).compute_output_shape((2, 3))


# These arguments exist only for some layers: slopes, axes, shared parameters.
ACTIVATION_LAYERS = {
    "LeakyReLU": st.fixed_dictionaries({"negative_slope": st.sampled_from([0.0, 0.3, 1.5])}),
    "ELU": st.fixed_dictionaries({"alpha": st.sampled_from([0.5, 1.0, 2.0])}),
    "PReLU": st.fixed_dictionaries({"shared_axes": st.sampled_from([None, 1, [1, 2], [3]])}),
    "Softmax": st.fixed_dictionaries({"axis": st.sampled_from([-1, 1, (1, 2), (2, 3), (3,)])}),
    "ReLU": st.fixed_dictionaries(
        {
            "max_value": st.sampled_from([None, 0.5, 6.0]),
            "negative_slope": st.sampled_from([0.0, 0.2]),
            "threshold": st.sampled_from([0.0, 0.3]),
        }
    ),
}


@pytest.mark.parametrize("name", ACTIVATION_LAYERS)
def test_activation_layers_are_those_of_keras(name, device):
    @FEW
    @given(
        arguments=ACTIVATION_LAYERS[name],
        dtype=st.sampled_from(["float32", "float64"]),
        seed=st.integers(0, 2**16),
    )
    def check(arguments, dtype, seed):
        check_layer(name, arguments, [(2, 3, 4, 3)], dtype, seed, device)
        check_description(name, arguments, [(2, 3, 4, 3)])

    check()
    check_signature(name)


@pytest.mark.parametrize("axis", [-1, (1, 2)])
def test_softmax_with_a_mask(axis, device, rng):
    x = draw_inputs([(2, 3, 4)], "float32", rng)[0]
    for mask in (rng.random((2, 3, 4)) > 0.4, rng.random((3, 1)) > 0.4, rng.random((2, 3, 4))):
        with kerascnn.device(device):
            actual = layers.Softmax(axis)(x, mask=mask).numpy()
        expected = keras.layers.Softmax(axis)(x, mask=keras.ops.convert_to_tensor(mask))
        np.testing.assert_allclose(actual, keras.ops.convert_to_numpy(expected), atol=1e-6)
    with pytest.raises(ValueError, match="mask"):
        layers.Softmax(axis)(x, mask=np.ones((2, 2, 4), bool))


@pytest.mark.parametrize(
    "make",
    [
        lambda m: m.LeakyReLU(-1.0),
        lambda m: m.LeakyReLU(None),
        lambda m: m.ReLU(max_value=-1.0),
        lambda m: m.ReLU(threshold=-1.0),
    ],
)
def test_slopes_that_keras_refuses(make):
    for module in (layers, keras.layers):
        with pytest.raises(ValueError):
            make(module)


@pytest.mark.parametrize(
    ("equation", "output_shape", "bias_axes", "is_one_kernel"),
    [
        ("abc,cde->abde", (None, 3, 4), "de", True),
        ("abc,cd->abd", (None, 5), "d", True),
        ("abc,cde->abde", (None, 3, 4), "e", False),
        ("abc,cde->abde", (None, 3, 4), "bde", False),
    ],
)
def test_the_bias_of_projections_joins_the_product(
    equation, output_shape, bias_axes, is_one_kernel, device, rng
):
    x = rng.normal(size=(2, 6, 7)).astype("float32")
    with kerascnn.device(device):
        layer = layers.EinsumDense(
            equation, output_shape, bias_axes=bias_axes, bias_initializer="random_normal"
        )
        model = kerascnn.Sequential([kerascnn.Input((6, 7)), layer])
        y = model.predict(x, verbose=0)
    kernel, bias = (v.numpy().astype("float64") for v in (layer.kernel, layer.bias))
    # There are products of seven terms in float32, or TF32 on a GPU.
    np.testing.assert_allclose(y, np.einsum(equation, x, kernel) + bias, atol=1e-2, rtol=1e-2)
    (step,) = model._programs.values()
    ops = [call["op"] for call in step.program.describe()]
    assert ("dense" in ops) == is_one_kernel
