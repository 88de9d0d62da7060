"""`model.export(include_graph=True)`: C++ predicts the same bits as `model.predict`."""

from random import Random

import numpy as np
import pytest
from applications.networks import ALL, here, images, prepared, small_image
from applications.networks import randomize as randomize_network
from fuzzing import random_models

import kerascnn as keras
from kerascnn import _core, layers, ops

from .loading import loaded, randomize, same_bits

# The file is loaded for a CPU, whose bits no other device has.
pytestmark = pytest.mark.usefixtures("on_cpu")


def floats(*shape):
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype("float32")


def sequential(shape, *parts, dtype=None):
    return keras.Sequential([keras.Input(shape, dtype=dtype), *parts])


def _attention():
    x, memory = keras.Input((5, 6)), keras.Input((4, 6))
    y = layers.MultiHeadAttention(2, 3)(x, memory)
    y = layers.LayerNormalization()(layers.Add()([x, y]))
    y = layers.GroupQueryAttention(4, 2, 1)(y, y, use_causal_mask=True)
    return keras.Model([x, memory], [y, layers.RMSNormalization()(memory)])


def _merges():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    dense = layers.Dense(3, activation="gelu")
    x = layers.Concatenate()([dense(a), layers.Maximum()([dense(b), dense(a)])])
    y = layers.Dot(axes=1)([a, b]) * layers.Subtract()([a, b])
    return keras.Model({"a": a, "b": b}, {"y": y, "x": layers.Dense(2)(x)})


class Steps(layers.Layer):
    """Loops and a choice, which are graphs in the graph."""

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(input_shape[-1],) * 2, initializer="random_normal")

    def call(self, x):
        _, grown = ops.while_loop(
            lambda i, y: ops.logical_and(i < 5, ops.max(ops.abs(y)) < 50.0),
            lambda i, y: (i + 1, ops.matmul(y, self.kernel) * 1.5 + x),
            (0, x),
        )
        summed, rows = ops.scan(lambda c, row: (c + row, ops.tanh(c)), ops.zeros_like(x[0]), grown)
        return ops.cond(ops.sum(x) > 0.0, lambda: rows + summed, lambda: rows * 2.0 - summed)


FAMILIES = {
    "convolutions": lambda: sequential(
        (9, 8, 3),
        layers.Rescaling(1 / 3, offset=-0.2),
        layers.Conv2D(4, 3, padding="same", activation="relu"),
        layers.SeparableConv2D(6, 3, strides=2, padding="same"),
        layers.BatchNormalization(),
        layers.DepthwiseConv2D(3, depth_multiplier=2),
        layers.Conv2DTranspose(4, 3, strides=2),
        layers.MaxPooling2D(2),
        layers.AveragePooling2D(2, padding="same"),
        layers.GlobalMaxPooling2D(),
    ),
    "one axis": lambda: sequential(
        (12, 3),
        layers.Conv1D(4, 3, padding="causal", dilation_rate=2),
        layers.MaxPooling1D(2),
        layers.UpSampling1D(2),
        layers.SpatialDropout1D(0.2),
        layers.ZeroPadding1D(1),
        layers.Cropping1D((1, 2)),
        layers.GlobalAveragePooling1D(),
    ),
    "three axes": lambda: sequential(
        (4, 5, 6, 2), layers.Conv3D(3, 2), layers.AveragePooling3D(2), layers.Flatten()
    ),
    "channels first": lambda: sequential(
        (3, 9, 9),
        layers.Conv2D(4, 3, data_format="channels_first"),
        layers.BatchNormalization(axis=1),
        layers.MaxPooling2D(data_format="channels_first"),
    ),
    "normalizations": lambda: sequential(
        (5, 6, 8),
        layers.GroupNormalization(2),
        layers.LayerNormalization(axis=(1, 2)),
        layers.UnitNormalization(),
        layers.PReLU(shared_axes=(1, 2)),
        layers.Normalization(mean=0.5, variance=2.0),
    ),
    "recurrent": lambda: sequential(
        (6, 4),
        layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
        layers.GRU(5, return_sequences=True, go_backwards=True),
        layers.SimpleRNN(4, return_sequences=True),
        layers.TimeDistributed(layers.Dense(3)),
        layers.LSTM(2, recurrent_activation="relu"),
    ),
    "products": lambda: sequential(
        (6, 4),
        layers.EinsumDense("abc,cd->abd", output_shape=(None, 5), bias_axes="d"),
        layers.Permute((2, 1)),
        layers.Reshape((3, 10)),
        layers.Dense(4, activation="softmax"),
        layers.Activation("log_softmax"),
    ),
    "images": lambda: sequential(
        (8, 9, 3),
        layers.RandomFlip(),
        layers.Resizing(5, 6),
        layers.UpSampling2D(2, interpolation="bilinear"),
        layers.CenterCrop(7, 7),
    ),
    "attention": _attention,
    "merges": _merges,
    "loops": lambda: sequential((3,), Steps(), layers.Dense(2)),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_families_of_layers(name, tmp_path):
    model = randomize(FAMILIES[name]())
    there = loaded(model, tmp_path)
    inputs = keras.tree.map_structure(lambda x: 2 * floats(7, *x.shape[1:]), model.input)
    # `Steps` looks at its whole batch, so both sides have the same ones
    same_bits(model, there, inputs, (32, 7, 3, 1))


def test_words_masks_and_an_open_length(tmp_path):
    words = keras.Input((None,), dtype="int32")
    x = layers.Embedding(11, 6, mask_zero=True)(words)
    x = layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)
    x = layers.LSTM(4, return_sequences=True)(x)
    model = randomize(keras.Model(words, layers.GlobalAveragePooling1D()(x)))
    there = loaded(model, tmp_path)
    assert there.inputs == [(words.name, "int32", (-1, -1))]
    for length in (5, 9, 2):
        given = np.random.default_rng(length).integers(0, 11, (4, length)).astype("int32")
        given[:, 0] = 3
        same_bits(model, there, given, (32, 3))


