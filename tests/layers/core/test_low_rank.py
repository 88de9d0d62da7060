"""Low-rank adaptation (LoRA) of Dense, EinsumDense, Embedding and convolutions, as in Keras."""

import numpy as np
import pytest

import kerascnn
from kerascnn import layers

from ..comparing import keras, relative_error
from ..several import check_description, check_layer

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer:UserWarning"),
]

# Each row has a layer that takes floats, its arguments, and the shape of an input.
FLOATING = [
    ("Dense", {"units": 3, "activation": "tanh"}, (2, 5)),
    ("Dense", {"units": 1, "use_bias": False}, (2, 3, 7)),
    (
        "EinsumDense",
        {"equation": "abc,cde->abde", "output_shape": (5, 2, 3), "bias_axes": "de"},
        (2, 5, 4),
    ),
    ("Conv1D", {"filters": 3, "kernel_size": 2, "padding": "causal"}, (2, 7, 2)),
    ("Conv2D", {"filters": 4, "kernel_size": 3, "groups": 2}, (2, 6, 5, 4)),
    ("Conv3D", {"filters": 2, "kernel_size": 2, "strides": 2}, (1, 4, 5, 4, 3)),
]
EMBEDDING = ("Embedding", {"input_dim": 9, "output_dim": 4}, (3, 2))


@pytest.mark.parametrize(("name", "arguments", "shape"), FLOATING)
def test_outputs_and_gradients_are_those_of_keras(name, arguments, shape, device):
    adapted = {**arguments, "lora_rank": 2}
    if name not in ("Dense", "Embedding"):  # Keras' `build` of these two ignores `lora_alpha`.
        adapted["lora_alpha"] = 5.0
    check_layer(name, adapted, [shape], "float32", 3, device)
    check_description(name, adapted, [shape])


@pytest.mark.parametrize(("name", "arguments", "shape"), [*FLOATING, EMBEDDING])
def test_weights_are_those_of_keras(name, arguments, shape):
    which = "embeddings" if name == "Embedding" else "kernel"
    arguments = {**arguments, f"{which}_regularizer": "l2", "name": "a_layer"}
    shown = []
    for module in (kerascnn, keras):
        layer = getattr(module.layers, name)(**arguments)
        layer.build(shape)
        before = np.asarray(getattr(layer, which).numpy())
        layer.enable_lora(rank=2, lora_alpha=3.0)
        # The second factor starts as zeros, so nothing changes at first.
        after = keras.ops.convert_to_numpy(getattr(layer, which))
        np.testing.assert_array_equal(after, before)
        assert layer.get_config()["lora_alpha"] == 3.0
        description = [
            [(w.path, tuple(w.shape), w.dtype, w.trainable) for w in layer.weights],
            [w.path for w in layer.trainable_weights],
            [w.path for w in layer.non_trainable_weights],
            (layer.lora_rank, layer.lora_alpha, layer.lora_enabled, len(layer.losses)),
        ]
        layer.trainable = False
        layer.trainable = True
        description.append([w.path for w in layer.trainable_weights])
        shown.append(description)
    assert shown[0] == shown[1]


def test_the_weights_of_a_model_keep_its_paths():
    for module in (kerascnn, keras):
        model = module.Sequential([module.Input((4,)), module.layers.Dense(3, name="d")], name="m")
        model.layers[0].enable_lora(2, a_initializer="ones", b_initializer="ones")
        assert [w.path for w in model.weights][2:] == ["m/d/lora_kernel_a", "m/d/lora_kernel_b"]
        assert np.all(np.asarray(model.layers[0].lora_kernel_a.numpy()) == 1)


def test_embeddings_are_adapted(device, rng):
    numbers = np.array([[0, 8, 3], [3, 1, 1]], "int32")
    values = [rng.standard_normal(shape).astype("float32") for shape in ((9, 4), (9, 2), (2, 4))]
    outputs = []
    for module in (kerascnn, keras):
        with kerascnn.device(device):
            layer = module.layers.Embedding(9, 4)
            layer.build((2, 3))
            layer.enable_lora(2, lora_alpha=6.0)
            layer.set_weights(values)
            outputs.append(keras.ops.convert_to_numpy(layer(numbers)))
    expected = (values[0] + 3 * values[1].astype("float64") @ values[2])[numbers]
    # There are sums of three products, rounded in TF32 (5e-4) on GPUs.
    for output in outputs:
        assert relative_error(output, expected) < (1e-3 if device != "cpu" else 1e-6)


