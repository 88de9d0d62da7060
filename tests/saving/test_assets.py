"""Files that layers keep besides their weights, in archives and folders, and sharded weights."""

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

import kerascnn
from kerascnn import saving

pytest.importorskip("h5py")
keras = pytest.importorskip("keras")

PACKAGES = {"from_keras": (keras, kerascnn), "to_keras": (kerascnn, keras)}


def asset_layer(k):
    """Returns a class for Keras (`k`) or kerascnn with an asset, its own state and build config."""

    class Words(k.layers.Layer):
        def __init__(self, words=None, **kwargs):
            super().__init__(**kwargs)
            self.words = words

        def build(self, input_shape):
            self.scale = self.add_weight((), initializer="ones", name="scale")

        def call(self, x):
            return x * self.scale

        def get_build_config(self):
            return {"told": "something"}

        def build_from_config(self, config):
            self.told = config["told"]
            self.build(None)

        def save_own_variables(self, store):
            store["scale"] = np.asarray(self.scale.numpy())

        def load_own_variables(self, store):
            self.scale.assign(store["scale"])

        def save_assets(self, dir_path):
            (Path(dir_path) / "words.txt").write_text("\n".join(self.words))
            (Path(dir_path) / "more").mkdir()
            (Path(dir_path) / "more" / "bytes").write_bytes(bytes(range(256)))

        def load_assets(self, dir_path):
            self.words = (Path(dir_path) / "words.txt").read_text().split("\n")
            self.bytes = (Path(dir_path) / "more" / "bytes").read_bytes()

    return Words


def make(k):
    cls = asset_layer(k)
    model = k.Sequential([k.Input((3,)), cls(["a", "b"]), k.layers.Dense(2), cls(["c"])])
    model.layers[0].scale.assign(3.0)
    return model, {"Words": cls}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("name", ["m.keras", "folder"])
@pytest.mark.parametrize("direction", PACKAGES)
def test_assets_and_hooks(direction, name, tmp_path, rng):
    writer, reader = PACKAGES[direction]
    model, _ = make(writer)
    model.save(tmp_path / name, zipped=name.endswith(".keras"))
    again = reader.saving.load_model(tmp_path / name, custom_objects={"Words": asset_layer(reader)})
    assert [layer.words for layer in again.layers[::2]] == [["a", "b"], ["c"]]
    assert again.layers[0].bytes == bytes(range(256))
    assert again.layers[0].told == "something"
    x = rng.random((4, 3), dtype="float32")
    np.testing.assert_allclose(
        np.asarray(again.predict(x, verbose=0)), np.asarray(model.predict(x, verbose=0)), atol=1e-5
    )


def test_compile_configs_of_ones_own(tmp_path):
    @saving.register_keras_serializable("assets")
    class Own(kerascnn.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.dense = kerascnn.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def compile(self, optimizer, penalty):
            super().compile(optimizer, "mse")
            self.penalty = penalty

        def get_compile_config(self):
            return {"penalty": self.penalty}

        def compile_from_config(self, config):
            self.compile("sgd", config["penalty"])

    model = Own()
    model.compile("sgd", 0.25)
    model.build((None, 2))
    model.save(tmp_path / "m.keras")
    assert saving.load_model(tmp_path / "m.keras").penalty == 0.25


@pytest.fixture
def archive(tmp_path):
    model, objects = make(kerascnn)
    model.save(tmp_path / "m.keras")
    return tmp_path / "m.keras", objects


@pytest.mark.parametrize("name", ["assets/../../evil", "assets/layers/words/../../../../evil"])
def test_assets_out_of_the_archive(name, archive, tmp_path):
    path, objects = archive
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(name, "evil")
    with pytest.raises(ValueError, match="outside of the archive"):
        saving.load_model(path, objects)
    assert not list(tmp_path.parent.glob("**/evil"))


def test_assets_that_unpack_to_far_more(archive):
    path, objects = archive
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("assets/bomb", bytes(64 << 20))
    with pytest.raises(ValueError, match="claims 67108864 bytes"):
        saving.load_model(path, objects)


def test_links_in_archives_become_files(archive, tmp_path):
    """A member marked as a link becomes a file with the text of the link, and nothing more."""
    path, objects = archive
    secret = tmp_path / "secret"
    secret.write_text("secret")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "n.keras", "w") as new:
        for name in old.namelist():
            if name != "assets/layers/words/words.txt":
                new.writestr(name, old.read(name))
        member = zipfile.ZipInfo("assets/layers/words/words.txt")
        member.external_attr = 0o120777 << 16
        new.writestr(member, str(secret))
    assert saving.load_model(tmp_path / "n.keras", objects).layers[0].words == [str(secret)]


