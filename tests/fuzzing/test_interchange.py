"""Arrays that other libraries hand over with wrong fields: errors, and no process that ends."""

import os

import pytest

from . import batches


@pytest.mark.timeout(10_000)
@pytest.mark.parametrize("kind", ["capsules", "interfaces"])
def test_wrong_fields(kind, amount, tmp_path, capsys, request):
    seed = int(os.environ["KERASCNN_TEST_SEED"])
    count = amount(500, 20_000)
    report = batches.run("op_child.py", kind, seed, count, tmp_path)
    if request.config.getoption("--thorough"):
        with capsys.disabled():
            print(f"\n{kind}: {report}")
    assert report.count >= count
    assert report.outcomes["read"] > count / 20
    shown = "\n".join(f"{fault[-800:]}\n    {case}" for case, fault in report.faults[:10])
    assert not report.faults, f"{len(report.faults)} faults, for corpus/{kind}.jsonl:\n{shown}"
