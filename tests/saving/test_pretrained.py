"""Folders in the form of Hugging Face's hub: written, read back, and refused where damaged."""

import json

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, saving
from kerascnn.models import weights_file


def make():
    return keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.Conv2D(2, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(3, activation="softmax"),
        ],
        name="digits",
    )


CARD = {
    "license": "apache-2.0",
    "tags": ["vision", "keras", "yes: a 'tag'"],
    "pipeline_tag": "image-classification",
    "metrics": {"accuracy": 0.9712, "loss": np.float32(0.125)},
    "dataset": "mnist",
    "description": "Reads digits.",
}


def header(folder):
    text = (folder / "README.md").read_text()
    assert text.startswith("---\n")
    return text[4:].split("\n---\n")[0]


def test_what_was_saved_is_loaded(tmp_path, rng):
    model = make()
    model.compile("adam", "sparse_categorical_crossentropy")
    model.save_pretrained(tmp_path / "digits", **CARD)
    names = {p.name for p in (tmp_path / "digits").iterdir()}
    assert names == {"model.safetensors", "config.json", "README.md"}
    other = saving.load_model(tmp_path / "digits")
    assert type(other) is keras.Sequential and other.name == "digits" and not other.compiled
    x = rng.normal(size=(2, 6, 6, 1))
    np.testing.assert_array_equal(model.predict(x, verbose=0), other.predict(x, verbose=0))


def test_the_configuration_is_that_of_keras(tmp_path):
    saving.save_pretrained(make(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["class_name"] == "Sequential" and config["module"] == "keras"
    assert "compile_config" not in config


def test_the_card(tmp_path):
    saving.save_pretrained(make(), tmp_path, **CARD)
    lines = header(tmp_path).splitlines()
    assert lines[:4] == [
        "library_name: keras",
        'license: "apache-2.0"',
        'pipeline_tag: "image-classification"',
        "tags:",
    ]
    assert lines[4:8] == ['- "keras"', '- "kerascnn"', '- "vision"', "- \"yes: a 'tag'\""]
    assert lines[-4:-2] == ['    - type: "accuracy"', "      value: 0.9712"]
    text = (tmp_path / "README.md").read_text()
    for part in ("# digits", "Reads digits.", "| parameters | 127 |", "| accuracy | 0.9712 |"):
        assert part in text


def test_the_header_is_yaml(tmp_path):
    yaml = pytest.importorskip("yaml")
    saving.save_pretrained(make(), tmp_path, **CARD)
    found = yaml.safe_load(header(tmp_path))
    assert found["tags"] == ["keras", "kerascnn", "vision", "yes: a 'tag'"]
    assert found["metrics"] == ["accuracy", "loss"]
    (result,) = found["model-index"][0]["results"]
    assert result["task"] == {"type": "image-classification"}
    assert result["dataset"] == {"name": "mnist", "type": "mnist"}
    assert result["metrics"][1] == {"type": "loss", "value": 0.125}


def test_a_card_that_is_there_stays(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    saving.save_pretrained(make(), tmp_path)
    saving.save_pretrained(make(), tmp_path)  # the rest is written anew
    assert (tmp_path / "README.md").read_text() == "mine"


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match="has no weights yet"):
        keras.Sequential([layers.Dense(1)]).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="numbers by name. Received: accuracy='high'"):
        make().save_pretrained(tmp_path, metrics={"accuracy": "high"})
    assert not list(tmp_path.iterdir())


def test_folders_that_do_not_fit(tmp_path):
    saving.save_pretrained(make(), tmp_path)
    arrays = weights_file.read(tmp_path / "model.safetensors")
    arrays.pop("layers/dense/vars/1")
    weights_file.write(tmp_path / "model.safetensors", arrays)
    with pytest.raises(ValueError, match="the file has no layers/dense/vars/1"):
        saving.load_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="no model can be made of its configuration"):
        saving.load_model(tmp_path)
    (tmp_path / "config.json").write_text('{"architecture": "resnet18", "num_classes": 1000}')
    with pytest.raises(ValueError, match=r"another library's model \(resnet18\).*weights=folder"):
        saving.load_model(tmp_path)


def test_links_are_refused(tmp_path):
    saving.save_pretrained(make(), tmp_path / "a")
    folder = tmp_path / "b"
    folder.mkdir()
    (folder / "config.json").write_bytes((tmp_path / "a" / "config.json").read_bytes())
    (folder / "model.safetensors").symlink_to(tmp_path / "a" / "model.safetensors")
    with pytest.raises(ValueError, match="is a link; not allowed"):
        saving.load_model(folder)


def test_configurations_make_no_more_weights_than_the_file_has(tmp_path):
    saving.save_pretrained(make(), tmp_path)
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace('"units": 3', '"units": 300000000'))
    with pytest.raises(ValueError, match="weights"):
        saving.load_model(tmp_path)
