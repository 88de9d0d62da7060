"""Layers and models in int8 give what Keras on PyTorch gives from the same weights."""

from __future__ import annotations

import numpy as np
import pytest

import kerascnn
from kerascnn import layers

from ..comparing import keras, relative_error

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*The use of `x.T`:UserWarning"),
    pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer:UserWarning"),
]

# Each entry has a layer that takes floats, its arguments, and the shape of an input.
FLOATING = {
    "dense": ("Dense", {"units": 6, "activation": "tanh"}, (3, 12)),
    "dense of rank 3": ("Dense", {"units": 5, "use_bias": False}, (2, 3, 7)),
    "heads": (
        "EinsumDense",
        {"equation": "abc,cde->abde", "output_shape": (5, 2, 3), "bias_axes": "de"},
        (2, 5, 4),
    ),
    "heads joined": (
        "EinsumDense",
        {"equation": "abcd,cde->abe", "output_shape": (4, 6), "bias_axes": "e"},
        (2, 4, 3, 5),
    ),
    "turned": ("EinsumDense", {"equation": "abc,dc->adb", "output_shape": (6, 5)}, (3, 5, 4)),
}
EMBEDDINGS = {
    "embedding": ("Embedding", {"input_dim": 9, "output_dim": 4}, (3, 2)),
    "reversible": ("ReversibleEmbedding", {"input_dim": 9, "output_dim": 4}, (3, 2)),
    "apart": (
        "ReversibleEmbedding",
        {"input_dim": 9, "output_dim": 5, "tie_weights": False, "logit_soft_cap": 2.0},
        (3, 2),
    ),
}
# Both libraries do the same operations in the same order, so only the addition of the bias and the
# activation round differently. In bfloat16, products lose all but 8 bits before the division.
TOLERANCE = {"float32": 1e-5, "mixed_bfloat16": 2.0**-6}


def make_inputs(name, arguments, shape, rng):
    if "Embedding" in name:
        return rng.integers(0, arguments["input_dim"], shape).astype("int32")
    return rng.standard_normal(shape).astype("float32")


def make_pair(name, arguments, shape, rng, device="cpu", **further):
    """Builds the layer and Keras' layer with the same random weights."""
    pair = []
    for module in (kerascnn, keras):
        with kerascnn.device(device):
            pair.append(getattr(module.layers, name)(**arguments, **further, name="a_layer"))
            pair[-1].build(shape)
    values = [rng.standard_normal(w.shape).astype("float32") for w in pair[0].weights]
    for layer in pair:
        layer.set_weights(values)
    return pair


def quantization_config(module, kind):
    made = module.quantizers
    if kind == "default":
        return None
    if kind == "weights only":
        return made.Int8QuantizationConfig(activation_quantizer=None)
    quantizer = made.AbsMaxQuantizer(value_range=(-50, 50), epsilon=1e-3)
    return made.Int8QuantizationConfig(activation_quantizer=quantizer)


def as_array(x):
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(x, "float32")))


def here(x):
    return kerascnn.ops.cast(x, "float32").numpy()


def check_weights(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.path, a.shape, a.dtype, a.trainable) == (
            b.path,
            tuple(b.shape),
            b.dtype,
            b.trainable,
        )
        np.testing.assert_array_equal(a.numpy(), keras.ops.convert_to_numpy(b))


@pytest.mark.parametrize("policy", TOLERANCE)
@pytest.mark.parametrize("kind", ["default", "weights only", "narrow"])
@pytest.mark.parametrize("case", [*FLOATING, *EMBEDDINGS])
def test_layers(case, kind, policy, device, rng):
    name, arguments, shape = {**FLOATING, **EMBEDDINGS}[case]
    pair = make_pair(name, arguments, shape, rng, device, dtype=policy)
    x = make_inputs(name, arguments, shape, rng)
    for module, layer in zip((kerascnn, keras), pair, strict=True):
        layer.quantize("int8", config=quantization_config(module, kind))
        assert layer.quantization_mode == "int8"
        assert layer.dtype_policy.name == f"int8_from_{policy}"
    ours, theirs = pair
    check_weights(ours.weights, theirs.weights)
    error = relative_error(here(ours(x)), as_array(theirs(x)))
    assert error < TOLERANCE[policy]
    if name == "ReversibleEmbedding":
        vectors = rng.standard_normal((2, 3, arguments["output_dim"])).astype("float32")
        scores = here(ours(vectors, reverse=True)), as_array(theirs(vectors, reverse=True))
        assert relative_error(*scores) < TOLERANCE[policy]


