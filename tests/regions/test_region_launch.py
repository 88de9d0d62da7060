"""How many blocks a generated kernel runs with, and how much its last blocks have to add up."""

from __future__ import annotations

import pytest

from kerascnn import _core

from . import bodies

BLOCKS = 132  # a large GPU has this many multiprocessors


def launched(t, at_once=BLOCKS):
    source = t.source()
    size = 1
    for extent in t.domain:
        size *= extent
    rows = size // t.columns
    return source, rows, _core.region_launch(source, rows, t.columns, at_once)


SHAPES = [(25088, 384), (25088, 1536), (1605632, 64), (25088, 256), (6272, 2048), (100, 7), (3, 8)]


@pytest.mark.parametrize("at_once", [BLOCKS, 2 * BLOCKS, 16])
@pytest.mark.parametrize("make", [bodies.column_sums, bodies.moments])
@pytest.mark.parametrize("domain", SHAPES)
def test_columns(make, domain, at_once):
    source, rows, launch = launched(make(domain, "bfloat16"), at_once)
    lanes = 1 << launch.lane_bits
    taken = launch.blocks_x * lanes * source.width
    assert taken >= domain[1] > taken - lanes * source.width
    assert launch.blocks_x * launch.blocks_y <= max(at_once, launch.blocks_x)
    assert (launch.blocks_y - 1) * launch.split_rows < rows <= launch.blocks_y * launch.split_rows
    # A block takes at least a line of memory, unless a row is shorter.
    assert lanes * source.width >= min(64, domain[1] // 2)
    cells = source.cell_bytes * launch.blocks_y * domain[1]
    assert launch.workspace_bytes(source, domain[1]) == (cells if launch.blocks_y > 1 else 0)


@pytest.mark.parametrize("make", [bodies.column_sums, bodies.moments])
@pytest.mark.parametrize("domain", [shape for shape in SHAPES if shape[0] > 5000])
def test_large_domains_have_blocks_enough(make, domain):
    """All multiprocessors have work, and each thread of the last block reads only a few splits."""
    source, _, launch = launched(make(domain, "bfloat16"))
    assert launch.blocks_x * launch.blocks_y > 0.7 * BLOCKS
    assert launch.blocks_y <= 4 * (source.threads >> launch.lane_bits)


@pytest.mark.parametrize("domain", [(32, 3136, 256), (128, 49, 1152), (900, 20, 210), (3, 50, 7)])
@pytest.mark.parametrize("make", [bodies.sums_of_parts, bodies.moments_of_parts])
def test_parts(make, domain):
    """Each part has blocks of its own, with as many splits as leave work for all blocks."""
    t = make(domain, "bfloat16")
    source, rows, launch = launched(t)
    tiles = -(-domain[2] // (source.width << launch.lane_bits))
    assert (source.parts, launch.blocks_x) == (domain[0], tiles * domain[0])
    assert (launch.blocks_y - 1) * launch.split_rows < rows // domain[0]
    assert rows // domain[0] <= launch.blocks_y * launch.split_rows
    cells = source.cell_bytes * launch.blocks_y * domain[2] * domain[0]
    assert launch.workspace_bytes(source, domain[2]) == (cells if launch.blocks_y > 1 else 0)


def test_maps_and_rows():
    source, rows, launch = launched(bodies.normalized((128, 56, 56, 256)))
    assert launch.blocks_x * launch.blocks_y >= BLOCKS
    assert launch.workspace_bytes(source, 256) == 0
    source, rows, launch = launched(bodies.softmax((5000, 197)))
    assert launch.blocks_x >= min(BLOCKS, rows * source.lanes // source.threads)
    source, rows, launch = launched(bodies.activations((11, 13)))
    assert (launch.blocks_x, launch.blocks_y) == (1, 1)
