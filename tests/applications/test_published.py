"""Weights and the list of classes: where they are downloaded from, and without a network."""

import numpy as np
import pytest

import kerascnn
from kerascnn.applications import imagenet_utils, published

from .networks import MODULES, OF_KERAS, SMALLEST, there

NOWHERE = "http://127.0.0.1:9"  # where nothing answers, at once


class Asked(Exception):
    """Which file was asked for."""


def ask(name, url, file_hash=None, cache_subdir=None):
    raise Asked(name, url, file_hash, cache_subdir)


@pytest.mark.parametrize("name", OF_KERAS)
@pytest.mark.parametrize("include_top", [True, False])
def test_each_network_has_its_own_files(name, include_top, monkeypatch):
    """They are asked for before the network is made, so that this is quick."""
    monkeypatch.setattr(published, "get_file", ask)
    with pytest.raises(Asked) as asked:
        getattr(kerascnn.applications, name)(include_top=include_top)
    file, url, file_hash, folder = asked.value.args
    assert folder == "models" and url.startswith("https://storage.googleapis.com/")
    if not name.startswith("NASNet"):
        assert url.endswith(f"/{file}")
    assert ("no_top" in file or "notop" in file) is not include_top
    # Keras gives no hashes for the first two MobileNets.
    assert (file_hash is None) == (name in ("MobileNet", "MobileNetV2"))


@pytest.mark.filterwarnings("ignore:`input_shape` is undefined:UserWarning")
@pytest.mark.parametrize("include_top", [True, False])
def test_the_files_are_those_of_keras(include_top, monkeypatch, request):
    keras = pytest.importorskip("keras")
    from keras.src.utils import file_utils

    monkeypatch.setattr(published, "get_file", ask)
    monkeypatch.setattr(file_utils, "get_file", ask)
    thorough = request.config.getoption("--thorough")
    # Keras makes the whole network first.
    names = OF_KERAS if thorough else ("MobileNet", "MobileNetV2")
    for name in names:
        with pytest.raises(Asked) as here:
            getattr(kerascnn.applications, name)(include_top=include_top)
        with pytest.raises(Asked) as theirs:
            there(keras, name, include_top=include_top, weights="imagenet")
        assert here.value.args == theirs.value.args


def test_hashes_are_in_keras_sources(monkeypatch):
    """All of them, where a network of each would take minutes."""
    keras = pytest.importorskip("keras")
    import importlib
    import inspect

    monkeypatch.setattr(published, "get_file", ask)
    seen = set()
    for name in OF_KERAS:
        module = MODULES[name]
        source = inspect.getsource(
            importlib.import_module(
                f"keras.src.applications.{'resnet' if module == 'resnet_v2' else module}"
            )
        )
        for include_top in (True, False):
            with pytest.raises(Asked) as asked:
                getattr(kerascnn.applications, name)(include_top=include_top)
            file_hash = asked.value.args[2]
            if file_hash is not None:
                assert file_hash in source and file_hash not in seen
                seen.add(file_hash)
    assert keras.__version__ and len(seen) == 2 * (len(OF_KERAS) - 2)


def test_mobilenets_have_files_for_several_sizes(monkeypatch):
    monkeypatch.setattr(published, "get_file", ask)
    with pytest.raises(Asked, match="mobilenet_7_5_160_tf_no_top.h5"):
        kerascnn.applications.MobileNet((160, 160, 3), alpha=0.75, include_top=False)
    with pytest.raises(Asked, match=r"_kernels_1\.3_96\.h5"):
        kerascnn.applications.MobileNetV2((96, 96, 3), alpha=1.3)
    with pytest.raises(Asked, match=r"v3_large_minimalistic_224_1\.0_float\.h5"):
        kerascnn.applications.MobileNetV3Large(minimalistic=True, alpha=1)
    with pytest.raises(Asked, match="_224_tf_no_top"):
        kerascnn.applications.MobileNet((100, 100, 3), include_top=False)


def test_published_weights_for_images_of_another_size(tmp_path, monkeypatch):
    """They are those for the usual size, which is said once."""
    network = kerascnn.applications.MobileNet(
        weights=None, include_top=False, input_shape=(100, 96, 3), alpha=0.25
    )
    network.save(tmp_path / "whole.h5")
    monkeypatch.setattr(published, "get_file", lambda *_, **options: str(tmp_path / "whole.h5"))
    with pytest.warns(UserWarning, match="Those for 224 are loaded.* 100 x 96") as caught:
        kerascnn.applications.MobileNet((100, 96, 3), alpha=0.25, include_top=False)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("name", SMALLEST)
