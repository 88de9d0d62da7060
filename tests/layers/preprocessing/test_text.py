"""Layers for text and tables give Keras' results on TensorFlow, and can be called at once."""

import json
from collections import Counter

import numpy as np
import pytest

import kerascnn as keras
from kerascnn.layers.preprocessing import hashes

from . import text_cases

RESULTS = json.loads(text_cases.RESULTS.read_text())


def made_of(layer, arguments, adapted):
    made = getattr(keras.layers, layer)(**text_cases.arguments_of(arguments))
    if adapted is not None:
        made.adapt(np.array(adapted))
    return made


def array_of(layer, data):
    return [np.array(x) for x in data] if layer == "HashedCrossing" else np.array(data)


def values(output):
    return output.numpy() if hasattr(output, "numpy") else output


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: f"{r['case'][0]}-{r['case'][1]}")
def test_results_are_those_of_keras(result, device):
    layer, arguments, adapted, data = result["case"]
    with keras.device(device):
        made = made_of(layer, arguments, adapted)
        output = values(made(array_of(layer, data)))
    expected = np.array(result["output"])
    assert output.shape == expected.shape
    # Keras takes the logarithms for the weights of words in float32; here they are float64, then
    # rounded.
    np.testing.assert_allclose(output, expected, rtol=1e-6)
    if "vocabulary" in result:
        assert made.get_vocabulary() == result["vocabulary"]
    if "boundaries" in result:
        np.testing.assert_allclose(made.bin_boundaries, result["boundaries"], rtol=1e-6)


def test_every_case_has_its_result():
    wanted = [
        [a, b, c, d] for a, b, c, d in text_cases.cases() if not text_cases._is_left_out(a, b)
    ]
    assert json.loads(json.dumps(wanted)) == [result["case"] for result in RESULTS]


@pytest.mark.parametrize("result", RESULTS[::3], ids=lambda r: f"{r['case'][0]}-{r['case'][1]}")
def test_configurations(result):
    layer, arguments, adapted, data = result["case"]
    made = made_of(layer, arguments, adapted)
    config = json.loads(json.dumps(made.get_config()))
    copy = type(made).from_config(config)
    if adapted is not None and layer != "Discretization":
        weights = getattr(getattr(made, "_lookup_layer", made), "_idf", None)
        weights = None if weights is None else weights[: made.vocabulary_size()]
        copy.set_vocabulary(made.get_vocabulary(), weights)
    array = array_of(layer, data)
    np.testing.assert_array_equal(values(copy(array)), values(made(array)))
    assert json.loads(json.dumps(copy.get_config())).keys() == config.keys()


# Google publishes these results for BigQuery's FARM_FINGERPRINT, and the authors of SipHash the
# last one.
def test_hashes_that_are_published():
    texts = ["1footrue", "2applefalse", "3true"]
    expected = [-1541654101129638711, 2794438866806483259, -4880158226897771312]
    assert hashes.fingerprints(texts).view(np.int64).tolist() == expected
    key = [0x0706050403020100, 0x0F0E0D0C0B0A0908]
    assert hashes.keyed_hashes([bytes(range(15))], key).tolist() == [0xA129CA6149BE45E5]


# TensorFlow 2.21 gave these results. The lengths are on both sides of each limit where the method
# of hashing changes.
@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, 11160318154034397263),
        (3, 3091163115821544028),
        (7, 15062398191181189679),
        (16, 3320895591121647644),
        (32, 12901576723999808517),
        (64, 6916188127298655160),
        (65, 4935023790501551929),
        (128, 5868382771906808855),
        (200, 13938988265971950527),
    ],
)
def test_fingerprints_of_all_lengths(length, expected):
    assert hashes.fingerprints(["ab", "x" * length])[1] == expected


def test_hashes_of_many_are_those_of_each(rng):
    texts = [bytes(rng.integers(0, 256, n, "uint8")) for n in rng.integers(0, 150, 200)]
    together = hashes.fingerprints(texts)
    assert together.tolist() == [int(hashes.fingerprints([text])[0]) for text in texts]
    keyed = hashes.keyed_hashes(texts, [5, 2**63])
    assert keyed.tolist() == [int(hashes.keyed_hashes([text], [5, 2**63])[0]) for text in texts]


