"""Whole steps run with regions of all kinds, here on a CPU with the limits of a GPU."""

from __future__ import annotations

import re

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops

from .helpers import Tracer, tensor, variable

pytestmark = pytest.mark.usefixtures("on_cpu")


def residual_net():
    """Builds convolutions, batch normalization, activations and an addition in mixed precision."""
    keras.utils.set_random_seed(7)
    policy = keras.DTypePolicy("mixed_bfloat16")
    inputs = keras.Input((6, 7, 3))
    options = {"padding": "same", "use_bias": False, "dtype": policy}
    x = first = keras.layers.Conv2D(5, 3, **options)(inputs)
    x = keras.layers.BatchNormalization(dtype=policy)(x)
    x = keras.layers.ReLU(dtype=policy)(x)
    x = keras.layers.Conv2D(5, 3, **options)(x)
    x = keras.layers.BatchNormalization(dtype=policy)(x)
    x = keras.layers.Add(dtype=policy)([x, first])
    x = keras.layers.ReLU(dtype=policy)(x)
    x = keras.layers.GlobalAveragePooling2D(dtype=policy)(x)
    model = keras.Model(inputs, keras.layers.Dense(4, activation="softmax", dtype="float32")(x))
    model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy")
    return model


def trained(model, rng_seed=3):
    rng = np.random.default_rng(rng_seed)
    x = rng.normal(size=(24, 6, 7, 3)).astype("float32")
    y = rng.integers(0, 4, 24)
    history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    texts = [step.program.to_string() for step in model._programs.values()]
    return history.history["loss"], model.get_weights(), "\n".join(texts)


def test_batch_normalization_in_mixed_precision_stores_no_wide_images(monkeypatch):
    losses, weights, text = trained(residual_net())
    monkeypatch.setenv("KERASCNN_CPU_REGIONS", "1")
    with_regions = trained(residual_net())
    # Values of the size of the activations have 16 bits wherever they lie in memory.
    assert not re.search(r"float32 \(8, 6, 7, 5\)", text + with_regions[2])
    # By default kernels of normalization round by themselves.
    assert "kerascnn batch_norm" in text and "kerascnn batch_norm" not in with_regions[2]
    assert "column_moments" in with_regions[2]
    # Statistics and sums are float32 in both. Sums in another order may round an activation to the
    # neighbour of its 8 bits. Each weight has moved by six steps of 0.05 times its gradient.
    np.testing.assert_allclose(with_regions[0], losses, rtol=2.0**-7)
    for own, plain in zip(with_regions[1], weights, strict=True):
        np.testing.assert_allclose(own, plain, atol=2.0**-7 * max(1.0, np.abs(plain).max()))


def test_float32_losses_agree_to_the_order_of_additions(regions, monkeypatch):

    def losses():
        keras.utils.set_random_seed(5)
        model = keras.Sequential(
            [
                keras.Input((9, 5)),
                keras.layers.Dense(6),
                keras.layers.BatchNormalization(),
                keras.layers.LayerNormalization(),
                keras.layers.Activation("gelu"),
                keras.layers.Dense(3),
            ]
        )
        model.compile("adam", "mse")
        rng = np.random.default_rng(2)
        x, y = rng.normal(size=(40, 9, 5)), rng.normal(size=(40, 9, 3))
        history = model.fit(x, y, batch_size=10, epochs=3, shuffle=False, verbose=0)
        return history.history["loss"]

    own = losses()
    monkeypatch.delenv("KERASCNN_CPU_REGIONS")
    # There are 12 steps, each with sums of at most 90 numbers, so some hundred roundings of 2^-24.
    np.testing.assert_allclose(own, losses(), rtol=1e-4)


