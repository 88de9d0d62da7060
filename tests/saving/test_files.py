"""Which files are written and how, what they contain, and callbacks that save."""

import copy
import os
import pickle
import traceback

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, saving
from kerascnn.saving import archive, h5_file

h5py = pytest.importorskip("h5py")


def make(dtype="float32"):
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, dtype=dtype), layers.Dropout(0.5, seed=1)]
    )
    model.compile("sgd", "mse")
    return model


def test_round_trip_across_devices(tmp_path, device):
    with keras.device(device):
        model, other = make(), make()
    x, y = np.ones((4, 4), "float32"), np.zeros((4, 3), "float32")
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "m.keras")
    model.save_weights(tmp_path / "m.weights.h5")
    with keras.device(device):
        again = saving.load_model(tmp_path / "m.keras")
    other.load_weights(tmp_path / "m.weights.h5")
    third = make()
    third.load_weights(tmp_path / "m.keras")
    assert again.weights[0].device.startswith(device.split(":")[0])
    assert int(again.optimizer.iterations.numpy()) == 1
    for one in (again, other, third):
        for a, b in zip(model.weights, one.weights, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_dtype(tmp_path, dtype):
    model, other = make(dtype), make(dtype)
    model.save_weights(tmp_path / "m.weights.h5")
    other.load_weights(tmp_path / "m.weights.h5")
    assert other.weights[0].dtype == dtype
    np.testing.assert_array_equal(model.get_weights()[0], other.get_weights()[0])


@pytest.mark.parametrize("name", ["m.keras", "m.weights.h5", "m.safetensors"])
def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch, name):
    path = tmp_path / name
    save = keras.Model.save if name.endswith(".keras") else keras.Model.save_weights
    save(make(), path)
    old = path.read_bytes()

    def fail(*args, **kwargs):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="no space left"):
            save(make(), path)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == [name]
    if not name.endswith(".safetensors"):
        monkeypatch.setattr(h5_file, "write", fail)
        with pytest.raises(OSError, match="no space left"):
            save(make(), path)
        assert path.read_bytes() == old
    with pytest.raises(FileExistsError, match="overwrite=True"):
        save(make(), path, overwrite=False)


def test_names_of_files(tmp_path):
    model = make()
    with pytest.raises(ValueError, match=r"\.weights\.h5"):
        model.save_weights(tmp_path / "m.h5")
    for name in ("m", "m.txt"):
        with pytest.raises(ValueError, match=r"\.keras"):
            model.save(tmp_path / name)
        with pytest.raises(ValueError, match=r"\.weights\.h5"):
            model.save_weights(tmp_path / name)
        (tmp_path / name).touch()
        with pytest.raises(ValueError, match=r"\.keras"):
            saving.load_model(tmp_path / name)
        with pytest.raises(ValueError, match=r"\.weights\.h5"):
            model.load_weights(tmp_path / name)
    for error in (ValueError, FileNotFoundError):  # Keras raises one of these two errors.
        with pytest.raises(error, match="not found"):
            saving.load_model(tmp_path / "none.keras")
        with pytest.raises(error, match="not found"):
            model.load_weights(tmp_path / "none.weights.h5")
    with pytest.raises(FileNotFoundError, match=r"=none\.keras, in the working folder /"):
        saving.load_model("none.keras")
    with pytest.raises(FileNotFoundError) as caught:
        model.load_weights("none.weights.h5")
    assert traceback.format_exception_only(caught.value)[0].startswith("FileNotFoundError: File")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value) and str(again) == str(caught.value)
    with pytest.raises(ValueError, match="zipped"):
        model.save(tmp_path / "folder.keras", zipped=False)
    with pytest.raises(ValueError, match="holds no model"):
        saving.load_model(tmp_path)
    with pytest.raises(ValueError, match="Hugging Face"):
        saving.load_model("hf://someone/model")
    with pytest.raises(ValueError, match="max_shard_size"):
        model.save_weights(tmp_path / "m.weights.h5", max_shard_size=1.0)
    with pytest.raises(ValueError, match="no weights yet"):
        keras.Sequential([layers.Dense(1)]).save_weights(tmp_path / "m.weights.h5")
    with pytest.warns(UserWarning, match="without the weights"):
        keras.Sequential([layers.Dense(1)]).save(tmp_path / "m.keras")


