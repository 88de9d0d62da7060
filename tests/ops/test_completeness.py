"""These tests fail until every op of the core's list has all its parts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kerascnn import _core

from .cases import BAD, CASES, OF_PASSES
from .reference import REFERENCES

# These ops stop gradients on purpose, so theirs cannot be compared with that of the function.
BLOCKS_GRADIENTS = ("stop_gradient",)

COMPLETE = {
    "differentiable": True,
    "reason": "",
    "is_view": False,
    "has_cpu_kernel": True,
    "has_cuda_kernel": True,
}


def missing_parts(op: str, info: dict, references, cases, bad) -> list[str]:
    """Lists what `op` lacks by `op_info(op)`; has_cuda_kernel is None if no GPU was asked."""
    missing = []
    if not info["differentiable"] and not info["reason"]:
        missing.append("a gradient, or the reason why it has none (OpDef in core/ops)")
    if info["differentiable"] and info["reason"]:
        missing.append("a choice: it has a gradient and a reason to have none")
    if not info["is_view"] and not info["has_cpu_kernel"]:
        missing.append("a kernel for the CPU (plan_<op> in core/backend/cpu)")
    if not info["is_view"] and info["has_cuda_kernel"] is False:
        missing.append("a kernel for CUDA (plan_<op> in core/backend/cuda)")
    if op not in references:
        missing.append("a reference in tests/ops/reference.py")
    rows = [case for case in cases if case.op == op]
    if not rows:
        missing.append("a row in tests/ops/cases_*.py")
    is_checked = any(case.gradient for case in rows) or op in BLOCKS_GRADIENTS
    if rows and info["differentiable"] and not is_checked:
        missing.append("a row whose gradient is checked")
    if rows and not info["is_view"] and not any(case.dtypes for case in rows):
        missing.append("a row with a dtype")
    if not any(row.op == op for row in bad):
        missing.append("a bad call in tests/ops/cases_*.py")
    return missing


@pytest.mark.parametrize("op", sorted(set(_core.op_names()) - OF_PASSES))
def test_op_is_complete(op):
    missing = missing_parts(op, _core.op_info(op), REFERENCES, CASES, BAD)
    assert not missing, f"{op} lacks: {'; '.join(missing)}"


def test_rows_and_references_belong_to_ops():
    names = set(_core.op_names())
    assert {case.op for case in CASES} <= names
    assert {bad.op for bad in BAD} <= names
    assert set(REFERENCES) <= names


def test_names_are_unique():
    ids = [str(case) for case in CASES]
    assert len(ids) == len(set(ids))
    assert len(_core.op_names()) == len(set(_core.op_names()))


ROOT = Path(__file__).parents[2]


def files_on_the_page(of_elements: bool) -> list[str]:
    """Returns the files that docs/adding_an_op.md lists, from the first column that names any."""
    page = (ROOT / "docs" / "adding_an_op.md").read_text(encoding="utf-8")
    section = page.split("## A function of single elements\n")[of_elements]
    return re.findall(r"^\|(?: \S+ \|)? `([^`]+/[^`]+)` \|", section, re.MULTILINE)


def files_of_the_core(op: str) -> set[str]:
    """Returns the files of core/ that contain the name of an op."""
    word = re.compile(rf"\b{op}\b")
    sources = [f for f in (ROOT / "core").rglob("*") if f.suffix in (".h", ".cpp", ".cu", ".cuh")]
    named = [f for f in sources if word.search(f.read_text(encoding="utf-8"))]
    return {f.relative_to(ROOT).as_posix() for f in named}


# The bar is the number of files to touch for a new op. Where Keras lists the function in a module,
# one more is needed.
@pytest.mark.parametrize(("op", "of_elements", "bar"), [("ctc_loss", False, 9), ("log1p", True, 8)])
def test_the_page_names_the_files_of_an_op(op, of_elements, bar):
    files = files_on_the_page(of_elements)
    assert 1 < len(files) <= bar - 1
    for file in files:
        assert op in (ROOT / file).read_text(encoding="utf-8"), file


def test_no_other_file_of_the_core_lists_ops():
    on_page = {file for file in files_on_the_page(of_elements=False) if file.startswith("core/")}
    assert files_of_the_core("ctc_loss") == on_page
    on_page = {file for file in files_on_the_page(of_elements=True) if file.startswith("core/")}
    on_page = on_page - {"core/ops/unary.cpp"} | {"core/ops/binary.cpp"}
    assert files_of_the_core("bitwise_xor") == on_page


class TestTheTestItself:
    """Each omission in a made-up table is reported."""

    class Row:
        op, gradient, dtypes = "halve", True, ("float32",)

    def parts(self, references=None, cases=(Row,), bad=(Row,), **info):
        references = {"halve": object()} if references is None else references
        return missing_parts("halve", {**COMPLETE, **info}, references, cases, bad)

    def test_a_complete_op_lacks_nothing(self):
        assert self.parts() == []
        assert self.parts(has_cuda_kernel=None) == []
        assert self.parts(is_view=True, has_cpu_kernel=False, has_cuda_kernel=False) == []
        assert self.parts(differentiable=False, reason="its result is boolean") == []

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"differentiable": False}, "a gradient"),
            ({"reason": "none needed"}, "a choice"),
            ({"has_cpu_kernel": False}, "core/backend/cpu"),
            ({"has_cuda_kernel": False}, "core/backend/cuda"),
            ({"references": {}}, "a reference"),
            ({"cases": ()}, "a row in"),
            ({"bad": ()}, "a bad call"),
        ],
    )
    def test_an_omission_is_reported(self, change, named):
        (missing,) = self.parts(**change)
        assert named in missing

    def test_an_unchecked_gradient_is_reported(self):
        class Unchecked(self.Row):
            gradient = False

        (missing,) = self.parts(cases=(Unchecked,))
        assert "gradient is checked" in missing

    def test_an_unknown_op_in_the_core_is_an_error(self):
        with pytest.raises(ValueError, match='there is no op named "halve"'):
            _core.op_info("halve")
