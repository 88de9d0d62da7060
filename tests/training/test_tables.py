"""Tables of pandas and polars as x and y: columns of several dtypes, and what the errors say."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers

COLUMNS = {
    "age": np.array([20.5, 31.0, 47.25, 8.0, 60.0, 33.0]),
    "rooms": np.array([1, 4, 2, 2, 5, 3]),
    "garden": np.array([True, False, False, True, True, False]),
}
TARGETS = np.array([0, 1, 1, 0, 1, 0])


def network(features=3):
    model = keras.Sequential([keras.Input((features,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def table_of(library, columns):
    return pytest.importorskip(library).DataFrame(columns)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_several_dtypes(library):
    table = table_of(library, COLUMNS)
    x = np.stack([column.astype("float32") for column in COLUMNS.values()], axis=1)
    model = network()
    expected = model.predict(x, verbose=0)
    np.testing.assert_array_equal(model.predict(table, verbose=0), expected)
    np.testing.assert_allclose(model(table).numpy(), expected, rtol=1e-5)
    kernel, bias = model.get_weights()
    model.fit(table, TARGETS, shuffle=False, verbose=0)
    trained = model.get_weights()
    model.set_weights([kernel, bias])
    model.fit(x, TARGETS, shuffle=False, verbose=0)
    np.testing.assert_array_equal(model.get_weights()[0], trained[0])


@pytest.mark.parametrize("dtype", ["Int64", "Float32", "boolean", "int64[pyarrow]"])
def test_dtypes_of_pandas_with_missing_values(dtype):
    pandas = pytest.importorskip("pandas")
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    values = [True, False, None] if dtype == "boolean" else [1, 5, None]
    full = pandas.DataFrame({"a": pandas.array([1, 0, 1], dtype=dtype), "b": [0.5, 1.5, 2.5]})
    part = full.assign(a=pandas.array(values, dtype=dtype))
    model = network(2)
    x = np.array([[1, 0.5], [0, 1.5], [1, 2.5]], "float32")
    np.testing.assert_array_equal(model.predict(full, verbose=0), model.predict(x, verbose=0))
    # What is missing is NaN, in a table and in a column.
    assert np.isnan(model.predict(part, verbose=0))[:, 0].tolist() == [False, False, True]
    one = network(1)
    assert np.isnan(one.predict(part["a"], verbose=0))[:, 0].tolist() == [False, False, True]
    np.testing.assert_array_equal(one(full["a"].to_frame()).numpy(), one(x[:, :1]).numpy())


# Keras converts PyTorch tensors in a way that NumPy 2 warns about.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_results_are_those_of_keras(rng):
    theirs = pytest.importorskip("keras")
    pandas = pytest.importorskip("pandas")
    table = pandas.get_dummies(pandas.DataFrame({"n": rng.normal(size=6), "kind": [*"abcabc"]}))
    assert set(table.dtypes.astype(str)) == {"float64", "bool"}
    model = network(4)
    other = theirs.Sequential([theirs.Input((4,)), theirs.layers.Dense(1)])
    other.set_weights(model.get_weights())
    found = model.predict(table, verbose=0)
    np.testing.assert_allclose(found, other.predict(table, verbose=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_without_numbers_are_named(library):
    table = table_of(library, {**COLUMNS, "town": ["Bonn", "Ulm"] * 3})
    text = r"x is a table, .* Columns without numbers: 'town' \(.*\)\. Leave them out, convert them"
    with pytest.raises(TypeError, match=text):
        network(4).fit(table, TARGETS, verbose=0)
    with pytest.raises(TypeError, match="cannot be made a tensor.*'town'"):
        network(4)(table)


def test_errors_for_columns():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(COLUMNS)
    with pytest.raises(ValueError, match="y is None: pass y"):
        network().fit(table, verbose=0)
    names = pandas.Series(["no", "yes"] * 3)
    with pytest.raises(TypeError, match=r"y holds text, .*names, y = np\.unique\(y, return_inv"):
        network().fit(table, names, verbose=0)
    _, y = np.unique(names, return_inverse=True)
    network().fit(table, y, verbose=0)
    inputs = {name: keras.Input((1,), name=name) for name in COLUMNS}
    model = keras.Model(inputs, layers.Dense(1)(layers.Concatenate()(list(inputs.values()))))
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="a list in that order, or a dictionary by these names"):
        model.fit(table, TARGETS, verbose=0)
    with pytest.raises(TypeError, match=r"x\['age'\] is a list of float.*np\.asarray\(x\['age'\]"):
        model.fit({name: column.tolist() for name, column in table.items()}, TARGETS, verbose=0)
    with pytest.raises(TypeError, match=r"x is a list of float.*np\.asarray\(x\)"):
        network().fit(table.astype("float32").to_numpy().tolist(), TARGETS, verbose=0)
    model.fit(dict(table), TARGETS, verbose=0)