def network(module, rank=None):
    y = inputs = module.Input((8, 8, 3))
    y = module.layers.Conv2D(4, 3, activation="relu", lora_rank=rank)(y)
    y = module.layers.Reshape((36, 4))(y)
    y = module.layers.EinsumDense("abc,cd->abd", (36, 5), bias_axes="d", lora_rank=rank)(y)
    y = module.layers.Dense(3, lora_rank=rank)(module.layers.Flatten()(y))
    model = module.Model(inputs, y)
    model.compile(module.optimizers.Adam(0.01), "mse")
    return model


def trained(module, rng, rank=2):
    """Returns an adapted model after a step, in which no factor is zero, and its data."""
    x = rng.standard_normal((4, 8, 8, 3)).astype("float32")
    y = rng.standard_normal((4, 3)).astype("float32")
    model = network(module, rank)
    model.train_on_batch(x, y)
    return model, x, y


def test_training_is_that_of_keras(device, rng):
    with kerascnn.device(device):
        here, there = network(kerascnn, 2), network(keras, 2)
        x = rng.standard_normal((8, 8, 8, 3)).astype("float32")
        y = rng.standard_normal((8, 3)).astype("float32")
        here.set_weights([np.asarray(w.numpy()) for w in there.weights])
        frozen = [here.layers[i]._kernel.numpy() for i in (1, 3, 5)]
        losses = [
            model.fit(x, y, batch_size=4, epochs=4, shuffle=False, verbose=0).history["loss"]
            for model in (here, there)
        ]
        # The tolerance covers eight Adam steps in float32, or in TF32 on GPUs.
        np.testing.assert_allclose(*losses, rtol=2e-2 if device != "cpu" else 2e-4)
        assert losses[0][-1] < losses[0][0]
        for i, before in zip((1, 3, 5), frozen, strict=True):
            np.testing.assert_array_equal(here.layers[i]._kernel.numpy(), before)
            assert here.layers[i].lora_kernel_b.numpy().any()


def test_enabled_after_compile_training_asks_for_compile(rng):
    x, y = rng.random((4, 5)).astype("float32"), rng.random((4, 3)).astype("float32")
    for module in (kerascnn, keras):
        model = module.Sequential([module.Input((5,)), module.layers.Dense(3)])
        model.compile("sgd", "mse")
        model.fit(x, y, verbose=0)
        model.layers[0].enable_lora(2)
        with pytest.raises(ValueError, match="optimizer"):
            model.fit(x, y, verbose=0)
        model.compile("sgd", "mse")
        model.fit(x, y, verbose=0)
        assert np.asarray(model.layers[0].lora_kernel_b.numpy()).any()


# A model that only loads weights has an optimizer without state, or with the state for other
# weights. Both libraries warn about that.
@pytest.mark.filterwarnings("ignore:.*(optimizer|variables).*:UserWarning")
@pytest.mark.parametrize(("writer", "reader"), [(kerascnn, keras), (keras, kerascnn)])
def test_files_hold_what_was_adapted(writer, reader, tmp_path, rng):
    pytest.importorskip("h5py")
    model, x, y = trained(writer, rng)
    expected = np.asarray(model.predict(x, verbose=0))
    model.save(tmp_path / "m.keras")
    model.save_weights(tmp_path / "m.weights.h5")
    plain, adapted = network(reader), network(reader, 2)
    plain.load_weights(tmp_path / "m.weights.h5")  # This model has no adaptation.
    adapted.load_weights(tmp_path / "m.weights.h5")
    whole = reader.saving.load_model(tmp_path / "m.keras")
    for other in (plain, adapted, whole):
        # The adaptation was added to the kernels before they were written, which rounds once more.
        assert relative_error(other.predict(x, verbose=0), expected) < 1e-5
    for other in (adapted, whole):
        assert [layer.lora_rank for layer in other.layers[1::2]] == [2, 2, 2]
        assert not np.asarray(other.layers[1].lora_kernel_a.numpy()).any()
    assert int(whole.optimizer.iterations.numpy()) == 1
    whole.train_on_batch(x, y)


@pytest.mark.parametrize(("writer", "reader"), [(kerascnn, keras), (keras, kerascnn)])
def test_files_of_plain_models_fit_adapted_ones(writer, reader, tmp_path, rng):
    pytest.importorskip("h5py")
    x = rng.standard_normal((4, 8, 8, 3)).astype("float32")
    model = network(writer)
    model.save_weights(tmp_path / "m.weights.h5")
    other = network(reader, 2)
    other.load_weights(tmp_path / "m.weights.h5")
    expected = np.asarray(model.predict(x, verbose=0))
    assert relative_error(other.predict(x, verbose=0), expected) < 1e-5