@pytest.mark.parametrize("form", [list, np.array, lambda x: np.array(x, object), "bytes"])
def test_forms_of_text(form):
    words = ["a", "Ü", "c"]
    data = np.char.encode(np.array(words), "utf-8") if form == "bytes" else form(words)
    assert keras.layers.StringLookup(vocabulary=["Ü"])(data).numpy().tolist() == [0, 1, 0]
    layer = keras.layers.TextVectorization(vocabulary=["Ü"])
    assert layer(data).numpy().tolist() == [[1], [2], [1]]


def test_vocabularies_learned_from_all_kinds_of_data(rng):
    words = rng.choice(list("abcdefgh"), (60, 3), p=np.array([8, 7, 6, 5, 4, 3, 2, 1]) / 36)
    counts = Counter(words.ravel().tolist())
    expected = ["[UNK]", *sorted(counts, key=lambda w: (counts[w], w), reverse=True)]
    dataset = keras.data.Dataset.from_tensor_slices(words).batch(7)
    for data in (words, words.tolist(), dataset, (words[i : i + 7] for i in range(0, 60, 7))):
        layer = keras.layers.StringLookup()
        layer.adapt(data)
        assert layer.get_vocabulary() == expected
        assert layer.vocabulary_size() == len(expected)
        assert layer.get_vocabulary(include_special_tokens=False) == expected[1:]
    texts = [" ".join(row) for row in words]
    pairs = keras.data.Dataset.from_tensor_slices((texts, np.arange(60))).batch(8)
    for data in (texts, np.array(texts)[:, None], pairs.map(lambda x, y: x), pairs):
        layer = keras.layers.TextVectorization()
        layer.adapt(data)
        assert layer.get_vocabulary() == ["", *expected]
    layer.adapt(pairs, steps=1)
    assert set(layer.get_vocabulary()[2:]) == set(words[:8].ravel().tolist())


def test_there_and_back(rng):
    words = np.array(["a", "b", "c", "d"], object)[rng.integers(0, 4, (5, 3))]
    layer = keras.layers.StringLookup(mask_token="")
    layer.adapt(words)
    back = keras.layers.StringLookup(vocabulary=layer.get_vocabulary(), mask_token="", invert=True)
    np.testing.assert_array_equal(back(layer(words)), words)
    assert back([0, 1]).tolist() == ["", "[UNK]"]
    numbers = rng.integers(-50, 50, (5, 3))
    layer = keras.layers.IntegerLookup()
    layer.adapt(numbers)
    back = keras.layers.IntegerLookup(vocabulary=layer.get_vocabulary(), invert=True)
    np.testing.assert_array_equal(back(layer(numbers)).numpy(), numbers)


def test_functions_of_ones_own():
    layer = keras.layers.TextVectorization(
        standardize=np.char.upper, split=lambda texts: [t.split("-") for t in texts]
    )
    layer.adapt(["a-b", "b"])
    assert layer.get_vocabulary() == ["", "[UNK]", "B", "A"]
    assert layer(["b-x-a"]).numpy().tolist() == [[2, 1, 3]]
    rows = keras.layers.TextVectorization(split=None, vocabulary=["a b", "c"])
    assert rows([["A b!", "c", "d"]]).numpy().tolist() == [[2, 3, 1]]


