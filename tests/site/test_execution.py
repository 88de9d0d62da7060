"""A build without MNIST says which pages it leaves out, and why, and executes the others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("myst_nb", reason="tests of a small site: the extra docs is not installed")

EXTENSIONS = Path(__file__).resolve().parents[2] / "docs" / "_extensions"
CONF = f"""
import os, sys
sys.path.insert(0, {str(EXTENSIONS)!r})
extensions = ["myst_nb", "execution"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_complete = "COMPLETE" in os.environ
"""
PAGE = """---
file_format: mystnb
kernelspec:
  name: python3
---

# {title}

```{{code-cell}} ipython3
{code}
```
"""
PAGES = {
    "index": "# Pages\n\n```{toctree}\ngallery\ntutorials/plain\ntutorials/mnist\n```\n",
    "gallery": PAGE.format(title="Gallery", code="1 / 0")
    + "\n```{glue:figure} picture\n:alt: A picture.\n\nWhat the picture shows.\n```\n",
    "tutorials/plain": PAGE.format(title="Plain", code="print(6 * 7000)"),
    "tutorials/mnist": PAGE.format(
        title="Digits",
        code="import kerascnn as keras\n_ = keras.datasets.mnist.load_data()\nprint('read', 'it')",
    ),
}


def build(folder, **variables):
    """Builds a small site where nothing can be downloaded: no proxy listens on that port."""
    for name, text in {"conf.py": CONF, **{f"{n}.md": t for n, t in PAGES.items()}}.items():
        path = folder / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    nowhere = "http://127.0.0.1:9"
    environment = {
        **os.environ,
        "KERASCNN_HOME": str(folder / "kerascnn"),
        "KERAS_HOME": str(folder / "keras"),
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), nowhere),
        **dict.fromkeys(("no_proxy", "NO_PROXY"), ""),
        **variables,
    }
    if "KERASCNN_MNIST" not in variables:
        environment.pop("KERASCNN_MNIST", None)
    return subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-b", "html", folder / "docs", folder / "site"],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_pages_that_need_mnist_are_left_out_with_the_reason(tmp_path):
    done = build(tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert "skipped, because it trains on MNIST: gallery\n" in said
    assert "skipped, because it trains on MNIST: tutorials/mnist\n" in said
    assert "there is no MNIST: ConnectionError: MNIST is not in the cache" in said
    assert "1 of 2 tutorials were executed" in said
    assert "No GPU was used" in said
    html = {name: (tmp_path / "site" / f"{name}.html").read_text("utf-8") for name in PAGES}
    assert "42000" in html["tutorials/plain"]
    for name, text in html.items():
        assert ("not-executed" in text) == (name in ("gallery", "tutorials/mnist"))
    assert "What the picture shows." in html["gallery"]


def test_a_site_that_is_published_has_all_pages(tmp_path):
    done = build(tmp_path, COMPLETE="1")
    assert done.returncode != 0
    assert "Pages that train on MNIST cannot be executed. ConnectionError: MNIST" in done.stderr


def test_a_wrong_place_of_mnist_is_an_error(tmp_path):
    done = build(tmp_path, KERASCNN_MNIST=str(tmp_path / "absent"))
    assert done.returncode != 0
    assert "KERASCNN_MNIST names" in done.stderr