@pytest.mark.parametrize("case", [*FLOATING, *EMBEDDINGS])
def test_descriptions(case, rng):
    """Each library reads the other's configuration and makes the same weights from it."""
    name, arguments, shape = {**FLOATING, **EMBEDDINGS}[case]
    pair = make_pair(name, arguments, shape, rng)
    configs = []
    for module, layer in zip((kerascnn, keras), pair, strict=True):
        layer.quantize(config=quantization_config(module, "narrow"))
        configs.append(module.saving.serialize_keras_object(layer))
    described = [config["config"] for config in configs]
    for entry in ("dtype", "quantization_config"):
        assert described[0][entry] == described[1][entry]
    for config in configs:
        made = kerascnn.saving.deserialize_keras_object(config)
        again = keras.saving.deserialize_keras_object(config)
        shown = [
            [(w.path, tuple(w.shape), w.dtype, w.trainable) for w in layer.weights]
            for layer in (made, again)
        ]
        assert shown[0] == shown[1]
        assert made.inputs_quantizer is None or made.inputs_quantizer.value_range == (-50, 50)


# Keras cannot differentiate this layer when only its weights are quantized.
KEPT = [(case, kind) for case in FLOATING for kind in ("default", "weights only")]
KEPT.remove(("turned", "weights only"))


@pytest.mark.parametrize(("case", "kind"), KEPT)
def test_gradients_by_inputs(case, kind, device, rng):
    """Gradients pass as if the inputs had not been rounded; integer weights get none."""
    import torch

    name, arguments, shape = FLOATING[case]
    pair = make_pair(name, arguments, shape, rng, device)
    for module, layer in zip((kerascnn, keras), pair, strict=True):
        layer.quantize("int8", config=quantization_config(module, kind))
    ours, theirs = pair
    x = make_inputs(name, arguments, shape, rng)
    given = torch.tensor(x, requires_grad=True)
    outputs = theirs(given)
    direction = rng.standard_normal(outputs.shape).astype("float32")
    (outputs * torch.tensor(direction)).sum().backward()
    with kerascnn.device(device):
        here_given = kerascnn.ops.convert_to_tensor(x)
        with kerascnn.GradientTape() as tape:
            tape.watch(here_given)
            loss = kerascnn.ops.sum(ours(here_given) * direction)
        gradient = tape.gradient(loss, here_given)
        # GPUs multiply floats in TF32.
        tolerance = 1e-5 if device == "cpu" else 2e-3
    assert relative_error(gradient.numpy(), given.grad.numpy()) < tolerance
    assert [w.name for w in ours.trainable_weights] == [w.name for w in theirs.trainable_weights]


@pytest.mark.parametrize("first", ["adapted first", "quantized first"])
@pytest.mark.parametrize("case", ["dense", "heads", "embedding"])
def test_low_rank_adaptation(case, first, rng):
    name, arguments, shape = {**FLOATING, **EMBEDDINGS}[case]
    pair = make_pair(name, arguments, shape, rng)
    which = "embeddings" if name == "Embedding" else "kernel"
    factors = None
    stores = []
    outputs = []
    x = make_inputs(name, arguments, shape, rng)
    for layer in pair:
        steps = [lambda layer=layer: layer.enable_lora(2, lora_alpha=3.0)]
        steps.insert(first == "adapted first", lambda layer=layer: layer.quantize("int8"))
        for step in steps:
            step()
        adapted = [getattr(layer, f"lora_{which}_{part}") for part in "ab"]
        if factors is None:
            factors = [rng.standard_normal(w.shape).astype("float32") for w in adapted]
        for weight, value in zip(adapted, factors, strict=True):
            weight.assign(value)
        outputs.append(layer(x))
        stores.append({})
        layer.save_own_variables(stores[-1])
    check_weights(pair[0].weights, pair[1].weights)
    assert relative_error(here(outputs[0]), as_array(outputs[1])) < 1e-5
    assert stores[0].keys() == stores[1].keys()
    for key, kept in stores[0].items():
        expected = keras.ops.convert_to_numpy(stores[1][key])
        assert kept.dtype == expected.dtype
        # The sum of products is rounded differently, so a value halfway between two integers may go
        # to the other one.
        np.testing.assert_allclose(kept, expected, atol=kept.dtype == np.int8, rtol=1e-5)


