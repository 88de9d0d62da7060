"""Losses in fit accept the same shapes of targets as Keras' losses."""

import numpy as np
import pytest

import kerascnn
from kerascnn.training.target_shapes import check_target_shape

keras = pytest.importorskip("keras")

LOSSES = (
    "MeanSquaredError",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanSquaredLogarithmicError",
    "Huber",
    "LogCosh",
    "CosineSimilarity",
    "KLDivergence",
    "Poisson",
    "Hinge",
    "SquaredHinge",
    "CategoricalHinge",
    "Dice",
    "Tversky",
    "BinaryCrossentropy",
    "BinaryFocalCrossentropy",
    "CategoricalCrossentropy",
    "CategoricalFocalCrossentropy",
)
# Each entry has the shape of an output, and shapes of targets.
SHAPES = [
    ((4, 3), [(4, 3), (4, 1), (4,), (4, 3, 1), (4, 2), (4, 3, 3), (4, 1, 3), (4, 3, 2)]),
    ((4, 1), [(4, 1), (4,), (4, 1, 1), (4, 3)]),
    ((4, 5, 3), [(4, 5, 3), (4, 5, 1), (4, 5), (4, 1, 3), (4, 3), (4,), (4, 5, 2), (4, 5, 3, 1)]),
    ((4, 5, 1), [(4, 5, 1), (4, 5), (4, 1, 1), (4, 5, 3), (4, 5, 1, 1), (4, 1)]),
]


# Both libraries warn about probabilities of a single class.
@pytest.mark.filterwarnings("ignore:.*(num_classes > 1|one prediction per class):SyntaxWarning")
@pytest.mark.parametrize("name", LOSSES)
def test_the_same_shapes_fit(name, rng):
    here, there = getattr(kerascnn.losses, name)(), getattr(keras.losses, name)()
    for output, targets in SHAPES:
        y_pred = rng.uniform(0.1, 0.9, output).astype("float32")
        for target in targets:
            y_true = rng.uniform(0.1, 0.9, target).astype("float32")
            try:
                expected = float(there(y_true, y_pred))
            except (ValueError, RuntimeError):  # Keras or PyTorch raises these.
                with pytest.raises(ValueError, match=f"'{here.name}' needs targets of shape"):
                    check_target_shape(here, target, output)
                continue
            check_target_shape(here, target, output)
            # The results are means of up to 60 float32 terms of similar size.
            assert float(here(y_true, y_pred)) == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("loss", ["mae", "poisson", kerascnn.losses.Huber(), "dice"])
def test_fit_names_the_loss_and_the_shapes(loss):
    model = kerascnn.Sequential([kerascnn.Input((3,)), kerascnn.layers.Dense(3)])
    model.compile("sgd", loss)
    with pytest.raises(ValueError) as error:
        model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    for text in ("needs targets of shape (batch_size, 3)", "y of shape (batch_size, 2)", "units"):
        assert text in str(error.value)


def test_a_model_that_changes_the_number_of_samples():
    x = kerascnn.Input((3,))
    model = kerascnn.Model(x, kerascnn.layers.Concatenate(axis=0)([x, x]))
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"gives 8 for a batch of 4: .*Concatenate\(axis=0\)"):
        model.fit(np.ones((4, 3)), np.ones((4, 3)), verbose=0)
