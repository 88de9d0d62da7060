"""Random calls of ops against NumPy, at once and compiled, in a process that a crash may end."""

import os
from collections import Counter

import pytest

from . import batches

# A call may take little of the host's memory. The first calls on a GPU load libraries, which take
# more; test_programs.py compares each op there with the CPU.
pytestmark = pytest.mark.usefixtures("on_cpu")


@pytest.mark.timeout(40_000)
def test_random_calls(amount, tmp_path, capsys, request):
    """Results are NumPy's in float64; what only one of the two refuses is listed by op."""
    # Each run of the tests takes the same cases; what luck may find is for the long ones.
    seed = amount(1, int(os.environ["KERASCNN_TEST_SEED"]))
    count = amount(600, 200_000)
    report = batches.run("op_child.py", "ops", seed, count, tmp_path)
    if request.config.getoption("--thorough"):
        with capsys.disabled():
            print(f"\nops: {report}")
    assert report.count >= count
    shown = "\n".join(f"{fault[:300]}\n    {case}" for case, fault in report.faults[:10])
    assert not report.faults, f"{len(report.faults)} faults, lines for corpus/ops.jsonl:\n{shown}"
    # neither may be what most calls come to
    outcomes = Counter({name: n for name, n in report.outcomes.items() if n})
    assert outcomes["compared"] + outcomes["compiled"] > count / 2
    assert (
        sum(n for name, n in outcomes.items() if name.startswith(("taken", "refused"))) < count / 8
    )
