"""Calls without side effects compute what the calls with state do."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, ops


def make_model():
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.Input((5,)),
            # A bias before a normalization has a gradient of rounding alone, which Adam scales up.
            layers.Dense(7, use_bias=False, kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.Dropout(0.4, seed=5),
            layers.Dense(3, activation="softmax"),
        ]
    )


def values_of(variables):
    return [v.numpy() for v in variables]


def check_same(here, there, rtol=0.0):
    assert len(here) == len(there)
    for a, b in zip(here, there, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=rtol)


def test_a_call_gives_what_the_state_would_be_and_leaves_it(device, rng):
    x = rng.standard_normal((6, 5)).astype("float32")
    with keras.device(device):
        stateful, model = make_model(), make_model()
        before = values_of(model.variables)
        outputs, after, losses = model.stateless_call(
            model.trainable_variables,
            model.non_trainable_variables,
            x,
            training=True,
            return_losses=True,
        )
        check_same(values_of(model.variables), before)
        expected = stateful(x, training=True)
        check_same([outputs], [expected])
        check_same(after, values_of(stateful.non_trainable_variables))
        check_same(losses, stateful.losses)
        # The state of the dropout is part of the result, so another call drops other elements.
        again = model.stateless_call(model.trainable_variables, after, x, training=True)[0]
        assert not np.array_equal(again.numpy(), outputs.numpy())


def train_with_state(model, optimizer, batches):
    losses = []
    for x, y in batches:
        with keras.GradientTape() as tape:
            predicted = model(x, training=True)
            loss = ops.mean(keras.losses.sparse_categorical_crossentropy(y, predicted))
            loss = loss + sum(model.losses)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        losses.append(float(loss))
    return losses


def train_without_state(model, optimizer, metric, batches):
    """Trains as Keras' guide for JAX does: the state goes in and comes out."""

    def loss_of(trainable, non_trainable, x, y):
        predicted, non_trainable, penalties = model.stateless_call(
            trainable, non_trainable, x, training=True, return_losses=True
        )
        loss = ops.mean(keras.losses.sparse_categorical_crossentropy(y, predicted))
        return loss + sum(penalties), (predicted, non_trainable)

    differentiate = keras.value_and_grad(loss_of, has_aux=True)

    @keras.jit
    def step(state, x, y):
        trainable, non_trainable, slots, counts = state
        (loss, (predicted, non_trainable)), grads = differentiate(trainable, non_trainable, x, y)
        trainable, slots = optimizer.stateless_apply(slots, grads, trainable)
        counts = metric.stateless_update_state(counts, y, predicted)
        return loss, (trainable, non_trainable, slots, counts)

    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        optimizer.variables,
        metric.variables,
    )
    state = tuple([ops.convert_to_tensor(v.numpy()) for v in group] for group in groups)
    losses = []
    for x, y in batches:
        loss, state = step(state, x, y)
        losses.append(float(loss))
    return losses, state


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda: keras.optimizers.Adam(0.01),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        lambda: keras.optimizers.RMSprop(keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)),
        lambda: keras.optimizers.AdamW(0.01, use_ema=True, gradient_accumulation_steps=2),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
    ],
    ids=["adam", "momentum", "schedule", "averages", "scaled"],
)
def test_a_loop_over_values_trains_as_one_with_state(make_optimizer, device, rng):
    batches = [
        (rng.standard_normal((8, 5)).astype("float32"), rng.integers(0, 3, 8)) for _ in range(5)
    ]
    with keras.device(device):
        stateful, model = make_model(), make_model()
        first, second = make_optimizer(), make_optimizer()
        first.build(stateful.trainable_variables)
        second.build(model.trainable_variables)
        metric = keras.metrics.SparseCategoricalAccuracy()
        before = values_of([*model.variables, *second.variables])
        if not hasattr(first, "inner_optimizer"):  # Here the tape would have to scale the loss.
            expected = train_with_state(stateful, first, batches)
        losses, state = train_without_state(model, second, metric, batches)
        check_same(values_of([*model.variables, *second.variables]), before)
        assert float(metric.result()) == 0.0 and int(state[3][1]) == 40
        if hasattr(first, "inner_optimizer"):
            return
    # Compiled and eager sums have different orders: a few units of float32 rounding over five
    # updates.
    check_same(losses, expected, rtol=1e-4)
    check_same(state[0], values_of(stateful.trainable_variables), rtol=1e-3)
    check_same(state[2], values_of(first.variables), rtol=1e-3)