def test_layer_normalization_is_one_region_of_rows(regions):
    layer = keras.layers.LayerNormalization()
    model = keras.Sequential([keras.Input((7, 12)), layer])
    x = np.random.default_rng(1).normal(size=(5, 7, 12)).astype("float32")
    y = model.predict(x, verbose=0)
    (step,) = model._programs.values()
    lines = [line for line in step.program.to_string().splitlines() if "(5, 7, 12)" in line]
    assert len([line for line in lines if "reduce_mean" in line]) == 1
    variance = x.var(axis=-1, keepdims=True)
    wanted = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(variance + layer.epsilon)
    np.testing.assert_allclose(y, wanted, atol=1e-5)


@pytest.mark.parametrize("chosen, columns", [(None, 24), (None, 15), ("0", 24)])
def test_rows_are_what_a_cpu_forms_by_itself(chosen, columns, monkeypatch):
    """Short rows, sums over columns, and what is left by itself keep kernels of their own."""
    if chosen is None:
        monkeypatch.delenv("KERASCNN_CPU_REGIONS", raising=False)
    else:
        monkeypatch.setenv("KERASCNN_CPU_REGIONS", chosen)
    t = Tracer()
    x, w = t.input([1200, columns]), t.input([columns, columns], name="w")
    rows = t.tanh(x)
    rows = t.multiply(rows, t.reduce_sum(t.square(rows), axes=[1], keepdims=True))
    product = t.matmul2(t.sin(t.matmul2(x, w)), w)
    outputs = [rows, product, t.reduce_sum(product, axes=[0], keepdims=False)]
    program = t.compile(*outputs)
    names = sorted(line.split(":")[0] for line in program.to_string().splitlines())
    alone = ["matmul", "matmul", "reduce_sum", "sin"]
    if chosen is None and columns >= 16:
        assert names == [*alone, "tanh+square+reduce_sum+multiply"]
    else:
        assert names.count("reduce_sum") == 2
    rng = np.random.default_rng(6)
    data = [tensor(rng.normal(size=s), "float32") for s in ((1200, columns), (columns, columns))]
    plain = t.compile(*outputs, optimize=False)
    for each in (program, plain):
        each.run(data)
    for own, wanted in zip(program.outputs(), plain.outputs(), strict=True):
        np.testing.assert_array_equal(own.numpy(), wanted.numpy())


# Short rows, of one vector, of no whole number of them, and such that a region goes through in
# pieces.
@pytest.mark.parametrize("columns", [9, 16, 37, 3000, 9001])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("kind", ["map", "rows"])
def test_numbers_of_rows_have_the_bits_of_ops_one_by_one(kind, dtype, columns, rng, monkeypatch):
    """They come from memory in a map, and from a sum in a region of rows, as any operand."""
    if kind == "rows":
        monkeypatch.setenv("KERASCNN_CPU_REGIONS", "1")  # takes rows of any length
    rows = 4097 // columns + 4
    t = Tracer()
    fed = "float64" if dtype == "float64" else "float32"
    x, given = t.input([rows, columns], fed), t.input([rows, 1], fed, name="given")
    x, given = t.cast(x, dtype=dtype), t.cast(given, dtype=dtype)
    # Sums are taken in float64, where pieces of a row make a difference.
    reduce = t.reduce_max if dtype == "float64" else t.reduce_mean
    numbers = reduce(x, axes=[1], keepdims=True) if kind == "rows" else given
    wide = t.broadcast_to(numbers, shape=[rows, columns])
    y = t.subtract(t.add(t.multiply(x, wide), wide), t.divide(wide, x))
    y = t.maximum(t.divide(t.subtract(wide, y), wide), t.multiply(wide, wide))
    z = t.add(wide, t.exp(t.minimum(y, wide)))
    results = []
    arrays = [rng.standard_normal((rows, columns)), rng.standard_normal((rows, 1))]
    arrays[0][1, 7], arrays[0][2, 3], arrays[1][0, 0] = np.nan, np.inf, -np.inf
    for optimize in (True, False):
        program = t.compile(z, y, optimize=optimize)
        program.run([tensor(array, fed) for array in arrays])
        results.append([output.numpy().astype("float64") for output in program.outputs()])
    assert np.isnan(results[0][0]).any() and np.isfinite(results[0][0]).any()
    for own, wanted in zip(*results, strict=True):
        np.testing.assert_array_equal(own, wanted)