def test_without_a_network_the_error_says_what_to_do(name, tmp_path, monkeypatch):
    def unreachable(*arguments, **options):
        raise ConnectionError("no route to host")

    monkeypatch.setenv("KERASCNN_HOME", str(tmp_path))
    monkeypatch.setattr(published, "get_file", unreachable)
    with pytest.raises(ConnectionError) as caught:
        getattr(kerascnn.applications, name)()
    text = str(caught.value)
    assert "no route to host" in text and str(tmp_path / "models") in text
    assert "storage.googleapis.com" in text and "pass its path as `weights`" in text


def test_a_file_in_the_cache_is_loaded(tmp_path, monkeypatch):
    """As it is after the first download."""
    network = kerascnn.applications.MobileNetV2(
        weights=None, include_top=False, input_shape=(96, 96, 3), alpha=0.35
    )
    name = "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_0.35_96_no_top.h5"
    (tmp_path / "models").mkdir()
    kerascnn.saving.save_model(network, tmp_path / "models" / name)
    monkeypatch.setenv("KERASCNN_HOME", str(tmp_path))
    again = kerascnn.applications.MobileNetV2((96, 96, 3), alpha=0.35, include_top=False)
    for a, b in zip(again.get_weights(), network.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_download_is_checked(tmp_path, monkeypatch):
    (tmp_path / "other.json").write_text("{}")
    address = (tmp_path / "other.json").as_uri()
    monkeypatch.setenv("KERASCNN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(
        imagenet_utils, "CLASS_INDEX", imagenet_utils.CLASS_INDEX._replace(url=address)
    )
    with pytest.raises(ValueError, match="not the one with the"):
        imagenet_utils.decode_predictions(np.zeros((1, 1000)))


def test_decode_predictions(class_index):
    predictions = np.zeros((2, 1000))
    predictions[0, [3, 7]] = 0.25, 0.75
    predictions[1, 999] = 1
    decode = kerascnn.applications.resnet50.decode_predictions
    first, second = decode(kerascnn.ops.convert_to_tensor(predictions), top=2)
    assert first == [("n00000007", "class_7", 0.75), ("n00000003", "class_3", 0.25)]
    assert second[0] == ("n00000999", "class_999", 1.0)
    assert [len(row) for row in decode(predictions)] == [5, 5]


@pytest.mark.parametrize(
    ("predictions", "top", "message"),
    [
        (np.zeros((2, 10)), 5, r"\(n, 1000\).*\(2, 10\)"),
        (np.zeros(1000), 5, r"\(n, 1000\).*\(1000,\)"),
        (np.zeros((1, 1000)), 0, "from 1 to 1000.*top=0"),
    ],
)
def test_predictions_that_cannot_be_decoded(predictions, top, message):
    with pytest.raises(ValueError, match=message):
        imagenet_utils.decode_predictions(predictions, top)


def test_the_list_of_classes_without_a_network(tmp_path, monkeypatch):
    monkeypatch.setenv("KERASCNN_HOME", str(tmp_path))
    index = imagenet_utils.CLASS_INDEX._replace(url=f"{NOWHERE}/imagenet_class_index.json")
    monkeypatch.setattr(imagenet_utils, "CLASS_INDEX", index)
    with pytest.raises(ConnectionError, match="list of ImageNet's classes.*by hand"):
        imagenet_utils.decode_predictions(np.zeros((1, 1000)))


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (np.zeros((2, 2, 3)), {"mode": "jax"}, "'caffe', 'tf' or 'torch'.*'jax'"),
        (np.zeros((2, 2, 3)), {"data_format": "middle"}, "middle"),
        (np.zeros((2, 2, 1)), {}, r"3 channels.*\(2, 2, 1\)"),
        (np.zeros((3, 3)), {"mode": "torch"}, r"3 channels.*\(3, 3\)"),
    ],
)
def test_images_that_cannot_be_prepared(x, options, message):
    with pytest.raises(ValueError, match=message):
        imagenet_utils.preprocess_input(x, **options)
