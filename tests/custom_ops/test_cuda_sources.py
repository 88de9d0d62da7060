"""The CUDA sources of custom ops compile wherever NVRTC is installed, also without a GPU."""

from __future__ import annotations

import pytest

from kerascnn import _core, ops

DTYPES = ("float16", "bfloat16", "float32", "float64")


@pytest.mark.parametrize("kind", ["compute_75", "compute_90"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_expressions(cuda_ptx, dtype, kind):
    op = ops.custom_op(
        "many_functions",
        "max(x, 0) + min(x, t) + fabs(x) * exp(-x) / (1 + tanh(t)) + (x > 0.5 ? pow(x, 2) : erf(t))"
        " + sqrt(1e-3 + x * x) + log(fmax(x, t) + 10) + floor(x) * sin(x) - cos(x) + abs(x)",
        inputs=("x", "t"),
    )
    ptx = cuda_ptx(
        _core.op_cuda_source(op._key, [(dtype, (3, 4)), (dtype, ())]),
        "many_functions_forward",
        kind,
    )
    assert ("griddepcontrol" in ptx) == (kind == "compute_90")


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_have_the_type_of_elements(cuda_ptx, dtype):
    """In C++ a plain 2.5 would turn a float expression into a double one."""
    op = ops.custom_op("numbers", "x / 2.5 + 1e-3 * exp(x) - .5")
    source = _core.op_cuda_source(op._key, [(dtype, (8,))])
    ptx = cuda_ptx(source, "numbers_forward", "compute_90")
    assert (".f64" in ptx) == (dtype == "float64")


@pytest.mark.parametrize("dtype", DTYPES)
def test_four_elements_are_read_and_written_at_once(cuda_ptx, dtype):
    op = ops.custom_op("moved", "x + 1")
    source = _core.op_cuda_source(op._key, [(dtype, (8,))])
    ptx = cuda_ptx(source, "moved_forward", "compute_90")
    wide = {"float16": "v4.u16", "bfloat16": "v4.u16", "float32": "v4.f32", "float64": "v2.f64"}
    assert f"ld.global.{wide[dtype]}" in ptx
    assert f"st.global.{wide[dtype]}" in ptx


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", *DTYPES])
def test_types_of_inputs_and_outputs(cuda_ptx, dtype):
    kernel = ops.KernelSource(
        "__global__ void f(const x_t* x, y_t* y, int64_t n) { if (n > 0) y[0] = float(x[0]); }"
    )
    op = ops.custom_op("typed", kernel, dtypes=(dtype,))
    ptx = cuda_ptx(_core.op_cuda_source(op._key, [(dtype, (3,))]), "f", "compute_90")
    assert ".entry" in ptx
