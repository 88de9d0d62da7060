"""Tables of docs/program.md and docs/environment.md list what is in the code, in its order."""

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = (CHECKOUT / "docs" / "program.md").read_text(encoding="utf-8")
ENVIRONMENT = (CHECKOUT / "docs" / "environment.md").read_text(encoding="utf-8")


def source(path):
    return (CHECKOUT / "core" / path).read_text(encoding="utf-8")


def first_cells(page, heading):
    """Returns the names in the first column of the first table after these words, row by row."""
    table = re.search(r"(?:^ *\|.*\n)+", page.split(heading, 1)[1], re.MULTILINE).group(0)
    cells = [row.strip().strip("|").split("|")[0] for row in table.splitlines()]
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_passes_stand_in_the_order_in_which_they_run():
    listed = first_cells(PROGRAM, "They run in\nthis order:")
    body = source("graph/passes/passes.cpp").split("RootedGraph run_passes(")[1]
    # A line such as `return eliminate_dead_code(form_regions(...))` runs the inner pass first.
    runs = [
        name
        for line in body.splitlines()
        for name in reversed(re.findall(r"\b([a-z]\w+)\((?=rooted[,)]|source\)|\w+\(rooted)", line))
    ]
    # Some run again after a pass that leaves work for them; the table has the first time.
    again = {"eliminate_dead_code", "merge_common_subexpressions"}
    expected, seen = [], set()
    for name in runs:
        if name not in again or name not in seen:
            expected.append(name)
            seen.add(name)
    assert len(expected) > 20
    assert listed == expected


def test_all_fusions_are_listed():
    devices = set()
    for path in ("backend/cuda/fusions/fusions.h", "backend/cpu/fusions/fusions.h"):
        found = set(re.findall(r" FUSION\((\w+)\)", source(path)))
        assert len(found) >= 3
        devices |= found
    of_devices = first_cells(PROGRAM, "(`core/graph/conv_pooling.h`)")
    assert len(of_devices) == len(set(of_devices))
    assert set(of_devices) == devices

    of_ops = first_cells(PROGRAM, "each sees what the ones before it left:")
    names = re.findall(r'\.name = "(\w+)"', source("graph/passes/op_fusions.cpp"))
    # The one that comes after the fusions of the device is defined before the list.
    assert of_ops == names[1:] + names[:1]


def test_the_variables_are_those_that_are_read():
    read = set()
    files = [
        path
        for pattern in ("core/**/*.cpp", "core/**/*.cu", "core/**/*.h", "kerascnn/**/*.py")
        for path in CHECKOUT.glob(pattern)
    ]
    for path in files:
        read |= set(re.findall(r'"(KERAS(?:CNN)?_[A-Z0-9_]+)"', path.read_text(encoding="utf-8")))
    listed = first_cells(ENVIRONMENT, "# Environment variables")
    assert len(listed) == len(set(listed)) > 30
    assert set(listed) == read
