"""How masks go from layer to layer; other tests are about the layers that make or use them."""

import gc
import warnings
import weakref

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, masks, ops, tracing


class NonZero(keras.layers.Layer):
    """Masks what is 0."""

    def compute_mask(self, inputs, previous_mask=None):
        return ops.not_equal(inputs, 0)

    def call(self, inputs):
        return ops.one_hot(inputs, 5)


class Passing(keras.layers.Layer):
    """Notes the mask that it was called with, and passes it on."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.seen = []

    def call(self, inputs, mask=None):
        self.seen.append(mask)
        return inputs * 2.0


class Losing(keras.layers.Layer):
    def call(self, inputs):
        return inputs * 2.0


class Pair(keras.layers.Layer):
    """Takes two arguments, and their masks by name."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seen = []

    def call(self, first, second=None, first_mask=None, second_mask=None, mask=None):
        self.seen.append((first_mask, second_mask, mask))
        return first


IDS = np.array([[1, 0, 2, 0], [0, 3, 0, 0]])


class TestAttribute:
    def test_is_none_then_set_then_deleted(self):
        x, mask = ops.ones((2, 3)), ops.ones((2,), "bool")
        assert x._keras_mask is None
        x._keras_mask = mask
        assert x._keras_mask is mask
        del x._keras_mask
        assert getattr(x, "_keras_mask", None) is None
        with pytest.raises(AttributeError, match="_keras_mask"):
            del x._keras_mask

    def test_none_takes_it_away(self):
        x = ops.ones((2, 3))
        x._keras_mask = ops.ones((2,), "bool")
        x._keras_mask = None
        assert x._keras_mask is None

    def test_a_new_mask_replaces_the_old_one(self):
        x, mask = ops.ones((2,)), ops.ones((2,), "bool")
        x._keras_mask = ops.zeros((2,), "bool")
        x._keras_mask = mask
        gc.collect()
        assert x._keras_mask is mask

    def test_goes_with_its_tensor(self, settled_memory):
        before = len(masks._entries)
        x, mask = ops.ones((2, 3)), ops.ones((2,), "bool")
        x._keras_mask = mask
        gone = weakref.ref(mask)
        del mask
        assert gone() is not None
        del x
        assert gone() is None
        assert len(masks._entries) == before

    def test_of_traced_values(self, settled_memory):
        before = len(masks._entries)
        with tracing.Trace("cpu") as trace:
            x = trace.graph.input("x", [2], "float32")
            assert x._keras_mask is None
            x._keras_mask = ops.greater(x, 0.0)
            assert x._keras_mask.dtype == "bool"
        del x
        assert len(masks._entries) == before

    def test_of_keras_tensors(self):
        x = keras.Input((3,))
        assert x._keras_mask is None
        x._keras_mask = ops.greater(x, 0.0)
        assert x._keras_mask.shape == (None, 3)
        del x._keras_mask
        assert x._keras_mask is None

    def test_models_with_masks_are_collected(self):
        x = keras.Input((4,), dtype="int32")
        y = Passing()(NonZero()(x))
        model = keras.Model(x, y)
        gone = weakref.ref(y)
        del x, y, model
        gc.collect()
        assert gone() is None


