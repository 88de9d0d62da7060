"""Custom ops: their definitions, calls that run at once, and gradients on tapes."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops

from .helpers import row_sums, run_python, softsign_in_numpy


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
        """1 / 2 is a half, and float32 expressions are not computed in double."""
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
        # Central differences lose h^2 and the rounding divided by h: about 1e-10 of the terms.
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
        """Only the floating result has a gradient. This holds for kernels and for functions."""
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


class TestDefinitions:
    def test_an_op_of_the_same_name_is_another_op(self, device):
        """This happens when a notebook cell is changed and run again."""
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
        """NumPy functions take Python's lock inside kernels; no thread may wait forever."""
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
            thread.join(600)
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
