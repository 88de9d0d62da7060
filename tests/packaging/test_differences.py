"""The pages of docs/differences: what each entry says, and which names lead there."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted((DOCS / "differences").glob("*.md"))


def api_pages():
    spec = importlib.util.spec_from_file_location(
        "api_pages", DOCS / "_extensions" / "api_pages.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_entry_says_what_keras_does_what_happens_here_and_why(page):
    head, *entries = page.read_text(encoding="utf-8").split("\n## ")
    assert head.startswith("# ") and entries
    for entry in entries:
        title, _, text = entry.partition("\n")
        assert re.fullmatch(
            r"\n- \*\*Keras:\*\* .+\n- \*\*Here:\*\* .+\n- \*\*Why:\*\* .+\n+", text + "\n"
        ), title
    # A table of three columns is too wide for a phone.
    assert "\n|" not in head


def test_the_overview_lists_every_page():
    text = (DOCS / "differences_from_keras.md").read_text(encoding="utf-8")
    pages = [page.stem for page in PAGES]
    assert sorted(re.findall(r"^differences/(\w+)$", text, re.MULTILINE)) == pages
    assert sorted(re.findall(r"\]\(differences/(\w+)\.md\)", text)) == pages


def test_no_title_occurs_twice():
    titles = [title for _, title, _ in api_pages().differences()]
    assert len(titles) == len(set(titles)) > 130


def test_names_lead_to_their_entries():
    pytest.importorskip("docutils")
    leading = api_pages().leading_to_differences
    (_, line) = leading("kerascnn.ops.image.gaussian_blur")
    assert line.count("differences/images.html#ops-image-gaussian-blur-") == 3
    assert "ops.html#ops-eigh-svd" in leading("kerascnn.ops.svd")[1]
    assert leading("kerascnn.layers.Flatten") == []


def test_functions_and_classes_in_titles_are_public_names():
    """What is renamed is renamed here too. The others are arguments, methods and attributes."""
    pages = api_pages()
    pages.leave_out_what_cannot_be_imported()
    public = [
        f".{package}.{name}"
        for package in pages.PACKAGES
        for name in pages.public_names(importlib.import_module(package))
    ]
    named = {name for _, _, names in pages.differences() for name in names}
    unknown = {name for name in named if not any(full.endswith(f".{name}") for full in public)}
    classes = {name for name in unknown if re.fullmatch(r"[A-Z]\w+", name)}
    functions = {name for name in unknown if re.match(r"(ops|utils|config|random)\.", name)}
    assert not classes and not functions
