"""A compiled step can train on every loss."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, losses

CLASSES = 3
WITH_LABELS = {"SparseCategoricalCrossentropy", "CategoricalGeneralizedCrossEntropy", "Circle"}
NAMES = [
    name
    for name in losses.__all__
    # CTC takes sequences and has its own tests in test_ctc.py.
    if name[0].isupper() and name not in ("Loss", "LossFunctionWrapper", "CTC")
]


@pytest.mark.parametrize("name", NAMES)
def test_fit_reports_the_loss_and_makes_it_smaller(name, rng, device):
    with keras.device(device):
        x = rng.normal(size=(24, 4)).astype("float32")
        labels = x[:, :CLASSES].argmax(axis=1)
        y = labels if name in WITH_LABELS else np.eye(CLASSES, dtype="float32")[labels]
        weights = (
            rng.integers(1, 3, 24).astype("float32") if name not in ("Dice", "Tversky") else None
        )
        model = keras.Sequential([keras.Input((4,)), layers.Dense(CLASSES, activation="softmax")])
        loss = getattr(losses, name)(**({"gamma": 2.0} if name == "Circle" else {}))
        model.compile(keras.optimizers.SGD(0.0), loss)
        history = model.fit(x, y, sample_weight=weights, batch_size=24, verbose=0).history
        expected = float(loss(y, model.predict(x, verbose=0), sample_weight=weights))
        # The compiled step fuses what runs separately here, which rounds 72 float32 terms
        # differently.
        assert history["loss"][0] == pytest.approx(expected, rel=2e-5)
        model.compile(keras.optimizers.SGD(1e-3), loss)
        history = model.fit(
            x, y, sample_weight=weights, batch_size=24, epochs=5, verbose=0
        ).history["loss"]
        assert history[-1] < history[0]
        assert np.isfinite(history).all()
