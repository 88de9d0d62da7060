"""Ops of one's own: at once, under tapes, in fit, in saved models, and their errors."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops

SOFTSIGN = {
    "forward": "x / (1 + fabs(x))",
    "gradient": "dy / ((1 + fabs(x)) * (1 + fabs(x)))",
}


def softsign_in_numpy(x):
    return x / (1 + np.abs(x))


@pytest.fixture(scope="module")
def softsign():
    return ops.custom_op("softsign_of_tests", **SOFTSIGN)


def row_sums(name="row_sums", body="y[row] = sum;", threads=64, **options):
    """Sums along the last axis of a matrix, by a kernel; NumPy on a CPU."""
    source = f"""
        __global__ void row_sums(const x_t* x, y_t* y, int64_t rows, int64_t columns) {{
          const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
          if (row >= rows) return;
          real sum = 0;
          for (int64_t i = 0; i < columns; ++i) sum += real(x[row * columns + i]);
          {body}
        }}
    """
    kernel = ops.KernelSource(source, sizes=lambda x: x, elements=lambda x: x[0], threads=threads)
    settings = {"cpu": lambda x: x.sum(axis=1), "output_shape": lambda x: x[:1], **options}
    return ops.custom_op(name, kernel, **settings)


class TestCalls:
    def test_what_may_be_passed(self, softsign, device):
        with keras.device(device):
            wanted = softsign_in_numpy(np.array([-2.0, 0.5], "float32"))
            for x in (
                [-2.0, 0.5],
                np.array([-2.0, 0.5], "float32"),
                ops.convert_to_tensor([-2.0, 0.5]),
                keras.Variable([-2.0, 0.5]),
            ):
                y = softsign(x)
                assert y.device == device
                np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-6)

    def test_integers_become_floats_and_numbers_broadcast(self, device):
        scaled = ops.custom_op("scaled", "x * by", inputs=("x", "by"))
        with keras.device(device):
            y = scaled(np.array([[1, 2], [3, 4]], "int32"), 0.5)
            assert y.dtype == "float32"
            assert y.numpy().tolist() == [[0.5, 1.0], [1.5, 2.0]]
            column = scaled(np.ones((3, 1), "float32"), np.arange(4, dtype="float32"))
            assert column.shape == (3, 4)

    def test_integers_where_the_op_takes_them(self, device):
        twice = ops.custom_op("twice", "2 * x", dtypes=("int32", "float32"))
        with keras.device(device):
            assert twice(np.array([3], "int32")).dtype == "int32"

    def test_statements_and_comments(self, device):
        smooth = ops.custom_op(
            "smooth_step",
            """
            // 3 of 4 comments are ignored
            real t = min(max(x, 0), 1);  /* 1e3 */
            return t * t * (3 - 2 * t);
            """,
        )
        x = np.linspace(-1, 2, 301)
        t = np.clip(x, 0, 1)
        with keras.device(device):
            y = smooth(ops.convert_to_tensor(x, "float64"))
        np.testing.assert_allclose(y.numpy(), t * t * (3 - 2 * t), atol=1e-15)

    def test_numbers_have_the_elements_type(self, device):
        """1 / 2 is a half, and nothing is computed in double for float32."""
        half = ops.custom_op("half_of", "1 / 2 * x + 0x10 * 0 + 1e-3")
        with keras.device(device):
            assert half([4.0]).numpy()[0] == np.float32(2) + np.float32(1e-3)

    def test_unaligned_memory(self, softsign, device, rng):
        x = rng.standard_normal(1027).astype("float32")
        with keras.device(device):
            y = softsign(ops.convert_to_tensor(x)[3:])
        np.testing.assert_allclose(y.numpy(), softsign_in_numpy(x[3:]), rtol=1e-6)

    def test_nan_and_infinity(self, device):
        positive = ops.custom_op("positive_part", "x > 0 ? x : 0 * x")
        with keras.device(device):
            y = positive([np.nan, np.inf, 2.0]).numpy()
        assert np.isnan(y[0])
        assert y[1:].tolist() == [np.inf, 2.0]

    def test_dtypes_by_input(self, device):
        picked = ops.custom_op(
            "picked",
            ops.KernelSource(
                """__global__ void pick(const x_t* x, const at_t* at, y_t* y, int n, int columns) {
                  const int row = blockIdx.x * blockDim.x + threadIdx.x;
                  if (row < n) y[row] = x[row * columns + at[row]];
                }""",
                sizes=lambda x, at: x,
                elements=lambda x, at: x[0],
            ),
            cpu=lambda x, at: np.take_along_axis(x, at[:, None], 1)[:, 0],
            gradient=lambda x, at, y, dy: ops.expand_dims(dy, 1) * ops.one_hot(at, x.shape[1]),
            inputs=("x", "at"),
            dtypes={"at": ("int32", "int64")},
            output_shape=lambda x, at: at,
        )
        x, at = np.arange(12.0, dtype="float32").reshape(4, 3), np.array([0, 2, 1, 0], "int32")
        with keras.device(device):
            assert picked(x, at).numpy().tolist() == [0.0, 5.0, 7.0, 9.0]
            assert picked(x, at.astype("int64")).numpy().tolist() == [0.0, 5.0, 7.0, 9.0]
            slope = keras.grad(lambda x: ops.sum(picked(x, at)))(ops.convert_to_tensor(x))
            np.testing.assert_array_equal(slope.numpy(), np.eye(3)[at])
            with pytest.raises(TypeError, match="custom_op picked: input at must be one of int32"):
                picked(x, at.astype("float32"))

    def test_an_output_of_another_dtype(self, device):
        signs = ops.custom_op(
            "signs",
            ops.KernelSource(
                "__global__ void signs(const x_t* x, y_t* y, int64_t n) {\n"
                "  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;\n"
                "  if (i < n) y[i] = real(x[i]) < 0;\n}"
            ),
            cpu=lambda x: x < 0,
            output_dtype="bool",
        )
        with keras.device(device):
            y = signs([-1.0, 2.0, -3.0])
            assert y.dtype == "bool"
            assert y.numpy().tolist() == [True, False, True]

    @pytest.mark.parametrize("rows", [1, 63, 64, 65, 4097])
    def test_geometry_is_right_for_every_size(self, rows, device, rng):
        x = rng.standard_normal((rows, 3))
        with keras.device(device):
            y = row_sums()(ops.convert_to_tensor(x, "float64"))
        np.testing.assert_allclose(y.numpy(), x.sum(axis=1), rtol=1e-13)

    def test_grid_of_several_axes_and_shared_memory(self, device, rng):
        transposed = ops.custom_op(
            "transposed",
            ops.KernelSource(
                """
                __global__ void transpose(const x_t* x, y_t* y, int rows, int columns) {
                  extern __shared__ double memory[];
                  x_t* tile = reinterpret_cast<x_t*>(memory);
                  int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
                  if (row < rows && column < columns)
                    tile[threadIdx.y * 17 + threadIdx.x] = x[row * columns + column];
                  __syncthreads();
                  row = blockIdx.y * 16 + threadIdx.x, column = blockIdx.x * 16 + threadIdx.y;
                  if (row < rows && column < columns)
                    y[column * rows + row] = tile[threadIdx.x * 17 + threadIdx.y];
                }
                """,
                sizes=lambda x: x,
                threads=(16, 16),
                grid=lambda x: (-(-x[1] // 16), -(-x[0] // 16)),
                shared_memory=16 * 17 * 8,
            ),
            cpu="void transpose(const x_t* x, y_t* y, int64_t rows, int64_t columns) {\n"
            "  for (int64_t i = 0; i < rows; ++i)\n"
            "    for (int64_t k = 0; k < columns; ++k) y[k * rows + i] = x[i * columns + k];\n}",
            output_shape=lambda x: x[::-1],
        )
        x = rng.standard_normal((37, 50)).astype("float32")
        with keras.device(device):
            np.testing.assert_array_equal(transposed(x).numpy(), x.T)


class TestGradients:
    def test_tape_and_numerical_derivative(self, softsign, device, rng):
        x = rng.standard_normal((5, 7))
        direction = rng.standard_normal((5, 7))
        with keras.device(device):
            tensor = ops.convert_to_tensor(x, "float64")
            with keras.GradientTape() as tape:
                tape.watch(tensor)
                loss = ops.sum(ops.square(softsign(tensor)))
            slope = float((tape.gradient(loss, tensor).numpy() * direction).sum())
        f = lambda x: np.square(softsign_in_numpy(x)).sum()  # noqa: E731
        h = 1e-5
        numerical = (f(x + h * direction) - f(x - h * direction)) / (2 * h)
        # Central differences lose h^2 and the roundings over h: about 1e-10 of the terms.
        assert abs(slope - numerical) < 1e-8 * np.linalg.norm(direction) * 5

    def test_gradients_of_broadcast_inputs_are_summed(self, device, rng):
        product = ops.custom_op("product", "a * b", ("dy * b", "dy * a"), inputs=("a", "b"))
        a, b = rng.standard_normal((4, 3)), rng.standard_normal(3)
        with keras.device(device):
            for shape in ((3,), (1, 1), ()):
                other = np.resize(b, shape)
                given = [ops.convert_to_tensor(v, "float64") for v in (a, other)]
                found = keras.grad(lambda a, b: ops.sum(product(a, b)), argnums=(0, 1))(*given)
                summed = np.broadcast_to(a, (4, 3)).sum(axis=0) if shape == (3,) else a.sum()
                np.testing.assert_allclose(found[0].numpy(), np.broadcast_to(other, (4, 3)))
                np.testing.assert_allclose(found[1].numpy(), np.reshape(summed, shape))

    def test_second_derivatives_of_a_gradient_made_of_ops(self, device):
        cube = ops.custom_op("cube", "x * x * x", gradient=lambda x, y, dy: 3.0 * x * x * dy)
        with keras.device(device):
            second = keras.grad(keras.grad(lambda x: cube(x)))
            assert float(second(ops.convert_to_tensor(2.0))) == 12.0

    def test_an_op_as_the_gradient_of_another(self, device):
        double = ops.custom_op(
            "square_slope", "2 * x * dy", inputs=("x", "y", "dy"), outputs=("dx",)
        )
        square = ops.custom_op("own_square", "x * x", double)
        with keras.device(device):
            assert float(keras.grad(square)(ops.convert_to_tensor(3.0))) == 6.0

    def test_without_a_gradient(self, device):
        step = ops.custom_op("step", "x > 0 ? 1 : 0")
        with keras.device(device):
            x = ops.convert_to_tensor([1.0])
            assert step(x).numpy().tolist() == [1.0]
            with pytest.raises(ValueError, match="custom_op step is not differentiable: its def"):
                keras.grad(lambda x: ops.sum(step(x)))(x)
            stopped = keras.grad(lambda x: ops.sum(x * ops.stop_gradient(step(x))))(x)
            assert stopped.numpy().tolist() == [1.0]

    def test_only_one_of_two_results_is_used(self, device):
        both = ops.custom_op(
            "both",
            ("x + 1", "x * x"),
            "du + 2 * x * dv",
            outputs=("u", "v"),
        )
        with keras.device(device):
            slope = keras.grad(lambda x: ops.sum(both(x)[1]))(ops.convert_to_tensor([3.0]))
            assert slope.numpy().tolist() == [6.0]

    def test_a_result_of_integers_beside_one_of_floats(self, device):
        """Only the floating one has a gradient, for kernels and for functions."""
        kernel = ops.KernelSource(
            "__global__ void f(const x_t* x, y_t* y, at_t* at, int64_t n) {\n"
            "  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;\n"
            "  if (i < n) { y[i] = 3 * real(x[i]); at[i] = i; }\n}"
        )
        slope = ops.KernelSource(
            "__global__ void g(const x_t*, const y_t*, const at_t* at, const dy_t* dy, dx_t* dx,\n"
            "                  int64_t n) {\n"
            "  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;\n"
            "  if (i < n) dx[i] = 3 * real(dy[at[i]]);\n}"
        )
        settings = {
            "cpu": lambda x: (3 * x, np.arange(x.size).reshape(x.shape)),
            "outputs": ("y", "at"),
            "output_dtype": ("float32", "int32"),
            "dtypes": ("float32",),
        }
        by_kernel = ops.custom_op(
            "numbered", kernel, slope, cpu_gradient=lambda x, y, at, dy: 3 * dy[at], **settings
        )
        by_ops = ops.custom_op("numbered_too", kernel, lambda x, y, at, dy: 3.0 * dy, **settings)
        with keras.device(device):
            x = ops.convert_to_tensor([1.0, 2.0])
            for op in (by_kernel, by_ops):
                assert [y.numpy().tolist() for y in op(x)] == [[3.0, 6.0], [0, 1]]
                found = keras.grad(lambda x, op=op: ops.sum(op(x)[0] * x))(x)
                assert found.numpy().tolist() == [6.0, 12.0]

    def test_a_gradient_function_of_the_wrong_number(self, device):
        op = ops.custom_op("counted", "a + b", lambda *_: ops.ones(()), inputs=("a", "b"))
        text = "gave 1 gradients for 2 floating inputs"
        with keras.device(device), pytest.raises(ValueError, match=text):
            keras.grad(lambda a: op(a, 2.0))(ops.convert_to_tensor(1.0))


def small_model(activation, seed=3):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(4, 3, activation=activation),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(16),
            keras.layers.Activation(activation),
            keras.layers.Dense(3),
        ]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@pytest.fixture
def batches(rng):
    return rng.standard_normal((70, 8, 8, 1)).astype("float32"), rng.integers(0, 3, 70)


class TestModels:
    def test_fit_with_expressions_is_fit_with_the_built_in_op(self, softsign, device, batches):
        with keras.device(device):
            histories = []
            for activation in (softsign, "softsign"):
                model = small_model(activation)
                histories.append(model.fit(*batches, batch_size=16, epochs=3, verbose=0).history)
        # The same arithmetic in another order: some roundings of float32 over 15 steps.
        np.testing.assert_allclose(histories[0]["loss"], histories[1]["loss"], rtol=1e-5)

    def test_fit_is_captured_in_a_graph(self, softsign, cuda_device, batches):
        with keras.device(cuda_device):
            model = small_model(softsign)
            model.fit(*batches, batch_size=16, epochs=1, verbose=0)
            before = _core.launch_stats(cuda_device)
            model.fit(*batches, batch_size=16, epochs=1, verbose=0)
            after = _core.launch_stats(cuda_device)
        assert after["graph_launches"] > before["graph_launches"]

    def test_fit_with_a_function_of_numpy(self, batches):
        own = ops.custom_op(
            "softsign_in_numpy",
            cpu=softsign_in_numpy,
            cpu_gradient=lambda x, y, dy: dy / (1 + np.abs(x)) ** 2,
        )
        with keras.device("cpu"):
            losses = [
                small_model(activation).fit(*batches, batch_size=16, verbose=0).history["loss"]
                for activation in (own, "softsign")
            ]
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)

    def test_an_exception_in_the_function_ends_fit_and_nothing_else(self, batches):
        calls = []

        def forward(x):
            calls.append(x.shape)
            if len(calls) == 3:
                raise KeyError("the third call")
            return x

        own = ops.custom_op("raises", cpu=forward, cpu_gradient=lambda x, y, dy: dy)
        with keras.device("cpu"):
            model = small_model(own)
            with pytest.raises(KeyError, match="the third call"):
                model.fit(*batches, batch_size=16, epochs=2, verbose=0)
            weights = [w.numpy() for w in model.weights]
            assert all(np.isfinite(w).all() for w in weights)
            model.fit(*batches, batch_size=16, epochs=1, verbose=0)

    def test_mixed_precision(self, softsign, device, batches):
        with keras.device(device):
            layer = keras.layers.Activation(softsign, dtype="mixed_bfloat16")
            assert layer(batches[0]).dtype == "bfloat16"

    def test_functional_models_and_jit(self, softsign, device, rng):
        x = rng.standard_normal((5, 6)).astype("float32")
        with keras.device(device):
            inputs = keras.Input((6,))
            outputs = softsign(inputs)
            assert outputs.shape == (None, 6)
            model = keras.Model(inputs, outputs)
            np.testing.assert_allclose(model.predict(x, verbose=0), softsign_in_numpy(x), rtol=1e-6)
            compiled = keras.jit(lambda x: ops.sum(softsign(x)))
            np.testing.assert_allclose(
                float(compiled(ops.convert_to_tensor(x))), softsign_in_numpy(x).sum(), rtol=1e-5
            )

    def test_shape_rules_of_models(self, device):
        sums = row_sums("row_sums_of_models")
        with keras.device(device):
            assert sums(keras.Input((6,))).shape == (None,)

    def test_saved_models(self, softsign, device, batches, tmp_path):
        with keras.device(device):
            model = small_model(softsign)
            wanted = model.predict(batches[0], verbose=0)
            model.save(tmp_path / "model.keras")
            again = keras.models.load_model(tmp_path / "model.keras")
            np.testing.assert_array_equal(again.predict(batches[0], verbose=0), wanted)

    def test_saved_functional_models(self, softsign, tmp_path, rng):
        x = rng.standard_normal((5, 6)).astype("float32")
        inputs = keras.Input((6,))
        model = keras.Model(inputs, keras.layers.Dense(2)(softsign(inputs)))
        model.save(tmp_path / "model.keras")
        again = keras.models.load_model(tmp_path / "model.keras")
        np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))

    def test_a_saved_model_whose_op_is_not_defined(self, batches, tmp_path):
        op = ops.custom_op("defined_for_a_while", **SOFTSIGN)
        inputs = keras.Input((8, 8, 1))
        called = keras.Model(inputs, op(inputs))
        for name, model in (("layer", small_model(op)), ("call", called)):
            path = tmp_path / f"{name}.keras"
            model.save(path)
        del keras.saving.get_custom_objects()["custom_op>defined_for_a_while"]
        for name in ("layer", "call"):
            with pytest.raises(ValueError, match="'defined_for_a_while' is not defined here"):
                keras.models.load_model(tmp_path / f"{name}.keras")
            keras.models.load_model(
                tmp_path / f"{name}.keras", custom_objects={"defined_for_a_while": op}
            )


class TestDefinitions:
    def test_an_op_of_the_same_name_is_another_op(self, device):
        """As in a notebook cell that is changed and run again."""
        with keras.device(device):
            x = ops.convert_to_tensor([2.0])
            first = ops.custom_op("redefined", "x + 1")
            compiled = keras.jit(lambda x: first(x))
            assert compiled(x).numpy().tolist() == [3.0]
            second = ops.custom_op("redefined", "x * 10")
            assert second(x).numpy().tolist() == [20.0]
            assert first(x).numpy().tolist() == [3.0]
            assert compiled(x).numpy().tolist() == [3.0]

            @keras.jit
            def both(x):
                return first(x) + second(x)

            assert both(x).numpy().tolist() == [23.0]

    def test_equal_calls_are_computed_once(self, softsign):
        graph = _core.Graph()
        x = graph.input("x", [3], "float32")
        y = [graph.apply("custom_op", [x], {"op": softsign._key})[0] for _ in range(2)]
        total = graph.apply("add", y, {})[0]
        program = _core.Program.compile(graph, [total], "cpu")
        assert sum(row["op"] == "custom_op" for row in program.describe()) == 1

    def test_nothing_is_run_while_a_program_is_compiled(self):
        calls = []
        op = ops.custom_op("noted", cpu=lambda x: calls.append(1) or x)
        graph = _core.Graph()
        x = graph.full([3], "float32", 2.0)
        y = graph.apply("custom_op", [x], {"op": op._key})[0]
        program = _core.Program.compile(graph, [y], "cpu")
        assert not calls
        program.run([])
        assert calls == [1]
        assert program.outputs()[0].numpy().tolist() == [2.0] * 3

    def test_kernels_say_what_they_are(self, softsign, device):
        graph = _core.Graph()
        y = graph.apply("custom_op", [graph.input("x", [3], "float32")], {"op": softsign._key})
        (row,) = _core.Program.compile(graph, y, device).describe()
        compiler = "C++" if device == "cpu" else "NVRTC"
        assert row["kernel"] == f"custom softsign_of_tests ({compiler})"

    def test_copies_and_pickles_are_the_op(self, softsign):
        import copy
        import pickle

        assert copy.deepcopy(softsign) is softsign
        assert pickle.loads(pickle.dumps(softsign)) is softsign

    def test_inputs_of_a_function_are_copies(self):
        kept = []

        def forward(x):
            kept.append(x)
            x *= 0
            return x + 1

        op = ops.custom_op("keeps", cpu=forward)
        x = ops.convert_to_tensor([5.0], "float32")
        with keras.device("cpu"):
            assert op(x.to("cpu")).numpy().tolist() == [1.0]
        assert x.numpy().tolist() == [5.0]
        assert kept[0].tolist() == [0.0]

    def test_threads(self, softsign, device):
        """NumPy functions take Python's lock inside of kernels; nobody waits for ever."""
        slow = ops.custom_op("slow", cpu=lambda x: np.sort(x)[::-1].copy())
        failed = []

        def work():
            try:
                for _ in range(50):
                    with keras.device(device):
                        softsign(np.ones(100, "float32"))
                    with keras.device("cpu"):
                        slow(np.arange(5.0, dtype="float32"))
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failed
        assert not any(thread.is_alive() for thread in threads)

    def test_results_do_not_depend_on_the_number_of_threads(self):
        program = (
            "import numpy as np, hashlib\n"
            "from kerascnn import ops\n"
            "op = ops.custom_op('op', 'exp(x) * tanh(x) / 3')\n"
            "x = np.random.default_rng(0).standard_normal(100003).astype('float32')\n"
            "print(hashlib.sha256(op(x).numpy().tobytes()).hexdigest())\n"
        )
        digests = {
            run_python(program, KERASCNN_DEVICE="cpu", OMP_NUM_THREADS=n).stdout for n in "123"
        }
        assert len(digests) == 1

    def test_the_process_ends_quietly(self):
        done = run_python(
            "import kerascnn as keras\n"
            "from kerascnn import ops\n"
            "op = ops.custom_op('op', cpu=lambda x: x, output_shape=lambda x: x)\n"
            "keep = keras.jit(lambda x: op(x))\n"
            "with keras.device('cpu'): print(float(keep(ops.ones(()))))\n"
        )
        assert (done.stdout, done.stderr) == ("1.0\n", "")


