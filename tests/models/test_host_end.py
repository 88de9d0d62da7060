"""A model can end with text: `predict` finishes on the host."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers

WORDS = ["cat", "dog", "bird"]


def named(x, **kwargs):
    """Returns the word of the largest number in each row."""
    lookup = layers.StringLookup(vocabulary=WORDS, num_oov_indices=0, invert=True, **kwargs)
    return lookup(keras.ops.argmax(x, -1))


@pytest.fixture
def rows(rng):
    return rng.normal(size=(70, 4)).astype("float32")


def test_predict_names_classes(rows, device):
    with keras.device(device):
        x = keras.Input((4,))
        scores = layers.Dense(3)(x)
        model = keras.Model(x, {"word": named(scores), "scores": scores})
        found = model.predict(rows, batch_size=32, verbose=0)
    assert isinstance(found["scores"], np.ndarray)
    assert found["word"].dtype == object
    assert found["word"].shape == (70,)
    expected = [WORDS[i] for i in found["scores"].argmax(-1)]
    assert found["word"].tolist() == expected
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(found["scores"], rows @ kernel + bias, rtol=1e-3, atol=1e-3)
    few = model.predict_on_batch(rows[:5])
    assert few["word"].tolist() == expected[:5]
    batches = ((rows[i : i + 30],) for i in (0, 30))
    assert model.predict(batches, verbose=0)["word"].tolist() == expected[:60]
    tensors = model.predict(rows, verbose=0, as_tensor=True)
    assert not isinstance(tensors["scores"], np.ndarray)
    assert tensors["word"].tolist() == expected
    at_once = model(rows[:7])
    assert at_once["word"].tolist() == expected[:7]


def test_sequential_of_a_trained_model(rows, tmp_path):
    trained = keras.Sequential([layers.Dense(3)])
    trained.compile("sgd", "mse")
    trained.fit(rows, rows[:, :3], verbose=0)
    model = keras.Sequential(
        [
            trained,
            layers.Lambda(largest),
            layers.StringLookup(vocabulary=WORDS, num_oov_indices=0, invert=True),
        ]
    )
    expected = [WORDS[i] for i in trained.predict(rows, verbose=0).argmax(-1)]
    assert model.predict(rows, verbose=0).tolist() == expected
    # Further training of the inner model shows at once.
    trained.set_weights([-w for w in trained.get_weights()])
    opposite = [WORDS[i] for i in trained.predict(rows, verbose=0).argmax(-1)]
    assert model.predict(rows, verbose=0).tolist() == opposite != expected
    model.save(tmp_path / "named.keras")
    copy = keras.saving.load_model(tmp_path / "named.keras", custom_objects={"largest": largest})
    assert copy.predict(rows, verbose=0).tolist() == opposite


def largest(x):
    return keras.ops.argmax(x, -1)


def test_text_at_both_ends(rng):
    text = keras.Input((1,), dtype="string")
    numbers = layers.StringLookup(vocabulary=WORDS)(text)
    again = layers.StringLookup(vocabulary=WORDS, invert=True)(numbers)
    given = np.array([["bird"], ["cow"], ["cat"]])
    there_and_back = keras.Model(text, again)
    assert there_and_back.predict(given, verbose=0).tolist() == [["bird"], ["[UNK]"], ["cat"]]

    # Text is in the middle, and layers that learn follow it.
    word = named(layers.Dense(3)(layers.Flatten()(layers.Embedding(4, 2)(numbers))))
    spelt = layers.TextVectorization(vocabulary=["cat", "dog"], output_sequence_length=2)(word)
    outputs = layers.Dense(2)(layers.Flatten()(layers.Embedding(6, 3)(spelt)))
    model = keras.Model(text, [word, outputs, numbers])
    found = model.predict(given, verbose=0)
    assert all(isinstance(x, np.ndarray) for x in found)
    for actual, expected in zip(found, model(given), strict=True):
        np.testing.assert_array_equal(actual, np.asarray(expected))
    assert found[2].tolist() == [[3], [0], [1]]


def test_callbacks_and_inner_models(rows):
    class Count(keras.callbacks.Callback):
        batches = 0

        def on_predict_batch_end(self, batch, logs=None):
            self.batches += 1

    inner = keras.Input((4,))
    naming = keras.Model(inner, named(layers.Dense(3)(inner)), name="naming")
    x = keras.Input((4,))
    model = keras.Model(x, naming(layers.Dense(4, activation="relu")(x)))
    count = Count()
    found = model.predict(rows, batch_size=20, verbose=0, callbacks=[count])
    assert count.batches == 4
    assert found.tolist() == model(rows).tolist()


@pytest.mark.parametrize("name", ["fit", "evaluate", "train_on_batch", "test_on_batch"])
def test_there_is_no_loss_of_text(name, rows):
    x = keras.Input((4,))
    model = keras.Model(x, named(layers.Dense(3)(x), name="words"))
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=rf"'words' works on the host.*`{name}\(\)`.*Train a"):
        getattr(model, name)(rows, rows)
