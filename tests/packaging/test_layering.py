"""Which part may use which: includes between the core's folders, and calls of ops."""

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
CORE = CHECKOUT / "core"
SOURCES = sorted(path for path in CORE.rglob("*") if path.suffix in {".h", ".cpp", ".cu", ".cuh"})
MODULES = sorted((CHECKOUT / "kerascnn").rglob("*.py"))

# The rows go from the bottom to the top, as in docs/architecture.md. A file includes only its own
# row and rows earlier in this list.
ROWS = [
    ["base"],
    ["memory", "ops"],
    ["profile"],
    ["backend"],  # This folder has the interface, and what both devices share.
    ["tensor"],
    ["images"],
    ["graph", "eager"],
    ["backend/cpu", "backend/cuda"],
    ["inference", "include"],  # The latter has the headers of C++ programs.
    ["bindings"],
]
ROW_OF = {folder: i for i, row in enumerate(ROWS) for folder in row}

# Each pair (file, what it includes) goes against the rule for a reason.
EXCEPTIONS = {
    # A device allocates memory, and memory with a foreign owner waits for the device.
    ("memory/storage.cpp", "backend/backend.h"),
    # On a GPU, a copy between two layouts is the op that makes a tensor contiguous.
    ("tensor/strided_copy.cpp", "eager/eager.h"),
    # A region is the input for its source text.
    ("backend/regions/region_code.h", "graph/region.h"),
    # These need to know how many threads the process may use.
    ("backend/compile_queue.cpp", "backend/cpu/parallel.h"),
    ("backend/workers.cpp", "backend/cpu/parallel.h"),
    # Images are resized on the CPU, by loops that are compiled for each instruction set.
    ("images/resample.cpp", "backend/cpu/resample_kernels.h"),
    # The CPU backend is part of the library, while the CUDA backend is opened at run time.
    ("backend/registry.cpp", "backend/cpu/cpu_backend.h"),
}


def folder_of(path):
    """Returns the layer of core/<path>: its folder, or the folder of its backend."""
    parts = path.split("/")
    deep = "/".join(parts[:2])
    return deep if deep in ROW_OF else parts[0]


def wrong_includes(files):
    """Returns the (file, included) pairs that go up; `files` has (path below core/, text)."""
    wrong = set()
    for path, text in files:
        for included in re.findall(r'^#include "core/([^"]+)"', text, re.MULTILINE):
            if ROW_OF[folder_of(included)] > ROW_OF[folder_of(path)]:
                wrong.add((path, included))
    return wrong


def core_files():
    return [
        (path.relative_to(CORE).as_posix(), path.read_text(encoding="utf-8")) for path in SOURCES
    ]


def test_includes_go_down_only():
    assert len(SOURCES) > 300
    assert wrong_includes(core_files()) - EXCEPTIONS == set()


def test_the_exceptions_are_needed():
    assert wrong_includes(core_files()) == EXCEPTIONS


def test_ops_know_neither_graphs_nor_eager_calls():
    """A forward declaration is not allowed either: gradient rules go through GradientContext."""
    for path, text in core_files():
        if path.startswith("ops/"):
            assert not re.search(
                r"^(class|struct) (Graph|Node|Body|Tensor);", text, re.MULTILINE
            ), path


@pytest.mark.parametrize(
    ("path", "included", "is_wrong"),
    [
        ("ops/op.cpp", "graph/graph.h", True),
        ("ops/op.cpp", "base/error.h", False),
        ("graph/loop.h", "eager/eager.h", False),
        ("backend/backend.h", "backend/cpu/gemm.h", True),
        ("backend/cuda/runtime/loop.cu", "graph/loop_plan.h", False),
        ("tensor/tensor.cpp", "bindings/bindings.h", True),
    ],
)
def test_the_direction_of_one_include(path, included, is_wrong):
    found = wrong_includes([(path, f'#include <vector>\n#include "core/{included}"\n')])
    assert found == ({(path, included)} if is_wrong else set())


CALLS_OF_THE_CORE = re.compile(r"\b_core\.apply\(|\bgraph\.apply\(|\b_core\.Graph\(\)\.apply\(")


def test_the_package_reaches_ops_through_dispatch_alone():
    places = [
        path.relative_to(CHECKOUT).as_posix()
        for path in MODULES
        if CALLS_OF_THE_CORE.search(path.read_text(encoding="utf-8"))
    ]
    assert places == ["kerascnn/ops/dispatch.py"]


# Only the bindings get names of ops from outside.
NAMES_OF_OPS = re.compile(r"\bop(->|\.)name\s*[!=]=|[!=]=\s*\w+(->|\.)op->name|\bop\s*[!=]=\s*\"")


@pytest.mark.parametrize(
    ("line", "is_wrong"),
    [
        ('if (node.op->name == "dense") return;', True),
        ("return request.op.name != other;", True),
        ("return name == node.op->name;", True),
        ('const bool is_dgrad = op == "conv2d_dgrad";', True),
        ("return node.op == &op_dense;", False),
        ("std::string key(node.op->name);", False),
    ],
)
def test_comparisons_of_names_of_ops_are_found(line, is_wrong):
    assert bool(NAMES_OF_OPS.search(line)) == is_wrong


def test_ops_are_compared_by_definition():
    places = [path for path, text in core_files() if NAMES_OF_OPS.search(text)]
    assert [path for path in places if not path.startswith("bindings/")] == []
