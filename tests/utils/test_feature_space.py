"""FeatureSpace prepares the columns of a table by their kinds."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn.utils import FeatureSpace

from .tables import KINDS, make_table


@pytest.fixture
def table(rng):
    return make_table(rng)


def expected(space, table):
    """Prepares each column by itself in NumPy."""
    rows = {"a": table["a"][:, None]}
    rows["b"] = ((table["b"] - table["b"].mean()) / table["b"].std())[:, None]
    bins = space.preprocessors["c"].bin_boundaries
    rows["c"] = np.eye(len(bins) + 1)[np.digitize(table["c"], bins)]
    for name in "de":
        vocabulary = space.preprocessors[name].get_vocabulary()
        rows[name] = np.array([[w == v for v in vocabulary] for w in table[name]], float)
    for name in "fg":
        number = keras.layers.Hashing(6)(table[name]).numpy()
        rows[name] = np.eye(6)[number]
    numbers = {n: space.preprocessors[n](table[n][:, None]).numpy()[:, 0] for n in "de"}
    crossing = keras.layers.HashedCrossing(8)([numbers["d"], numbers["e"]]).numpy()
    return {**rows, "d_X_e": np.eye(8)[crossing]}


def space_of(**arguments):
    return FeatureSpace(
        KINDS,
        crosses=[("d", "e")],
        crossing_dim=8,
        hashing_dim=6,
        num_discretization_bins=4,
        **arguments,
    )


def test_columns_by_their_kinds(table):
    space = space_of(output_mode="dict")
    space.adapt(table)
    wanted = expected(space, table)
    found = space(table)
    assert list(found) == list(wanted)
    for name, rows in wanted.items():
        np.testing.assert_allclose(found[name].numpy(), rows, atol=1e-5, err_msg=name)
    joined = space_of()
    joined.adapt(keras.data.Dataset.from_tensor_slices(table).batch(7))
    np.testing.assert_allclose(
        joined(table).numpy(), np.concatenate(list(wanted.values()), 1), atol=1e-5
    )
    first = joined({name: column[0] for name, column in table.items()})
    np.testing.assert_allclose(first.numpy(), joined(table).numpy()[0], atol=1e-6)


def test_at_the_beginning_of_a_model(table, rng, tmp_path):
    space = space_of()
    space.adapt(table)
    outputs = keras.layers.Dense(1)(space.get_encoded_features())
    model = keras.Model(space.get_inputs(), outputs)
    model.compile("sgd", "mse")
    targets = rng.normal(size=(30, 1)).astype("float32")
    assert np.isfinite(model.fit(table, targets, epochs=2, verbose=0).history["loss"]).all()
    kernel, bias = model.get_weights()[-2:]
    found = model.predict(table, verbose=0)
    np.testing.assert_allclose(found, space(table).numpy() @ kernel + bias, atol=1e-4)
    model.save(tmp_path / "table.keras")
    loaded = keras.saving.load_model(tmp_path / "table.keras")
    np.testing.assert_array_equal(loaded.predict(table, verbose=0), found)
    dataset = keras.data.Dataset.from_tensor_slices((table, targets)).batch(8)
    behind = keras.Sequential(
        [keras.Input((outputs.shape[-1] and kernel.shape[0],)), keras.layers.Dense(1)]
    )
    behind.compile("sgd", "mse")
    behind.fit(dataset.map(lambda x, y: (space(x), y)), verbose=0)


def test_configuration_and_errors(table):
    space = space_of()
    copy = FeatureSpace.from_config(space.get_config())
    for one in (space, copy):
        one.adapt(table)
    np.testing.assert_array_equal(copy(table).numpy(), space(table).numpy())
    with pytest.raises(ValueError, match="call `.adapt"):
        space_of()(table)
    for call, words in [
        (lambda: FeatureSpace({}), "cannot be None or empty"),
        (lambda: FeatureSpace({"a": "double"}), "A feature is one of"),
        (lambda: FeatureSpace({"a": "float"}, output_mode="list"), "`output_mode` must be"),
        (lambda: FeatureSpace({"a": "float"}, crosses=[("a", "z")]), "unknown features"),
        (lambda: FeatureSpace.cross(("a", "b"), 4, "float"), "of a cross"),
        (lambda: FeatureSpace.string_hashed(4, "row"), "of a feature"),
        (lambda: space([1]), "with a dict"),
        (lambda: space.adapt([1]), "can only be called on"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
    numbers = FeatureSpace({"g": FeatureSpace.string_hashed(4, "int")})
    with pytest.raises(ValueError, match="Cannot concatenate"):
        numbers(table)


def test_missing_columns_are_named(table):
    space = FeatureSpace({"a": "float", "b": "float_normalized", "e": "string_categorical"})
    part = {"a": table["a"], "z": table["a"]}
    words = r"Missing: \['b', 'e'\]. Received: \['a', 'z'\]. Add them"
    with pytest.raises(ValueError, match=words):
        space.adapt(part)
    with pytest.raises(ValueError, match=words):
        space.adapt(keras.data.Dataset.from_tensor_slices(part).batch(4))
    pairs = keras.data.Dataset.from_tensor_slices((table, table["a"])).batch(4)
    with pytest.raises(ValueError, match="Received elements: tuple. Map it first"):
        space.adapt(pairs)
    space.adapt(pairs.map(lambda features, label: features))
    with pytest.raises(ValueError, match=words):
        space(part)
    # What is no feature does no harm.
    kept = {name: table[name] for name in "abe"}
    np.testing.assert_array_equal(space(table).numpy(), space(kept).numpy())


def test_tables_of_pandas_become_dictionaries(table):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({name: table[name] for name in "abe"})
    space = FeatureSpace({"a": "float", "b": "float_normalized", "e": "string_categorical"})
    with pytest.raises(ValueError, match=r"DataFrame. Pass `dict\(table\)`"):
        space.adapt(frame)
    space.adapt(dict(frame))
    with pytest.raises(ValueError, match=r"DataFrame. Pass `dict\(table\)`"):
        space(frame)
    np.testing.assert_array_equal(space(dict(frame)).numpy(), space(table).numpy())