def run_python(program, expected=0, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert done.returncode == expected, done.stderr[-2000:]
    return done


class TestErrors:
    def test_source_that_does_not_compile(self, device):
        broken = ops.custom_op("broken", "x +\n  missing(x)\n  + 1")
        with keras.device(device), pytest.raises(ValueError) as caught:
            broken([1.0])
        text = str(caught.value)
        language = "C++" if device == "cpu" else "CUDA C++"
        assert text.startswith(f"custom_op broken: the {language} source does not compile:")
        assert "broken forward, line 2:" in text
        assert " > 2 |   missing(x)" in text

    def test_kernel_that_does_not_compile(self, device):
        source = "__global__ void f(const x_t* x, y_t* y, int64_t n) {\n\n  y[0] = nothing;\n}"
        op = ops.custom_op(
            "broken_kernel",
            ops.KernelSource(source),
            cpu=source.replace("__global__ ", ""),
        )
        with keras.device(device), pytest.raises(ValueError, match="nothing") as caught:
            op([1.0])
        assert " > 3 |   y[0] = nothing;" in str(caught.value)

    def test_a_broken_gradient_is_told_apart(self, device):
        op = ops.custom_op("half_broken", "x", "dy * nothing")
        with keras.device(device):
            assert op([1.0]).numpy().tolist() == [1.0]
            with pytest.raises(ValueError, match="half_broken gradient, line 1"):
                keras.grad(op)(ops.convert_to_tensor(1.0))

    def test_a_broken_source_in_fit(self, device, batches):
        op = ops.custom_op("broken_in_fit", "x + nothing", "dy")
        with keras.device(device):
            model = small_model(op)
            with pytest.raises(ValueError, match="broken_in_fit forward, line 1"):
                model.fit(*batches, verbose=0)

    def test_calls_that_are_refused(self, softsign, device):
        blend = ops.custom_op("blend_of_two", "a + b", inputs=("a", "b"))
        with keras.device(device):
            with pytest.raises(ValueError, match="expected 2 inputs \\(a, b\\), received 1"):
                blend([1.0])
            with pytest.raises(ValueError, match="a \\(2,\\), b \\(3,\\)"):
                blend([1.0, 2.0], [1.0, 2.0, 3.0])
            narrow = ops.custom_op("narrow", "x", dtypes=("float32",))
            with pytest.raises(TypeError, match="custom_op narrow: input x must be one of float32"):
                narrow(ops.convert_to_tensor([1.0], "float64"))

    def test_devices_that_are_mixed(self, cuda_device):
        both = ops.custom_op("on_both", "a + b", inputs=("a", "b"))
        with pytest.raises(_core.DeviceError, match="all inputs must be on one device"):
            both(_core.from_numpy(np.ones(2), "cpu"), _core.from_numpy(np.ones(2), cuda_device))

    def test_a_device_without_an_implementation(self, device):
        kernel = ops.KernelSource("__global__ void f(const x_t* x, y_t* y, int64_t n) {}")
        only_gpu = ops.custom_op("only_gpu", kernel)
        only_cpu = ops.custom_op("only_cpu", cpu=lambda x: x)
        with keras.device(device):
            op, text = (only_gpu, "for the CPU") if device == "cpu" else (only_cpu, "for GPUs")
            with pytest.raises(_core.DeviceError, match=f"no implementation {text}"):
                op([1.0])

    def test_launches_that_the_device_refuses(self, cuda_device):
        with keras.device(cuda_device):
            x = ops.ones((4, 3))
            with pytest.raises(ValueError, match="has 2048 threads"):
                row_sums("too_many_threads", threads=2048)(x)
            with pytest.raises(ValueError, match="must take 3 arguments .* and it takes more"):
                kernel = ops.KernelSource(
                    "__global__ void f(const x_t* x, y_t* y, int64_t n, int64_t m) {}"
                )
                ops.custom_op("too_many_arguments", kernel)(x)
            with pytest.raises(ValueError, match="must take 3 arguments .* and it takes 2"):
                kernel = ops.KernelSource("__global__ void f(const x_t* x, y_t* y) {}")
                ops.custom_op("too_few_arguments", kernel)(x)
            with pytest.raises(ValueError, match="too large along axis 1"):
                kernel = ops.KernelSource(
                    "__global__ void f(const x_t* x, y_t* y, int64_t n) {}",
                    grid=lambda x: (1, 65_536),
                )
                ops.custom_op("large_grid", kernel)(x)
            with pytest.raises(ValueError, match="bytes of shared memory"):
                kernel = ops.KernelSource(
                    "__global__ void f(const x_t* x, y_t* y, int64_t n) {}",
                    shared_memory=1 << 30,
                )
                ops.custom_op("much_memory", kernel)(x)
            assert ops.sum(x).numpy() == 12.0  # the device works

    def test_what_functions_return(self):
        with keras.device("cpu"):
            x = np.ones(3, "float32")
            with pytest.raises(ValueError, match="array of shape \\(2,\\), expected \\(3,\\)"):
                ops.custom_op("short", cpu=lambda x: x[1:])(x)
            with pytest.raises(ValueError, match="returned 2 arrays for 1 outputs"):
                ops.custom_op("two", cpu=lambda x: (x, x))(x)
            with pytest.raises(TypeError, match="array of object, expected float32"):
                ops.custom_op("none", cpu=lambda x: np.array([None] * 3))(x)
            with pytest.raises(ValueError, match="output_shape must return the output's shape"):
                row_sums("no_shape", output_shape=lambda x: x[0])(np.ones((2, 2), "float32"))

    def test_cpp_that_throws(self):
        op = ops.custom_op(
            "throws",
            cpu="#include <stdexcept>\nvoid f(const x_t* x, y_t* y, int64_t n) {\n"
            '  throw std::runtime_error("no luck");\n}',
        )
        with keras.device("cpu"), pytest.raises(ValueError, match="custom_op throws: no luck"):
            op([1.0])

    def test_without_a_compiler(self):
        program = (
            "from kerascnn import ops\n"
            "ops.custom_op('own', 'x', cpu=lambda x: x + 1)([1.0])\n"
            "try: ops.custom_op('op', 'x')([1.0])\n"
            "except RuntimeError as error: print(error)\n"
        )
        done = run_python(program, KERASCNN_DEVICE="cpu", CXX="/nowhere/g++")
        assert "custom_op op: there is no C++ compiler on this machine" in done.stdout
        assert "pass a NumPy function as cpu=" in done.stdout

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({}, "pass `forward`, `cpu` or both"),
            ({"forward": "x", "inputs": ("x", "x")}, "names that differ"),
            ({"forward": "x", "inputs": ("x y",)}, "can't be the name"),
            ({"forward": "x", "inputs": ("real",)}, "can't be the name"),
            ({"forward": ("x", "x")}, "2 expressions were given for 1 results"),
            ({"forward": "x", "gradient": ("dy", "dy")}, "2 expressions .* 1 results \\(dx\\)"),
            ({"forward": "x", "output_dtype": "bool"}, "are for kernels"),
            ({"forward": "x", "cpu": "void f() {}"}, "an expression is compiled for the CPU too"),
            ({"forward": "x", "dtypes": {"z": ("float32",)}}, "not among the inputs"),
            ({"cpu": lambda x: x, "output_dtype": ("bool", "bool")}, "2 dtypes for 1 outputs"),
            ({"cpu": lambda x: x, "increasing": True}, "for one expression of one input"),
        ],
        ids=lambda value: str(value)[:20] if isinstance(value, str) else "",
    )
    def test_definitions_that_do_not_fit_together(self, arguments, text):
        with pytest.raises(ValueError, match=text):
            ops.custom_op("refused", **arguments)

    def test_sources_whose_function_is_not_clear(self):
        two = "__global__ void f() {}\n__global__ void g() {}"
        with pytest.raises(ValueError, match="has 2 __global__ functions \\(f, g\\)"):
            ops.custom_op("unclear", ops.KernelSource(two))
        with pytest.raises(ValueError, match="has 0 functions that return nothing \\(none\\)"):
            ops.custom_op("unclear", cpu="int f() { return 1; }")
        with pytest.raises(ValueError, match="the name must be an identifier"):
            ops.custom_op("two words", "x")
        with pytest.raises(TypeError, match="forward must be an expression, a KernelSource"):
            ops.custom_op("number", 3)