def test_metrics_from_values(rng):
    metric = keras.metrics.MeanSquaredError()
    truth, guess = rng.standard_normal((2, 4, 3)).astype("float32")
    fresh = metric.stateless_reset_state()
    state = metric.stateless_update_state(fresh, truth, guess)
    assert float(metric.result()) == 0.0
    expected = np.mean((truth - guess) ** 2)
    # The result is one mean of 12 numbers.
    np.testing.assert_allclose(metric.stateless_result(state), expected, rtol=1e-6)
    metric.update_state(truth, guess)
    check_same(metric.stateless_reset_state(), fresh)
    check_same(values_of(metric.variables), state)


def test_compute_loss_from_values(rng):
    model = make_model()
    model.compile("sgd", "sparse_categorical_crossentropy")
    x, y = rng.standard_normal((4, 5)).astype("float32"), rng.integers(0, 3, 4)
    predicted = model(x)
    doubled = [v.numpy() * 2 for v in model.trainable_variables]
    arguments = (model.non_trainable_variables, model.metrics_variables, x, y, predicted)
    plain, _ = model.stateless_compute_loss(model.trainable_variables, *arguments)
    larger, (trained, _, _) = model.stateless_compute_loss(doubled, *arguments)
    check_same(trained, doubled)
    # Only the penalty on the weights differs: it grows with their square.
    penalty = model.losses[0]
    np.testing.assert_allclose(float(larger - plain), 3 * float(penalty), rtol=1e-4)


def test_state_trees():
    model = make_model()
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(np.ones((8, 5)), np.zeros(8, int), verbose=0)
    tree = model.get_state_tree("numpy_array")
    assert set(tree) == {
        "trainable_variables",
        "non_trainable_variables",
        "optimizer_variables",
        "metrics_variables",
    }
    kept = model.get_state_tree()
    model.fit(np.ones((8, 5)), np.zeros(8, int), verbose=0)
    other = model.get_state_tree("numpy_array")
    changed = keras.tree.map_structure(lambda a, b: not np.array_equal(a, b), tree, other)
    assert any(keras.tree.flatten(changed))
    model.set_state_tree(kept)
    again = model.get_state_tree("numpy_array")
    keras.tree.map_structure(np.testing.assert_array_equal, tree, again)
    with pytest.raises(ValueError, match="no variable in trainable_variables has the path 'a/b'"):
        model.set_state_tree({"trainable_variables": {"a": {"b": np.zeros(1)}}})
    with pytest.raises(ValueError, match="Received: 'weights'"):
        model.set_state_tree({"weights": {}})
    with pytest.raises(ValueError, match="value_format"):
        model.get_state_tree("torch")


def test_scopes_nest(device):
    with keras.device(device):
        a, b = keras.Variable(1.0), keras.Variable(2.0)
        with keras.StatelessScope([(a, 10.0)]) as outer:
            a.assign_add(1.0)
            with keras.StatelessScope([(b, 20.0)]) as inner:
                assert float(a + b) == 31.0
                b.assign(0.0)
                a.assign(5.0)
            assert float(a * b) == 22.0
        assert float(a.value) == 1.0 and float(b.value) == 2.0
    assert float(outer.get_current_value(a)) == 11.0 and outer.get_current_value(b) is None
    assert [float(inner.get_current_value(v)) for v in (a, b)] == [5.0, 0.0]


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda m: keras.layers.Dense(2).stateless_call([], [], [[1.0]]), "no variables yet"),
        (lambda m: m.stateless_call([], [], np.ones((1, 5))), "each of the 5 variables"),
        (lambda m: keras.optimizers.SGD().stateless_apply([], [], []), "no variables yet"),
        (lambda m: keras.metrics.Mean().stateless_result([1.0]), "each of the 2 variables"),
        (lambda m: keras.StatelessScope([(3, 4)]), "Received 3 of type int"),
        (lambda m: keras.StatelessScope([(m.weights[0], 4.0)]), "has shape (5, 7)"),
    ],
)
def test_errors(call, part):
    with pytest.raises(ValueError) as caught:
        call(make_model())
    assert part in str(caught.value)


def test_function(rng):
    a, b = keras.Input((3,), name="a"), keras.Input((3,), name="b")
    dense = layers.Dense(2)
    function = keras.Function({"a": a, "b": b}, [dense(a + b), a * b])
    x, y = rng.standard_normal((2, 4, 3)).astype("float32")
    first, second = function({"a": x, "b": y})
    np.testing.assert_array_equal(second.numpy(), x * y)
    np.testing.assert_array_equal(first.numpy(), dense(ops.add(x, y)).numpy())
    assert [t.shape for t in function({"a": a, "b": b})] == [(None, 2), (None, 3)]
    assert dense in function.operations
    with pytest.raises(ValueError, match="takes 2 inputs, received 1"):
        function([x])
    with pytest.raises(ValueError, match=r"shape \(None, 3\) for 'a', received \(4, 2\)"):
        function([x[:, :2], y])
    with pytest.raises(ValueError, match="disconnected"):
        keras.Function(a, a + b)