def test_layer_normalization_in_mixed_precision_stores_nothing_wide(regions):
    policy = keras.DTypePolicy("mixed_bfloat16")
    inputs = keras.Input((7, 16))
    x = keras.layers.Dense(24, dtype=policy)(inputs)
    x = keras.layers.LayerNormalization(dtype=policy)(x)
    x = keras.layers.Dense(24, activation="gelu", dtype=policy)(x)
    x = keras.layers.LayerNormalization(dtype=policy)(x)
    model = keras.Model(inputs, keras.layers.Dense(3, dtype=policy)(x))
    model.compile("adam", "mse")
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(16, 7, 16)), rng.normal(size=(16, 7, 3))
    model.fit(x, y, batch_size=8, verbose=0)
    (step,) = model._programs.values()
    assert not re.search(r"float32 \((8, 7|56), 24\)", step.program.to_string())


def test_what_is_left_by_itself_becomes_a_region_too(regions):
    """Traces an element op and a sum over columns between two products."""
    t = Tracer()
    x, w = t.input([8, 6]), t.input([6, 6], name="w")
    y = t.sin(t.matmul2(x, w))
    z = t.matmul2(y, w)
    program = t.compile(t.matmul2(z, w), t.reduce_sum(z, axes=[0], keepdims=False))
    assert sorted(call["op"] for call in program.describe()) == [*["matmul"] * 3, *["region"] * 2]
    plain = t.compile(t.matmul2(z, w), t.reduce_sum(z, axes=[0], keepdims=False), optimize=False)
    rng = np.random.default_rng(6)
    data = [tensor(rng.normal(size=s), "float32") for s in ((8, 6), (6, 6))]
    for each in (program, plain):
        each.run(data)
    for own, wanted in zip(program.outputs(), plain.outputs(), strict=True):
        np.testing.assert_array_equal(own.numpy(), wanted.numpy())


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float32"])
def test_what_is_stored_as_it_came_is_read_before_another_output_has_its_memory(dtype, rng):
    """The distance may have z's memory, and comes first."""

    def distance_and_numbers(x, y):
        z = ops.take(x, np.arange(x.shape[0]), axis=0)  # a value with a buffer of its own
        return ops.abs(z - y), ops.cast(z, dtype)

    x, y = (rng.integers(0, 50, (37, 11)).astype("float32") for _ in range(2))
    distance, numbers = keras.jit(distance_and_numbers)(x, y)
    np.testing.assert_array_equal(distance, abs(x - y))
    np.testing.assert_array_equal(numbers, x)


def test_small_regions_of_a_large_program_are_generated(regions, monkeypatch):
    def attributes():
        t = Tracer()
        x, v = t.input([8, 6]), t.input([6], name="v")
        small = t.exp(t.multiply(v, v))
        program = t.compile(t.tanh(t.multiply(x, small)), small)
        return [call["attributes"] for call in program.describe()]

    assert [each["generated"] for each in attributes()] == [True, True]
    monkeypatch.delenv("KERASCNN_CPU_REGIONS")
    assert [each["generated"] for each in attributes()] == [False, False]


def body_step(rng, c, x, w):
    """Traces a step of a loop with reductions of both kinds, drawn at random."""
    for choice in rng.integers(0, 6, 8):
        if choice == 0:
            c = ops.tanh(ops.add(ops.matmul(c, w), x))
        elif choice == 1:
            c = ops.subtract(c, ops.mean(c, axis=-1, keepdims=True))
        elif choice == 2:
            c = ops.multiply(c, ops.rsqrt(ops.add(ops.mean(ops.square(c), axis=0), 1.0)))
        elif choice == 3:
            c = ops.cast(ops.sin(ops.cast(c, "bfloat16")), "float32")
        elif choice == 4:
            e = ops.exp(ops.subtract(c, ops.max(c, axis=-1, keepdims=True)))
            c = ops.divide(e, ops.sum(e, axis=-1, keepdims=True))
        else:
            c = ops.where(c > x, c, ops.sum(c, axis=0))
    return c, (ops.sum(c, axis=0), c)


