"""Models take inputs with another nesting or shape than their own as Keras' models do."""

import warnings

import numpy as np
import pytest

import kerascnn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Other packages may warn on import.
    keras = pytest.importorskip("keras")

# Keras converts PyTorch tensors in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
both = pytest.mark.parametrize("module", [kerascnn, keras], ids=["here", "keras"])
MISMATCH = "structure of `inputs` doesn't match"


def numbers(module, x):
    return module.ops.convert_to_numpy(x)


def two_inputs(module, nest):
    a, b = module.Input((3,), name="a"), module.Input((3,), name="b")
    return module.Model(nest(a, b), module.layers.Subtract()([a, b]))


def pair(rng):
    return rng.normal(size=(2, 2, 3)).astype("float32")


@both
def test_a_field_too_many_is_left_out_with_a_warning(module, rng):
    a, b = pair(rng)
    x = module.Input((3,), name="a")
    model = module.Model({"a": x}, x * 5 + 2)
    with pytest.warns(UserWarning, match=MISMATCH):
        out = numbers(module, model({"a": a, "more": b}))
    np.testing.assert_allclose(out, a * 5 + 2, rtol=1e-6)  # A result has two roundings.


@both
def test_a_field_too_many_with_masks(module):
    x = module.Input((4,), dtype="int32", name="a")
    states = module.layers.Embedding(5, 3, mask_zero=True, embeddings_initializer="ones")(x)
    inner_input = module.Input((4, 3), name="states")
    sums = module.layers.GlobalAveragePooling1D()(inner_input)
    inner = module.Model({"states": inner_input}, sums)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = module.Model(x, inner({"states": states, "states_too": states * 2.0}))
        out = numbers(module, model(np.asarray([[1, 2, 0, 0]])))
    np.testing.assert_allclose(out, np.ones((1, 3)), rtol=1e-6)


@both
def test_a_list_for_a_dictionary_is_warned_about(module, rng):
    a, b = pair(rng)
    model = two_inputs(module, lambda a, b: {"a": a, "b": b})
    with pytest.warns(UserWarning, match=MISMATCH):
        out = numbers(module, model([a, b]))
    np.testing.assert_array_equal(out, a - b)


@both
def test_a_list_for_a_dictionary_in_another_order_is_an_error(module, rng):
    a, b = pair(rng)
    model = two_inputs(module, lambda a, b: {"b": b, "a": a})
    np.testing.assert_array_equal(numbers(module, model({"a": a, "b": b})), a - b)
    with pytest.raises(ValueError, match=MISMATCH + r"|it takes a dictionary"):
        model([a, b])


@both
def test_names_that_a_model_does_not_have_are_an_error(module, rng):
    a, b = pair(rng)
    model = two_inputs(module, lambda a, b: [a, b])
    np.testing.assert_array_equal(numbers(module, model({"b": b, "a": a, "c": a})), a - b)
    with pytest.raises(ValueError, match="a"):
        model({"a": a, "c": b})


@both
@pytest.mark.parametrize("nest", [lambda a, b: [a, b], lambda a, b: (a, b)])
def test_lists_and_tuples_are_the_same(module, nest, rng):
    a, b = pair(rng)
    model = two_inputs(module, nest)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for given in ([a, b], (a, b)):
            np.testing.assert_array_equal(numbers(module, model(given)), a - b)


@both
def test_deeply_nested_inputs(module, rng, tmp_path):
    a, b, c = (module.Input((n,), name=str(n)) for n in (1, 2, 3))
    outputs = [module.layers.Dense(n)(x) for n, x in enumerate((a, b, c), 1)]
    model = module.Model(
        {"1": a, "others": {"2": b, "3": c}},
        {"1": outputs[0], "others": {"2": outputs[1], "3": outputs[2]}},
    )
    x = {n: rng.normal(size=(2, int(n))).astype("float32") for n in "123"}
    data = {"1": x["1"], "others": {"2": x["2"], "3": x["3"]}}
    out = model(data)
    assert (out["others"]["2"].shape, out["others"]["3"].shape) == ((2, 2), (2, 3))
    path = tmp_path / "nested.keras"
    model.save(path)
    again = module.saving.load_model(path)(data)
    np.testing.assert_array_equal(
        numbers(module, again["others"]["3"]), numbers(module, out["others"]["3"])
    )


@both
@pytest.mark.parametrize("kind", ["functional", "sequential"])
@pytest.mark.parametrize("count", [1, 4])
def test_an_axis_of_size_one_may_be_missing_or_too_much(module, kind, count, rng):
    model = module.Sequential([module.Input((1,)), module.layers.Dense(2)])
    if kind == "functional":
        model = module.Model(model.inputs[0], model.outputs[0])
    x = rng.normal(size=(count, 1)).astype("float32")
    expected = numbers(module, model(x))
    for given in (x[:, 0], x[..., None]):
        np.testing.assert_array_equal(numbers(module, model(given)), expected)
        np.testing.assert_array_equal(model.predict(given, verbose=0), model.predict(x, verbose=0))


