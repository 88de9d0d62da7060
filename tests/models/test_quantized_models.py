"""Models in int8 predict what Keras' predict, and both libraries read the other's files."""

from __future__ import annotations

import numpy as np
import pytest

import kerascnn

keras = pytest.importorskip("keras")

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*`quantize` method implemented:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*cannot be quantized:UserWarning"),
    pytest.mark.filterwarnings("ignore:Skipping nested container:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*The use of `x.T`:UserWarning"),
]


@pytest.fixture(autouse=True)
def names_of_their_own():
    """Both libraries give layers the same names, whatever was made before."""
    for package in (kerascnn, keras):
        package.utils.clear_session()


PACKAGES = {"from_keras": (keras, kerascnn), "to_keras": (kerascnn, keras)}
# Float sums in another order (attention, normalization) may round an input halfway between two
# integers to the other one. That is one of 127 steps.
TOLERANCE = 1e-2


def sequential(k, dtype=None):
    layers = [
        k.layers.Dense(12, activation="relu", dtype=dtype, name="first"),
        k.layers.Dropout(0.3, dtype=dtype),
        k.layers.Dense(5, activation="softmax", dtype=dtype, name="second"),
    ]
    return k.Sequential([k.Input((9,)), *layers], name="net")


def functional(k, dtype=None):
    words = k.Input((6,), dtype="int32")
    x = k.layers.Embedding(20, 8, dtype=dtype, name="words")(words)
    x = k.layers.LayerNormalization(dtype=dtype)(x)
    y = k.layers.EinsumDense("abc,cd->abd", (6, 8), bias_axes="d", dtype=dtype)(x)
    x = k.layers.Flatten(dtype=dtype)(k.layers.Add(dtype=dtype)([x, y]))
    return k.Model(words, k.layers.Dense(4, dtype=dtype)(x), name="net")


def subclassed(k, dtype=None):
    class Net(k.Model):
        def __init__(self):
            super().__init__(name="net")
            self.hidden = k.layers.Dense(7, activation="tanh", dtype=dtype)
            self.last = k.layers.Dense(3, dtype=dtype)

        def call(self, x):
            return self.last(self.hidden(x))

    model = Net()
    model(np.zeros((1, 9), "float32"))
    return model


ARCHITECTURES = {"sequential": sequential, "functional": functional, "subclassed": subclassed}


def make_data(name, rng, count=10):
    if name in ("functional", "attention"):
        return rng.integers(0, 20, (count, 6)).astype("int32")
    return rng.standard_normal((count, 9)).astype("float32")


def make(name, packages, dtype=None, device="cpu"):
    """Makes the model with both packages, with the weights of the first."""
    with kerascnn.device(device):
        models = [ARCHITECTURES[name](k, dtype) for k in packages]
        models[1].set_weights(models[0].get_weights())
    return models


def predictions(models, x):
    return [np.asarray(model.predict(x, verbose=0), "float32") for model in models]


