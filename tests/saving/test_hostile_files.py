"""A damaged or malicious file gives a clear error and has no other effect."""

import json
import random
import struct
import sys
import zipfile

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, saving

h5py = pytest.importorskip("h5py")


def make(units=3):
    model = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.Conv2D(2, 3, name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.Flatten(),
            layers.Dense(units, name="scores"),
        ]
    )
    model.compile("adam", "mse")
    return model


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "good.weights.h5"
    make().save_weights(path)
    return path


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "good.keras"
    make().save(path)
    return path


def values(model):
    return [v.numpy() for v in model.variables]


def assert_refused(model, path, match, **kwargs):
    before = values(model)
    with pytest.raises(ValueError, match=match):
        model.load_weights(path, **kwargs)
    for a, b in zip(before, values(model), strict=True):
        np.testing.assert_array_equal(a, b)


# Weights that do not fit --------------------------------------------------------------------------


def test_errors_name_layers_and_shapes_and_change_nothing(weights):
    assert_refused(
        make(units=4),
        weights,
        r"'scores' \(Dense\), weight 'kernel': expected shape \(32, 4\), found \(32, 3\)",
    )
    short = keras.Sequential([keras.Input((6, 6, 1)), layers.Conv2D(2, 3)])
    assert_refused(short, weights, r"layers/dense belongs to no layer")
    other = keras.Sequential([keras.Input((6, 6, 1)), layers.Conv2D(2, 3, use_bias=False)])
    assert_refused(other, weights, r"has 1 weights \['kernel'\], the file has 2")
    unbuilt = keras.Sequential([layers.Dense(1)])
    with pytest.raises(ValueError, match="no weights yet"):
        unbuilt.load_weights(weights)


def test_skip_mismatch_loads_what_fits(weights):
    good, model = make(), make(units=4)
    good.load_weights(weights)
    kept = model.layers[-1].kernel.numpy()
    with pytest.warns(UserWarning, match=r"expected shape \(32, 4\), found \(32, 3\)"):
        model.load_weights(weights, skip_mismatch=True)
    np.testing.assert_array_equal(model.layers[0].kernel.numpy(), good.layers[0].kernel.numpy())
    np.testing.assert_array_equal(model.layers[-1].kernel.numpy(), kept)


def test_a_layer_that_fails_to_load_undoes_the_rest(tmp_path):
    class Fails(layers.Dense):
        def load_own_variables(self, store):
            super().load_own_variables(store)
            raise OSError("no luck")

    def own(cls):
        return keras.Sequential([keras.Input((3,)), layers.Dense(2), cls(2, name="last")])

    own(Fails).save_weights(tmp_path / "w.weights.h5")
    assert_refused(own(Fails), tmp_path / "w.weights.h5", "no luck")


# HDF5 ---------------------------------------------------------------------------------------------


def _external_link(file, tmp_path):
    file["layers/dense/vars/0"] = h5py.ExternalLink(str(tmp_path / "good.weights.h5"), "/x")


def _soft_link(file, tmp_path):
    file["layers/dense/vars/0"] = h5py.SoftLink("/layers/conv2d/vars/0")


def _soft_link_to_a_group(file, tmp_path):
    del file["layers/dense"]
    file["layers/dense"] = h5py.SoftLink("/layers/conv2d")


def _cycle(file, tmp_path):
    file["layers/dense/again"] = file["layers"]


def _virtual(file, tmp_path):
    layout = h5py.VirtualLayout((32, 3), "float32")
    layout[:] = h5py.VirtualSource(str(tmp_path / "good.weights.h5"), "x", shape=(32, 3))
    file.create_virtual_dataset("layers/dense/vars/0", layout)


def _external_storage(file, tmp_path):
    (tmp_path / "secret").write_bytes(bytes(32 * 3 * 4))
    file.create_dataset(
        "layers/dense/vars/0",
        (32, 3),
        "float32",
        external=[(str(tmp_path / "secret"), 0, 32 * 3 * 4)],
    )


def _enormous(file, tmp_path):
    file.create_dataset(
        "layers/dense/vars/0", (1 << 40, 3), "float32", chunks=(1 << 10, 3), compression="gzip"
    )


def _strings(file, tmp_path):
    file["layers/dense/vars/0"] = ["text"]


def _objects(file, tmp_path):
    file.create_dataset("layers/dense/vars/0", (3,), h5py.vlen_dtype("float32"))


def _other_filter(file, tmp_path):
    file.create_dataset("layers/dense/vars/0", data=np.zeros((32, 3), "float32"), compression="lzf")