def test_a_file_that_does_not_fit_leaves_the_factors(tmp_path, rng):
    pytest.importorskip("h5py")
    model, _, _ = trained(kerascnn, rng)
    other = kerascnn.Sequential([kerascnn.Input((4,)), layers.Dense(3)])
    other.save_weights(tmp_path / "m.weights.h5")
    before = model.get_weights()
    with pytest.raises(ValueError, match="left as it was"):
        model.load_weights(tmp_path / "m.weights.h5")
    for one, two in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, two)


def test_safetensors_keep_all_weights(tmp_path, rng):
    model, _, _ = trained(kerascnn, rng)
    model.save_weights(tmp_path / "m.weights.safetensors")
    other = network(kerascnn, 2)
    other.load_weights(tmp_path / "m.weights.safetensors")
    for one, two in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    clone = kerascnn.models.clone_model(model)
    assert [w.name for w in clone.weights] == [w.name for w in model.weights]


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_factors_are_float32(dtype, device, rng):
    x = rng.standard_normal((4, 5)).astype("float32")
    with kerascnn.device(device):
        layer = layers.Dense(3, lora_rank=2, dtype=dtype)
        output = layer(x)
    assert layer.lora_kernel_a.dtype == layer.lora_kernel_b.dtype == "float32"
    assert output.dtype == layer.compute_dtype
    layer.lora_kernel_b.assign(rng.standard_normal((2, 3)))
    store = {}
    layer.save_own_variables(store)
    a, b = layer.lora_kernel_a.numpy(), layer.lora_kernel_b.numpy()
    merged = layer._kernel.numpy().astype("float64") + a.astype("float64") @ b
    assert store["0"].dtype == layer._kernel.numpy().dtype
    # A stored value is off by at most half of the last bit of float16 or float32.
    assert relative_error(store["0"], merged) < (5e-4 if dtype == "float16" else 1e-6)


@pytest.mark.parametrize("name", ["Dense", "Embedding"])
def test_alpha_of_the_constructor_holds(name):
    arguments = {"Dense": (3,), "Embedding": (7, 3)}[name]
    layer = getattr(layers, name)(*arguments, lora_rank=2, lora_alpha=8)
    layer.build((2, 4))
    assert (layer.lora_rank, layer.lora_alpha) == (2, 8)


def test_attention_can_be_adapted(rng):
    x = rng.standard_normal((2, 5, 6)).astype("float32")
    outputs = []
    layer = keras.layers.MultiHeadAttention(2, 3)
    layer.build(x.shape, x.shape)
    for module in (keras, kerascnn):
        other = module.layers.MultiHeadAttention(2, 3)
        other.build(x.shape, x.shape)
        other.set_weights(layer.get_weights())
        other.query_dense.enable_lora(2)
        other.query_dense.lora_kernel_a.assign(np.full((6, 2, 2), 0.2, "float32"))
        other.query_dense.lora_kernel_b.assign(np.full((2, 3), -0.3, "float32"))
        outputs.append(keras.ops.convert_to_numpy(other(x, x)))
    # A result has a few dozen products and a softmax in float32.
    assert relative_error(outputs[1], outputs[0]) < 1e-5


def test_what_cannot_be_adapted():
    for module in (kerascnn, keras):
        with pytest.raises(ValueError, match="built"):
            module.layers.Dense(3).enable_lora(2)
        with pytest.raises(AttributeError, match="kernel"):
            _ = module.layers.Conv2D(3, 3).kernel
        layer = module.layers.Conv2D(3, 3, lora_rank=2)
        layer.build((None, 5, 5, 1))
        with pytest.raises(ValueError, match="already"):
            layer.enable_lora(2)
        with pytest.raises(ValueError, match="constraint"):
            module.layers.Embedding(5, 3, embeddings_constraint="non_neg", lora_rank=2).build(
                (None,)
            )
        with pytest.raises(ValueError):
            module.layers.Dense(3, lora_rank=-1).build((None, 4))
        with pytest.raises(ValueError):
            module.layers.Conv2DTranspose(3, 3, lora_rank=2)
        assert "lora_rank" not in module.layers.Dense(3, lora_rank=0).get_config()
    with pytest.raises(ValueError, match="`rank` must be a positive integer"):
        layer = layers.Dense(3)
        layer.build((None, 4))
        layer.enable_lora(2.5)
    with pytest.raises(ValueError, match="lora_alpha"):
        layers.Dense(3, lora_rank=2, lora_alpha="2")
    with pytest.raises(ValueError, match="cannot be normalized"):
        layers.SpectralNormalization(layers.Dense(3, lora_rank=2)).build((None, 4))
