"""Files of a `FeatureSpace`: writing, reading, and exchange with Keras."""

import io
import json
import zipfile

import numpy as np
import pytest

import kerascnn
from kerascnn.saving import load_model, save_model
from kerascnn.utils import FeatureSpace

from .tables import KINDS, make_table


@pytest.fixture
def table(rng):
    return make_table(rng)


def rewritten(path, change):
    """Writes the same archive with another configuration."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(contents["config.json"])
    change(config)
    contents["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("output_mode", ["concat", "dict"])
def test_a_file_holds_all_that_was_learned(output_mode, table, tmp_path):
    space = FeatureSpace(
        KINDS,
        output_mode,
        crosses=[("d", "e"), FeatureSpace.cross(("e", "g"), 5)],
        crossing_dim=8,
        hashing_dim=6,
        num_discretization_bins=4,
    )
    space.adapt(table)
    space.save(tmp_path / "space.keras")
    loaded = kerascnn.models.load_model(tmp_path / "space.keras")
    assert isinstance(loaded, FeatureSpace)
    found, expected = loaded(table), space(table)
    if output_mode == "concat":
        found, expected = {"": found}, {"": expected}
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name].numpy(), value.numpy())
    model = kerascnn.Model(loaded.get_inputs(), loaded.get_encoded_features())
    assert set(model.input) == set(KINDS)


def test_layers_of_ones_own_and_what_has_not_learned(table, tmp_path):
    @kerascnn.saving.register_keras_serializable("tests")
    class Doubled(kerascnn.layers.Layer):
        def call(self, x):
            return 2 * x

    features = {"a": FeatureSpace.feature("float32", Doubled(), "float"), "b": "float_normalized"}
    space = FeatureSpace(features)
    with pytest.warns(UserWarning, match="saved without the weights"):
        space.save(tmp_path / "space.keras")
    loaded = load_model(tmp_path / "space.keras")
    with pytest.raises(ValueError, match="call `.adapt"):
        loaded(table)
    loaded.adapt(table)
    np.testing.assert_allclose(loaded(table).numpy()[:, 0], 2 * table["a"])


# Keras converts PyTorch tensors in a way that NumPy 2 warns about.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_files_of_keras(table, tmp_path, rng):
    keras = pytest.importorskip("keras")
    there = keras.utils.FeatureSpace(
        {
            "b": "float_normalized",
            "a": keras.utils.FeatureSpace.float(),
            "c": keras.utils.FeatureSpace.float_rescaled(3.0, -1.0),
        },
        output_mode="dict",
    )
    # Its own `adapt` and its calls need TensorFlow.
    there.preprocessors["b"].adapt(table["b"][:, None])
    there._is_adapted = True
    path = str(tmp_path / "there.keras")
    with pytest.warns(UserWarning, match="not yet been built"):
        there.save(path)
    loaded = load_model(path)
    found = loaded(table)
    assert list(loaded.features) == ["b", "a", "c"]
    np.testing.assert_allclose(found["c"].numpy()[:, 0], 3 * table["c"] - 1, rtol=1e-6)
    np.testing.assert_array_equal(found["a"].numpy()[:, 0], table["a"])
    normalized = keras.ops.convert_to_numpy(there.preprocessors["b"](table["b"][:, None]))
    np.testing.assert_allclose(found["b"].numpy(), normalized, rtol=1e-5, atol=1e-6)

    loaded.save(tmp_path / "here.keras")
    back = keras.saving.load_model(str(tmp_path / "here.keras"))
    assert isinstance(back, keras.utils.FeatureSpace)
    assert back._is_adapted
    assert back.output_mode == "dict"
    for name, layer in there.preprocessors.items():
        column = table[name][:, None]
        assert type(back.preprocessors[name]) is type(layer)
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(back.preprocessors[name](column)),
            keras.ops.convert_to_numpy(layer(column)),
            rtol=1e-6,
        )


# Keras 3.15 writes this for a column of words; its layer needs TensorFlow.
_POLICY = {
    "module": "keras",
    "class_name": "DTypePolicy",
    "config": {"name": "float32"},
    "registered_name": None,
}
_LOOKUP = {
    "module": "keras.layers",
    "class_name": "StringLookup",
    "config": {
        "name": "color_preprocessor",
        "trainable": True,
        "dtype": _POLICY,
        "invert": False,
        "max_tokens": None,
        "num_oov_indices": 1,
        "oov_token": "[UNK]",
        "mask_token": None,
        "output_mode": "int",
        "sparse": False,
        "pad_to_max_tokens": False,
        "idf_weights": None,
        "vocabulary": None,
        "vocabulary_size": 4,
        "oov_method": "floormod",
        "salt": None,
        "encoding": "utf-8",
    },
    "registered_name": None,
    "build_config": {"input_shape": [None, 1]},
}


def _of_keras(class_name, config):
    module = "keras.src.layers.preprocessing.feature_space"
    return {
        "module": module,
        "class_name": class_name,
        "config": config,
        "registered_name": class_name,
    }


def test_a_file_as_keras_writes_it_with_tensorflow(tmp_path):
    h5py = pytest.importorskip("h5py")
    feature = {"dtype": "string", "preprocessor": _LOOKUP, "output_mode": "one_hot"}
    cross = {"feature_names": ["color", "color"], "crossing_dim": 4, "output_mode": "one_hot"}
    config = {
        "module": "keras.utils",
        "class_name": "FeatureSpace",
        "config": {
            "features": {"color": _of_keras("Feature", feature)},
            "output_mode": "concat",
            "crosses": [_of_keras("Cross", cross)],
            "crossing_dim": 32,
            "hashing_dim": 32,
            "num_discretization_bins": 32,
        },
        "registered_name": None,
        "build_config": {"color": {"input_shape": [None, 1]}},
    }
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        for name in ("", "concat", "crossers/hashed_crossing", "preprocessors/string_lookup"):
            file.create_group(f"{name}/vars")
    with zipfile.ZipFile(tmp_path / "space.keras", "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.15.1"}))
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("model.weights.h5", weights.getvalue())
        place = "assets/preprocessors/string_lookup/vocabulary.txt"
        archive.writestr(place, "[UNK]\nred\ngreen\nblue")
    space = load_model(tmp_path / "space.keras")
    found = space({"color": ["green", "pink", "red"]}).numpy()
    np.testing.assert_array_equal(found[:, :4], np.eye(4)[[2, 0, 1]])
    assert found.shape == (3, 8)

    # Files written here have the same format.
    space.save(tmp_path / "again.keras")
    with zipfile.ZipFile(tmp_path / "again.keras") as archive:
        assert archive.read(place).decode() == "[UNK]\nred\ngreen\nblue"
        written = json.loads(archive.read("config.json"))
    own = written["config"]["features"]["color"]
    assert {k: v for k, v in own.items() if k != "config"} == {
        k: v for k, v in _of_keras("Feature", feature).items() if k != "config"
    }
    lookup = own["config"]["preprocessor"]
    assert (lookup["module"], lookup["class_name"]) == ("keras.layers", "StringLookup")
    assert set(lookup["config"]) == set(_LOOKUP["config"])
    assert written["config"]["crosses"] == [_of_keras("Cross", cross)]
    assert (written["module"], written["class_name"]) == ("keras.utils", "FeatureSpace")


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c["config"].update(features={}),
        lambda c: c["config"].update(features={"a": 3}),
        lambda c: c["config"]["features"]["a"]["config"].update(preprocessor="os.system"),
        lambda c: c["config"]["features"]["a"]["config"]["preprocessor"].update(class_name="Popen"),
        lambda c: c["config"]["features"]["a"]["config"].update(output_mode="row"),
        lambda c: c.update(class_name="Feature"),
        lambda c: c.update(class_name="Dataset"),
        lambda c: c.update(class_name="get_file"),
        lambda c: c.update(build_config={"z": {"input_shape": [None, 1]}}),
    ],
)
def test_damaged_files(damage, table, tmp_path):
    space = FeatureSpace({"a": "float", "b": "float_normalized"})
    space.adapt(table)
    path = tmp_path / "space.keras"
    space.save(path)
    rewritten(path, damage)
    with pytest.raises(ValueError, match="space.keras|known|describes"):
        load_model(path)


def test_other_endings(table, tmp_path):
    space = FeatureSpace({"a": "float"})
    for name in ("space.h5", "space"):
        with pytest.raises(ValueError, match=r"ends in '.keras'"):
            space.save(tmp_path / name)
    with pytest.raises(ValueError, match="hold models"):
        save_model(space, tmp_path / "space.h5")
    save_model(space, tmp_path / "space.keras")
    with pytest.raises(FileExistsError):
        save_model(space, tmp_path / "space.keras", overwrite=False)
