"""KerasFileEditor shows, compares and changes the contents of a file."""

import zipfile

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers
from kerascnn.saving import KerasFileEditor

h5py = pytest.importorskip("h5py")


def make(units=3):
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(2, name="deep")], name="inner")
    return keras.Sequential(
        [keras.Input((5,)), layers.Dense(4, name="first"), inner, layers.Dense(units, name="last")]
    )


@pytest.fixture(params=["m.weights.h5", "m.keras"])
def saved(request, tmp_path):
    model = make()
    path = str(tmp_path / request.param)
    model.save(path) if request.param.endswith(".keras") else model.save_weights(path)
    return model, path


def test_what_is_in_a_file(saved, capsys):
    model, path = saved
    editor = KerasFileEditor(path)
    assert (editor.config is not None) == path.endswith(".keras")
    own = editor.weights_dict["layers"]
    assert set(own) >= {"dense", "dense_1", "sequential"}
    for layer, name in ((model.layers[0], "dense"), (model.layers[2], "dense_1")):
        for key, want in zip(own[name], layer.get_weights(), strict=True):
            np.testing.assert_array_equal(own[name][key], want)
    editor.summary()
    text = capsys.readouterr().out
    assert "Keras model file" in text and "shape=(5, 4), dtype=float32" in text
    assert "('last')" in text


def test_comparisons(saved, capsys):
    model, path = saved
    editor = KerasFileEditor(path)
    found = editor.compare(model)
    assert found == {"status": "success", "error_count": 0, "match_count": 6}
    found = editor.compare(make(units=7))
    assert found == {"status": "error", "error_count": 2, "match_count": 4}
    assert "shape mismatch for layers/dense_1/0: (2, 7)" in capsys.readouterr().out
    editor.delete_weight("layers/dense", "1")
    editor.delete_object("dense_1")
    assert editor.compare(model)["error_count"] == 2
    assert "missing from saved file" in capsys.readouterr().out


def test_changes_and_the_model_they_are_for(saved, tmp_path, rng):
    """An added, a removed and a renamed layer make the weights of another model."""
    model, path = saved
    editor = KerasFileEditor(path)
    kernel, bias = rng.random((2, 6), dtype="float32"), rng.random(6, dtype="float32")
    editor.delete_object("layers/dense_1")
    editor.add_object("layers/dense_1", {"0": kernel, "1": bias})
    editor.rename_object("sequential", "functional")
    editor.rename_object("layers/functional", "sequential")
    target = tmp_path / "changed.weights.h5"
    editor.resave_weights(target)
    other = make(units=6)
    other.load_weights(target)
    np.testing.assert_array_equal(
        other.layers[0].get_weights()[0], model.layers[0].get_weights()[0]
    )
    np.testing.assert_array_equal(
        other.layers[1].get_weights()[0], model.layers[1].get_weights()[0]
    )
    np.testing.assert_array_equal(other.layers[2].get_weights()[0], kernel)
    editor.add_weights("dense_1", {"1": bias * 2})
    editor.save(target)
    other.load_weights(target)
    np.testing.assert_array_equal(other.layers[2].get_weights()[1], bias * 2)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_what_keras_makes_of_a_changed_file(saved, tmp_path):
    theirs = pytest.importorskip("keras")
    model, path = saved
    editor = KerasFileEditor(path)
    editor.save(tmp_path / "same.weights.h5")
    inner = theirs.Sequential([theirs.Input((4,)), theirs.layers.Dense(2)])
    other = theirs.Sequential([theirs.Input((5,)), theirs.layers.Dense(4), inner])
    other.add(theirs.layers.Dense(3))
    other.load_weights(tmp_path / "same.weights.h5")
    for a, b in zip(other.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_mistakes(saved, tmp_path):
    _, path = saved
    editor = KerasFileEditor(path)
    for call, match in (
        (lambda: editor.delete_object("nothing"), "no object 'nothing'"),
        (lambda: editor.delete_object("dense"), "2 objects 'dense'"),
        (lambda: editor.rename_object("layers/dense", "a/b"), "no path"),
        (lambda: editor.rename_object("layers/dense", "dense_1"), "already"),
        (lambda: editor.add_object("none/dense", {}), "no path 'none'"),
        (lambda: editor.add_object("layers/x", [1]), "dictionary"),
        (lambda: editor.delete_weight("layers/dense", "7"), r"no weight '7'.*\['0', '1'\]"),
        (lambda: editor.save(tmp_path / "x.h5"), r"\.weights\.h5"),
        (lambda: KerasFileEditor(str(tmp_path / "x.h5")), r"\.keras"),
    ):
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(FileNotFoundError):
        KerasFileEditor(str(tmp_path / "none.keras"))


def test_hostile_files_are_refused(tmp_path):
    path = tmp_path / "m.weights.h5"
    make().save_weights(path)
    with h5py.File(path, "a") as file:
        file["layers/evil"] = h5py.ExternalLink("other.h5", "/x")
    with pytest.raises(ValueError, match="ExternalLink"):
        KerasFileEditor(str(path))
    make().save(tmp_path / "m.keras")
    with zipfile.ZipFile(tmp_path / "m.keras", "a") as archive:
        archive.writestr("../evil", "evil")
    with pytest.raises(ValueError, match="outside of the archive"):
        KerasFileEditor(str(tmp_path / "m.keras"))
