"""The example of transfer learning trains on a folder: first the last layer, then all."""

import re

import numpy as np
import pytest

import kerascnn as keras

from .scripts import ROOT, run

EXAMPLE = ROOT / "examples" / "fine_tune.py"


@pytest.fixture
def folder(tmp_path):
    """Pictures of two classes, which are red and blue."""
    pytest.importorskip("PIL")
    rng = np.random.default_rng(0)
    for channel, name in ((0, "red"), (2, "blue")):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(10):
            picture = rng.integers(0, 100, (40, 48, 3), "uint8")
            picture[..., channel] += 150
            keras.utils.save_img(tmp_path / "images" / name / f"{i}.png", picture, scale=False)
    return tmp_path / "images"


def test_frozen_then_unfrozen(folder, tmp_path):
    small = ("--device", "cpu", "--size", 32, "--epochs", 1, "--batch-size", 8)
    saved = tmp_path / "mine.keras"
    done = run(EXAMPLE, "--data", folder, "--weights", "none", *small, "--save", saved)
    assert "2 classes: blue, red" in done.stdout
    first, then = re.findall(r"([\d,]+) numbers are trained", done.stdout)
    # 1280 features and a bias for each class; then MobileNetV2's weights, without statistics.
    assert first == "2,562" and then == "2,226,434"
    assert re.search(r"Validation accuracy [01]\.\d{4} .* [01]\.\d{4} after", done.stdout)
    model = keras.saving.load_model(saved)
    assert model.output_shape == (None, 2)
    # The file that was written serves as the beginning of another training.
    model.get_layer("mobilenetv2_1.00_32").save_weights(tmp_path / "body.weights.h5")
    done = run(EXAMPLE, "--data", folder, "--weights", tmp_path / "body.weights.h5", *small)
    assert "after fine-tuning" in done.stdout


def test_what_cannot_be_trained_is_one_line(folder, tmp_path):
    (tmp_path / "none").mkdir()
    for options, message in (
        (("--data", tmp_path / "none"), "--data: "),
        (("--data", folder, "--weights", "missing.h5"), "--weights: .*no such file"),
        ((), "--data is needed"),
    ):
        done = run(EXAMPLE, *options, expected=2)
        assert re.search(message, done.stderr.splitlines()[-1])
