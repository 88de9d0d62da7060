"""keras.quantizers and the policies of quantized layers equal Keras'."""

from __future__ import annotations

import numpy as np
import pytest

import kerascnn

keras = pytest.importorskip("keras")

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

AXES = [0, -1, (0, 2), 1]


def array_of(x):
    return np.asarray(keras.ops.convert_to_numpy(x))


@pytest.mark.parametrize("to_numpy", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
def test_abs_max_quantize(axis, to_numpy, device, rng):
    x = (rng.standard_normal((4, 5, 7)) * rng.uniform(0.01, 100)).astype("float32")
    x[1] = 0  # The scale of zeros comes from epsilon alone.
    options = {"value_range": (-100, 101), "epsilon": 1e-5, "to_numpy": to_numpy}
    with kerascnn.device(device):
        given = kerascnn.ops.convert_to_tensor(x)
        ours = kerascnn.quantizers.abs_max_quantize(given, axis, **options)
    # Keras' NumPy path needs an array: a PyTorch tensor may have to be detached.
    theirs = keras.quantizers.abs_max_quantize(keras.ops.convert_to_tensor(x), axis, **options)
    assert [t.dtype for t in ours] == ["int8", "float32"]
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one.numpy(), array_of(other))


def test_halves_go_to_the_even_neighbour():
    x = np.array([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]], "float32")
    integers, scale = kerascnn.quantizers.abs_max_quantize(x, 1, epsilon=0.0)
    assert scale.numpy().tolist() == [[1.0]]
    assert integers.numpy().tolist() == [[127, 0, 2, 2, 0, -2]]


@pytest.mark.parametrize("arguments", [{}, {"axis": 1}, {"axis": (0, 1), "value_range": (-8, 7)}])
def test_configurations(arguments):
    pair = [k.quantizers.AbsMaxQuantizer(**arguments) for k in (kerascnn, keras)]
    assert pair[0].get_config() == pair[1].get_config()
    configs = [k.quantizers.serialize(q) for k, q in zip((kerascnn, keras), pair, strict=True)]
    assert configs[0] == configs[1]
    for k in (kerascnn, keras):
        again = k.quantizers.deserialize(configs[0])
        assert again.get_config() == pair[0].get_config()
    config = kerascnn.quantizers.Int8QuantizationConfig(pair[0], None)
    theirs = keras.quantizers.Int8QuantizationConfig(pair[1], None)
    described = kerascnn.saving.serialize_keras_object(config)
    assert described == keras.saving.serialize_keras_object(theirs)
    again = kerascnn.saving.deserialize_keras_object(described)
    assert again.mode == "int8" and again.activation_quantizer is None
    assert again.weight_quantizer.get_config() == pair[0].get_config()


def test_get():
    get = kerascnn.quantizers.get
    quantizer = kerascnn.quantizers.AbsMaxQuantizer(axis=2)
    assert get(None) is None and get(quantizer) is quantizer
    assert get(kerascnn.quantizers.serialize(quantizer)).axis == (2,)
    assert get("abs_max_quantizer", axis=1).axis == get("AbsMaxQuantizer", axis=1).axis == (1,)
    with pytest.raises(ValueError, match="Could not interpret quantizer identifier: 'abs_max'"):
        get("abs_max")
    with pytest.raises(ValueError, match="int8 holds integers from -128 to 127"):
        kerascnn.quantizers.AbsMaxQuantizer(value_range=(-129, 127))
    with pytest.raises(ValueError, match="must give int8"):
        kerascnn.quantizers.Int8QuantizationConfig(
            kerascnn.quantizers.AbsMaxQuantizer(output_dtype="int16")
        )
    with pytest.raises(NotImplementedError):
        kerascnn.Quantizer().get_config()


@pytest.mark.parametrize("source", ["float32", "bfloat16", "mixed_bfloat16", "float64"])
def test_policies(source):
    name = f"int8_from_{source}"
    ours, theirs = (k.dtype_policies.get(name) for k in (kerascnn, keras))
    for attribute in ("name", "compute_dtype", "variable_dtype", "quantization_mode"):
        assert getattr(ours, attribute) == getattr(theirs, attribute)
    assert ours.get_config() == theirs.get_config()
    assert repr(ours) == repr(theirs)
    described = kerascnn.dtype_policies.serialize(ours)
    assert described == keras.dtype_policies.serialize(theirs)
    assert kerascnn.dtype_policies.deserialize(described) == ours
    assert ours != kerascnn.DTypePolicy(source)
    assert ours == kerascnn.dtype_policies.QuantizedDTypePolicy("int8", source)