def test_compile_false_and_own_objects(tmp_path):
    @saving.register_keras_serializable("tests")
    class Twice(layers.Layer):
        def call(self, inputs):
            return 2.0 * inputs

    def distance(y_true, y_pred):
        return keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)

    model = keras.Sequential([keras.Input((4,)), Twice(), layers.Dense(2)])
    model.compile("adam", distance, metrics=[distance])
    model.save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match="'distance' is not known"):
        saving.load_model(tmp_path / "m.keras")
    assert not saving.load_model(tmp_path / "m.keras", compile=False).compiled
    again = saving.load_model(tmp_path / "m.keras", custom_objects={"distance": distance})
    assert again.loss is distance
    assert type(again.layers[0]) is Twice


def test_a_compile_of_ones_own_is_left_to_the_user(tmp_path):
    @saving.register_keras_serializable("tests")
    class Own(keras.Sequential):
        def compile(self, extra, **kwargs):
            super().compile(**kwargs)

    model = Own([keras.Input((4,)), layers.Dense(2)])
    model.compile(3, optimizer="sgd", loss="mse")
    model.save(tmp_path / "m.keras")
    with pytest.warns(UserWarning, match="compile"):
        again = saving.load_model(tmp_path / "m.keras")
    assert type(again) is Own
    assert not again.compiled


def test_layers_decide_what_is_kept(tmp_path):
    class Table(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.table = np.zeros(3)
            self.built = True

        def call(self, inputs):
            return inputs

        def save_own_variables(self, store):
            store["table"] = self.table

        def load_own_variables(self, store):
            self.table = store["table"]

    model, other = (keras.Sequential([keras.Input((3,)), Table()]) for _ in range(2))
    model.layers[0].table = np.arange(3.0)
    model.save_weights(tmp_path / "m.weights.h5")
    other.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(other.layers[0].table, [0.0, 1.0, 2.0])


def test_checkpoints_in_all_forms(tmp_path):
    model = make()
    x, y = np.ones((4, 4), "float32"), np.zeros((4, 3), "float32")
    checkpoints = [
        keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras"),
        keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.h5"),
        keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.weights.h5", save_weights_only=True),
    ]
    model.fit(x, y, epochs=2, verbose=0, callbacks=checkpoints)
    assert len(list(tmp_path.iterdir())) == 6
    older = saving.load_model(tmp_path / "2.h5")
    assert int(older.optimizer.iterations.numpy()) == 2
    np.testing.assert_array_equal(older.get_weights()[0], model.get_weights()[0])
    again = saving.load_model(tmp_path / "2.keras")
    assert int(again.optimizer.iterations.numpy()) == 2
    again.load_weights(tmp_path / "2.weights.h5")
    np.testing.assert_array_equal(again.get_weights()[0], model.get_weights()[0])


def test_h5py_comes_with_the_first_file_only():
    import subprocess
    import sys

    code = "import kerascnn, sys; print('h5py' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "False", result.stderr


@pytest.mark.parametrize(
    "duplicate", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy, copy.copy]
)
def test_models_are_pickled_and_copied(duplicate, rng):
    x, y = rng.normal(size=(12, 4)).astype("float32"), rng.normal(size=(12, 2)).astype("float32")
    model = keras.Sequential([layers.Dense(5, "tanh"), layers.Dense(2, name="last")])
    model.compile("adam", "mse")
    model.fit(x, y, verbose=0)
    other = duplicate(model)
    expected = model.predict(x, verbose=0)
    np.testing.assert_array_equal(other.predict(x, verbose=0), expected)
    assert other.layers[-1].name == "last" and other.optimizer is not model.optimizer
    # Each model trains on by itself, with the optimizer in its last state.
    keys = {"verbose": 0, "shuffle": False}
    first = other.fit(x, y, **keys).history
    np.testing.assert_array_equal(model.predict(x, verbose=0), expected)
    assert model.fit(x, y, **keys).history == first


def test_a_damaged_pickle_is_named():
    with pytest.raises(ValueError, match="the pickled model is no .keras file"):
        archive.from_bytes(b"nothing")
