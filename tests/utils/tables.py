"""A table with a column of each kind that `FeatureSpace` knows."""

KINDS = {
    "a": "float",
    "b": "float_normalized",
    "c": "float_discretized",
    "d": "integer_categorical",
    "e": "string_categorical",
    "f": "integer_hashed",
    "g": "string_hashed",
}


def make_table(rng):
    """Returns a table of thirty rows with a column of each kind."""
    numbers = {k: rng.normal(size=30).astype("float32") for k in "abc"}
    integers = {k: rng.integers(0, 5, 30) for k in "df"}
    words = {k: rng.choice(["red", "green", "blue"], 30) for k in "eg"}
    return {**numbers, **integers, **words}