@both
@pytest.mark.parametrize("nest", [list, tuple])
def test_outputs_of_a_restored_model_are_nested_as_before(module, nest):
    x = module.Input((3,))
    model = module.Model(x, nest([module.layers.Dense(4)(x), module.layers.Dense(5)(x)]))
    again = model.from_config(model.get_config())
    assert type(again(np.ones((2, 3), "float32"))) is nest


@both
@pytest.mark.parametrize("nest", [lambda y: [y], lambda y: (y,)], ids=["list", "tuple"])
def test_an_output_alone_in_a_list_is_returned_by_itself(module, nest, rng):
    x = module.Input((3,))
    model = module.Model(x, nest(module.layers.Dense(2, name="d")(x)))
    data = rng.normal(size=(5, 3)).astype("float32")
    expected = numbers(module, model(data))
    assert expected.shape == (5, 2)
    # The same product runs in batches of other sizes.
    predicted = model.predict(data, batch_size=2, verbose=0)
    np.testing.assert_allclose(predicted, expected, rtol=1e-5, atol=1e-6)
    for loss in ("mse", ["mse"], {"d": "mse"}):
        model.compile("sgd", loss)
        history = model.fit(data, expected, batch_size=5, verbose=0).history
        assert history["loss"][0] < 1e-6  # The targets are the model's own predictions.


@both
def test_clones_begin_with_inputs_nested_as_the_models(module):
    model = two_inputs(module, lambda a, b: {"a": a, "b": b})
    a, b = module.Input((3,), name="a"), module.Input((3,), name="b")
    clone = module.models.clone_model(model, input_tensors={"a": a, "b": b})
    assert list(clone.input) == ["a", "b"]
    with pytest.raises(ValueError, match="input_tensors"):
        module.models.clone_model(model, input_tensors=(a, b))


@both
def test_state_trees_of_lists(module):
    model = module.Sequential([module.Input((2,)), module.layers.Dense(1, name="d")], name="m")
    path = model.variables[0].path.split("/")[:-1]
    tree = {"kernel": [[0.25], [0.5]], "bias": [2.0]}
    for name in reversed(path):
        tree = {name: tree}
    model.set_state_tree({"trainable_variables": tree})
    np.testing.assert_array_equal(model.get_weights()[0], [[0.25], [0.5]])


@both
def test_what_a_sequential_model_has_once_it_knows_its_input(module):
    names = ("input_shape", "output_shape", "inputs", "outputs")
    model = module.Sequential()
    assert not any(hasattr(model, name) for name in names)
    model = module.Sequential([module.Input((4,)), module.layers.Dense(8)])
    assert all(hasattr(model, name) for name in names)


@both
def test_a_sequential_model_is_built_for_one_input(module):
    model = module.Sequential([module.Input((2,), batch_size=3), module.layers.Dense(2)])
    model.build((3, 2))
    with pytest.raises(ValueError, match="already been configured|cannot be built for others"):
        model.build((3, 4))


@both
def test_a_sequential_model_of_layers_whose_shapes_nobody_knows(module, rng):
    class Dynamic(module.layers.Layer):
        def call(self, inputs):
            return inputs + 1.0

        def compute_output_spec(self, *args, **kwargs):
            raise NotImplementedError

    model = module.Sequential([Dynamic(), module.layers.Dense(2, kernel_initializer="ones")])
    x = rng.normal(size=(3, 2)).astype("float32")
    expected = np.repeat((x + 1).sum(-1, keepdims=True), 2, -1)
    # There are two products and a sum of numbers near 1.
    np.testing.assert_allclose(numbers(module, model(x)), expected, rtol=1e-5, atol=1e-6)
    model.summary(print_fn=lambda *args, **kwargs: None)


@both
def test_lists_in_themselves(module, rng, tmp_path):
    class Cyclic(module.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.blocks = []
            self.blocks.append(self.blocks)
            self.out = module.layers.Dense(2)

        def call(self, x):
            return self.out(x)

    x = rng.normal(size=(2, 4)).astype("float32")
    model = Cyclic()
    expected = numbers(module, model(x))
    assert len(model.weights) == 2
    path = tmp_path / "cyclic.keras"
    model.save(path)
    again = module.saving.load_model(path, custom_objects={"Cyclic": Cyclic})
    np.testing.assert_array_equal(numbers(module, again(x)), expected)