CHECKED = """
import sys
import numpy as np
import kerascnn as keras
from kerascnn import ops

loop = "for (int64_t i = FIRST; i < n + EXTRA; ++i) y[i] = x[i < 0 || i >= n ? 0 : i];"
body = loop.replace("FIRST", sys.argv[1]).replace("EXTRA", sys.argv[2])
op = ops.custom_op(
    "overrun",
    ops.KernelSource(
        "__global__ void f(const x_t* x, y_t* y, int64_t n) {\\n" + body + "}",
        threads=1,
        grid=lambda x: 1,
    ),
    cpu="void f(const x_t* x, y_t* y, int64_t n) {" + body + "}",
    gradient=lambda x, y, dy: dy,
)
with keras.device(sys.argv[3]):
    for attempt in ("at once", "in fit"):
        try:
            if attempt == "at once":
                op(np.ones((3, 5), "float32"))
            else:
                layers = [keras.Input((5,)), keras.layers.Dense(4, activation=op)]
                model = keras.Sequential(layers)
                model.compile("sgd", "mse")
                model.fit(np.ones((8, 5)), np.ones((8, 4)), batch_size=4, verbose=0)
            print(attempt, "went well")
        except RuntimeError as error:
            print(attempt, error)
    print(ops.sum(ops.ones((2, 2))).numpy())
"""


