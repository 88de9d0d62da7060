"""Seeds, labels, downloads and settings work as Keras' functions of these names."""

import hashlib
import io
import tarfile
import zipfile

import numpy as np
import pytest

import kerascnn

keras = pytest.importorskip("keras")
MODULES = (kerascnn, keras)


@pytest.mark.parametrize(
    "labels", [[0, 2, 1], [[0], [3]], np.zeros((2, 3), int), [[[1], [0]]], [], 2, [1.0, 0.0]]
)
@pytest.mark.parametrize("classes", [None, 5])
def test_to_categorical(labels, classes):
    results = []
    for module in MODULES:
        try:
            results.append(np.asarray(module.utils.to_categorical(labels, classes)).tolist())
        except ValueError:
            results.append(ValueError)
    if np.size(labels) or classes:
        assert results[0] == results[1]


def test_to_categorical_of_tensors_and_bad_labels(device):
    with kerascnn.device(device):
        rows = kerascnn.utils.to_categorical(kerascnn.ops.convert_to_tensor([[1], [0]]), 3)
        assert rows.device == device
        assert rows.numpy().tolist() == [[0, 1, 0], [1, 0, 0]]
    for labels in ([0, 3], [-1]):
        with pytest.raises(ValueError, match="from 0 to 2"):
            kerascnn.utils.to_categorical(labels, 3)


def test_source_inputs():
    for module in MODULES:
        a, b = module.Input((2,), name="a"), module.Input((2,), name="b")
        x = module.layers.Add()([a, module.layers.Dense(2)(b), a])
        names = [t.name for t in module.utils.get_source_inputs(x)]
        assert names == ["a", "b"]
        assert [t.name for t in module.utils.get_source_inputs(a)] == ["a"]
        assert module.utils.get_source_inputs(3) == 3
        assert module.utils.is_keras_tensor(x) and not module.utils.is_keras_tensor(np.ones(2))


def test_backend_and_config():
    assert kerascnn.backend.backend() == kerascnn.config.backend() == kerascnn.config.get_device()
    for module in MODULES:
        backend = module.backend
        assert (backend.floatx(), backend.epsilon()) == ("float32", 1e-7)
        assert backend.image_data_format() == "channels_last"
        assert backend.is_float_dtype("bfloat16") and not backend.is_float_dtype("int8")
        assert backend.is_int_dtype("uint8") and not backend.is_int_dtype("bool")
        assert backend.standardize_dtype(float) == backend.standardize_dtype(None) == "float32"
        with pytest.raises(ValueError):
            backend.standardize_dtype("number")
        assert backend.result_type("int32", "float16") == "float16"
        backend.clear_session()
        assert [backend.get_uid("series"), backend.get_uid("series")] == [1, 2]
        for set_it, wrong in (
            (backend.set_floatx, "int8"),
            (backend.set_image_data_format, "middle"),
        ):
            with pytest.raises(ValueError):
                set_it(wrong)
        backend.set_image_data_format("channels_first")
        backend.set_floatx("float64")
        backend.set_epsilon(1e-5)
        try:
            assert module.config.image_data_format() == "channels_first"
            assert (module.config.floatx(), module.config.epsilon()) == ("float64", 1e-5)
        finally:
            backend.set_image_data_format("channels_last")
            backend.set_floatx("float32")
            backend.set_epsilon(1e-7)
        assert module.config.is_interactive_logging_enabled()
        module.utils.disable_interactive_logging()
        assert not module.config.is_interactive_logging_enabled()
        module.config.enable_interactive_logging()


