"""Generated kernels compile wherever NVRTC is installed, even without a GPU."""

from __future__ import annotations

import pytest

from . import bodies

CASES = {
    "normalized": bodies.normalized,
    "normalized_in_a_row": lambda: bodies.normalized((4, 5, 7)),
    "every_reading": bodies.every_reading,
    "every_reading_of_halves": lambda: bodies.every_reading(dtype="float16"),
    "numbers": bodies.numbers,
    "activation_gradient": bodies.activation_gradient,
    "activations": bodies.activations,
    "activations_in_double": lambda: bodies.activations(dtype="float64"),
    "constant_domain": bodies.constant_domain,
    "batch_norm_gradient": bodies.batch_norm_gradient,
    "column_sums": bodies.column_sums,
    "integer_sums": lambda: bodies.column_sums(dtype="int16"),
    "dropout": bodies.dropped,
    "dropout_of_odd_rows": lambda: bodies.dropped((30, 7), kind="rows"),
    "sums_of_parts": bodies.sums_of_parts,
    "moments_of_parts": bodies.moments_of_parts,
    "normalized_parts": bodies.normalized_parts,
    "moments": bodies.moments,
    "moments_in_double": lambda: bodies.moments(dtype="float64"),
    "layer_norm": bodies.layer_norm,
    "layer_norm_of_long_rows": lambda: bodies.layer_norm((3, 2, 30_000)),
    "broadcast_rows": bodies.broadcast_rows,
    "layer_norm_gradient": bodies.layer_norm_gradient,
    "softmax": bodies.softmax,
    "masked_softmax": lambda: bodies.softmax((3, 2, 5, 197), masked=True),
    "attention_softmax": bodies.attention_softmax,
    "attention_softmax_with_dropout": lambda: bodies.attention_softmax(rate=0.1),
    "attention_softmax_gradient": bodies.attention_softmax_gradient,
    "transposed": bodies.transposed,
    "transposed_rows": lambda: bodies.transposed(kind="rows"),
    "transposed_sums": bodies.transposed_sums,
    "transposed_sums_in_double": lambda: bodies.transposed_sums(dtype="float64", stored=False),
    "integer_rows": bodies.integer_rows,
}


@pytest.mark.parametrize("kind", ["compute_75", "compute_90"])
@pytest.mark.parametrize("case", CASES)
def test_sources_compile(cuda_ptx, case, kind):
    ptx = cuda_ptx(CASES[case]().source().text, "region_kernel", kind)
    assert ("griddepcontrol" in ptx) == (kind == "compute_90")


def test_sixteen_bytes_move_at_once(cuda_ptx):
    ptx = cuda_ptx(bodies.normalized().source().text, "region_kernel", "compute_90")
    assert "ld.global.v4.u32" in ptx
    assert "st.global.v4.u32" in ptx
    assert "ld.global.u16" not in ptx


@pytest.mark.parametrize("columns", [196, 204, 332])
def test_rows_move_eight_bytes_at_once(cuda_ptx, columns):
    """Fewer than 32 lanes read a row where 32 lanes of wide loads would be partly idle."""
    source = bodies.attention_softmax_gradient((64, columns)).source()
    assert source.width * 2 >= 8
    assert columns <= source.lanes * source.depth * source.width <= 1.2 * columns
    ptx = cuda_ptx(source.text, "region_kernel", "compute_90")
    assert "ld.global.v2.u32" in ptx or "ld.global.v4.u32" in ptx
    assert "ld.global.u16" not in ptx


@pytest.mark.parametrize(
    "t", [bodies.transposed(), bodies.transposed_sums(), bodies.transposed_sums(stored=False)]
)
def test_transposed_inputs_are_read_sixteen_bytes_at_once(cuda_ptx, t):
    source = t.source()
    assert source.width == 8
    ptx = cuda_ptx(source.text, "region_kernel", "compute_90")
    assert "ld.global.v4.u32" in ptx
    assert "ld.global.u16" not in ptx


def test_nothing_is_contracted_between_ops(cuda_ptx):
    """A product and a sum are two ops: one fused operation would give other bits."""
    ptx = cuda_ptx(bodies.normalized().source().text, "region_kernel", "compute_90")
    assert "mul.rn.f32" in ptx
    assert "add.rn.f32" in ptx
    assert "fma.rn" not in ptx


def test_sizes_are_no_part_of_sources():
    """The equal blocks of a network share one kernel: sizes are not in the source."""
    sources = {
        bodies.normalized((4, size, size, columns)).source().text
        for size, columns in ((7, 24), (14, 64), (9, 2048))
    }
    assert len(sources) == 1
    sums = {
        bodies.batch_norm_gradient((4, rows, columns)).source().text
        for rows, columns in ((7, 24), (900, 64))
    }
    assert len(sums) == 1
    parts = {
        make((outer, 700, columns)).source().text
        for make in (bodies.moments_of_parts, bodies.normalized_parts)
        for outer, columns in ((7, 24), (900, 64))
    }
    assert len(parts) == 2
    rows = {bodies.softmax((rows, columns)).source().text for rows, columns in ((5, 64), (700, 64))}
    assert len(rows) == 1
