"""The table of docs/applications.md is right."""

import re
from pathlib import Path

import pytest

from kerascnn import applications

from .networks import ALL, MODULES, OWN, here

PAGE = Path(__file__).parents[2] / "docs" / "applications.md"
ROWS = {
    row[0]: row[1:]
    for row in re.findall(
        r"^\| `(\w+)` \| `(\w+)` \| ([\d,]+) \| (\d+) \| (yes|no) \|$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
}


def pytest_generate_tests(metafunc):
    """Large networks with `--thorough`, which makes more than a gigabyte of weights for one."""
    if "name" in metafunc.fixturenames:
        thorough = metafunc.config.getoption("--thorough")
        metafunc.parametrize("name", [n for n in ALL if thorough or _parameters(n) < 16e6])


def _parameters(name):
    return int(ROWS[name][1].replace(",", ""))


def test_every_constructor_has_a_row():
    assert sorted(ROWS) == sorted(ALL)
    own = {name for names in OWN.values() for name in names.split()}
    for name, (module, _, _, is_published) in ROWS.items():
        assert module == MODULES[name]
        assert hasattr(getattr(applications, module), "preprocess_input")
        assert is_published == ("no" if name in own else "yes")


def test_parameters_and_size(name):
    network = here(name)
    assert network.count_params() == _parameters(name)
    assert network.input_shape[1] in (int(ROWS[name][2]), None)


@pytest.mark.parametrize("constructor", ALL)
def test_docstrings_name_the_size_and_the_paper(constructor):
    text = getattr(applications, constructor).__doc__
    size = ROWS[constructor][2]
    assert f"images of {size} x {size} pixels" in text
    assert re.search(r"Source: .*arXiv:\d{4}\.\d{4,5}", text, re.DOTALL)