@pytest.mark.parametrize("seed", range(6))
def test_bodies_of_loops_have_regions_too(seed, regions, monkeypatch):
    data = np.random.default_rng(seed)
    c, xs = data.normal(size=(4, 5)), data.normal(size=(3, 4, 5))
    w = data.normal(size=(5, 5)) / 3
    c, xs, w = (ops.convert_to_tensor(v.astype("float32")) for v in (c, xs, w))

    def run():
        def step(carry, x):
            return body_step(np.random.default_rng(seed), carry, x, w)

        function = keras.jit(lambda c, xs: ops.scan(step, c, xs))
        last, (sums, carries) = function(c, xs)
        return [np.asarray(v) for v in (last, sums, carries)]

    own = run()
    monkeypatch.delenv("KERASCNN_CPU_REGIONS")
    for received, wanted in zip(own, run(), strict=True):
        np.testing.assert_array_equal(received, wanted)


@pytest.mark.parametrize("seed", range(8))
def test_variables_written_in_place_keep_their_bits(seed, regions):
    """Some nodes read an old value beside its update, in groups that could overwrite it."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(6, 4))
    choices = rng.integers(0, 5, 14)

    def run(optimize):
        t = Tracer()
        kept = [variable(f"v{i}", first + i) for i in range(3)]
        x = t.input([6, 4])
        values = [x, *(t.graph.read(v) for v in kept)]
        for i, choice in enumerate(choices):
            a, b = values[-1], values[-1 - i % len(values)]
            if choice == 0:
                values.append(t.add(t.tanh(a), b))
            elif choice == 1:
                values.append(t.subtract(a, t.reduce_mean(b, axes=[1], keepdims=True)))
            elif choice == 2:
                values.append(t.subtract(a, t.tanh(t.reduce_sum(b, axes=[0], keepdims=False))))
            elif choice == 3:
                t.graph.assign(kept[i % 3], t.tanh(t.multiply(a, b)))
                values.append(t.graph.read(kept[(i + 1) % 3]))
            else:
                t.graph.assign(kept[i % 3], values[1 + (i + 1) % 3])
                values.append(t.multiply(a, a))
        results = t.run(
            [t.tanh(values[-1]), values[-2]], [first.astype("float32")], optimize=optimize, steps=3
        )
        return results + [v.value.numpy().copy() for v in kept]

    own = run(optimize=True)
    for received, wanted in zip(own, run(optimize=False), strict=True):
        np.testing.assert_array_equal(received, wanted)


def test_dropout_joins_what_is_around_it(regions, monkeypatch):
    """No mask is stored: the gradient drops the same elements by drawing the numbers again."""

    def run():
        t = Tracer()
        random = _core.Variable("state", tensor([5, 11], "int64"))
        state = t.graph.read(random)
        x, g = t.input([6, 10]), t.input([6, 10], name="g")
        y = t.dropout(t.sin(x), state, rate=0.4, stream=2)
        gx = t.multiply(t.dropout(g, state, rate=0.4, stream=2), t.cos(x))
        t.graph.assign(random, t.random_advance(state, amount=1))
        program = t.compile(t.tanh(y), gx)
        data = np.random.default_rng(8)
        program.run([tensor(data.normal(size=(6, 10)), "float32") for _ in range(2)], 3)
        ops = sorted(call["op"] for call in program.describe())
        return ops, [np.array(each.numpy()) for each in program.outputs()]

    own, values = run()
    assert own == ["random_advance", "region"]
    assert np.array_equal(values[0] == 0, values[1] == 0)
    assert 0 < np.count_nonzero(values[0]) < values[0].size
    monkeypatch.delenv("KERASCNN_CPU_REGIONS")
    plain, expected = run()
    assert plain.count("dropout") == 2
    for received, wanted in zip(values, expected, strict=True):
        np.testing.assert_array_equal(received, wanted)


def trained_program(model, shape, targets):
    rng = np.random.default_rng(8)
    model.compile("sgd", "mse")
    x, y = rng.normal(size=(8, *shape)), rng.normal(size=(8, *targets))
    model.fit(x, y, batch_size=8, verbose=0)
    (step,) = model._programs.values()
    return step.program


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_group_normalization_reads_its_input_as_rarely_as_it_can(regions, dtype):
    """Moments and a map forward; sums and a map backward, in which the activation is too."""
    policy = keras.DTypePolicy(dtype)
    inputs = keras.Input((24, 20, 3))
    x = keras.layers.Conv2D(16, 1, use_bias=False, dtype=policy)(inputs)
    x = keras.layers.GroupNormalization(4, dtype=policy)(x)
    x = keras.layers.ReLU(dtype=policy)(x)
    model = keras.Model(inputs, keras.layers.Conv2D(4, 1, dtype=policy)(x))
    program = trained_program(model, (24, 20, 3), (24, 20, 4))
    own = [call for call in program.describe() if call["attributes"].get("domain") is not None]
    kinds = [
        call["attributes"]["kind"]
        for call in own
        if list(call["attributes"]["domain"]) == [8, 24, 20, 16]
    ]
    assert sorted(kinds) == ["columns", "columns", "map", "map"]
    # The kernel that computes what belongs to groups also divides by the numbers of elements.
    assert [8, 1, 1, 16] not in [list(call["attributes"]["domain"]) for call in own]
    others = [call for call in program.describe() if "reduce" in call["kernel"].split(" ")]
    assert not any(np.prod(spec[1]) == 8 * 24 * 20 * 16 for c in others for spec in c["inputs"])
    if dtype == "mixed_bfloat16":
        assert not re.search(r"float32 \(8, 24, 20, 16\)", program.to_string())


def test_squeeze_and_excitation_takes_its_sums_where_images_are_computed(regions):
    inputs = keras.Input((24, 20, 16))
    x = keras.layers.BatchNormalization()(inputs)
    x = keras.layers.Activation("silu")(x)
    squeezed = keras.layers.GlobalAveragePooling2D(keepdims=True)(x)
    scale = keras.layers.Conv2D(16, 1, activation="sigmoid")(squeezed)
    x = keras.layers.Multiply()([x, scale])
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling2D()(x))
    program = trained_program(model, (24, 20, 16), (16,))
    text = program.to_string()
    assert re.search(r"silu\+reduce_mean .*region", text)
    assert re.search(r"multiply\+reduce_mean .*region", text)
    assert "kerascnn reduce ->" not in text


def test_sums_of_the_results_of_one_node_are_one_kernel(regions, rng):
    """Both wait for the same, as the gradients of an attention's biases do; others stay apart."""
    t = Tracer()
    real, imaginary, other = t.input([40, 24]), t.input([40, 24]), t.input([40, 24])
    results = t.graph.apply("fft", [real, imaginary], {"inverse": False, "scale": 1.0})
    columns = {"axes": [0], "keepdims": False}
    sums = [t.graph.apply("reduce_sum", [x], columns)[0] for x in (results[0], other)]
    shaped = t.graph.apply("reshape", [results[1]], {"shape": [8, 5, 24]})
    flat = t.graph.apply("reshape", shaped, {"shape": [40, 24]})
    sums += t.graph.apply("reduce_mean", flat, columns)
    program = t.compile(*sums)
    arrays = [rng.standard_normal((40, 24)).astype("float32") for _ in range(3)]
    program.run([tensor(a, "float32") for a in arrays])
    received = [y.numpy() for y in program.outputs()]
    wanted = np.fft.fft(arrays[0].astype("float64") + 1j * arrays[1])
    values = [wanted.real, arrays[2].astype("float64"), wanted.imag / 40]
    for own, each in zip(received, values, strict=True):
        # Sums of 40 numbers of a magnitude of up to 7 * 4, each rounded to 2^-24 of it some times.
        np.testing.assert_allclose(own, each.sum(0), atol=40 * 28 * 8 * 2.0**-24)
    labels = sorted(call["label"] for call in program.describe())
    assert labels == ["fft", "reduce_sum", "reduce_sum+reduce_mean"]