class TestLayer:
    def test_supports_masking_by_default_where_compute_mask_is_overridden(self):
        assert NonZero().supports_masking
        assert not Losing().supports_masking
        assert Passing().supports_masking

    def test_supports_masking_as_an_attribute_of_a_class(self):
        class Own(Losing):
            supports_masking = True

        x = ops.ones((2, 3))
        x._keras_mask = ops.ones((2,), "bool")
        assert Own()(x)._keras_mask is x._keras_mask

    def test_mask_is_computed_and_handed_on(self):
        layer = Passing()
        y = layer(NonZero()(IDS))
        np.testing.assert_array_equal(layer.seen[0], IDS != 0)
        np.testing.assert_array_equal(y._keras_mask, IDS != 0)

    def test_mask_given_by_hand_wins(self):
        layer, own = Passing(), np.array([[True] * 4, [False] * 4])
        y = layer(NonZero()(IDS), mask=own)
        np.testing.assert_array_equal(layer.seen[0], own)
        np.testing.assert_array_equal(y._keras_mask, own)

    def test_masks_by_the_names_of_arguments(self):
        layer = Pair()
        a, b = NonZero()(IDS), NonZero()(IDS.T)
        layer(a, b)
        layer(a, second=ops.ones((2, 4, 5)))
        layer(a, b, second_mask=ops.zeros((4, 2), "bool"))
        with pytest.warns(UserWarning, match="does not support masks"):
            layer(Losing()(a), b)
        assert layer.seen[0] == (a._keras_mask, b._keras_mask, None)
        assert layer.seen[1] == (a._keras_mask, None, None)
        assert not np.asarray(layer.seen[2][1]).any()
        assert layer.seen[3][0] is None

    def test_nested_inputs_have_nested_masks(self):
        layer, a = Passing(), NonZero()(IDS)

        class Both(Passing):
            def call(self, inputs, mask=None):
                self.seen.append(mask)
                return inputs[0] + inputs[1]

        layer = Both()
        layer([a, ops.ones((2, 4, 5))])
        layer([ops.ones((2, 4, 5)), ops.ones((2, 4, 5))])
        assert layer.seen[0][0] is a._keras_mask
        assert layer.seen[0][1] is None
        assert layer.seen[1] == [None, None]

    def test_cast_inputs_keep_their_mask(self):
        x = ops.ones((2, 3), "float16")
        x._keras_mask = ops.ones((2,), "bool")
        layer = Passing()
        assert layer(x)._keras_mask is x._keras_mask
        assert layer.seen[0] is x._keras_mask

    def test_mask_set_in_call_stays(self):
        own = ops.zeros((2, 4), "bool")

        class Own(NonZero):
            def call(self, inputs):
                outputs = super().call(inputs)
                outputs._keras_mask = own
                return outputs

        assert Own()(IDS)._keras_mask is own

    def test_masks_for_the_first_of_several_outputs(self):
        class Two(Passing):
            def call(self, inputs):
                return inputs * 1.0, inputs * 2.0

        a = NonZero()(IDS)
        first, second = Two()(a)
        assert first._keras_mask is a._keras_mask
        assert second._keras_mask is None

    @pytest.mark.parametrize("compiled", [False, True])
    def test_a_mask_is_lost_where_nothing_is_cropped(self, compiled):
        """Found by fuzzing: x[:, 0:] was x itself, and later layers saw the mask of x."""
        passing, cropping = Passing(), keras.layers.Cropping1D(0)

        def call(x):
            return passing(cropping(NonZero()(x)))

        with pytest.warns(UserWarning, match="does not support masks"):
            (keras.jit(call) if compiled else call)(ops.convert_to_tensor(IDS))
        assert passing.seen == [None]

    def test_warns_where_a_mask_is_lost(self):
        with pytest.warns(UserWarning, match=r"'lost' \(of type Losing\).*does not support masks"):
            y = Losing(name="lost")(NonZero()(IDS))
        assert y._keras_mask is None

    def test_does_not_warn_without_masks(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Losing()(ops.ones((2, 4)))
            keras.Sequential([keras.Input((4,)), Losing()]).predict(np.ones((3, 4)), verbose=0)


@pytest.mark.parametrize("compiled", [False, True])
def test_masks_in_functional_models(compiled):
    ids = keras.Input((4,), dtype="int32")
    layer = Passing()
    model = keras.Model(ids, layer(NonZero()(ids)))
    layer.seen.clear()
    if compiled:
        model.predict(IDS, verbose=0)
        assert layer.seen[0].shape == IDS.shape
        assert layer.seen[0].dtype == "bool"
    else:
        y = model(IDS)
        np.testing.assert_array_equal(y._keras_mask, IDS != 0)


def test_masks_of_keras_tensors_can_be_arguments():
    ids = keras.Input((4,), dtype="int32")
    first = NonZero()
    layer = Passing()
    model = keras.Model(ids, layer(Losing()(ops.one_hot(ids, 5)), mask=first.compute_mask(ids)))
    layer.seen.clear()
    model(IDS)
    np.testing.assert_array_equal(layer.seen[0], IDS != 0)


def test_masks_in_functions_of_jit():
    first, layer = NonZero(), Passing()

    @keras.jit
    def step(ids):
        return ops.cast(layer(first(ids))._keras_mask, "int32")

    np.testing.assert_array_equal(step(IDS), IDS != 0)


def test_masks_under_a_tape():
    x = keras.Variable(np.ones((2, 4, 5), "float32"))
    layer = Passing()
    with keras.GradientTape() as tape:
        inputs = x.value * 3.0
        inputs._keras_mask = ops.not_equal(IDS, 0)
        y = layer(inputs)
        kept = ops.cast(y._keras_mask, "float32")
        loss = ops.sum(ops.sum(y, -1) * kept)
    gradient = tape.gradient(loss, x)
    np.testing.assert_allclose(gradient, 6.0 * np.repeat((IDS != 0)[..., None], 5, -1))


def count_instructions(mask_zero):
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(7, 4, mask_zero=mask_zero),
            keras.layers.Dense(4),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )
    with tracing.Trace("cpu") as trace:
        ids = trace.graph.input("ids", [3, 6], "int32")
        with keras.GradientTape() as tape:
            loss = ops.mean(ops.square(model(ids, training=True)))
        gradients = tape.gradient(loss, model.trainable_weights)
    program = _core.Program.compile(trace.graph, [loss, *gradients], "cpu")
    return program.stats()["num_instructions"]


