"""Readers of files against mutated files: errors of the right kind, and nothing else.

A file may cost memory of 64 MB and four times its size, and a second of processor time and one for
each MB; where it costs more, code of it runs, other files are touched or the process ends, the case
is a fault. Faults that were mended are in the corpus, which comes first.
"""

import os

import pytest

from . import batches, file_targets

# The bounds are for what readers do. A GPU's driver takes memory and opens files where it likes.
pytestmark = pytest.mark.usefixtures("on_cpu")

# How many of 100,000 mutations a target gets with `--thorough`; models have the most to mutate.
_SHARES = {
    "keras": 30_000,
    "h5_model": 10_000,
    "exported": 10_000,
    "configuration": 10_000,
    "onnx": 20_000,
    "graph": 20_000,
    "graph_run": 20_000,
    "tar": 20_000,
    "images": 100_000,  # 20,000 of each format
    "torch_zip": 20_000,
    "torch_old": 20_000,
    "torch_safetensors": 20_000,
}
_NEEDED = {"images": "PIL", "tar": "PIL", "onnx": "onnx"}


@pytest.mark.timeout(40_000)
@pytest.mark.parametrize("name", [n for n in file_targets.TARGETS if n != "broken"])
def test_mutated_files(name, amount, tmp_path, capsys, request):
    if name in _NEEDED:
        pytest.importorskip(_NEEDED[name])
    # Each run of the tests takes the same cases; what luck may find is for the long ones.
    seed = amount(1, int(os.environ["KERASCNN_TEST_SEED"]))
    count = amount(40, _SHARES.get(name, 5_000))
    report = batches.run("child.py", name, seed, count, tmp_path)
    if request.config.getoption("--thorough"):
        with capsys.disabled():
            print(f"\n{name}: {report}")
    assert report.count >= count
    shown = "\n".join(f"{case}: {fault}" for case, fault in report.faults[:5])
    assert not report.faults, f"{len(report.faults)} faults; files for corpus/{name}:\n{shown}"


def test_a_reader_that_does_more_is_noticed(tmp_path):
    """Without this, a guard that sees nothing would let everything pass."""
    report = batches.run("child.py", "broken", 0, len(file_targets.BROKEN), tmp_path)
    faults = dict(report.faults)
    assert report.count == len(faults) == len(file_targets.BROKEN), report
    for number, expected in enumerate(file_targets.BROKEN.values()):
        (fault,) = (f for case, f in faults.items() if case.endswith(f"broken-0-{number}"))
        assert expected in fault
