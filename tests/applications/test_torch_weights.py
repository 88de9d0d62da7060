"""Files of torchvision and timm give the scores that these have with them.

The tables in `torch_tables` have names, shapes and scores of the real networks.
"""

import json

import numpy as np
import pytest
from torch_files import writing

import kerascnn
from kerascnn.applications import imagenet_utils
from kerascnn.models import weights_file

from . import torch_tables
from .networks import distance, here

# Float32 rounds each of hundreds of layers' sums, here and there in another order.
TOLERANCE = 1e-4
# Our network, its arguments, and whether it prepares the pixels itself.
NETWORKS = {
    "torchvision_resnet18": ("ResNet18", {}, False),
    "torchvision_resnet50": ("ResNet50", {"variant": "torchvision"}, False),
    "torchvision_mobilenet_v2": ("MobileNetV2", {"variant": "torchvision"}, False),
    "torchvision_mobilenet_v3_small": ("MobileNetV3Small", {"variant": "torchvision"}, True),
    "torchvision_densenet121": ("DenseNet121", {}, False),
    "torchvision_efficientnet_b0": ("EfficientNetB0", {"variant": "torchvision"}, True),
    "torchvision_efficientnet_v2_s": ("EfficientNetV2S", {"variant": "torchvision"}, True),
    "torchvision_convnext_tiny": ("ConvNeXtTiny", {}, True),
    "torchvision_vgg16": ("VGG16", {"include_top": False, "pooling": "avg"}, False),
    "torchvision_vit_tiny": ("ViTTi16", {}, False),
    "timm_mobilenetv2_100": ("MobileNetV2", {"variant": "timm"}, False),
    "timm_mobilenetv3_small_100": (
        "MobileNetV3Small",
        {"variant": "timm", "include_preprocessing": False},
        False,
    ),
    "timm_tf_mobilenetv3_small_100": ("MobileNetV3Small", {"include_preprocessing": False}, False),
    "timm_efficientnet_b0": ("EfficientNetB0", {"variant": "timm"}, True),
    "timm_tf_efficientnet_b0": ("EfficientNetB0", {}, True),
    "timm_tf_efficientnetv2_b0": ("EfficientNetV2B0", {}, True),
    "timm_convnext_tiny": ("ConvNeXtTiny", {"include_preprocessing": False}, False),
    "timm_vit_tiny_patch16_224": ("ViTTi16", {}, False),
}
# One of each family that is cheap, in each of the forms that files have.
CHEAP = ("torchvision_mobilenet_v3_small", "timm_tf_mobilenetv3_small_100")


def pytest_generate_tests(metafunc):
    thorough = metafunc.config.getoption("--thorough")
    if "network_table" in metafunc.fixturenames:
        metafunc.parametrize("network_table", list(NETWORKS) if thorough else CHEAP)
    if "refused" in metafunc.fixturenames:
        others = [
            n for n in NETWORKS if n.startswith("torchvision") and NETWORKS[n][1].get("variant")
        ]
        metafunc.parametrize("refused", others if thorough else CHEAP[:1])


def file_of(table, path):
    arrays = torch_tables.weights(table.tensors, table.scale)
    if path.suffix == ".safetensors":
        weights_file.write(path, arrays)
    else:
        path.write_bytes(writing.zip_of(arrays))
    return path


def scores(table, network, prepares):
    x = torch_tables.images(table.size)
    return network.predict(x if prepares else imagenet_utils.preprocess_input(x, mode="torch"))


def test_scores_are_those_of_the_library(network_table, tmp_path):
    table = network_table
    name, arguments, prepares = NETWORKS[table]
    source = torch_tables.read(table)
    path = file_of(source, tmp_path / ("x.pth" if table.startswith("torch") else "x.safetensors"))
    shape = (source.size, source.size, 3)
    network = here(name, weights=path, input_shape=shape, classifier_activation=None, **arguments)
    found = scores(source, network, prepares)[:, : source.expected.shape[1]]
    # Sizes of scores differ from network to network; those of both images differ by more.
    assert distance(found, source.expected) < TOLERANCE
    assert distance(source.expected[:1], source.expected[1:]) > 0.01


