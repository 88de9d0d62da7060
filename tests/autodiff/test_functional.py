"""grad, value_and_grad, custom_gradient, remat and clipping, at once and compiled."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops

RUNS = pytest.mark.parametrize("run", [lambda f: f, keras.jit], ids=["at_once", "jit"])


def tensor(values, dtype="float32"):
    return ops.convert_to_tensor(np.asarray(values, dtype))


@RUNS
def test_gradients_by_several_nested_arguments(run):
    def f(parameters, x, scale):
        return ops.sum((x @ parameters["w"] + parameters["b"]) ** 2) * scale

    rng = np.random.default_rng(1)
    w, b = rng.standard_normal((3, 2)), rng.standard_normal(2)
    x = rng.standard_normal((4, 3))
    parameters = {"w": tensor(w, "float64"), "b": tensor(b, "float64")}
    value, (by_parameters, by_x) = run(keras.value_and_grad(f, argnums=(0, 1)))(
        parameters, tensor(x, "float64"), 2.0
    )
    y = x @ w + b
    np.testing.assert_allclose(float(value), 2 * (y**2).sum(), rtol=1e-12)
    np.testing.assert_allclose(by_parameters["w"].numpy(), 4 * x.T @ y, rtol=1e-12)
    np.testing.assert_allclose(by_parameters["b"].numpy(), 4 * y.sum(0), rtol=1e-12)
    np.testing.assert_allclose(by_x.numpy(), 4 * y @ w.T, rtol=1e-12)


@RUNS
def test_auxiliary_results_and_unused_arguments(run):
    f = lambda x, unused: (ops.sum(x * x), {"twice": x * 2.0})  # noqa: E731
    x = tensor([1.0, 2.0])
    gradient, aux = run(keras.grad(f, has_aux=True))(x, tensor(1.0))
    assert gradient.numpy().tolist() == [2.0, 4.0]
    assert aux["twice"].numpy().tolist() == [2.0, 4.0]
    assert float(run(keras.grad(f, argnums=1, has_aux=True))(x, tensor(1.0))[0]) == 0.0


@RUNS
def test_higher_order(run):
    f = lambda x: ops.tanh(x) * x  # noqa: E731
    second = run(keras.grad(keras.grad(f)))
    x = 0.7
    t = np.tanh(x)
    wanted = 2 * (1 - t**2) - 2 * x * t * (1 - t**2)
    np.testing.assert_allclose(float(second(tensor(x, "float64"))), wanted, rtol=1e-12)


@RUNS
def test_a_global_use_of_the_same_tensor_counts_as_a_constant(run):
    x = tensor(3.0)
    assert float(run(keras.grad(lambda y: y * x))(x)) == 3.0


@RUNS
def test_variables_as_arguments(run):
    w = keras.Variable([1.0, 2.0])
    gradient = run(lambda: keras.grad(lambda v: ops.sum(v * v * 3.0))(w))()
    assert gradient.numpy().tolist() == [6.0, 12.0]


class TestErrors:
    def test_results_that_have_no_gradient(self):
        with pytest.raises(ValueError, match=r"shape \(2,\).*jacobian|jacobian.*shape \(2,\)"):
            keras.grad(lambda x: x)(tensor([1.0, 2.0]))
        with pytest.raises(TypeError, match="returns a tensor"):
            keras.grad(lambda x: 3.0)(tensor(1.0))
        with pytest.raises(ValueError, match="anything else"):
            keras.grad(lambda x: x, has_aux=True)(tensor(1.0))

    def test_arguments(self):
        with pytest.raises(TypeError, match="floating arguments only.*int32"):
            keras.grad(lambda x: ops.cast(x, "float32"))(tensor(1, "int32"))
        with pytest.raises(ValueError, match="argnums=1"):
            keras.grad(lambda x: x, argnums=1)(tensor(1.0))
        with pytest.raises(TypeError, match="of a function"):
            keras.grad(3.0)


@keras.custom_gradient
def half_slope(x, y):
    def gradient(*upstream):
        first, second = upstream
        return first * 0.5, second * x

    return (x * 1.0, x * y), gradient


@RUNS
def test_custom_gradient_of_several_outputs(run):
    def f(x, y):
        a, b = half_slope(x, y)
        return ops.sum(a * 2.0 + b * 10.0)

    by_x, by_y = run(keras.grad(f, argnums=(0, 1)))(tensor([1.0, 2.0]), tensor([3.0, 4.0]))
    assert by_x.numpy().tolist() == [1.0, 1.0]
    assert by_y.numpy().tolist() == [10.0, 20.0]


@RUNS
def test_custom_gradient_with_keyword_upstream_and_of_second_order(run):
    @keras.ops.custom_gradient
    def cube(x):
        def gradient(*args, upstream=None):
            if upstream is None:
                (upstream,) = args
            return upstream * x * x * 3.0

        return x * x * x, gradient

    assert float(run(keras.grad(cube))(tensor(2.0))) == 12.0
    assert float(run(keras.grad(keras.grad(cube)))(tensor(2.0))) == 12.0


def test_custom_gradient_errors():
    x = tensor(1.0)
    with pytest.raises(TypeError, match="outputs, gradient function"):
        keras.custom_gradient(lambda x: x)(x)
    short = keras.custom_gradient(lambda x, y: (x * y, lambda g: g))
    with pytest.raises(ValueError, match="1 gradients for 2 arguments"):
        keras.grad(short)(x, x)
    wrong = keras.custom_gradient(lambda x: (x * 1.0, lambda g: ops.stack([g, g])))
    with pytest.raises(ValueError, match=r"gave float32 \(2,\) for an input of float32 \(\)"):
        keras.grad(wrong)(x)
    with pytest.raises(ValueError, match=r"gave float32 \(2,\) for an input of float32 \(\)"):
        keras.jit(keras.grad(wrong))(x)


def block_model():
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(16, activation="tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5, seed=5),
            keras.layers.Dense(1),
        ]
    )


@RUNS
def test_remat_gives_what_the_function_gives(run):
    x = tensor(np.random.default_rng(0).standard_normal((8, 6)))
    results = []
    for wrap in (lambda f: f, keras.remat):
        model = block_model()
        call = wrap(lambda x, model=model: model(x, training=True))

        def step(x, model=model, call=call):
            with keras.GradientTape() as tape:
                loss = ops.mean(ops.square(call(x)))
            return loss, tape.gradient(loss, model.trainable_variables)

        compiled = run(step)
        for _ in range(2):  # the second call draws other numbers
            loss, gradients = compiled(x)
        state = [np.array(v) for v in model.non_trainable_variables]
        results.append((float(loss), [g.numpy() for g in gradients], state))
    (loss, gradients, state), (loss2, gradients2, state2) = results
    np.testing.assert_allclose(loss2, loss, rtol=1e-6)
    for a, b in zip(gradients, gradients2, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
    for a, b in zip(state, state2, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6)


def test_remat_of_second_order():
    f = keras.remat(lambda x: ops.tanh(x) * x)
    plain = keras.grad(keras.grad(lambda x: ops.tanh(x) * x))
    x = tensor(0.7, "float64")
    np.testing.assert_allclose(float(keras.grad(keras.grad(f))(x)), float(plain(x)), rtol=1e-12)


def test_remat_keeps_less_at_once(settled_memory):
    x = tensor(np.ones((64, 1024)))

    def kept(f):
        with keras.GradientTape() as tape:
            tape.watch(x)
            gc.collect()  # not in the middle
            before = _core.memory_stats(x.device)["allocated"]
            y = f(x)
            after = _core.memory_stats(x.device)["allocated"]
        assert tape.gradient(y, x) is not None
        return after - before

    def f(x):
        for _ in range(10):
            x = ops.tanh(ops.exp(x) * 0.1)
        return x

    assert kept(keras.remat(f)) <= 2 * x.nbytes
    assert kept(f) >= 10 * x.nbytes


def test_remat_keeps_less_in_a_program():
    def f(x):
        # The gradient reads each of them again.
        for _ in range(8):
            x = ops.tanh(ops.sigmoid(x @ x))
        return x

    def arena(block):
        graph_size = {}

        def loss(x):
            for _ in range(4):
                x = block(x)
            return ops.sum(x)

        from kerascnn.tracing import Trace

        with Trace("cpu") as trace:
            x = trace.graph.input("x", [128, 128], "float32")
            gradient = keras.grad(loss)(x)
        program = _core.Program.compile(trace.graph, [gradient], "cpu")
        graph_size.update(program.stats())
        return graph_size["arena_bytes"]

    assert arena(keras.remat(f)) < 0.6 * arena(f)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "activations"},
        {"mode": "larger_than", "output_size_threshold": 100},
        {"mode": "list_of_layers", "layer_names": ["first"]},
        {"mode": None},
    ],
    ids=lambda options: str(options.get("mode", "full")),
)
@RUNS
def test_layers_of_a_scope_train_alike(options, run):
    x = tensor(np.random.default_rng(0).standard_normal((8, 6)))

    def build():
        keras.utils.set_random_seed(3)
        return keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(16, activation="gelu", name="first"),
                keras.layers.Dropout(0.5, seed=5),
                keras.layers.Dense(1),
            ]
        )

    plain = build()
    with keras.RematScope(**options):
        scoped = build()
    found = []
    for model in (plain, scoped):

        def step(x, model=model):
            with keras.GradientTape() as tape:
                loss = ops.sum(model(x, training=True))
            return tape.gradient(loss, model.trainable_variables)

        found.append([g.numpy() for g in run(step)(x)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


def test_remat_in_fit():
    x = np.random.default_rng(0).standard_normal((64, 6)).astype("float32")
    losses = []
    for scope in (keras.RematScope(mode=None), keras.RematScope()):
        with scope:
            model = block_model()
        model.compile(keras.optimizers.SGD(0.1), "mse")
        history = model.fit(x, x[:, :1], batch_size=16, epochs=2, shuffle=False, verbose=0)
        losses.append(history.history["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def test_a_scope_of_an_unknown_mode():
    with pytest.raises(ValueError, match="'larger_than'.*Received: mode='half'"):
        keras.RematScope(mode="half")


def test_remat_refuses_a_variable_that_was_assigned_to():
    w = keras.Variable(2.0, name="w")
    f = keras.remat(lambda x: x * w * w)
    x = tensor(1.0)
    with keras.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
        w.assign(3.0)
    with pytest.raises(ValueError, match="'w' was assigned to after a block of `remat`"):
        tape.gradient(y, x)


def test_clipping():
    rng = np.random.default_rng(4)
    parts = [rng.standard_normal((3, 4)).astype("float32"), None, rng.standard_normal(5)]
    norm = np.sqrt(sum((p.astype("float64") ** 2).sum() for p in parts if p is not None))
    clipped, length = keras.clip_by_global_norm(parts, 0.5)
    np.testing.assert_allclose(float(length), norm, rtol=1e-6)
    np.testing.assert_allclose(float(keras.global_norm(clipped)), 0.5, rtol=1e-6)
    assert clipped[1] is None
    same, _ = keras.clip_by_global_norm(parts, 100.0)
    np.testing.assert_allclose(same[0].numpy(), parts[0], rtol=1e-6)
    np.testing.assert_allclose(
        keras.clip_by_norm(parts[0], 0.5).numpy(),
        parts[0] * 0.5 / np.linalg.norm(parts[0]),
        rtol=1e-5,
    )
    assert keras.clip_by_value(tensor([-3.0, 0.5, 2.0]), -1.0, 1.0).numpy().tolist() == [
        -1.0,
        0.5,
        1.0,
    ]
    with pytest.raises(ValueError, match="no tensor"):
        keras.global_norm([None])


@pytest.mark.parametrize("compiled", [False, True])
def test_jvp_against_differences(device, compiled, rng):
    x, t = rng.standard_normal((2, 3, 4))
    matrix = rng.standard_normal((4, 2))

    def function(arguments, scale):
        (x,) = arguments
        return {"y": ops.tanh(x @ matrix) * scale, "z": ops.sum(x * x)}, "aux"

    def take(x, t, scale):
        return ops.jvp(function, ([x], scale), ([t], 0.5 * scale), has_aux=True)[:2]

    with keras.device(device):
        value, along = (keras.jit(take) if compiled else take)(
            *map(ops.convert_to_tensor, (x, t, 1.5))
        )
    step = 1e-6

    def at(h):
        moved, scale = x + h * t, 1.5 + h * 0.75
        return {"y": np.tanh(moved @ matrix) * scale, "z": np.sum(moved**2)}

    for name in ("y", "z"):
        slope = (at(step)[name] - at(-step)[name]) / (2 * step)
        # Finite differences lose half of float64's digits.
        np.testing.assert_allclose(value[name].numpy(), at(0)[name], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(along[name].numpy(), slope, rtol=1e-7, atol=1e-7)


def test_jvp_says_what_is_wrong():
    with pytest.raises(TypeError, match="`tangents` must be a tuple or a list"):
        ops.jvp(ops.sin, (1.0,), 1.0)
    with pytest.raises(TypeError, match="floating"):
        ops.jvp(ops.abs, (ops.convert_to_tensor(1),), (1,))
