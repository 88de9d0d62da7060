"""Calls of layers for text and tables; a file holds Keras' results on TensorFlow.

`KERAS_BACKEND=tensorflow python text_cases.py` writes that file anew where both are installed. The
tests run without TensorFlow, which Keras needs for these layers.
"""

import json
from pathlib import Path

RESULTS = Path(__file__).with_name("text_results.json")

WORDS = ["earth", "wind", "and", "fire", "", "Über", "x" * 17, "y" * 40, "z" * 150, "wind"]
TEXTS = [
    "The cat, the CAT & the dog!",
    "  a\tdog\nÉcole ÉCOLE  ",
    "",
    "it's [so] {good}~ a-b x_y",
    "cat dog cat",
]
NUMBERS = [[12, -1138, 42], [42, 1000, 36], [0, 7, -3]]
IDF = [0.25, 0.75, 0.6, 0.4]

_LOOKUP = {"vocabulary": ["wind", "and", "fire", "Über"]}
_INTEGERS = {"vocabulary": [12, 36, -1138, 42]}
_SPREAD = {"vocabulary": [12, 10**12, -1138, 42]}


def _modes(layer, own, data, idf=True):
    for mode in ("one_hot", "multi_hot", "count", "tf_idf")[: 4 if idf else 3]:
        weights = {"idf_weights": IDF} if mode == "tf_idf" else {}
        yield layer, {**own, **weights, "output_mode": mode}, None, data
        if idf:
            padded = {"pad_to_max_tokens": True, "max_tokens": 9}
            yield layer, {**own, **weights, **padded, "output_mode": mode}, None, data


def cases():
    """Yields each case as (class, arguments, data to adapt on, input)."""
    words = [WORDS[:5], WORDS[5:]]
    yield "StringLookup", _LOOKUP, None, words
    yield "StringLookup", {**_LOOKUP, "mask_token": ""}, None, words
    yield "StringLookup", {**_LOOKUP, "num_oov_indices": 3}, None, words
    yield "StringLookup", {**_LOOKUP, "num_oov_indices": 3, "salt": 7}, None, words
    yield "StringLookup", {**_LOOKUP, "num_oov_indices": 3, "salt": [1, 2]}, None, words
    yield from _modes("StringLookup", _LOOKUP, words)
    yield from _modes("StringLookup", {**_LOOKUP, "mask_token": ""}, [["", "wind", "zz", "zz"]])
    yield from _modes("StringLookup", _LOOKUP, [["wind"], ["no"]])
    yield "StringLookup", {}, words, words
    yield "StringLookup", {"max_tokens": 4}, words, words
    yield "StringLookup", {"output_mode": "tf_idf"}, words, words
    yield "StringLookup", {"output_mode": "count"}, WORDS, words
    yield "IntegerLookup", _INTEGERS, None, NUMBERS
    yield "IntegerLookup", _SPREAD, None, NUMBERS
    yield "IntegerLookup", {**_INTEGERS, "mask_token": 0}, None, NUMBERS
    yield "IntegerLookup", {**_INTEGERS, "num_oov_indices": 4}, None, NUMBERS
    hashed = {**_INTEGERS, "num_oov_indices": 4, "oov_method": "farmhash"}
    yield "IntegerLookup", hashed, None, NUMBERS
    yield "IntegerLookup", {**hashed, "salt": [3, 4]}, None, NUMBERS
    yield from _modes("IntegerLookup", {**_INTEGERS, "mask_token": 0}, NUMBERS)
    yield "IntegerLookup", {}, NUMBERS, NUMBERS
    yield "IntegerLookup", {"invert": True, **_INTEGERS, "mask_token": 0}, None, [[0, 1, 2, 5, 9]]
    for salt in (None, 133, [133, 137]):
        yield "Hashing", {"num_bins": 7, "salt": salt}, None, words
        yield "Hashing", {"num_bins": 7, "salt": salt, "mask_value": ""}, None, words
        yield "Hashing", {"num_bins": 5, "salt": salt}, None, NUMBERS
        yield "Hashing", {"num_bins": 5, "salt": salt, "mask_value": 42}, None, NUMBERS
    yield from _modes("Hashing", {"num_bins": 6}, words, idf=False)
    for mode in ("int", "one_hot"):
        for columns in ([WORDS, list(range(-5, 5))], [WORDS, WORDS, list(range(10))]):
            crossing = {"num_bins": 11, "output_mode": mode}
            yield "HashedCrossing", crossing, None, columns
            yield "HashedCrossing", crossing, None, [[[x] for x in column] for column in columns]
    for standardize in ("lower_and_strip_punctuation", "lower", "strip_punctuation", None):
        for split in ("whitespace", "character"):
            arguments = {"standardize": standardize, "split": split}
            yield "TextVectorization", arguments, TEXTS, TEXTS
    for more in (
        {"ngrams": 2},
        {"ngrams": [1, 3]},
        {"max_tokens": 5},
        {"output_sequence_length": 3},
        {"output_sequence_length": 9},
        {"output_mode": "multi_hot"},
        {"output_mode": "count", "ngrams": 2},
        {"output_mode": "tf_idf"},
        {"output_mode": "tf_idf", "max_tokens": 30, "pad_to_max_tokens": True},
    ):
        yield "TextVectorization", more, TEXTS, TEXTS
        yield "TextVectorization", more, TEXTS, [[text] for text in TEXTS[2:]]
    given = {"vocabulary": ["cat", "dog", "the", "a"]}
    yield "TextVectorization", given, None, TEXTS
    yield "TextVectorization", given, None, "a cat"
    yield from _modes("TextVectorization", given, TEXTS)
    spread = [[x * x / 7 - 30] for x in range(100)]
    yield "Discretization", {"num_bins": 4}, spread, [[-5.0], [0.0], [900.0]]
    yield "Discretization", {"num_bins": 7, "epsilon": 0.1}, spread, [[-5.0, 80.0]]
    for mode in ("int", "one_hot", "multi_hot", "count"):
        arguments = {"bin_boundaries": [-1.0, 0.0, 2.5], "output_mode": mode}
        yield "Discretization", arguments, None, [[-1.0, 2.5, 9.0], [0.5, -7.0, 0.7]]
        yield "Discretization", arguments, None, [[-1.0], [2.5]]


def arguments_of(arguments):
    """Returns the arguments of the constructor: JSON has no tuples."""
    tuples = {k: tuple(v) for k, v in arguments.items() if k == "ngrams" and isinstance(v, list)}
    return {**arguments, **tuples}


def _is_left_out(layer, arguments):
    """Tells whether Keras has no result: on TensorFlow this case is an error."""
    return layer == "TextVectorization" and arguments.get("output_mode") == "one_hot"


def _record():
    import keras
    import numpy as np

    results = []
    for layer, arguments, adapted, data in cases():
        if _is_left_out(layer, arguments):
            continue
        made = getattr(keras.layers, layer)(**arguments_of(arguments))
        if adapted is not None:
            made.adapt(np.array(adapted))
        array = [np.array(x) for x in data] if layer == "HashedCrossing" else np.array(data)
        result = {"output": np.asarray(made(array)).tolist()}
        if hasattr(made, "get_vocabulary"):
            result["vocabulary"] = [
                x if isinstance(x, str) else int(x) for x in made.get_vocabulary()
            ]
        if hasattr(made, "bin_boundaries"):
            result["boundaries"] = [float(x) for x in made.bin_boundaries]
        results.append({"case": [layer, arguments, adapted, data], **result})
    lines = ",\n".join(json.dumps(result, ensure_ascii=False) for result in results)
    RESULTS.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    _record()
