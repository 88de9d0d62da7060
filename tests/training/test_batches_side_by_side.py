"""A custom step takes batches of labelled and of unlabelled samples together."""

import pytest

import kerascnn as keras
from kerascnn import layers, ops


class Sides(keras.Model):
    """Learns from labelled and unlabelled samples, as Keras' contrastive learning example does."""

    def __init__(self):
        super().__init__()
        self.inner = layers.Dense(3)
        self.seen = []

    def call(self, x):
        return self.inner(x)

    def train_step(self, data):
        plain, (labelled, targets) = data
        self.seen.append((plain.shape[0], labelled.shape[0]))
        together = ops.concatenate([plain, labelled], 0)
        with keras.GradientTape() as tape:
            error = ops.mean(ops.square(self(labelled) - targets))
            loss = error + ops.mean(ops.square(self(together)))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return {"own": loss}


@pytest.fixture
def batches(rng):
    plain = rng.normal(size=(20, 4)).astype("float32")
    x, y = plain[:10], rng.normal(size=(10, 3)).astype("float32")
    first = keras.data.Dataset.from_tensor_slices(plain).batch(8)
    second = keras.data.Dataset.from_tensor_slices((x, y)).batch(4)
    return keras.data.Dataset.zip((first, second))


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_sides_of_different_lengths(batches, run_eagerly):
    model = Sides()
    model.compile("sgd", run_eagerly=run_eagerly)
    losses = model.fit(batches, epochs=4, verbose=0).history["own"]
    assert losses[-1] < losses[0]
    assert set(model.seen) == {(8, 4), (4, 2)}


def test_usual_steps_need_one_length(batches):
    model = keras.Sequential([layers.Dense(3)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="same number of samples"):
        model.fit(batches.map(lambda plain, both: (plain, both[1])), verbose=0)
