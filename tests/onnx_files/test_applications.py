"""The architectures for images as ONNX files: ONNX Runtime computes the same, and what is read."""

import numpy as np
from applications.networks import ALL, distance, here, images, prepared, randomize, small_image

import kerascnn

from .running import ops_in, run

_FEW = ("MobileNetV3Small", "ViTTi16")


def pytest_generate_tests(metafunc):
    """All constructors with `--thorough`, which takes minutes, else two small ones."""
    if "name" in metafunc.fixturenames:
        thorough = metafunc.config.getoption("--thorough")
        metafunc.parametrize("name", ALL if thorough else _FEW)


def test_applications(name, tmp_path, rng):
    arguments = {"include_top": False, "pooling": "avg", "input_shape": small_image(name)}
    model = here(name, **arguments)
    randomize(model, rng)
    x = prepared(name, images(small_image(name), rng))
    expected = model.predict(x, verbose=0)
    assert np.std(expected) > 1e-3  # images and features differ
    model.export(tmp_path / "model.onnx")
    (found,) = run(tmp_path / "model.onnx", [x])
    assert distance(found, expected) < 1e-4
    # The images are brought to channels first, and nothing after that: what follows keeps them.
    if not name.startswith(("ConvNeXt", "ViT")):  # which multiply by the last axis
        assert ops_in(tmp_path / "model.onnx")["Transpose"] == 1
    again = kerascnn.models.from_onnx(tmp_path / "model.onnx")
    assert distance(again.predict(x, verbose=0), expected) < 1e-4
