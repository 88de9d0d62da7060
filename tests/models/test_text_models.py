"""Models whose first layers take text and run on the host, before the compiled step."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers

WORDS = ["red", "green", "blue", "grey"]


@pytest.fixture
def texts(rng):
    return np.array([" ".join(rng.choice(WORDS, n)) for n in rng.integers(1, 6, 21)])


@pytest.fixture
def targets(rng):
    return rng.normal(size=(21, 1)).astype("float32")


def vectorization(**arguments):
    return layers.TextVectorization(vocabulary=WORDS, output_sequence_length=4, **arguments)


def after():
    """Returns the layers that learn."""
    keras.utils.set_random_seed(5)
    return [
        layers.Embedding(6, 3),
        layers.GlobalAveragePooling1D(),
        layers.Dense(1),
    ]


def functional(first):
    inputs = keras.Input((1,), dtype="string")
    x = first(inputs)
    for layer in after():
        x = layer(x)
    return keras.Model(inputs, x)


def sequential(first):
    return keras.Sequential([keras.Input((1,), dtype="string"), first, *after()])


def without_input(first):
    return keras.Sequential([first, *after()])


def with_inner_model(first):
    inputs = keras.Input((1,), dtype="string")
    inner = keras.Model(inputs, first(inputs))
    return keras.Sequential([keras.Input((1,), dtype="string"), inner, *after()])


MAKERS = [functional, sequential, without_input, with_inner_model]
FIT = {"batch_size": 4, "epochs": 3, "shuffle": False, "verbose": 0}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("shape", [(21,), (21, 1)])
def test_the_same_as_with_numbers(make, shape, texts, targets, device):
    with keras.device(device):
        first = vectorization()
        numbers = first(texts).numpy()
        reference = keras.Sequential([keras.Input((4,), dtype="int64"), *after()])
        reference.compile("adam", "mse")
        model = make(vectorization())
        model.compile("adam", "mse")
        data = texts.reshape(shape)
        split = {**FIT, "validation_split": 0.2}
        expected = reference.fit(numbers, targets, **split).history
        assert model.fit(data, targets, **split).history == expected
        given = (data[:5], targets[:5])
        expected = reference.fit(
            numbers, targets, validation_data=(numbers[:5], targets[:5]), **FIT
        ).history
        assert model.fit(data, targets, validation_data=given, **FIT).history == expected
        expected = reference.predict(numbers, verbose=0)
        np.testing.assert_array_equal(model.predict(data, verbose=0), expected)
        np.testing.assert_allclose(model(data).numpy(), expected, rtol=1e-5, atol=1e-6)
        assert model.evaluate(data, targets, verbose=0) == reference.evaluate(
            numbers, targets, verbose=0
        )
        for name in ("train_on_batch", "test_on_batch"):
            assert getattr(model, name)(data, targets) == getattr(reference, name)(numbers, targets)
        np.testing.assert_array_equal(
            model.predict_on_batch(data), reference.predict_on_batch(numbers)
        )


@pytest.mark.parametrize("make", MAKERS)
def test_batches_of_data_sets_and_generators(make, texts, targets):
    reference = make(vectorization())
    reference.compile("sgd", "mse")
    expected = reference.fit(texts, targets, **FIT).history["loss"]
    dataset = keras.data.Dataset.from_tensor_slices((texts, targets)).batch(4)
    model = make(vectorization())
    model.compile("sgd", "mse")
    found = model.fit(dataset, validation_data=dataset, epochs=3, verbose=0).history["loss"]
    # The same steps run, but sums over an epoch may run in another program.
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    outputs = model.predict(dataset.map(lambda x, y: x), verbose=0)
    np.testing.assert_allclose(outputs, model.predict(texts, verbose=0), rtol=1e-5, atol=1e-6)
    model.fit((batch for batch in dataset.repeat()), steps_per_epoch=3, shuffle=False, verbose=0)


def test_text_and_numbers_together(texts, targets, rng):
    ages = rng.normal(40, 20, (21, 1)).astype("float32")
    colors = rng.choice([*WORDS, "pink"], (21, 1))
    inputs = {
        "text": keras.Input((), dtype="string", name="text"),
        "color": keras.Input((1,), dtype="string", name="color"),
        "age": keras.Input((1,), name="age"),
    }
    bins = layers.Discretization([20.0, 40.0, 60.0])
    lookup = layers.StringLookup(vocabulary=WORDS, output_mode="one_hot")
    crossing = layers.HashedCrossing(5, output_mode="one_hot")
    counts = layers.TextVectorization(vocabulary=WORDS, output_mode="count")
    parts = [
        counts(inputs["text"]),
        lookup(inputs["color"]),
        crossing([inputs["color"], bins(inputs["age"])]),
        inputs["age"] / 100.0,
    ]
    model = keras.Model(inputs, layers.Dense(1)(layers.Concatenate()(parts)))
    model.compile("sgd", "mse")
    data = {"text": texts, "color": colors, "age": ages}
    joined = np.concatenate(
        [
            counts(texts).numpy(),
            lookup(colors).numpy(),
            crossing([colors, bins(ages)]).numpy(),
            ages / 100,
        ],
        axis=1,
    )
    kernel, bias = model.get_weights()
    found = model.predict(data, verbose=0)
    np.testing.assert_allclose(found, joined @ kernel + bias, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model(data).numpy(), found, rtol=1e-5, atol=1e-6)
    assert np.isfinite(model.fit(data, targets, epochs=2, verbose=0).history["loss"]).all()


def test_a_vocabulary_that_changes_counts_at_once(texts):
    first = layers.TextVectorization(output_mode="multi_hot", max_tokens=6, pad_to_max_tokens=True)
    model = keras.Sequential([keras.Input((1,), dtype="string"), first])
    first.adapt(["red green", "red"])
    assert model.predict(np.array(["red", "blue"]), verbose=0).tolist() == [
        [0, 1, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0],
    ]
    first.adapt(["blue"])
    assert model.predict(np.array(["red", "blue"]), verbose=0).tolist() == [
        [1, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
    ]


@pytest.mark.parametrize("oov", [0, 1, 3])
@pytest.mark.parametrize("mask", [None, 7])
@pytest.mark.parametrize("spread", [1, 10**9])
@pytest.mark.parametrize("mode", ["int", "one_hot", "multi_hot", "count", "tf_idf"])
def test_integers_inside_of_the_step(oov, mask, spread, mode, rng, device):
    vocabulary = [5 * spread, -3, 12, 0]
    arguments = {"idf_weights": [0.5, 1.0, 2.0, 0.1]} if mode == "tf_idf" else {}
    layer = layers.IntegerLookup(
        vocabulary=vocabulary, num_oov_indices=oov, mask_token=mask, output_mode=mode, **arguments
    )
    choices = vocabulary if oov == 0 else [*vocabulary, 1, 2, -100, 10**10]
    x = rng.choice([*choices, *([] if mask is None else [mask])], (9, 3)).astype("int64")
    with keras.device(device):
        model = keras.Sequential([keras.Input((3,), dtype="int64"), layer])
        np.testing.assert_array_equal(model.predict(x, verbose=0), layer(x).numpy())
    assert not layer.runs_on_host


def test_integers_back_inside_of_the_step(rng):
    layer = layers.IntegerLookup(vocabulary=[5, -3, 12], mask_token=0, invert=True)
    x = rng.integers(-1, 8, (6, 2))
    model = keras.Sequential([keras.Input((2,), dtype="int64"), layer])
    np.testing.assert_array_equal(model.predict(x, verbose=0), layer(x).numpy())


@pytest.mark.parametrize("mode", ["int", "one_hot", "multi_hot", "count"])
def test_ranges_inside_of_the_step(mode, rng, device):
    x = rng.normal(size=(9, 3)).astype("float32")
    with keras.device(device):
        layer = layers.Discretization([-0.5, 0.0, 0.7], output_mode=mode)
        model = keras.Sequential([keras.Input((3,)), layer])
        numbers = np.digitize(x, [-0.5, 0.0, 0.7])
        found = model.predict(x, verbose=0)
        np.testing.assert_array_equal(found, layer(x).numpy())
        if mode == "int":
            np.testing.assert_array_equal(found, numbers)
        rows = np.eye(4)[numbers]
        expected = {"one_hot": rows, "multi_hot": rows.max(1), "count": rows.sum(1)}
        if mode in expected:
            np.testing.assert_array_equal(found, expected[mode])


def test_ranges_and_tables_learned_after_a_step_count(rng):
    x = rng.normal(size=(40, 1)).astype("float32")
    ranges = layers.Discretization(num_bins=2)
    ranges.adapt(x)
    model = keras.Sequential([keras.Input((1,)), ranges])
    assert model.predict(x, verbose=0).mean() == pytest.approx(0.5, abs=0.1)
    ranges.adapt(x + 100)
    np.testing.assert_array_equal(model.predict(x, verbose=0), 0)
    table = layers.IntegerLookup()
    table.adapt(np.array([[3]]))
    model = keras.Sequential([keras.Input((1,), dtype="int64"), table])
    assert model.predict(np.array([[3], [4]]), verbose=0).tolist() == [[1], [0]]
    table.adapt(np.array([[4]]))
    assert model.predict(np.array([[3], [4]]), verbose=0).tolist() == [[0], [1]]


def test_text_that_comes_out():
    inputs = keras.Input((1,), dtype="int64")
    back = layers.StringLookup(vocabulary=WORDS, invert=True)
    model = keras.Model(inputs, back(inputs))
    assert model(np.array([[2], [0]])).tolist() == [["green"], ["[UNK]"]]
    assert model.predict(np.array([[2], [0]]), verbose=0).tolist() == [["green"], ["[UNK]"]]
    text = keras.Input((1,), dtype="string")
    both = keras.Model(text, [text, layers.StringLookup(vocabulary=WORDS)(text)])
    with pytest.raises(ValueError, match="is text"):
        both.predict(np.array([["green"]]), verbose=0)


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = vectorization()
        self.rest = keras.Sequential(after())

    def call(self, x):
        return self.rest(self.first(x))


def test_where_text_cannot_go(texts, targets):
    model = Subclassed()
    assert model(texts).shape == (21, 1)
    model.compile("sgd", "mse")
    with pytest.raises(TypeError, match="map"):
        model.fit(texts, targets, verbose=0)
    inputs = keras.Input((4,))
    behind = layers.Hashing(5)(layers.Dense(2)(inputs))
    model = keras.Model(inputs, behind)
    assert model(np.ones((2, 4))).shape == (2, 2)

    class Behind(keras.Model):
        def call(self, x):
            return behind_of(x)

    behind_of = layers.Hashing(5)
    with pytest.raises(ValueError, match="Map it over the data set first"):
        Behind().predict(np.ones((2, 4)), verbose=0)
    with pytest.raises(ValueError, match="takes text"):
        functional(vectorization())(np.ones((2, 1)))
    with pytest.raises(TypeError, match="strings"):
        keras.Sequential([keras.Input((1,)), layers.Dense(1)]).predict(texts, verbose=0)


def test_files(texts, tmp_path):
    models = [make(vectorization()) for make in (functional, sequential, with_inner_model)]
    for model in models:
        path = tmp_path / "model.keras"
        model.save(path)
        loaded = keras.saving.load_model(path)
        np.testing.assert_array_equal(
            loaded.predict(texts, verbose=0), model.predict(texts, verbose=0)
        )
        assert loaded.summary(print_fn=lambda text: None) is None


@pytest.mark.parametrize("mode", ["int", "tf_idf"])
def test_a_learned_vocabulary_in_files(mode, texts, tmp_path):
    first = layers.TextVectorization(output_mode=mode)
    first.adapt(texts)
    lookup = layers.StringLookup()
    lookup.adapt(texts)
    inputs = keras.Input((1,), dtype="string")
    model = keras.Model(inputs, [first(inputs), lookup(inputs)])
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)
    for found, expected in zip(
        loaded.predict(texts, verbose=0), model.predict(texts, verbose=0), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["str", "object", "category", "table"])
def test_columns_of_pandas(kind, texts, targets):
    pd = pytest.importorskip("pandas")
    column = pd.Series(texts).astype(str if kind == "table" else kind)
    data = column.to_frame() if kind == "table" else column
    model = functional(vectorization())
    model.compile("sgd", "mse")
    model.fit(data, targets, verbose=0)
    expected = model.predict(texts, verbose=0)
    np.testing.assert_array_equal(model.predict(data, verbose=0), expected)
    np.testing.assert_allclose(model(data), expected, rtol=1e-5)  # sums of few float32 numbers


def test_what_is_no_text_says_what_to_pass(texts):
    pd = pytest.importorskip("pandas")
    model = functional(vectorization())
    with pytest.raises(ValueError, match=r"pass np\.array\(x\)"):
        model.predict(list(texts), verbose=0)
    with pytest.raises(TypeError, match=r"fillna\(''\)"):
        model.predict(pd.Series(["red", None]), verbose=0)
    with pytest.raises(ValueError, match="takes text. Received: Series of dtype int64"):
        model.predict(pd.Series([1, 2]), verbose=0)