def test_without_its_classifier(tmp_path):
    """The file's is left; features are those that the classifier would have got."""
    source = torch_tables.read("timm_tf_mobilenetv3_small_100")
    path = file_of(source, tmp_path / "x.safetensors")
    arguments = {"weights": path, "input_shape": (48, 48, 3)}
    body = here("MobileNetV3Small", include_top=False, pooling="avg", **arguments)
    whole = here("MobileNetV3Small", **arguments)
    x = torch_tables.images(48)
    inner = kerascnn.Model(whole.input, whole.layers[-7].output)
    assert "global_average" in whole.layers[-7].name
    assert distance(body.predict(x), inner.predict(x).reshape(2, -1)) < 1e-6


def test_networks_that_compute_something_else_are_refused(refused, tmp_path):
    """The variant of Keras pads otherwise, and more; its scores would be wrong without a sign."""
    source = torch_tables.read(refused)
    name, arguments, _ = NETWORKS[refused]
    few = {n: s for n, s in source.tensors.items() if np.prod(s, dtype=int) < 500_000}
    path = file_of(source._replace(tensors=few), tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match=f"variant='keras'.*Pass variant='{arguments['variant']}'"):
        here(name, weights=path, input_shape=(48, 48, 3))


@pytest.mark.parametrize("architecture", ["mobilenetv3_small_100", "tf_mobilenetv3_small_100"])
def test_folders_of_timm_say_which_network_they_are_of(architecture, tmp_path):
    """Names and shapes of both are the same, so that the file alone does not say it."""
    source = torch_tables.read(f"timm_{architecture}")
    file_of(source, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"architecture": architecture}))
    right, wrong = ("keras", "timm") if architecture.startswith("tf_") else ("timm", "keras")
    arguments = {"weights": tmp_path, "input_shape": (48, 48, 3)}
    with pytest.raises(ValueError, match=f"are those of {architecture}.*variant='{right}'"):
        here("MobileNetV3Small", variant=wrong, **arguments)
    assert here("MobileNetV3Small", variant=right, **arguments).count_params() == 2_554_968


def test_old_names_of_published_files(tmp_path):
    """DenseNet's files have `norm.1`, those of the ViTs `linear_1`: torchvision renames them."""
    source = torch_tables.read("torchvision_vit_tiny")
    arrays = torch_tables.weights(source.tensors, source.scale)
    older = {
        n.replace("mlp.0", "mlp.linear_1").replace("mlp.3", "mlp.linear_2"): a
        for n, a in arrays.items()
    }
    assert older.keys() != arrays.keys()
    weights_file.write(tmp_path / "old.safetensors", older)
    network = here("ViTTi16", weights=tmp_path / "old.safetensors", input_shape=(32, 32, 3))
    for name, place in {"block2_1_dense": "mlp.0", "block2_2_dense": "mlp.3"}.items():
        expected = arrays[f"encoder.layers.encoder_layer_1.{place}.weight"].T
        assert np.array_equal(network.get_layer(name).kernel.numpy(), expected)


def test_files_that_do_not_fit(tmp_path):
    path = tmp_path / "x.pth"
    path.write_bytes(writing.zip_of({"stem.weight": np.zeros((2, 2), "float32")}))
    with pytest.raises(ValueError, match=r"not those of this network in torchvision.*stem\.weight"):
        here("MobileNetV2", weights=path)
    with pytest.raises(ValueError, match="no network that computes the same"):
        here("MobileNet", weights=path)
    source = torch_tables.read("timm_mobilenetv3_small_100")
    path = file_of(source, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match=r"'logits'.*'kernel' of shape \(1, 1, 1024, 5\)"):
        here("MobileNetV3Small", weights=path, classes=5, variant="timm")
    with pytest.raises(ValueError, match="none of the files model.safetensors"):
        here("ResNet18", weights=tmp_path / "..")


def test_variants_are_checked():
    with pytest.raises(ValueError, match="`variant` can be 'keras', 'torchvision', 'timm'"):
        here("ResNet50", variant="pytorch")
    with pytest.raises(ValueError, match="published weights are for variant='keras'"):
        here("MobileNetV2", variant="timm", weights="imagenet")


def test_own_safetensors_still_load(tmp_path):
    arguments = {"include_top": False, "alpha": 0.35}
    one = here("MobileNetV2", **arguments)
    one.save_weights(tmp_path / "x.weights.safetensors")
    other = here("MobileNetV2", weights=tmp_path / "x.weights.safetensors", **arguments)
    assert np.array_equal(one.get_weights()[0], other.get_weights()[0])
