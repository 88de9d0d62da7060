"""The code in docs/custom_ops.md runs and gives the results that its comments state."""

import re
from pathlib import Path

import numpy as np

import kerascnn as keras

PAGE = Path(__file__).parents[2] / "docs" / "custom_ops.md"


def test_the_page(device):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    names: dict = {}
    with keras.device(device):
        for block in blocks:
            exec(block, names)
        checked = 0
        for line in "".join(blocks).splitlines():
            found = re.match(r"(\w+\(.*\))  # ([-\d., ]+)$", line.rstrip("."))
            if found is None:
                continue
            wanted = [float(number) for number in found[2].strip(" ,").split(",")]
            result = eval(found[1], names).numpy()
            np.testing.assert_allclose(result[: len(wanted)], wanted, rtol=1e-6)
            checked += 1
        assert checked == 3
        sums = names["row_sums"]
        slope = keras.grad(lambda x: keras.ops.sum(sums(x)))(keras.ops.ones((5, 3)))
        np.testing.assert_array_equal(slope.numpy(), np.ones((5, 3)))
