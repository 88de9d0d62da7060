"""The examples of docs/interchange.md do what their comments say."""

import re
from pathlib import Path

import pytest

import kerascnn as keras

PAGE = Path(__file__).parents[2] / "docs" / "interchange.md"


def test_the_examples_print_what_they_say(capsys):
    pytest.importorskip("torch")
    namespace: dict = {}
    expected = []
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        expected += re.findall(r"^print\(.*\) +# (.*)$", block, re.MULTILINE)
        with keras.device("cpu"):
            exec(block, namespace)
    assert len(expected) == 4
    assert capsys.readouterr().out.splitlines() == expected