@pytest.mark.filterwarnings("ignore:.*does not support masks:UserWarning")
def test_masks_that_nothing_uses_cost_nothing():
    with keras.device("cpu"):
        assert count_instructions(True) == count_instructions(False)


@pytest.mark.parametrize("kind", ["sparse", "ragged"])
def test_tensors_are_dense(kind):
    for value in (None, False):
        assert keras.Input((3,), **{kind: value}).shape == (None, 3)
        assert getattr(keras.KerasTensor((3,), **{kind: value}), kind) is False
    for make in (
        lambda **kwargs: keras.Input((3,), **kwargs),
        lambda **k: keras.KerasTensor((3,), **k),
    ):
        with pytest.raises(
            ValueError, match=f"{kind}=True is not supported, since tensors are dense"
        ):
            make(**{kind: True})


def test_tensors_without_history_make_no_models():
    x = keras.KerasTensor((None, 3), record_history=False)
    assert keras.layers.Dense(2)(x)._keras_history is None


def test_losses_and_metrics_leave_out_what_the_mask_of_predictions_does(rng):
    y, p = rng.normal(size=(2, 3, 5, 4)).astype("float32")
    weights = rng.uniform(0.5, 1.5, (3, 5)).astype("float32")
    mask = rng.random((3, 5)) < 0.6
    mask[:, 0] = True
    prediction = ops.convert_to_tensor(p)
    prediction._keras_mask = ops.convert_to_tensor(mask)
    errors = np.square(y - p, dtype="float64").mean(-1)
    loss = keras.losses.MeanSquaredError()
    expected = (errors * mask).sum() / mask.sum()
    np.testing.assert_allclose(float(loss(y, prediction)), expected, rtol=1e-5)
    expected = (errors * mask * weights).sum() / mask.sum()
    np.testing.assert_allclose(float(loss(y, prediction, weights)), expected, rtol=1e-5)
    total = keras.losses.MeanSquaredError(reduction="sum")
    expected = (errors * mask).sum()
    np.testing.assert_allclose(float(total(y, prediction)), expected, rtol=1e-5)
    metric = keras.metrics.MeanSquaredError()
    metric.update_state(y, prediction, sample_weight=weights)
    expected = (errors * mask * weights).sum() / (mask * weights).sum()
    np.testing.assert_allclose(float(metric.result()), expected, rtol=1e-5)
