"""Each library reads the other's files, predicts the same and continues training the same."""

import numpy as np
import pytest

import kerascnn

from .architectures import ALL, custom, data

keras = pytest.importorskip("keras")

# Keras gives these warnings: for arrays of PyTorch in NumPy 2, and about `build`, also for its own
# examples.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer:UserWarning"),
    pytest.mark.filterwarnings("ignore:Skipping nested container:UserWarning"),
]

# For these models, files of weights hold the state of an optimizer; files of whole models always
# do.
TRAINED_FOR_WEIGHTS = ("perceptron", "subclassed", "resnet", "scaled", "frozen")

PACKAGES = {"from_keras": (keras, kerascnn), "to_keras": (kerascnn, keras)}


def architectures():
    """Returns the architectures whose layers kerascnn has."""
    custom(keras)
    custom(kerascnn)
    return [a for a in ALL if all(hasattr(kerascnn.layers, name) for name in a.needs)]


def leaves(structure):
    if isinstance(structure, dict):
        return [leaf for key in sorted(structure) for leaf in leaves(structure[key])]
    if isinstance(structure, (list, tuple)):
        return [leaf for item in structure for leaf in leaves(item)]
    return [np.asarray(structure)]


def assert_predict_the_same(one, other, x):
    pairs = zip(*(leaves(m.predict(x, verbose=0)) for m in (one, other)), strict=True)
    for a, b in pairs:
        # Float32 sums in two orders stay far below this bound.
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


def losses(model, x, y, epochs=2):
    history = model.fit(x, y, batch_size=6, epochs=epochs, shuffle=False, verbose=0).history
    return {name: values for name, values in history.items() if "loss" in name}


@pytest.mark.parametrize("direction", PACKAGES)
@pytest.mark.parametrize("architecture", architectures(), ids=lambda a: a.name)
def test_a_trained_model_goes_on(architecture, direction, tmp_path, rng):
    writer, reader = PACKAGES[direction]
    x, y = data(architecture, rng)
    model = architecture.make(writer)
    losses(model, x, y, 1)
    model.save(tmp_path / "model.keras")
    other = reader.saving.load_model(tmp_path / "model.keras")
    assert_predict_the_same(model, other, x)
    want, got = losses(model, x, y), losses(other, x, y)
    assert want.keys() == got.keys()
    for name in want:
        # There are four float32 steps of training. A lost slot or step count shows in the third
        # digit.
        np.testing.assert_allclose(got[name], want[name], rtol=2e-4, err_msg=name)


@pytest.mark.parametrize("direction", PACKAGES)
@pytest.mark.parametrize("architecture", architectures(), ids=lambda a: a.name)
def test_weights_alone(architecture, direction, tmp_path, rng):
    writer, reader = PACKAGES[direction]
    x, y = data(architecture, rng)
    model, other = architecture.make(writer), architecture.make(reader)
    if architecture.name in TRAINED_FOR_WEIGHTS:
        for m in (model, other):
            m.train_on_batch(x, y)
    for m in (model, other):
        if not m.built:
            m.build((None, *architecture.inputs))
    model.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    assert_predict_the_same(model, other, x)
    for a, b in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(a.numpy()), np.asarray(b.numpy()))
    if architecture.name not in TRAINED_FOR_WEIGHTS:
        return
    counts = [int(m.optimizer.iterations.numpy()) for m in (model, other)]
    assert counts[0] == counts[1]


# Keras cannot write the first model, in which two weights have the same name. It makes no weights
# when it reads the second, whose class is custom.
NOT_IN_H5 = {"from_keras": ("functions_in_the_graph", "subclassed"), "to_keras": ("subclassed",)}


@pytest.mark.parametrize(
    ("direction", "architecture"),
    [(d, a) for d in PACKAGES for a in architectures() if a.name not in NOT_IN_H5[d]],
    ids=lambda value: getattr(value, "name", value),
)
def test_models_and_weights_in_h5(architecture, direction, tmp_path, rng):
    writer, reader = PACKAGES[direction]
    x, y = data(architecture, rng)
    model = architecture.make(writer)
    losses(model, x, y, 1)
    path = tmp_path / "model.h5"
    model.save(path)
    # Keras on PyTorch builds the optimizers of such models without variables, so it cannot go on.
    other = reader.saving.load_model(path, compile=reader is kerascnn)
    assert_predict_the_same(model, other, x)
    third = architecture.make(reader)
    if not third.built:
        third.build((None, *architecture.inputs))
    third.load_weights(path)
    assert_predict_the_same(model, third, x)
    if reader is kerascnn:
        want, got = losses(model, x, y), losses(other, x, y)
        for name in want:
            np.testing.assert_allclose(got[name], want[name], rtol=2e-4, err_msg=name)