def test_the_global_policy():
    kerascnn.config.set_dtype_policy("int8_from_float32")
    try:
        layer = kerascnn.layers.Dense(3)
        layer.build((None, 4))
        assert layer.kernel.dtype == "int8"
        model = kerascnn.Sequential([kerascnn.Input((4,)), layer, kerascnn.layers.Dropout(0.5)])
        assert model.predict(np.ones((2, 4)), verbose=0).shape == (2, 3)
    finally:
        kerascnn.config.set_dtype_policy("float32")
    assert kerascnn.dtype_policies.QuantizedDTypePolicy("int8").name == "int8_from_float32"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("int8_from_float16", "do not fit into float16"),
        ("int8_from_mixed_float16", "do not fit into float16"),
        ("int4_from_float32", "'int4' is not available here; take mode='int8'"),
        ("int4/128_from_float32", "take mode='int8'"),
        ("float8_from_float32", "take mode='int8'"),
        ("int8_from_int9", "is not a dtype policy"),
    ],
)
def test_policies_that_are_not_there(name, message):
    with pytest.raises(ValueError, match=message):
        kerascnn.dtype_policies.get(name)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((4, 5, 3), None), ((4, 5, 3), -1), ((6, 3), 1)])
def test_fake_quantization_and_its_gradients(shape, axis, narrow, device, rng):
    x = (4 * rng.standard_normal(shape)).astype("float32")
    count = () if axis is None else (shape[axis],)
    limits = [sign * rng.uniform(1, 4, count).astype("float32") for sign in (-1, 1)]
    weights = rng.standard_normal(shape).astype("float32")
    options = {"num_bits": 5, "narrow_range": narrow, "axis": axis}
    torch = pytest.importorskip("torch")
    theirs = [torch.tensor(np.asarray(v), requires_grad=True) for v in (x, *limits)]
    y = keras.quantizers.fake_quant_with_min_max_vars(*theirs, **options)
    (y * torch.tensor(weights)).sum().backward()
    expected = [y.detach().numpy(), *(t.grad.numpy() for t in theirs)]

    def run(*tensors):
        with kerascnn.GradientTape() as tape:
            for t in tensors:
                tape.watch(t)
            y = kerascnn.quantizers.fake_quant_with_min_max_vars(*tensors, **options)
            loss = kerascnn.ops.sum(y * weights)
        return [y, *tape.gradient(loss, list(tensors))]

    with kerascnn.device(device):
        tensors = [kerascnn.ops.convert_to_tensor(v) for v in (x, *limits)]
        for found in (run(*tensors), kerascnn.jit(run)(*tensors)):
            for one, other in zip(found, expected, strict=True):
                # A number halfway between two steps may go to either one; sums have about 60 terms.
                close = np.isclose(one.numpy(), other, rtol=1e-5, atol=1e-5)
                assert close.mean() > 0.95, (one.numpy(), other)


def test_fake_quantization_of_a_functional_model():
    x = kerascnn.Input((3,))
    model = kerascnn.Model(x, kerascnn.quantizers.fake_quant_with_min_max_vars(x, -1.0, 2.0, 2))
    given = np.array([[-2.0, 0.1, 5.0]], "float32")
    np.testing.assert_array_equal(model.predict(given, verbose=0), [[-1.0, 0.0, 2.0]])
    with pytest.raises(ValueError, match="axis 2 does not exist"):
        kerascnn.quantizers.fake_quant_with_min_max_vars(given, [-1.0], [1.0], axis=2)
    with pytest.raises(ValueError, match="fewer than 2"):
        kerascnn.quantizers.fake_quant_with_min_max_vars(given, -1.0, 1.0, num_bits=1)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(("dtype", "low", "high"), [("int8", -8, 8), ("uint8", 0, 16)])
def test_two_integers_in_a_byte(dtype, low, high, axis, device, rng):
    x = rng.integers(low, high, (5, 3, 7)).astype(dtype)
    theirs = keras.quantizers.pack_int4(keras.ops.convert_to_tensor(x), axis, dtype)
    with kerascnn.device(device):
        packed, shape, length = kerascnn.quantizers.pack_int4(x, axis, dtype)
        np.testing.assert_array_equal(packed.numpy(), array_of(theirs[0]))
        assert (shape, length) == (tuple(theirs[1]), theirs[2])
        again = kerascnn.quantizers.unpack_int4(packed, length, axis, dtype)
        compiled = kerascnn.jit(lambda p: kerascnn.quantizers.unpack_int4(p, length, axis, dtype))
        for found in (again, compiled(packed)):
            assert found.dtype == dtype
            np.testing.assert_array_equal(found.numpy(), x)
    with pytest.raises(TypeError, match="expected a tensor of"):
        kerascnn.quantizers.pack_int4(x.astype("int32"), axis, dtype)
    with pytest.raises(ValueError, match="must be 'int8' or 'uint8'"):
        kerascnn.quantizers.unpack_int4(packed, length, axis, "int32")


@pytest.mark.parametrize("largest", [0.0, 3.0, np.inf])
def test_scales_of_float8(largest, rng):
    history, x = rng.uniform(0, 3, 5).astype("float32"), rng.standard_normal(4).astype("float32")
    found, expected = [
        array_of(
            k.quantizers.compute_float8_amax_history(
                k.ops.convert_to_tensor(x), k.ops.convert_to_tensor(history)
            )
        )
        for k in (kerascnn, keras)
    ]
    np.testing.assert_array_equal(found, expected)
    scales = [
        float(k.quantizers.compute_float8_scale(k.ops.convert_to_tensor(largest), 2.0, 448.0, 1))
        for k in (kerascnn, keras)
    ]
    assert scales[0] == pytest.approx(scales[1], rel=1e-6)
