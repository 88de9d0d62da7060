"""What custom layers may do, as in Keras: `build`, names, states, losses."""

import inspect

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, ops

from .comparing import keras as reference


def without_weights():
    """Returns layers that count as built as soon as they are made."""
    return [
        ("Activation", ("relu",)),
        ("ReLU", ()),
        ("Dropout", (0.25,)),
        ("GaussianNoise", (0.1,)),
        ("Identity", ()),
        ("Masking", ()),
        ("MaxPooling2D", ()),
        ("GlobalAveragePooling2D", ()),
        ("UnitNormalization", ()),
    ]


@pytest.mark.parametrize("name,arguments", without_weights())
def test_a_build_of_ones_own_is_called(name, arguments):
    for module in (keras, reference):
        base = getattr(module.layers, name)
        assert base(*arguments).built

        class Scaled(base):
            def build(self, input_shape):
                self.seen = tuple(input_shape)
                super().build(input_shape)

        layer = Scaled(*arguments)
        assert not layer.built
        layer(np.ones((2, 4, 6, 3), "float32"))
        assert layer.built
        assert layer.seen == (2, 4, 6, 3)


def test_a_host_layer_with_a_build_of_ones_own():
    class Own(layers.Hashing):
        def build(self, input_shape=None):
            self.was_built = True

    assert layers.Hashing(5).built
    layer = Own(5)
    assert not layer.built
    layer(np.asarray([[1], [2]]))
    assert layer.was_built


def test_build_at_init_is_for_layers_without_a_build():
    def made(module, with_build):
        class Own(module.layers.Layer):
            def __init__(self):
                super().__init__()
                self._build_at_init()

            def call(self, x):
                return x

        class Built(Own):
            def build(self, input_shape):
                pass

        return (Built if with_build else Own)()

    for module in (keras, reference):
        assert made(module, False).built
        assert not made(module, True).built


@pytest.mark.parametrize(
    "name",
    (
        "Attention",
        "Dot",
        "Add",
        "Concatenate",
        "Embedding",
        "Masking",
        "GlobalAveragePooling1D",
        "Lambda",
        "ReversibleEmbedding",
        "RNN",
        "Bidirectional",
        "Dense",
    ),
)
def test_arguments_of_compute_mask(name):
    own, theirs = (getattr(m.layers, name).compute_mask for m in (keras, reference))
    shown = [
        [(p.name, p.default) for p in inspect.signature(f).parameters.values()]
        for f in (own, theirs)
    ]
    assert shown[0] == shown[1]


def test_masks_of_attention_by_name():
    mask = ops.convert_to_tensor([[True, False]])
    x = ops.ones((1, 2, 3))
    assert layers.Attention().compute_mask([x, x], mask=[mask, None]) is mask


def test_weights_made_in_init_carry_the_layer_in_their_paths():
    def paths(module):
        class Inner(module.layers.Layer):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                self.first = self.add_weight(shape=(1,), name="first")

        class Outer(module.layers.Layer):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                self.own = self.add_weight(shape=(2,), name="own")
                self.inner = Inner(name="within")

            def build(self, input_shape):
                self.late = self.add_weight(shape=(3,), name="late")
                self.more = Inner(name="more")

        layer = Outer(name="outer")
        layer.build((None, 2))
        return sorted(variable.path for variable in layer.variables)

    assert paths(keras) == paths(reference)


def test_a_call_cannot_add_weights():
    for module in (keras, reference):

        class Growing(module.layers.Layer):
            def call(self, x):
                self.w = self.add_weight(shape=(), initializer="zeros")
                return x + self.w

        with pytest.raises(ValueError, match=r"cannot make another weight|cannot add new elements"):
            Growing()(np.ones((3, 2), "float32"))


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_trainable_is_true_or_false(value):
    for module in (keras, reference):
        with pytest.raises(ValueError, match="`trainable`"):
            module.layers.Dense(2, trainable=value)