def test_constants_that_depend_on_open_axes(tmp_path):
    class Places(layers.Layer):
        def call(self, x):
            batch, length = x.shape[0], x.shape[1]
            places = ops.arange(length, dtype="float32") * 0.25 + 1.0
            whole = ops.cast(ops.arange(2, batch + 2, dtype="int32")[:, None], "float32")
            below = ops.tril(ops.ones((length, length), dtype="bool"))
            sums = ops.matmul(ops.cast(below, "float32"), x[..., None])[..., 0]
            return x * places + whole * ops.full((batch, length), 0.5) + sums

    model = sequential((None,), Places())
    there = loaded(model, tmp_path)
    for length in (6, 3):
        same_bits(model, there, floats(5, length), (5, 2))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
def test_dtypes(policy, tmp_path):
    with keras.device("cpu"):
        model = keras.Sequential(
            [
                keras.Input((6, 6, 2), dtype="float32"),
                layers.Conv2D(4, 3, activation="relu", dtype=policy),
                layers.Flatten(),
                layers.Dense(3, dtype=policy),
            ]
        )
    same_bits(model, loaded(model, tmp_path), floats(5, 6, 6, 2), (32, 2))


def test_layers_in_int8(tmp_path):
    model = sequential((16,), layers.Dense(8, activation="relu"), layers.Dense(3))
    model.quantize("int8")
    same_bits(model, loaded(model, tmp_path), floats(5, 16))


def test_bytes_are_cast_where_they_are_computed_with(tmp_path):
    model = sequential((4, 4, 1), layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(2))
    there = loaded(model, tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (9, 4, 4, 1))
    for dtype in ("uint8", "int64", "float64", "float32"):
        same_bits(model, there, pixels.astype(dtype), (32, 4))
    for dtype in ("bool", "float16"):
        same_bits(model, there, (pixels > 127).astype(dtype))


def test_no_samples_give_no_rows(tmp_path):
    model = sequential((4, 4, 1), layers.Conv2D(3, 2))
    there = loaded(model, tmp_path)
    (nothing,) = there.predict([floats(0, 4, 4, 1)])
    assert nothing.shape == (0, 3, 3, 3) and str(nothing.dtype) == "float32"
    assert [(dtype, shape) for _, dtype, shape in there.outputs] == [("float32", (-1, 3, 3, 3))]


def test_models_whose_samples_belong_together_take_all_at_once(tmp_path):
    x = keras.Input((3,))
    together = keras.Model(x, [x - ops.mean(x, axis=0), ops.sum(x)])
    there = loaded(together, tmp_path)
    given = floats(70, 3)
    found = there.predict([given], 8)
    expected = together(given)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.numpy(), np.asarray(other))
    fixed = keras.Sequential([keras.Input(batch_shape=(4, 3)), layers.Dense(2)])
    there = loaded(fixed, tmp_path)
    assert there.inputs[0][2] == (4, 3)
    same_bits(fixed, there, floats(4, 3), (4,))
    with pytest.raises(ValueError, match=r"has the shape \(4, 3\), received \(5, 3\)"):
        there.predict([floats(5, 3)])


def test_models_of_ones_own_and_signatures(tmp_path):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(3)
            self.factor = keras.Variable([2.0, 3.0, 4.0], trainable=False)

        def call(self, x):
            return self.dense(x) * self.factor

    model = Own()
    model(floats(2, 4))
    same_bits(model, loaded(model, tmp_path), floats(6, 4), (32, 4))
    there = loaded(model, tmp_path, input_signature=[keras.InputSpec(shape=(2, 4))])
    assert there.inputs[0][2] == (2, 4)
    same_bits(model, there, floats(2, 4))


