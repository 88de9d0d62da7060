"""Models of these layers are written and read both by Keras and by kerascnn."""

import numpy as np
import pytest

import kerascnn

from ..comparing import keras, relative_error

pytest.importorskip("h5py")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def images(m):
    """Combines shaping, normalization, noise, attention and merging in one model."""
    layers = m.layers
    x = inputs = m.Input((8, 8, 4))
    for layer in (
        layers.ZeroPadding2D(1),
        layers.Cropping2D(((1, 0), (0, 1))),
        layers.UpSampling2D(interpolation="bilinear"),
        layers.GroupNormalization(2),
        layers.PReLU("he_normal", shared_axes=[1, 2]),
        layers.SpatialDropout2D(0.2, seed=1),
        layers.LayerNormalization(),
        layers.BatchNormalization(renorm=True),
        layers.AlphaDropout(0.1),
        layers.GaussianNoise(0.1, seed=2),
        layers.Reshape((18 * 18, 4)),
    ):
        x = layer(x)
    x = layers.MultiHeadAttention(2, 3, dropout=0.1)(x, x)
    x = layers.RMSNormalization()(x)
    x = layers.EinsumDense("abc,cd->abd", (324, 5), bias_axes="d")(x)
    x = layers.TimeDistributed(layers.Dense(3))(layers.Permute((2, 1))(x))
    x = layers.Flatten()(layers.UnitNormalization()(x))
    y = layers.SpectralNormalization(layers.Dense(15))(x)
    y = layers.Concatenate()([layers.Average()([x, y]), layers.Dot(1)([x, y])])
    return m.Model(inputs, layers.ELU(0.7)(y))


def numbers(m):
    return m.Sequential(
        [
            m.Input((5,), dtype="int32"),
            m.layers.Embedding(7, 4),
            m.layers.SpatialDropout1D(0.1),
            m.layers.Identity(),
            m.layers.Flatten(),
        ]
    )


@pytest.mark.parametrize("make", [images, numbers])
@pytest.mark.parametrize(("writer", "reader"), [(kerascnn, keras), (keras, kerascnn)])
def test_models_predict_the_same_after_the_way(make, writer, reader, tmp_path, rng):
    model = make(writer)
    x = rng.integers(0, 7, (3, *model.input_shape[1:]))
    expected = np.asarray(model.predict(x, verbose=0))
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    again, other = reader.saving.load_model(tmp_path / "model.keras"), make(reader)
    other.load_weights(tmp_path / "model.weights.h5")
    for loaded in (again, other):
        # The tolerance covers float32 through attention and four normalizations.
        assert relative_error(np.asarray(loaded.predict(x, verbose=0)), expected) < 1e-5