def test_an_asset_that_cannot_be_loaded_is_named(archive):
    path, _ = archive

    class Words(asset_layer(kerascnn)):
        def load_assets(self, dir_path):
            raise KeyError("no such word")

    with pytest.raises(ValueError, match="Words 'words.*no such word"):
        saving.load_model(path, {"Words": Words})


@pytest.mark.parametrize(
    "name", ["config.json", "model.weights.h5", "assets/layers/words/x", "assets"]
)
def test_links_in_folders_are_refused(name, tmp_path):
    model, objects = make(kerascnn)
    model.save(tmp_path / "folder", zipped=False)
    elsewhere = tmp_path / "elsewhere"
    place = tmp_path / "folder" / name
    if place.exists():
        os.rename(place, elsewhere)
    else:
        elsewhere.write_text("secret")
    place.symlink_to(elsewhere)
    with pytest.raises(ValueError, match="is a link"):
        saving.load_model(tmp_path / "folder", objects)


# Weights in several files ------------------------------------------------------------------------


@pytest.fixture
def listing(tmp_path):
    model = kerascnn.Sequential([kerascnn.Input((3,)), kerascnn.layers.Dense(2)])
    model.save_weights(tmp_path / "m.weights.json", max_shard_size=30 / 1024**3)
    return tmp_path / "m.weights.json", model


def test_what_is_in_several_files(listing, tmp_path):
    path, model = listing
    content = json.loads(path.read_text())
    names = ["m_00000.weights.h5", "m_00001.weights.h5"]
    assert content == {
        "metadata": {"total_size": 32},
        "weight_map": {"/layers/dense/vars": names},
    }
    assert {p.name for p in tmp_path.iterdir()} == {*names, "m.weights.json"}
    with pytest.raises(ValueError, match="24 bytes, more than fit"):
        model.save_weights(path, max_shard_size=20 / 1024**3)
    with pytest.raises(FileExistsError):
        model.save_weights(path, overwrite=False, max_shard_size=1)


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (["../m_00000.weights.h5"], "beside it are allowed"),
        (["/etc/passwd"], "beside it are allowed"),
        (["..\\m.weights.h5"], "beside it are allowed"),
        (["link.weights.h5"], "is a link"),
        (["none.weights.h5"], "not beside it"),
        (["m_00000.weights.h5"] * 2, "there twice"),
        ([3], "beside it are allowed"),
        (3, "beside it are allowed"),
        ({"a": 1}, "beside it are allowed"),
        (["m_00000.weights.h5"], r"has 2 weights .* the file has 1"),
    ],
)
def test_lists_that_name_other_files(names, match, listing):
    path, model = listing
    (path.parent / "link.weights.h5").symlink_to(path.with_name("m_00000.weights.h5"))
    path.write_text(json.dumps({"weight_map": {"/layers/dense/vars": names}}))
    before = model.get_weights()
    with pytest.raises(ValueError, match=match):
        model.load_weights(path)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"weight_map": 3}'])
def test_what_is_no_list(text, listing):
    path, model = listing
    path.write_text(text)
    with pytest.raises(ValueError, match="no list of weights"):
        model.load_weights(path)


def test_objects_to_skip(tmp_path):
    def make():
        m = kerascnn.Sequential([kerascnn.Input((3,)), kerascnn.layers.Dense(2, name="a")])
        m.add(kerascnn.layers.Dense(1, name="b"))
        return m

    model, other = make(), make()
    saving.save_weights(model, tmp_path / "m.weights.h5")
    kept = other.layers[1].get_weights()
    saving.load_weights(other, tmp_path / "m.weights.h5", objects_to_skip=[other.layers[1]])
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])
    np.testing.assert_array_equal(other.layers[1].get_weights()[0], kept[0])
    saving.save_weights(model, tmp_path / "n.weights.h5", objects_to_skip=[model.layers[1]])
    with pytest.raises(ValueError, match="the file has 0"):
        other.load_weights(tmp_path / "n.weights.h5")