@pytest.mark.parametrize("direction", PACKAGES)
def test_shards_and_folders(direction, tmp_path, rng):
    writer, reader = PACKAGES[direction]

    def make(k):
        L = k.layers
        m = k.Sequential([k.Input((6, 5, 1)), L.Conv2D(4, 3), L.Flatten(), L.Dense(7), L.Dense(2)])
        m.compile("adam", "mse")
        return m

    x, y = rng.random((4, 6, 5, 1), dtype="float32"), rng.random((4, 2), dtype="float32")
    model, other = make(writer), make(reader)
    for m in (model, other):
        m.train_on_batch(x, y)
    # The largest array has 1344 bytes, so one object's arrays are in several files.
    limit = 1500 / 1024**3
    model.save_weights(tmp_path / "m.weights.json", max_shard_size=limit)
    assert len(list(tmp_path.glob("m_*.weights.h5"))) > 3
    other.load_weights(tmp_path / "m.weights.json")
    assert_predict_the_same(model, other, x)
    if reader is kerascnn:
        np.testing.assert_allclose(
            other.train_on_batch(x, y), model.train_on_batch(x, y), rtol=2e-4
        )
    model.save(tmp_path / "folder", zipped=False)
    again = reader.saving.load_model(tmp_path / "folder")
    assert_predict_the_same(model, again, x)
    assert again.compiled


@pytest.mark.parametrize("direction", PACKAGES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "mixed_bfloat16"])
def test_short_floats_bit_by_bit(dtype, direction, tmp_path):
    """Half-precision predictions round in other places; the weights have the same bits."""

    def make(k):
        return k.Sequential([k.Input((5,)), k.layers.Dense(4, "relu", dtype=dtype)])

    writer, reader = PACKAGES[direction]
    model = make(writer)
    model.save(tmp_path / "m.keras")
    model.save_weights(tmp_path / "m.weights.h5")
    other = make(reader)
    other.load_weights(tmp_path / "m.weights.h5")
    for loaded in (reader.saving.load_model(tmp_path / "m.keras"), other):
        assert loaded.layers[0].dtype_policy.name == dtype
        for a, b in zip(model.weights, loaded.weights, strict=True):
            one, two = (
                np.asarray(keras.ops.convert_to_numpy(v) if k is keras else v.numpy())
                for v, k in ((a, writer), (b, reader))
            )
            assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("direction", PACKAGES)
@pytest.mark.filterwarnings("ignore:.*lambda:UserWarning")
def test_lambdas_only_outside_of_safe_mode(direction, tmp_path, rng):
    writer, reader = PACKAGES[direction]
    model = writer.Sequential([writer.Input((4,)), writer.layers.Lambda(lambda z: z * 2.0 + 1.0)])
    model.save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match="safe_mode=False"):
        reader.saving.load_model(tmp_path / "m.keras")
    other = reader.saving.load_model(tmp_path / "m.keras", safe_mode=False)
    assert_predict_the_same(model, other, rng.random((3, 4)).astype("float32"))


@pytest.mark.parametrize("direction", [*PACKAGES, "here"])
@pytest.mark.filterwarnings("ignore:You are saving a model that has not yet been built:UserWarning")
@pytest.mark.filterwarnings("ignore:.*saved without the weights that it does not:UserWarning")
def test_a_layer_that_is_built_in_a_model_that_is_not(direction, tmp_path):
    writer, reader = PACKAGES.get(direction, (kerascnn, kerascnn))
    model = writer.Sequential([writer.layers.Embedding(7, 3), writer.layers.Dense(2)])
    model.layers[0].build()
    assert not model.built
    model.save(tmp_path / "m.keras")
    loaded = reader.saving.load_model(tmp_path / "m.keras")
    assert [layer.built for layer in loaded.layers] == [True, False]
    one, two = (
        k.ops.convert_to_numpy(m.layers[0].embeddings)
        for k, m in ((writer, model), (reader, loaded))
    )
    assert one.any()
    np.testing.assert_array_equal(one, two)