@pytest.mark.filterwarnings("ignore:Limiting", "ignore:__array__ implementation")
@pytest.mark.parametrize("module", MODULES)
def test_limits_of_epochs_and_steps(module):
    model = module.Sequential([module.Input((2,)), module.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.zeros((12, 2), "float32"), np.zeros((12, 1), "float32")
    seen = []
    count = module.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append("train"),
        on_test_batch_end=lambda batch, logs: seen.append("test"),
    )
    options = {"batch_size": 2, "verbose": 0, "callbacks": [count]}
    module.config.set_max_epochs(2)
    module.config.set_max_steps_per_epoch(3)
    try:
        assert (module.config.max_epochs(), module.config.max_steps_per_epoch()) == (2, 3)
        with pytest.warns(UserWarning, match="Limiting epochs to 2"):
            history = model.fit(x, y, epochs=5, validation_data=(x, y), **options)
        assert len(history.epoch) == 2
        assert seen == (["train"] * 3 + ["test"] * 3) * 2
        seen.clear()
        with pytest.warns(UserWarning, match="Limiting steps_per_epoch to 3"):
            model.evaluate(x, y, **options)
            assert model.predict(x, batch_size=2, verbose=0).shape == (6, 1)
        assert seen == ["test"] * 3
    finally:
        module.config.set_max_epochs(None)
        module.config.set_max_steps_per_epoch(None)
    assert len(model.fit(x, y, epochs=3, verbose=0).epoch) == 3


def test_clear_session_starts_anew():
    for module in MODULES:
        module.config.set_dtype_policy("mixed_bfloat16")
        module.layers.Dense(1)
        module.utils.clear_session()
        assert module.config.dtype_policy().name == "float32"
        assert module.layers.Dense(1).name == "dense"


def test_seeds_repeat_what_is_drawn(device):
    drawn = []
    with kerascnn.device(device):
        for _ in range(2):
            kerascnn.utils.set_random_seed(3)
            weights = kerascnn.layers.Dense(3)
            weights.build((None, 2))
            noise = kerascnn.random.normal((2,)).numpy()
            drawn.append((weights.get_weights()[0].tolist(), noise.tolist(), np.random.rand()))  # noqa: NPY002
    assert drawn[0] == drawn[1]
    for wrong in (1.5, "1", -1):
        with pytest.raises(ValueError):
            kerascnn.utils.set_random_seed(wrong)


# get_file ----------------------------------------------------------------------------------------


@pytest.fixture
def origin(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    (folder / "data.txt").write_bytes(b"content")
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        archive.writestr("inner/a.txt", "a")
        archive.writestr("../outside.txt", "b")
    with tarfile.open(folder / "data.tar.gz", "w:gz") as archive:
        for name in ("inner/a.txt", "../outside.txt"):
            info = tarfile.TarInfo(name)
            info.size = 1
            archive.addfile(info, io.BytesIO(b"a"))
    return folder.as_uri()


SHA256, MD5 = hashlib.sha256(b"content").hexdigest(), hashlib.md5(b"content").hexdigest()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fname": "other.txt"},
        {"cache_subdir": "sub"},
        {"file_hash": SHA256},
        {"md5_hash": MD5},
        {"file_hash": MD5, "hash_algorithm": "md5"},
    ],
)
def test_files_are_fetched_once(module, options, origin, tmp_path, capsys):
    address, cache = f"{origin}/data.txt", tmp_path / "cache"
    cache.mkdir()
    path = module.utils.get_file(origin=address, cache_dir=str(cache), **options)
    name, folder = options.get("fname", "data.txt"), options.get("cache_subdir", "datasets")
    assert path == str(cache / folder / name)
    assert "Downloading data from" in capsys.readouterr().out
    again = module.utils.get_file(origin=address, cache_dir=str(cache), **options)
    assert again == path and capsys.readouterr().out == ""
    (cache / folder / name).write_bytes(b"changed")
    module.utils.get_file(origin=address, cache_dir=str(cache), **options)
    fresh = (cache / folder / name).read_bytes()
    assert fresh == (b"content" if "hash" in str(options) else b"changed")
    module.utils.get_file(origin=address, cache_dir=str(cache), force_download=True, **options)
    assert (cache / folder / name).read_bytes() == b"content"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("archive", ["data.zip", "data.tar.gz"])
@pytest.mark.parametrize("name", [None, "own.zip", "own"])
def test_archives_are_unpacked(module, archive, name, origin, tmp_path):
    (tmp_path / "cache").mkdir()
    path = module.utils.get_file(
        name, f"{origin}/{archive}", extract=True, cache_dir=str(tmp_path / "cache")
    )
    expected = {None: archive, "own.zip": "own_extracted", "own": "own"}[name]
    assert path == str(tmp_path / "cache" / "datasets" / expected)
    found = sorted(p.name for p in (tmp_path / "cache").rglob("*.txt"))
    assert found == ["a.txt"]
    assert not list(tmp_path.rglob("outside.txt"))


def test_what_can_not_be_fetched(origin, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    for module in MODULES:
        fetch = module.utils.get_file
        with pytest.raises(ValueError):
            fetch("name")
        with pytest.raises(ValueError):
            fetch("a/b", f"{origin}/data.txt", cache_dir=str(cache))
        with pytest.raises(ValueError):
            fetch(None, "file:///", cache_dir=str(cache))
        (cache / module.__name__).mkdir()
        with pytest.raises(ValueError):
            fetch(
                origin=f"{origin}/data.txt",
                file_hash="0" * 64,
                cache_dir=str(cache / module.__name__),
            )
    with pytest.raises(ConnectionError):
        kerascnn.utils.get_file(origin=f"{origin}/absent.txt", cache_dir=cache)
    assert not list((cache / "kerascnn").rglob("data.txt"))
    assert not list(cache.rglob("*.part"))