class TestChecks:
    """KERASCNN_CHECK_KERNELS=1."""

    def run(self, first, extra, device):
        done = subprocess.run(
            [sys.executable, "-c", CHECKED, str(first), str(extra), device],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "KERASCNN_CHECK_KERNELS": "1"},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        at_once, in_fit, alive = done.stdout.strip().splitlines()
        assert alive == "4.0"
        return at_once, in_fit

    @pytest.mark.parametrize(
        ("first", "extra", "place"),
        [(0, 1, "4 of the 256 bytes behind"), (-2, 0, "8 of the 256 bytes before")],
    )
    def test_a_write_out_of_bounds(self, device, first, extra, place):
        at_once, in_fit = self.run(first, extra, device)
        for text in (at_once, in_fit):
            assert "custom_op overrun: the kernel custom overrun" in text
            assert f"wrote out of bounds: {place} output 0" in text
        assert "(float32 (3, 5))" in at_once
        assert in_fit.startswith("in fit custom_op (sequential/dense): ")

    def test_right_kernels_pass(self, device):
        assert self.run(0, 0, device) == ("at once went well", "in fit went well")


def test_ops_that_nobody_uses_let_go_of_tensors():
    """A definition stays until the process ends; what is computed with it does not."""
    op = ops.custom_op("forgetful", "x * 2", "dy * 2")
    x = keras.Variable([1.0, 2.0])
    with keras.GradientTape() as tape:
        y = op(x)
    note = weakref.ref(tape)
    del tape, y
    assert note() is None