def test_operations_of_ones_own(tmp_path, rng):
    @keras.saving.register_keras_serializable("own")
    class Scale(keras.Operation):
        def __init__(self, factor, *, name=None):
            super().__init__(name=name)
            self.factor = factor

        def call(self, x):
            return x * self.factor

    x = rng.standard_normal((2, 3)).astype("float32")
    np.testing.assert_array_equal(Scale(2.0)(ops.convert_to_tensor(x)).numpy(), x * 2)
    inputs = keras.Input((3,))
    model = keras.Model(inputs, Scale(factor=3.0, name="by_three")(inputs))
    copy = keras.Model.from_config(model.get_config())
    for network in (model, copy, keras.models.clone_model(model)):
        np.testing.assert_array_equal(network.predict(x, verbose=0), x * np.float32(3))
    assert Scale(4.0, name="s").get_config() == {"name": "s", "factor": 4.0}
    with pytest.raises(NotImplementedError, match="does not implement `call`"):
        keras.Operation()(x)


def test_configurations_without_a_get_config():
    """A copy with default values instead of the given ones would be another layer."""

    class Linear(keras.Layer):
        def __init__(self, units=32, *, sizes=(1, 2), **kwargs):
            super().__init__(**kwargs)
            self.units, self.sizes = units, sizes

    class NoKeywords(keras.Layer):
        def __init__(self, units):
            super().__init__()
            self.units = units

    class Anything(keras.Layer):
        def __init__(self, *parts):
            super().__init__()

    copy = Linear.from_config(Linear(5, sizes=[3], name="l", dtype="float16").get_config())
    assert (copy.units, list(copy.sizes), copy.name) == (5, [3], "l")
    assert copy.compute_dtype == "float16"
    assert NoKeywords.from_config(NoKeywords(7).get_config()).units == 7
    with pytest.raises(NotImplementedError, match="units=.*no plain value.*get_config"):
        Linear(np.ones(2)).get_config()
    with pytest.raises(NotImplementedError, match="no names"):
        Anything(1, 2).get_config()
    Anything().get_config()


def test_compiled_functions_and_loops_in_scopes():
    v = keras.Variable(2.0)

    @keras.jit
    def times(x):
        return x * v

    @keras.jit
    def summed(given, xs):
        with keras.StatelessScope([(v, given)]):
            return ops.scan(lambda total, x: (total + x * v, None), 0.0, xs)[0]

    xs = ops.convert_to_tensor([1.0, 2.0, 3.0])
    assert float(times(3.0)) == 6.0
    with keras.StatelessScope([(v, 10.0)]):
        assert float(times(3.0)) == 30.0
        # This call infers shapes and assigns nothing.
        layers.BatchNormalization()(keras.Input((3,)))
    assert float(times(3.0)) == 6.0
    assert float(summed(10.0, xs)) == 60.0 and float(summed(1.0, xs)) == 6.0

    @keras.jit
    def assigned(xs):
        def step(total, x):
            v.assign_add(x)
            return total + v, None

        with keras.StatelessScope([(v, 1.0)]) as scope:
            total = ops.scan(step, 0.0, xs)[0]
        return total, scope.get_current_value(v)

    # Inside the loop the value is that of the scope: 2, 4 and 7 after its steps. The variable keeps
    # its own value.
    total, after = assigned(xs)
    assert (float(total), float(after)) == (2.0 + 4.0 + 7.0, 7.0)
    assert float(v.value) == 2.0


def test_functional_subclasses_without_a_get_config():
    class Net(keras.Model):
        def __init__(self, units=2, **kwargs):
            inputs = keras.Input((3,))
            super().__init__(inputs, layers.Dense(units)(inputs), **kwargs)

    model = Net(5, name="net")
    copy = Net.from_config(model.get_config())
    assert (copy.name, copy.output_shape) == ("net", (None, 5))


def test_scopes_collect_losses():
    class Penalized(keras.Layer):
        def call(self, x):
            self.add_loss([ops.sum(x), ops.mean(x)])
            return x

    layer = Penalized()
    for collects, expected in ((True, [6.0, 2.0]), (False, [])):
        with keras.StatelessScope(collect_losses=collects) as scope:
            layer(np.array([1.0, 2.0, 3.0], "float32"))
        assert [float(loss) for loss in scope.losses] == expected
        assert [float(loss) for loss in layer.losses] == [6.0, 2.0]