def _unknown_bytes(file, tmp_path):
    file.create_dataset("layers/dense/vars/0", data=np.zeros((32, 3), "V2"))


def _group_for_an_array(file, tmp_path):
    file.create_group("layers/dense/vars/0")


def _type_for_an_array(file, tmp_path):
    file["layers/dense/vars/0"] = np.dtype("float32")


def _too_deep(file, tmp_path):
    file.create_group("/".join(["deep"] * 200))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (_external_link, r"link \(ExternalLink\) at 'layers/dense/vars/0'"),
        (_soft_link, r"link \(SoftLink\)"),
        (_soft_link_to_a_group, r"link \(SoftLink\) at 'layers/dense'"),
        (_cycle, "in the file twice"),
        (_virtual, "outside of the file"),
        (_external_storage, "outside of the file"),
        (_enormous, "claims 13194139533312 bytes"),
        (_strings, "holds no numbers"),
        (_objects, "holds no numbers"),
        (_other_filter, "filter 32000"),
        (_unknown_bytes, "dtype"),
        (_group_for_an_array, "the file has 1 for it"),
        (_type_for_an_array, "no array or group"),
        (_too_deep, "deeper"),
    ],
)
def test_hdf5_that_is_more_than_arrays_is_refused(weights, tmp_path, change, match):
    path = tmp_path / "bad.weights.h5"
    path.write_bytes(weights.read_bytes())
    with h5py.File(path, "a") as file:
        if change is not _cycle and "layers/dense/vars/0" in file:
            del file["layers/dense/vars/0"]
        change(file, tmp_path)
    assert_refused(make(), path, match)


@pytest.mark.parametrize("content", [b"", b"\x89HDF\r\n\x1a\n", b"not HDF5 at all" * 100])
def test_what_is_no_hdf5(tmp_path, content):
    path = tmp_path / "w.weights.h5"
    path.write_bytes(content)
    assert_refused(make(), path, "no HDF5 file")
    with pytest.raises(OSError):  # Keras raises OSError, which scripts catch.
        make().load_weights(path)


def test_flipped_and_missing_bytes_never_crash_or_half_load(weights, archive, tmp_path):
    """Damage gives a ValueError or, in the middle of an array, other numbers."""
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    model = make()
    before = values(model)
    for source, load in (
        (weights, model.load_weights),
        (archive, saving.load_model),
    ):
        good = source.read_bytes()
        for _ in range(120):
            bad = bytearray(good)
            if rng.random() < 0.3:
                bad = bad[: rng.randrange(len(bad))]
            else:
                for _ in range(rng.choice([1, 2, 8, 64])):
                    bad[rng.randrange(len(bad))] = rng.randrange(256)
            path = tmp_path / f"bad{source.name}"
            path.write_bytes(bad)
            try:
                load(path)
            except ValueError:
                for a, b in zip(before, values(model), strict=True):
                    np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}")
            before = values(model)


# Archives -----------------------------------------------------------------------------------------


