"""pyproject.toml and README.md, which people read and copy from, are correct."""

import gzip
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PYPROJECT = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pyproject():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no TOML parser")
    return tomllib.loads(PYPROJECT)


def test_the_cuda_switch_brings_the_toolchain_of_the_group(pyproject):
    (override,) = (
        override
        for override in pyproject["tool"]["scikit-build"]["overrides"]
        if "KERASCNN_CUDA" in override["if"]["env"]
    )
    assert override["build"]["requires"] == pyproject["dependency-groups"]["cuda-build"]


def test_the_cuda_extra_has_the_versions_that_are_built_against(pyproject):
    built = set(pyproject["dependency-groups"]["cuda-build"])
    (extra,) = pyproject["tool"]["dynamic-metadata"]
    assert extra["libraries"] and set(extra["libraries"]) <= built


def test_the_cuda_package_is_built_and_runs_with_the_same_versions(pyproject):
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no TOML parser")
    text = (CHECKOUT / "core/packaging/cuda13/pyproject.toml").read_text(encoding="utf-8")
    package = tomllib.loads(text)
    built = set(pyproject["dependency-groups"]["cuda-build"])
    assert built == set(package["build-system"]["requires"]) - {"scikit-build-core>=1.1,<2"}
    (extra,) = pyproject["tool"]["dynamic-metadata"]
    assert package["project"]["dependencies"] == extra["libraries"]
    (version,) = re.findall(package["tool"]["dynamic-metadata"][0]["regex"], PYPROJECT)
    assert version == pyproject["project"]["version"]


@pytest.mark.parametrize("switch", ["ON", "1", "OFF", ""])
def test_the_cuda_extra_is_what_the_build_lacks(pyproject, monkeypatch, switch):
    """A build that has the CUDA backend needs libraries only; any other needs the backend too."""
    (entry,) = pyproject["tool"]["dynamic-metadata"]
    monkeypatch.syspath_prepend(CHECKOUT / entry["provider"]["path"])
    provider = __import__(entry["provider"]["module"])
    monkeypatch.setenv("KERASCNN_CUDA", switch)
    fields = provider.dynamic_metadata(entry, {"version": "1.2.3"})
    names = [requirement.split(";")[0] for requirement in fields["optional-dependencies"]["cuda13"]]
    assert names == (entry["libraries"] if switch in ("ON", "1") else ["kerascnn-cuda13==1.2.3"])


def test_the_group_build_holds_what_an_isolated_build_requires(pyproject):
    group = set(pyproject["dependency-groups"]["build"])
    assert set(pyproject["build-system"]["requires"]) <= group


def test_oneDNN_is_the_same_version_to_build_and_to_run(pyproject):
    (run,) = (r for r in pyproject["project"]["dependencies"] if r.startswith("onednn"))
    assert run in pyproject["build-system"]["requires"]


def write_idx(path, array):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    with gzip.open(path, "wb") as file:
        file.write(header + array.tobytes())


def test_the_readme_example_runs(tmp_path, monkeypatch):
    """The example runs as written, on a few random images in MNIST's file format."""
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    rng = np.random.default_rng(0)
    for part, count in (("train", 300), ("t10k", 70)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", labels)
    monkeypatch.setenv("KERASCNN_MNIST", str(tmp_path))
    checks = (
        "assert len(history.history['val_accuracy']) == 5\n"
        "assert probabilities.shape == (70, 10)\n"
        "assert abs(probabilities.sum(axis=1) - 1).max() < 1e-5\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", example + checks],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "val_accuracy" in done.stdout


PAGES = [
    CHECKOUT / name
    for name in ("README.md", "CHANGELOG.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md")
    if (CHECKOUT / name).is_file()
] + sorted((CHECKOUT / "docs").rglob("*.md"))


def anchors(page):
    """Returns the anchors of a page that links can name, formed as GitHub forms them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings_that_are_there(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    dead = []
    for link in links:
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def test_the_readme_has_links():
    assert README.count("](docs/") >= 10