def assert_close(outputs, tolerance=TOLERANCE):
    scale = np.abs(outputs[1]).max()
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("dtype", [None, "mixed_bfloat16"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_predictions(name, dtype, device, rng):
    """The model has predicted before it is quantized."""
    models = make(name, (kerascnn, keras), dtype, device)
    x = make_data(name, rng)
    before = predictions(models, x)[0]
    for model in models:
        model.quantize("int8")
    after = predictions(models, x)
    assert_close(after, TOLERANCE if dtype is None else 2.0**-5)
    assert not np.array_equal(after[0], before)
    # There are 254 steps for each weight and each input, which rounding misses by at most half a
    # step.
    assert_close([after[0], before], 0.1)
    shown = [[(w.path, tuple(w.shape), w.dtype) for w in model.weights] for model in models]
    assert shown[0] == shown[1]
    assert {"int8"} < {dtype for _, _, dtype in shown[0]}


@pytest.mark.parametrize("direction", PACKAGES)
@pytest.mark.parametrize("name", ["sequential", "functional"])
def test_model_files(name, direction, tmp_path, rng):
    writer, reader = PACKAGES[direction]
    model = ARCHITECTURES[name](writer)
    model.quantize("int8")
    x = make_data(name, rng)
    path = str(tmp_path / "model.keras")
    model.save(path)
    loaded = [k.saving.load_model(path) for k in (writer, reader)]
    expected, *found = predictions([model, *loaded], x)
    np.testing.assert_array_equal(found[0], expected)
    assert_close([found[1], expected])
    for ours, theirs in zip(model.weights, loaded[1].weights, strict=True):
        assert ours.dtype == theirs.dtype
        kept, found = (np.asarray(keras.ops.convert_to_numpy(w.numpy())) for w in (ours, theirs))
        np.testing.assert_array_equal(kept, found)


@pytest.mark.parametrize("direction", PACKAGES)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_weights_files(name, direction, tmp_path, rng):
    models = make(name, PACKAGES[direction])
    for model in models:
        model.quantize("int8")
    for weight in models[1].weights:
        weight.assign(np.zeros(weight.shape))
    x = make_data(name, rng)
    path = str(tmp_path / "net.weights.h5")
    models[0].save_weights(path)
    models[1].load_weights(path)
    assert_close(predictions(models, x))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_safetensors(name, tmp_path, rng):
    models = make(name, (kerascnn, kerascnn))
    for model in models:
        model.quantize("int8")
    for weight in models[1].weights:
        weight.assign(np.zeros(weight.shape))
    path = str(tmp_path / "net.weights.safetensors")
    models[0].save_weights(path)
    models[1].load_weights(path)
    assert_close(predictions(models, make_data(name, rng)), 0)


def test_weights_of_floats_do_not_fit(tmp_path):
    models = make("sequential", (kerascnn, kerascnn))
    path = str(tmp_path / "net.weights.h5")
    models[0].save_weights(path)
    models[1].quantize("int8")
    with pytest.raises(ValueError, match="has 3 weights"):
        models[1].load_weights(path)


@pytest.mark.parametrize("attention", ["MultiHeadAttention", "GroupQueryAttention"])
def test_attention_in_files(attention, tmp_path, rng):
    """Keras reads these files, but not its own."""
    arguments = (3, 5) if attention == "MultiHeadAttention" else (4, 4, 2)
    words = kerascnn.Input((6,), dtype="int32")
    x = kerascnn.layers.Embedding(20, 8)(words)
    x = getattr(kerascnn.layers, attention)(*arguments, name="attention")(x, x)
    model = kerascnn.Model(words, kerascnn.layers.Dense(3)(x))
    model.quantize("int8")
    projections = model.get_layer("attention")._flatten_layers(include_self=False)
    assert sum(layer.quantization_mode == "int8" for layer in projections) == 4
    path = str(tmp_path / "model.keras")
    model.save(path)
    data = make_data("attention", rng)
    expected = model.predict(data, verbose=0)
    for k in (kerascnn, keras):
        assert_close([k.saving.load_model(path).predict(data, verbose=0), expected])
    again = kerascnn.saving.load_model(path)
    again.save(str(tmp_path / "again.keras"))
    again = kerascnn.saving.load_model(str(tmp_path / "again.keras"))
    np.testing.assert_array_equal(again.predict(data, verbose=0), expected)


def test_training_goes_through_integers(rng):
    """Training changes a layer before an int8 one, and a kernel's adaptation, but no integers."""
    inputs = kerascnn.Input((9,))
    hidden = kerascnn.layers.Dense(8, activation="tanh", name="float")(inputs)
    hidden = kerascnn.layers.Dense(6, name="adapted")(hidden)
    model = kerascnn.Model(inputs, kerascnn.layers.Dense(1, name="last")(hidden))
    model.quantize("int8", filters=["adapted", "last"])
    model.get_layer("adapted").enable_lora(2)
    model.compile(kerascnn.optimizers.Adam(0.02), "mse")
    x = make_data("sequential", rng, 64)
    y = x[:, :1] * 0.5
    before = {w.path: w.numpy() for w in model.weights}
    history = model.fit(x, y, batch_size=16, epochs=20, verbose=0).history["loss"]
    assert history[-1] < 0.5 * history[0]
    for weight in model.weights:
        is_same = np.array_equal(weight.numpy(), before[weight.path])
        assert is_same == (not weight.trainable)
    assert sum(w.dtype == "int8" for w in model.weights) == 2


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "muon"])
def test_a_compiled_model_goes_on_with_fit(optimizer, rng):
    x, y = (rng.random((32, n)).astype("float32") for n in (7, 5))
    trained = []
    for k in (keras, kerascnn):
        model = k.Sequential([k.Input((7,)), k.layers.Dense(6, "relu"), k.layers.Dense(5)])
        model.set_weights(trained[0][0] if trained else model.get_weights())
        first = model.get_weights()
        model.compile(optimizer, "mse")
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
        model.quantize("int8")
        before = [k.ops.convert_to_numpy(w).copy() for w in model.trainable_weights]
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
        after = [k.ops.convert_to_numpy(w) for w in model.trainable_weights]
        assert all(np.any(a != b) for a, b in zip(after, before, strict=True))
        trained.append((first, after, int(k.ops.convert_to_numpy(model.optimizer.iterations))))
    (_, there, steps), (_, here, same_steps) = trained
    assert steps == same_steps == 8
    assert [a.shape for a in here] == [a.shape for a in there] == [(6,), (5,)]
    for a, b in zip(here, there, strict=True):
        # An input halfway between two integers may be rounded to the other one. That changes a
        # gradient by 1 / 127, and the biases by that share of what eight steps change.
        np.testing.assert_allclose(a, b, atol=TOLERANCE)