def test_a_name_is_no_positional_argument_of_add_weight():
    for module in (keras, reference):
        layer = module.layers.Layer()
        with pytest.raises(TypeError, match="positional arguments"):
            layer.add_weight((3, 4), "zeros", "float32", "name")
        assert layer.add_weight((3, 4), "zeros", "float32").shape == (3, 4)


def test_losses_are_those_of_the_last_call():
    def losses(module, x):
        class Penalty(module.layers.Layer):
            def call(self, x):
                self.add_loss(module.ops.sum(x))
                return x

        layer = Penalty()
        found = []
        for part in (
            layer,
            module.Sequential([layer]),
            module.Sequential([module.Sequential([layer])]),
        ):
            part(x)
            found.append([float(loss) for loss in part.losses])
        inputs = module.Input((3,))
        model = module.Model(inputs, Penalty()(inputs))
        found.append(len(model.losses))
        return found

    x = np.full((1, 3), 0.5, "float32")
    assert losses(keras, x) == losses(reference, x) == [[1.5], [1.5], [1.5], 0]


@pytest.mark.parametrize("size", [0, 1, 5])
def test_activity_penalties_are_per_sample(size):
    for module in (keras, reference):
        layer = module.layers.ActivityRegularization(l2=0.01)
        layer(np.full((size, 5), 2.0, "float32"))
        # There are five squares of 2 for each sample; only 0.01 is rounded to float32.
        np.testing.assert_allclose(float(layer.losses[0]), 0.2 if size else 0.0, rtol=1e-6)


def test_flatten_layers_can_stay_on_top():
    for module in (keras, reference):
        inner = module.Sequential([module.layers.Dense(2), module.layers.Dense(3)])
        model = module.Sequential([inner, module.layers.Dense(1)])
        assert model._flatten_layers(include_self=False, recursive=False) == model.layers
        assert model._flatten_layers(recursive=False)[0] is model
        assert set(inner.layers) < set(model._flatten_layers(False))


def context_layers(module):
    class Inner(module.layers.Layer):
        def __init__(self):
            super().__init__()
            self._register_call_context_args("mode")

        def call(self, x, mode=None):
            return x + (1 if mode else 0)

    class Middle(module.layers.Layer):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def call(self, x):
            return self.inner(x)

    class Deaf(module.layers.Layer):
        def call(self, x, mode=None):
            return x + (1 if mode else 0)

    return Inner, Middle, Deaf


def test_arguments_of_calls_reach_the_layers_inside():
    x = np.zeros((2, 3), "float32")
    for module in (keras, reference):
        inner, middle, deaf = context_layers(module)
        outer = middle(middle(inner()))
        outer._register_call_context_args("mode")
        assert float(outer(x, mode=True)[0, 0]) == 1
        assert float(outer(x)[0, 0]) == 0
        assert float(inner()(x, mode=True)[0, 0]) == 1
        unheard = middle(deaf())
        unheard._register_call_context_args("mode")
        assert float(unheard(x, mode=True)[0, 0]) == 0
        model = module.Sequential([middle(inner())])
        model._register_call_context_args("mode")
        assert float(model(x, mode=True)[0, 0]) == 1
        with pytest.raises(RuntimeError, match="mode|after the layer has been called"):
            model._register_call_context_args("mode")


def test_metrics_keep_variables_in_lists(rng):
    class Means(keras.metrics.Metric):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.sums = []
            for index in range(2):
                self.sums.append(keras.Variable(0.0, name=f"sum_{index}"))

        def update_state(self, y_true, y_pred, sample_weight=None):
            for index, variable in enumerate(self.sums):
                variable.assign(variable + ops.sum(y_true) * (index + 1))

        def result(self):
            return self.sums[0] + self.sums[1]

    metric = Means()
    assert len(metric.variables) == 2
    x, y = rng.normal(size=(12, 3)).astype("float32"), np.ones((12, 1), "float32")
    model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[metric])
    history = model.fit(x, y, batch_size=4, epochs=2, verbose=0)
    assert history.history["means"] == [36.0, 36.0]