def rewrite(archive, path, **members):
    """Copies the archive with some members replaced; None removes one."""
    names = {"config": "config.json", "weights": "model.weights.h5", "metadata": "metadata.json"}
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for key, name in names.items():
            content = members.get(key, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return path


def test_archives_without_parts(archive, tmp_path):
    for missing in ("config", "weights"):
        path = rewrite(archive, tmp_path / "m.keras", **{missing: None})
        with pytest.raises(ValueError, match="has 0 members"):
            saving.load_model(path)
    path.write_bytes(archive.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"no .keras file"):
        saving.load_model(path)
    path.write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"no .keras file"):
        saving.load_model(path)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "assets/../../evil", "C:/evil", "..\\evil"]
)
def test_paths_out_of_the_archive(archive, tmp_path, name):
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr(name, "evil")
    with pytest.raises(ValueError, match="outside of the archive"):
        saving.load_model(archive)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["good.keras"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_that_are_there_twice(archive):
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("config.json", "{}")
    with pytest.raises(ValueError, match="has 2 members"):
        saving.load_model(archive)


def test_archives_that_unpack_to_far_more(archive, tmp_path):
    path = rewrite(archive, tmp_path / "m.keras", weights=bytes(64 << 20))
    with pytest.raises(ValueError, match="claims 67108864 bytes"):
        saving.load_model(path)
    with pytest.raises(ValueError, match="claims 67108864 bytes"):
        make().load_weights(path)


def test_members_that_lie_about_their_size(archive, tmp_path):
    content = bytearray(archive.read_bytes())
    # This is the entry of the file in the central directory.
    place = content.rindex(b"model.weights.h5") - 46
    assert content[place : place + 4] == b"PK\x01\x02"
    content[place + 24 : place + 28] = struct.pack("<I", 0xFFFFFFF0)
    archive.write_bytes(content)
    with pytest.raises(ValueError, match="claims"):
        saving.load_model(archive)


# Configurations -----------------------------------------------------------------------------------


def changed(archive, path, change):
    with zipfile.ZipFile(archive) as file:
        config = json.loads(file.read("config.json"))
    config = change(config) or config
    return rewrite(archive, path, config=json.dumps(config))


def _layer(module, class_name, config):
    def change(whole):
        entry = {"module": module, "class_name": class_name, "config": config}
        whole["config"]["layers"][1] = {**entry, "registered_name": None}

    return change


def _function(module, name):
    def change(whole):
        function = {"module": module, "class_name": "function", "config": name}
        whole["config"]["layers"][1]["config"]["activation"] = function

    return change


def _nested(depth):
    value = {}
    for _ in range(depth):
        value = {"class_name": "Sequential", "config": {"layers": [value]}}
    return lambda whole: value


@pytest.mark.parametrize(
    "change",
    [
        _layer("os", "system", {"command": "touch evil"}),
        _layer("subprocess", "Popen", {"args": ["touch", "evil"]}),
        _layer("builtins", "eval", {"source": "1"}),
        _layer("antigravity", "x", {}),
        _layer("keras.saving", "load_model", {"filepath": "x"}),
        _layer("keras", "DeviceError", {}),
        _layer("keras.layers", "serialization", {}),
        _layer("keras.layers", "_Configured", {}),
        _layer("keras.layers", "Dense", {"units": 1 << 44}),
        _layer("keras.layers", "Dense", {"units": 30_000_000}),
        _layer("keras.layers", "Dense", {"units": -1}),
        _layer("keras.layers", "Dense", []),
        _layer("keras.layers", ["Dense"], {}),
        _layer("keras.layers", "Conv2D", {}),
        _layer("keras.src.ops.core", "Cond", {}),
        _layer("keras.layers", "__lambda__", {"value": ["4wAA", None, None]}),
        _layer("keras.layers", "__numpy__", {"value": [1], "dtype": "O"}),
        _layer("keras.layers", "__pickle__", {"value": "gASV"}),
        _function("builtins", "eval"),
        _function("os", "system"),
        _function("keras.utils", "get_file"),
        _function("builtins", "set_floatx"),
        lambda whole: [1],
        lambda whole: {"class_name": "Dense", "module": "keras.layers", "config": {"units": 1}},
        lambda whole: whole.pop("config") and None,
        lambda whole: whole["config"].update(layers=3),
        lambda whole: whole["compile_config"].update(
            optimizer={"class_name": "Evil", "config": {}}
        ),
        lambda whole: whole["compile_config"].update(steps_per_execution="x"),
        _nested(150),
    ],
)
def test_configurations_make_models_or_errors_and_nothing_else(archive, tmp_path, change):
    path = changed(archive, tmp_path / "m.keras", change)
    modules = set(sys.modules)
    with pytest.raises(ValueError, match="."):
        saving.load_model(path)
    assert not {"antigravity", "subprocess.Popen"} & (set(sys.modules) - modules)
    assert not list(tmp_path.glob("**/evil"))


@pytest.mark.parametrize("text", ["", "{", "[1", '"text"', "[" * 100_000, "\x00", "nan"])
def test_configurations_that_are_no_json(archive, tmp_path, text):
    with pytest.raises(ValueError, match="configuration"):
        saving.load_model(rewrite(archive, tmp_path / "m.keras", config=text))


def test_registered_objects_do_not_come_by_path(archive, tmp_path):
    """A user's class is only found by the name under which it was registered."""
    path = changed(archive, tmp_path / "m.keras", _layer(__name__, "make", {}))
    with pytest.raises(ValueError, match="register_keras_serializable"):
        saving.load_model(path)


def test_safetensors_of_export(tmp_path):
    path = tmp_path / "m.safetensors"
    model = make()
    model.export(path)
    x = np.ones((2, 6, 6, 1), "float32")
    again = saving.load_model(path)
    np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))
    assert not again.compiled
    model.save_weights(path)
    with pytest.raises(ValueError, match="without a configuration"):
        saving.load_model(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="cut off|damaged"):
        saving.load_model(path)
    with pytest.raises(ValueError, match="format"):
        model.export(path, format="onnx")
