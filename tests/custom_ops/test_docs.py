"""The code in docs/custom_ops.md runs and gives the results that its comments state.

The tutorial on own kernels is executed by the site's build, on a CPU. Here its CUDA is compiled,
and runs where there is a GPU.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "custom_ops.md"
TUTORIAL = DOCS / "tutorials" / "own_kernel.md"


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


@pytest.fixture(scope="module")
def tutorial():
    """What the tutorial's cells define, of those that define the two ops and their reference."""
    cells = re.findall(
        r"^```\{code-cell\}[^\n]*\n(.*?)^```", TUTORIAL.read_text(encoding="utf-8"), re.M | re.S
    )
    names: dict = {"np": np, "keras": keras, "ops": ops}
    starts = ("swish = ", "def of_ops", "FORWARD = ", "def soft_pool_numpy", "def pool_of_ops")
    for start in starts:
        (cell,) = [cell for cell in cells if cell.startswith(start)]
        definitions = cell.split("\n\n\n")[0] if start.endswith("_of_ops") else cell
        exec(definitions.split("\nrng = ")[0], names)
    return names


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_tutorials_cuda_compiles(tutorial, cuda_ptx, dtype):
    x, y = (dtype, (3, 5, 4)), (dtype, (3, 4))
    forward = _core.op_cuda_source(tutorial["soft_pool"]._key, [x])
    # A gradient is an op too: of the inputs, the results and the results' gradients.
    backward = ops.custom_op(
        "backward",
        ops.KernelSource(tutorial["BACKWARD"], sizes=lambda x, y, dy: (60, x[1], x[2])),
        inputs=("x", "y", "dy"),
        outputs=("dx",),
    )
    for source, kernel in [
        (forward, "soft_pool"),
        (_core.op_cuda_source(backward._key, [x, y, y]), "soft_pool_gradient"),
        (
            _core.op_cuda_source(tutorial["swish"]._key, [x, (dtype, ())]),
            "tutorial_swish_forward",
        ),
    ]:
        assert ".entry" in cuda_ptx(source, kernel, "compute_75")


def test_the_tutorials_ops_agree_with_their_references(tutorial, device, rng):
    with keras.device(device):
        x, beta = (ops.convert_to_tensor(rng.standard_normal(s)) for s in ((3, 7, 5), (5,)))
        for op, reference, arguments in [
            (tutorial["swish"], tutorial["of_ops"], (x, beta)),
            (tutorial["soft_pool"], tutorial["pool_of_ops"], (x,)),
        ]:
            positions = tuple(range(len(arguments)))
            ours = keras.grad(lambda *a, f=op: ops.sum(f(*a) ** 2), argnums=positions)(*arguments)
            theirs = keras.grad(lambda *a, f=reference: ops.sum(f(*a) ** 2), argnums=positions)(
                *arguments
            )
            pairs = zip((op(*arguments), *ours), (reference(*arguments), *theirs), strict=True)
            for a, b in pairs:  # in float64; the functions of both are right to a few last places
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-13)
