"""The table of docs/architecture.md names folders and files that exist."""

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = (CHECKOUT / "docs" / "architecture.md").read_text(encoding="utf-8")
TABLE = PAGE.split("## What lives where")[1].split("\n## ")[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TABLE.splitlines()
    if line.startswith("| `")
]


def places(cell):
    """Returns the paths of a row; a name without a folder is beside the one before it."""
    found, folder = [], CHECKOUT
    for name in re.findall(r"`([^`]+)`", cell):
        path = CHECKOUT / name
        if found and not path.exists():
            path = folder / name
        found.append(path)
        folder = path.parent
    return found


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_names_what_exists(row):
    where, _, first = row
    folders = places(where)
    assert folders and [str(path) for path in folders if not path.exists()] == []
    roots = [path if path.is_dir() else path.parent for path in folders]
    for name in re.findall(r"`([^`]+)`", first):
        beside = [root.parent for root in roots]
        assert any((root / name).is_file() for root in [CHECKOUT, *roots, *beside]), name


def test_the_table_is_found():
    assert len(ROWS) >= 30


def test_every_part_of_the_package_has_a_row():
    """Every folder of kerascnn, and every module beside them, has a row."""
    named = {path.resolve() for row in ROWS for path in places(row[0])}
    package = CHECKOUT / "kerascnn"
    parts = [path.parent for path in package.glob("*/__init__.py")]
    parts += [path for path in package.glob("*.py") if path.name != "__init__.py"]
    assert [path.name for path in parts if path.resolve() not in named] == []