@pytest.mark.parametrize("is_read_later", [True, False])
def test_a_sum_alone_joins_later_ones_where_its_operand_stays(regions, rng, is_read_later):
    """As of a residual block's gradient, which is there until the block's first layer is done."""
    t = Tracer()
    g, x, kernel = t.input([40, 24]), t.input([40, 24]), t.input([24, 24])
    columns = {"axes": [0], "keepdims": False}
    bias = t.graph.apply("reduce_sum", [g], columns)[0]
    inner = t.matmul(g, kernel, transpose_a=False, transpose_b=False)
    scale = t.graph.apply("reduce_sum", [t.multiply(inner, x)], columns)[0]
    result = t.add(inner, g) if is_read_later else t.exp(inner)
    program = t.compile(bias, scale, t.matmul(result, kernel, transpose_a=False, transpose_b=False))
    arrays = [rng.integers(-3, 4, s).astype("float32") for s in ((40, 24), (40, 24), (24, 24))]
    program.run([tensor(a, "float32") for a in arrays])
    received = [y.numpy() for y in program.outputs()]
    np.testing.assert_array_equal(received[0], arrays[0].sum(0))
    np.testing.assert_array_equal(received[1], (arrays[0] @ arrays[2] * arrays[1]).sum(0))
    labels = [call["label"] for call in program.describe() if "reduce" in call["label"]]
    # The addition may be a part of the region.
    assert sum(label.count("reduce_sum") for label in labels) == 2
    assert len(labels) == (1 if is_read_later else 2)


