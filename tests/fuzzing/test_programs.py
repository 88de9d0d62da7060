"""Random programs and calls of every op: at once, compiled, in regions, and on each device."""

import os

import pytest

from . import batches


def _run(kind, usual, large, device, request, folder, capsys):
    thorough = request.config.getoption("--thorough")
    # Each run of the tests takes the same cases; what luck may find is for the long ones.
    seed = int(os.environ["KERASCNN_TEST_SEED"]) if thorough else 1
    count = large if thorough else usual
    report = batches.run("op_child.py", kind, seed, count, folder, device)
    if thorough:
        with capsys.disabled():
            print(f"\n{kind} on {device}: {report}")
    assert report.count >= count
    shown = "\n".join(f"{fault[:500]}\n    {case}" for case, fault in report.faults[:10])
    assert not report.faults, f"{len(report.faults)} faults, for corpus/{kind}.jsonl:\n{shown}"
    return report


@pytest.mark.timeout(40_000)
def test_random_programs(device, request, tmp_path, capsys):
    """Loops, reductions, zero sizes, all dtypes, gradients: a program gives what its calls do."""
    _run("programs", 60, 20_000, device, request, tmp_path, capsys)


@pytest.mark.timeout(40_000)
def test_any_op(device, request, tmp_path, capsys):
    """Every public op with any arguments: a result, the same compiled, or an error."""
    report = _run("any", 500, 200_000, device, request, tmp_path, capsys)
    assert report.outcomes["compared"] > report.count / 20