def test_the_file_is_one_of_weights_too(tmp_path):
    model = randomize(FAMILIES["convolutions"]())
    path = tmp_path / "model.safetensors"
    model.export(path, include_graph=True)
    same_bits(
        keras.saving.load_model(path),
        _core.InferenceModel.load(str(path), "cpu"),
        floats(2, 9, 8, 3),
    )
    other = FAMILIES["convolutions"]()
    other.load_weights(path)
    for a, b in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.filterwarnings("ignore")
def test_random_models(amount, tmp_path):
    """Models of random layers, which only kerascnn makes here."""
    for number in range(amount(8, 300)):
        keras.utils.clear_session()
        rng = Random(f"inference {number}")
        description, (model, _) = random_models.draw(rng, (keras, keras))
        model.set_weights(random_models.new_weights(model, description["seed"]))
        x = random_models.data(description, model.output_shape)["x"]
        there = loaded(model, tmp_path)
        for batch in (4, 1, 3):
            expected = model.predict(x[:batch], verbose=0)
            (found,) = there.predict([x[:batch]])
            np.testing.assert_array_equal(found.numpy(), expected, err_msg=str(description))


def pytest_generate_tests(metafunc):
    """All constructors with `--thorough`, which takes minutes, else one small one."""
    if "network" in metafunc.fixturenames:
        thorough = metafunc.config.getoption("--thorough")
        metafunc.parametrize("network", ALL if thorough else ["MobileNetV3Small"])


def test_applications(network, tmp_path, rng):
    arguments = {"include_top": False, "pooling": "avg", "input_shape": small_image(network)}
    model = here(network, **arguments)
    randomize_network(model, rng)
    x = prepared(network, images(small_image(network), rng))
    same_bits(model, loaded(model, tmp_path), x, (32,))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_gpu(name, cuda_device, tmp_path):
    with keras.device(cuda_device):
        model = randomize(FAMILIES[name]())
        there = loaded(model, tmp_path, "gpu:0")
        assert there.device == cuda_device
        inputs = keras.tree.map_structure(lambda x: 2 * floats(7, *x.shape[1:]), model.input)
        for batch_size in (7, 3):
            expected = keras.tree.flatten(model.predict(inputs, batch_size, verbose=0))
            found = there.predict(keras.tree.flatten(inputs), batch_size)
            for one, other in zip(found, expected, strict=True):
                # other kernels may be chosen beside the ops that take a batch out of the data
                np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-5)


class Growing(layers.Layer):
    """Changes a variable by each call."""

    def build(self, input_shape):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, x):
        self.count.assign(self.count + 1.0)
        return x * self.count


def test_what_changes_with_each_call_is_refused(tmp_path):
    drawing = layers.Lambda(lambda x: x + keras.random.normal((3,)))
    for layer, name in ((Growing(name="grows"), "grows/count"), (drawing, "global_seed_generator")):
        with pytest.raises(ValueError, match=f"a prediction changes .*{name}"):
            loaded(sequential((3,), layer), tmp_path)
    fixed = layers.Lambda(lambda x: x + keras.random.normal((3,), seed=3))
    model = sequential((3,), fixed)
    same_bits(model, loaded(model, tmp_path), floats(5, 3), (5,))


def test_what_has_no_graph_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    host = sequential((1,), layers.StringLookup(vocabulary=["a"]), dtype="string")
    twice = ops.custom_op("exported_twice", forward="x + x", cpu=lambda x: x + x)
    with pytest.raises(ValueError, match="The op 'custom_op' of layer '.*own.*' can't be exported"):
        sequential((3,), layers.Dense(2, activation=twice, name="own")).export(
            path, include_graph=True
        )
    with pytest.raises(ValueError, match="StringLookup.*works on the host"):
        host.export(path, include_graph=True)
    unbuilt = keras.Sequential([layers.Dense(2)])
    with pytest.raises(ValueError, match="has no weights yet"):
        unbuilt.export(path, include_graph=True)
    model = sequential((3,), layers.Dense(2))
    with pytest.raises(ValueError, match="takes no argument include_graph for the format 'onnx'"):
        model.export(tmp_path / "model.onnx", include_graph=True)
    with pytest.raises(ValueError, match="no argument input_signature .without include_graph=True"):
        model.export(path, input_signature=[keras.InputSpec(shape=(1, 3))])
    model.export(path)
    with pytest.raises(ValueError, match="has no graph .*include_graph=True"):
        _core.InferenceModel.load(str(path), "cpu")
