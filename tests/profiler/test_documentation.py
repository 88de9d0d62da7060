"""The code of docs/profiler.md has to run."""

import re
from pathlib import Path

import pytest

import kerascnn as keras

PAGE = Path(__file__).parents[2] / "docs" / "profiler.md"


@pytest.fixture(autouse=True)
def on_cpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with keras.device("cpu"):
        yield tmp_path


def test_the_page(on_cpu, capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    out = capsys.readouterr().out
    assert "conv + pool" in out and "backward" in out
    assert {path.name for path in on_cpu.iterdir()} == {"kernels.html", "kernels.json"}


def test_the_page_names_every_key():
    with keras.profiler.trace() as t:
        keras.ops.exp(keras.ops.ones((3,)))
    text = PAGE.read_text(encoding="utf-8")
    for key in t.rows[0]:
        assert f"`{key}`" in text, key