def test_losses_with_sums_of_parts_agree_to_the_order_of_additions(regions, monkeypatch):
    """Each way to sum over some axes in the middle, in one net."""

    def losses():
        keras.utils.set_random_seed(6)
        inputs = keras.Input((24, 20, 16))
        x = keras.layers.Conv2D(16, 1)(inputs)
        for layer in (
            keras.layers.GroupNormalization(4),
            keras.layers.GroupNormalization(1, scale=False),
            keras.layers.GroupNormalization(-1, center=False),
            keras.layers.LayerNormalization(axis=1),
            keras.layers.UnitNormalization(axis=2),
            keras.layers.BatchNormalization(),
        ):
            x = keras.layers.Activation("silu")(layer(x))
        scale = keras.layers.GlobalAveragePooling2D(keepdims=True)(x)
        x = keras.layers.Multiply()([x, keras.layers.Dense(16, activation="sigmoid")(scale)])
        rows = keras.layers.Lambda(lambda x: ops.mean(x, 1))(x)
        both = [keras.layers.GlobalAveragePooling2D()(x), keras.layers.Flatten()(rows)]
        model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Concatenate()(both)))
        model.compile(keras.optimizers.SGD(0.05), "mse")
        rng = np.random.default_rng(2)
        x, y = rng.normal(size=(20, 24, 20, 16)), rng.normal(size=(20, 3))
        history = model.fit(x, y, batch_size=10, epochs=3, shuffle=False, verbose=0)
        return history.history["loss"]

    own = losses()
    monkeypatch.delenv("KERASCNN_CPU_REGIONS")
    # There are 6 steps of some dozen sums each, whose roundings of 2^-24 are at most some thousand.
    np.testing.assert_allclose(own, losses(), rtol=1e-4)