class TestPooling:
    """An increasing function of what is pooled, in place of pooling the function."""

    def program(self, op, device, pads=(0, 0, 0, 0), strides=(2, 2)):
        graph = _core.Graph()
        x = graph.input("x", [2, 9, 9, 3], "float64")
        kernel = graph.input("kernel", [3, 3, 3, 4], "float64")
        convolution = {"strides": [1, 1], "padding": [0, 0, 0, 0], "dilations": [1, 1]}
        convolution |= {"groups": 1, "activation": "linear", "activation_alpha": 0.0}
        c = graph.apply("conv2d", [x, kernel], convolution)[0]
        a = graph.apply("custom_op", [c], {"op": op._key})[0]
        pooling = {"window": [2, 2], "strides": list(strides), "padding": list(pads)}
        p = graph.apply("max_pool2d", [a], pooling)[0]
        weights = graph.input("weights", p.shape, "float64")
        product = graph.apply("multiply", [p, weights], {})[0]
        loss = graph.apply("reduce_sum", [product], {"axes": [], "keepdims": False})[0]
        outputs = [loss, *graph.gradients(loss, [x, kernel])]
        return p.shape, {
            optimize: _core.Program.compile(graph, outputs, device, optimize=optimize)
            for optimize in (True, False)
        }

    @pytest.mark.parametrize("strides", [(2, 2), (1, 1)], ids=["apart", "overlapping"])
    @pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 1, 1)], ids=["inside", "padded"])
    def test_results_and_gradients_are_those_of_the_plain_order(self, device, rng, strides, pads):
        op = ops.custom_op(
            "increasing", "tanh(x) + x", "dy * (2 - tanh(x) * tanh(x))", increasing=True
        )
        shape, programs = self.program(op, device, pads, strides)
        given = [rng.standard_normal(s) for s in ((2, 9, 9, 3), (3, 3, 3, 4), shape)]
        results = {}
        for optimize, program in programs.items():
            program.run([_core.from_numpy(x, device) for x in given])
            results[optimize] = [y.numpy() for y in program.outputs()]
        for moved, plain in zip(results[True], results[False], strict=True):
            # Sums in another order: roundings of float64.
            np.testing.assert_allclose(moved, plain, rtol=1e-11, atol=1e-12)

    def test_it_is_computed_on_the_pooled_elements(self, device):
        settings = {"forward": "x * x * x", "gradient": "3 * x * x * dy"}
        sizes = {}
        for increasing in (True, False):
            op = ops.custom_op("cubed", **settings, increasing=increasing)
            _, programs = self.program(op, device)
            rows = [r for r in programs[True].describe() if r["op"] == "custom_op"]
            assert len(rows) == 2
            sizes[increasing] = {tuple(row["outputs"][0][1]) for row in rows}
        assert sizes == {True: {(2, 3, 3, 4)}, False: {(2, 7, 7, 4)}}

    def test_an_activation_that_is_read_elsewhere_stays(self, device):
        op = ops.custom_op("cubed_twice", "x * x * x", "3 * x * x * dy", increasing=True)
        graph = _core.Graph()
        x = graph.input("x", [1, 4, 4, 2], "float32")
        a = graph.apply("custom_op", [x], {"op": op._key})[0]
        pooling = {"window": [2, 2], "strides": [2, 2], "padding": [0, 0, 0, 0]}
        p = graph.apply("max_pool2d", [a], pooling)[0]
        program = _core.Program.compile(graph, [a, p], device)
        (row,) = [r for r in program.describe() if r["op"] == "custom_op"]
        assert tuple(row["outputs"][0][1]) == (1, 4, 4, 2)