def test_vocabulary_files(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("wind\nfire\n")
    layer = keras.layers.StringLookup(vocabulary=str(path))
    assert layer.get_vocabulary() == ["[UNK]", "wind", "fire"]
    assert keras.layers.TextVectorization(vocabulary=str(path)).vocabulary_size() == 4
    # The copy does not need the vocabulary's file.
    path.unlink()
    copy = keras.layers.StringLookup.from_config(layer.get_config())
    assert copy.get_vocabulary() == layer.get_vocabulary()
    numbers = tmp_path / "numbers.txt"
    numbers.write_text("7\n-3\n")
    assert keras.layers.IntegerLookup(vocabulary=str(numbers)).get_vocabulary() == [-1, 7, -3]
    with pytest.raises(ValueError, match="does not exist"):
        keras.layers.StringLookup(vocabulary=str(path))


@pytest.mark.parametrize("name", ["StringLookup", "IntegerLookup", "TextVectorization"])
def test_no_file_that_a_configuration_names_is_read(name, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("1\n2\n")
    layer = getattr(keras.layers, name)()
    config = keras.saving.serialize_keras_object(layer)
    config["config"]["vocabulary"] = str(secret)
    with pytest.raises(Exception, match="names a file to read a vocabulary from"):
        keras.saving.deserialize_keras_object(config)
    model = keras.Sequential([keras.layers.Dense(1), layer])
    text = json.loads(model.to_json())
    text["config"]["layers"][-1]["config"]["vocabulary"] = str(secret)
    with pytest.raises(Exception, match="names a file to read a vocabulary from"):
        keras.models.model_from_json(json.dumps(text))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda L: L.StringLookup(max_tokens=1), "greater than 1"),
        (lambda L: L.StringLookup(pad_to_max_tokens=True), "needs `max_tokens`"),
        (lambda L: L.StringLookup(num_oov_indices=-1), "num_oov_indices"),
        (lambda L: L.StringLookup(sparse=True, output_mode="count"), "sparse=True"),
        (lambda L: L.StringLookup(output_mode="some"), "`output_mode` must be"),
        (lambda L: L.StringLookup(invert=True, output_mode="count"), "must be 'int'"),
        (lambda L: L.StringLookup(idf_weights=[1.0]), "tf_idf"),
        (lambda L: L.StringLookup(vocabulary=["a"], output_mode="tf_idf"), "idf_weights"),
        (lambda L: L.StringLookup(vocabulary=["a", "a"]), "repeated"),
        (lambda L: L.StringLookup(vocabulary=[]), "empty vocabulary"),
        (lambda L: L.StringLookup(vocabulary=["a", ""], mask_token=""), "reserved mask token"),
        (lambda L: L.StringLookup(vocabulary=["a", "[UNK]"], invert=True), "reserved OOV token"),
        (lambda L: L.StringLookup(vocabulary=["a", "b"], max_tokens=2), "larger than"),
        (lambda L: L.StringLookup(salt="x"), "`salt`"),
        (lambda L: L.StringLookup(vocabulary=["a"]).adapt(["b"]), "Cannot adapt"),
        (lambda L: L.StringLookup(vocabulary=["a"], num_oov_indices=0)(["b"]), "found OOV"),
        (lambda L: L.IntegerLookup(salt=1), "farmhash"),
        (lambda L: L.IntegerLookup(vocabulary_dtype="int32"), "vocabulary_dtype"),
        (lambda L: L.IntegerLookup(oov_method="some"), "oov_method"),
        (lambda L: L.TextVectorization(split="comma"), "`split` must be"),
        (lambda L: L.TextVectorization(standardize="upper"), "`standardize` must be"),
        (lambda L: L.TextVectorization(ngrams="2"), "`ngrams`"),
        (lambda L: L.TextVectorization(ragged=True), "ragged"),
        (lambda L: L.TextVectorization(output_sequence_length=1.5), "output_sequence_length"),
        (lambda L: L.TextVectorization()([["a", "b"]]), "input rank must be 1"),
        (lambda L: L.Hashing(0), "num_bins"),
        (lambda L: L.Hashing(2, dtype="float32"), "integer"),
        (lambda L: L.Hashing(2, salt=[1, 2, 3]), "`salt`"),
        (lambda L: L.HashedCrossing(2)(["a"]), "at least two"),
        (lambda L: L.HashedCrossing(2)((np.array([1]), np.array([1, 2]))), "equal shape"),
        (lambda L: L.HashedCrossing(2)((np.array([1.5]), np.array([2]))), "integer or string"),
        (lambda L: L.HashedCrossing(2)((np.ones((2, 3), int),) * 2), r"\(batch_size, 1\)"),
        (lambda L: L.Discretization(), "set either"),
        (lambda L: L.Discretization([1.0], 2), "set either"),
        (lambda L: L.Discretization(num_bins=-1), "greater than or equal"),
        (lambda L: L.Discretization([1.0]).adapt(np.ones(3)), "Cannot adapt"),
        (lambda L: L.Discretization(num_bins=3)(np.ones(3)), "adapt"),
    ],
)
def test_wrong_arguments(make, words):
    with pytest.raises(ValueError, match=words):
        make(keras.layers)


def test_the_size_of_rows_stays():
    layer = keras.layers.StringLookup(vocabulary=["a"], output_mode="count")
    with pytest.raises(RuntimeError, match="size of the vocabulary stays"):
        layer.set_vocabulary(["a", "b"])
    with pytest.raises(RuntimeError, match="needs its vocabulary"):
        keras.layers.StringLookup(output_mode="count")(["a"])
    with pytest.raises(TypeError, match="Text is expected"):
        keras.layers.StringLookup(vocabulary=["a"])(np.array([1, 2]))
    with pytest.raises(TypeError, match="Integers are expected"):
        keras.layers.IntegerLookup(vocabulary=[1])(np.array([1.5]))