@pytest.mark.parametrize(
    ("equation", "named", "size", "shape"),
    [
        ("...x,xy->...y", "abx,xy->aby", 4, (2, 3, 5)),
        ("ab...,bc->ac...", "abd,bc->acd", 4, (2, 6, 3)),
    ],
)
def test_axes_without_a_name(equation, named, size, shape, rng):
    """Keras cannot quantize a layer with an ellipsis; it equals one with a letter for each axis."""
    outputs = []
    x = rng.standard_normal(shape).astype("float32")
    kernel = rng.standard_normal((shape[-1] if "x" in equation else shape[1], size))
    for text in (equation, named):
        full = {"...x,xy->...y": 4, "abx,xy->aby": (None, 4), "abd,bc->acd": (4, None)}
        layer = layers.EinsumDense(text, full.get(text, 4))
        layer.build(shape)
        layer.set_weights([kernel.astype("float32")])
        layer.quantize("int8")
        outputs.append((layer.kernel_scale.numpy(), layer(x).numpy()))
    for one, other in zip(*outputs, strict=True):
        np.testing.assert_array_equal(one, other)
    assert outputs[0][0].size == size


def test_low_rank_adaptation_of_a_kernel_whose_last_axis_is_summed(rng):
    """Keras cannot multiply such an adaptation in int8, so the float layer is the reference."""
    name, arguments, shape = FLOATING["turned"]
    x = rng.standard_normal(shape).astype("float32")
    layer = getattr(layers, name)(**arguments)
    layer.build(shape)
    layer.enable_lora(2)
    layer.lora_kernel_b.assign(rng.standard_normal(layer.lora_kernel_b.shape))
    before = layer(x).numpy()
    layer.quantize("int8")
    # A weight and an input are each off by at most half of 1/127 of the largest one.
    assert relative_error(layer(x).numpy(), before) < 2 / 127


def test_subclasses_are_refused_unless_asked_for():
    class Own(layers.Dense):
        pass

    layer = Own(3)
    layer.build((None, 4))
    with pytest.raises(NotImplementedError, match="cannot be quantized"):
        layer.quantize("int8")
    layer.quantize("int8", type_check=False)
    assert layer.kernel.dtype == "int8"


def test_setting_the_policy_quantizes():
    layer = layers.Dense(3)
    layer.build((None, 4))
    layer.dtype_policy = "int8_from_float32"
    assert layer.kernel.dtype == "int8" and layer.quantization_mode == "int8"


def test_layers_without_kernels_compute_as_always(rng):
    x = rng.standard_normal((2, 3)).astype("float32")
    layer = layers.ReLU(dtype="int8_from_float32")
    np.testing.assert_array_equal(layer(x).numpy(), np.maximum(x, 0))


def test_errors():
    layer = layers.Dense(3)
    with pytest.raises(ValueError, match="not built yet"):
        layer.quantize("int8")
    layer.build((None, 4))
    for mode in ("int4", "float8", "gptq", "awq", "int7"):
        with pytest.raises(ValueError, match=f"'{mode}' .*take mode='int8'"):
            layer.quantize(mode)
    with pytest.raises(ValueError, match="needs a `mode`"):
        layer.quantize()
    with pytest.raises(ValueError, match="must be a QuantizationConfig"):
        layer.quantize("int8", config=3)
    wrong = kerascnn.quantizers.AbsMaxQuantizer(axis=1)
    with pytest.raises(ValueError, match=r"must give scales of shape \(1, 3\)"):
        layer.quantize(config=kerascnn.quantizers.Int8QuantizationConfig(wrong))
    assert layer.kernel.dtype == "float32"  # The refused call has changed nothing.
    layer.quantize("int8")
    with pytest.raises(ValueError, match="quantized already"):
        layer.quantize("int8")
    half = layers.Dense(3, dtype="mixed_float16")
    half.build((None, 4))
    with pytest.raises(ValueError, match="do not fit into float16"):
        half.quantize("int8")
    with pytest.raises(ValueError, match="quantization_config must be"):
        layers.Dense(3, quantization_config="int8")
    with pytest.raises(ValueError, match="gptq_unpacked_column_size must be None"):
        layers.EinsumDense("ab,bc->ac", 3, gptq_unpacked_column_size=4)
    with pytest.raises(NotImplementedError, match="cannot be quantized"):
        layers.Dropout(0.5).quantize("int8")
