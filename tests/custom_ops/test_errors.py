"""Errors of custom ops that do not compile, do not fit their inputs, or write out of bounds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import weakref

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops

from .helpers import row_sums, run_python, small_model


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

    @pytest.mark.parametrize(
        "expression, last", [("x +", " > 1 | x +"), ("x *\n  (x", " > 2 |   (x")]
    )
    def test_expression_that_is_not_complete(self, expression, last, device):
        op = ops.custom_op("incomplete", expression)
        with keras.device(device), pytest.raises(ValueError) as caught:
            op([1.0])
        assert last in str(caught.value)

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
            assert ops.sum(x).numpy() == 12.0  # The device still works.

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
    """KERASCNN_CHECK_KERNELS=1 finds kernels that write out of bounds."""

    def run(self, first, extra, device):
        done = subprocess.run(
            [sys.executable, "-c", CHECKED, str(first), str(extra), device],
            capture_output=True,
            text=True,
            timeout=600,
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
        assert f"wrote out of bounds: {place} output 0" in at_once
        # The numbers in a fit are arbitrary: one byte in 256 happens to equal what was there
        # before, so the error may name a byte nearby.
        in_any_number = re.sub("^[48]", "[1-8]", place)
        assert re.search(f"wrote out of bounds: {in_any_number} output 0", in_fit)
        assert "(float32 (3, 5))" in at_once
        assert in_fit.startswith("in fit custom_op (sequential/dense): ")

    def test_right_kernels_pass(self, device):
        assert self.run(0, 0, device) == ("at once went well", "in fit went well")


def test_ops_that_nobody_uses_let_go_of_tensors():
    """A definition stays until the process ends; the tensors that it computed do not."""
    op = ops.custom_op("forgetful", "x * 2", "dy * 2")
    x = keras.Variable([1.0, 2.0])
    with keras.GradientTape() as tape:
        y = op(x)
    note = weakref.ref(tape)
    del tape, y
    assert note() is None
