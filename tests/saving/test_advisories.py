"""Files made as in advisories of model files: .github/SECURITY.md lists them by mechanism."""

import json
import os
import zipfile

import h5py
import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, saving


def _entry(class_name, module="keras.layers", /, **config):
    return {"module": module, "class_name": class_name, "config": config, "registered_name": None}


def _stack(*entries, **more):
    first = _entry("InputLayer", batch_shape=[None, 2], name="first")
    config = {"name": "model", "layers": [first, *entries]}
    return {**_entry("Sequential", "keras", **config), **more}


@pytest.fixture
def write(tmp_path):
    """Writes a file of an ending with a configuration and the weights of a small Dense."""

    def written(config, ending):
        good = tmp_path / f"good{ending}"
        model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
        path = tmp_path / f"bad{ending}"
        if ending == ".h5":
            model.save(path)
            with h5py.File(path, "a") as file:
                file.attrs["model_config"] = json.dumps(config)
            return path
        model.save(good)
        with zipfile.ZipFile(good) as old, zipfile.ZipFile(path, "w") as new:
            for name in old.namelist():
                text = json.dumps(config) if name == "config.json" else old.read(name)
                new.writestr(name, text)
        return path

    return written


def _lambda():
    layer = layers.Lambda(lambda x: os.environ.update(KERASCNN_HARMED="yes") or x)
    return keras.layers.serialize(layer)


@pytest.mark.parametrize("ending", [".keras", ".h5"])
@pytest.mark.parametrize("safe_mode", [True, None])
def test_code_in_lambdas_needs_safe_mode_to_be_false(write, ending, safe_mode):
    """None is not False, and `.h5` files are read as the others are."""
    path = write(_stack(_lambda()), ending)
    with pytest.raises(ValueError, match="safe_mode=False"):
        saving.load_model(path, safe_mode=safe_mode)
    assert "KERASCNN_HARMED" not in os.environ


@pytest.mark.parametrize("ending", [".keras", ".h5"])
@pytest.mark.parametrize("name", ["TorchModuleWrapper", "TFSMLayer", "JaxLayer", "FlaxLayer"])
def test_layers_that_read_pickles_and_programs_are_not_there(write, ending, name, tmp_path):
    (tmp_path / "evil.pt").write_bytes(b"cos\nsystem\n(S'touch harmed'\ntR.")
    config = {"module": "gASVAA==", "filepath": str(tmp_path / "evil.pt")}
    with pytest.raises(ValueError, match=name):
        saving.load_model(write(_stack(_entry(name, **config)), ending), safe_mode=True)
    assert not list(tmp_path.glob("harmed"))


@pytest.mark.parametrize("name", ["StringLookup", "IntegerLookup", "TextVectorization"])
def test_vocabularies_are_not_read_from_paths_in_files(write, name, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("1\n2\n3\n")
    path = write(_stack(_entry(name, vocabulary=str(secret))), ".keras")
    with pytest.raises(ValueError, match="vocabulary"):
        saving.load_model(path)


@pytest.mark.parametrize("ending", [".keras", ".h5"])
@pytest.mark.parametrize(
    "entry",
    [
        _entry("Dense", units=10**9),
        _entry("Dense", units=3_000_000),
        _entry("Embedding", input_dim=10**6, output_dim=10**6),
        _entry("LSTM", units=2_000, stateful=True),
    ],
)
def test_shapes_that_the_file_does_not_hold(write, ending, entry):
    """There is no size below which a file may claim what it does not hold, but for a megabyte."""
    batch = [8, 3, 2] if entry["class_name"] == "LSTM" else [None, 2]
    config = _stack(entry)
    config["config"]["layers"][0]["config"]["batch_shape"] = batch
    with pytest.raises(ValueError, match="more than the file holds"):
        saving.load_model(write(config, ending))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("MeanIoU", {"num_classes": 100_000}),
        ("OneHotMeanIoU", {"num_classes": 10**9}),
        ("AUC", {"num_thresholds": 10**9}),
        ("PrecisionAtRecall", {"recall": 0.5, "num_thresholds": 10**9}),
    ],
)
def test_metrics_that_would_fill_memory(write, name, arguments):
    metric = _entry(name, "keras.metrics", **arguments)
    how = {"optimizer": "adam", "loss": "mse", "metrics": [metric]}
    config = _stack(_entry("Dense", units=1), compile_config=how)
    with pytest.raises(ValueError, match="in metric '"):
        saving.load_model(write(config, ".keras"))


@pytest.mark.parametrize(
    ("name", "config", "arguments"),
    [("Full", {"shape": [10**9], "dtype": "float32"}, [1.0]), ("Arange", {}, [0, 10**9])],
)
def test_calls_that_take_no_output_of_a_layer(write, name, config, arguments):
    """They would be computed while the file is read: gigabytes, by a kilobyte of configuration."""
    call = {
        **_entry(name, "keras.src.ops.numpy", **config),
        "name": "call",
        "inbound_nodes": [{"args": arguments, "kwargs": {}}],
    }
    first = _entry("InputLayer", batch_shape=[None, 2], name="first")
    graph = {
        "name": "model",
        "layers": [{**first, "name": "first", "inbound_nodes": []}, call],
        "input_layers": [["first", 0, 0]],
        "output_layers": [["call", 0, 0]],
    }
    whole = _entry("Functional", "keras.src.models.functional", **graph)
    with pytest.raises(ValueError, match="on no output of a layer"):
        saving.load_model(write(whole, ".keras"))


def test_files_that_are_trusted_may_hold_less_than_they_make(tmp_path):
    """A layer that saves none of its weights is the reason why safe_mode=False has no bound."""

    class Fixed(layers.Layer):
        def build(self, shape):
            self.projection = self.add_weight((shape[-1], 300_000), "ones", trainable=False)

        def save_own_variables(self, store):
            pass

        def load_own_variables(self, store):
            pass

    path = tmp_path / "own.keras"
    keras.Sequential([keras.Input((2,)), Fixed()]).save(path)
    with pytest.raises(ValueError, match="pass safe_mode=False"):
        saving.load_model(path, custom_objects={"Fixed": Fixed})
    model = saving.load_model(path, custom_objects={"Fixed": Fixed}, safe_mode=False)
    assert model.layers[0].projection.shape == (2, 300_000)


def test_arrays_that_unpack_to_far_more_than_the_file(tmp_path):
    path = tmp_path / "w.weights.h5"
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    model.save_weights(path)
    with h5py.File(path, "a") as file:
        for n in range(40):
            zeros = np.zeros((1 << 18,), "float32")
            file.create_dataset(f"layers/more/vars/{n}", data=zeros, compression="gzip")
    with pytest.raises(ValueError, match="bytes of arrays, but stores"):
        model.load_weights(path)