def test_moving_averages_of_what_is_quantized(rng):
    x, y = (rng.random((8, n)).astype("float32") for n in (7, 5))
    model = kerascnn.Sequential([kerascnn.Input((7,)), kerascnn.layers.Dense(5)])
    model.compile(kerascnn.optimizers.SGD(use_ema=True), "mse")
    model.fit(x, y, verbose=0)
    model.quantize("int8")
    with pytest.raises(ValueError, match="moving averages of 2 variables, but there are 1"):
        model.fit(x, y, verbose=0)


@pytest.mark.parametrize(
    ("filters", "quantized"),
    [
        ("fir", ["first"]),
        (["^sec", "nothing"], ["second"]),
        (lambda layer: layer.name != "first", ["second"]),
        (None, ["first", "second"]),
    ],
)
def test_filters(filters, quantized):
    for k in (kerascnn, keras):
        model = sequential(k)
        model.quantize("int8", filters=filters)
        found = [layer.name for layer in model.layers if layer.quantization_mode]
        assert found == quantized


def test_errors_and_warnings():
    model = functional(kerascnn)
    for mode in ("int4", "float8", "gptq", "awq"):
        with pytest.raises(ValueError, match="take mode='int8'"):
            model.quantize(mode)
    with pytest.raises(ValueError, match="`filters` must be"):
        model.quantize("int8", filters=3)
    with pytest.raises(ValueError, match="does not have the argument"):
        model.quantize("int8", modes=3)
    with pytest.warns(UserWarning, match=r"'layer_normalization\w*' \(LayerNormalization\)\.$"):
        model.quantize("int8")
    with pytest.raises(ValueError, match="not built yet"):
        kerascnn.Sequential([kerascnn.layers.Dense(3)]).quantize("int8")


def test_policies_by_name():
    """A model that is made with an int8 policy has Keras' weights."""
    shown = []
    for k in (kerascnn, keras):
        model = sequential(k, "int8_from_float32")
        shown.append([(w.path, tuple(w.shape), w.dtype, w.trainable) for w in model.weights])
    assert shown[0] == shown[1]


def test_the_weights_take_a_quarter():
    model = kerascnn.Sequential([kerascnn.Input((64,)), kerascnn.layers.Dense(64, use_bias=False)])
    model.quantize("int8")
    bytes_of = [w.size * (1 if w.dtype == "int8" else 4) for w in model.weights]
    assert sum(bytes_of) == 64 * 64 + 64 * 4
