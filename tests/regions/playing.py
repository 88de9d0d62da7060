"""Runs the CUDA C++ of a region on the host with the help of played_device.h."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from kerascnn import _core

PLAYED_DEVICE = Path(__file__).parent / "played_device.h"


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def aligned(shape, dtype):
    """Returns memory that is aligned as kernels want it and filled with bytes 0xff."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.full(size + 64, 255, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + size].view(dtype).reshape(shape)


def op_by_op(t, arrays):
    """Returns the outputs when the CPU computes each node by itself."""
    program = _core.Program.compile(t.graph, t.outputs, "cpu", optimize=False)
    program.run([_core.from_numpy(array, "cpu") for array in arrays])
    return [np.array(output.numpy()) for output in program.outputs()]


OPTIONS = ["-std=c++20", "-O1", "-fPIC", "-ffp-contract=off", "-w", "-fno-strict-aliasing"]


def run_compiler(*arguments):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ to compile kernels for the host")
    done = subprocess.run([compiler, *OPTIONS, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


def prepared(folder):
    """Returns the folder with the header that all kernels include, compiled once for all."""
    header = shutil.copy(PLAYED_DEVICE, folder)
    run_compiler("-x", "c++-header", header)
    return folder


def compiled(source, kind, num_inputs, num_outputs, folder):
    """Returns the function that runs a kernel. Kernels of the same text are compiled once."""
    pointers = [f"(const void*)given_data[{i}]" for i in range(num_inputs)]
    pointers += [f"given_data[{num_inputs + i}]" for i in range(num_outputs)]
    bits = [f"given_constants[{i}]" for i in range(len(source.constants))]
    sizes = {
        "rows": "given_sizes[0], given_sizes[1]",
        "columns": "given_sizes[0], given_sizes[1], (int)given_sizes[2], given_data[{0}], "
        "(unsigned*)given_data[{1}], given_sizes[3]",
        "map": "given_sizes[0], given_sizes[1], (int)given_sizes[2]"
        if source.by_column
        else "given_sizes[0] * given_sizes[1]",
    }[kind].format(num_inputs + num_outputs, num_inputs + num_outputs + 1)
    call = ", ".join([*pointers, *bits, "1.0f", sizes])
    text = f"""{source.text}
static void* const* given_data;
static const unsigned long long* given_constants;
static const long long* given_sizes;
extern "C" void play(unsigned x, unsigned y, unsigned threads, void* const* d,
                     const unsigned long long* c, const long long* s) {{
  given_data = d, given_constants = c, given_sizes = s;
  played::launch(x, y, threads, [] {{ region_kernel({call}); }});
}}
"""
    name = hashlib.sha256(text.encode()).hexdigest()
    library = folder / f"{name}.so"
    if not library.exists():
        (folder / f"{name}.cpp").write_text(text)
        header = ("-include", folder / PLAYED_DEVICE.name)
        run_compiler("-shared", *header, "-o", library, folder / f"{name}.cpp")
    return ctypes.CDLL(str(library)).play


def played(t, source, arrays, folder, grid=None, lane_bits=0):
    """Returns the kernel's outputs; by default one block takes all columns and rows."""
    rows, columns = int(np.prod(t.domain)) // t.columns, t.columns
    x, y = grid or (1, 1)
    if source.by_column:
        rows //= source.parts
        x = -(-columns // (source.width << lane_bits)) * source.parts
    split_rows = -(-rows // y)
    if t.kind == "columns":
        y = -(-rows // split_rows)
    specs = t.outputs_specs
    results = [aligned(shape, numpy_dtype(dtype)) for shape, dtype in specs]
    given = []
    for array in arrays:
        given.append(aligned(array.shape, array.dtype))
        given[-1][...] = array
    workspace = aligned((source.cell_bytes * y * columns * source.parts,), np.dtype(np.uint8))
    tickets = np.zeros(x, np.uint32)
    memory = [*given, *results, workspace, tickets]
    data = (ctypes.c_void_p * len(memory))(*(each.ctypes.data for each in memory))
    constants = (ctypes.c_ulonglong * max(1, len(source.constants)))(*source.constants)
    sizes = (ctypes.c_longlong * 4)(rows, columns, lane_bits, split_rows)
    play = compiled(source, t.kind, len(given), len(results), folder)
    play(x, y, source.threads, data, constants, sizes)
    assert not tickets.any()
    return results
