"""Random models against Keras: what is refused, shapes, values, training, configurations, files.

Where the libraries differ for a reason, `random_models` draws nothing of the kind, and says where
the difference is documented.
"""

import os

import pytest

from . import batches


@pytest.mark.timeout(40_000)
def test_random_models(amount, tmp_path, capsys, request):
    pytest.importorskip("torch")
    pytest.importorskip("keras")
    # Each run of the tests takes the same cases; what luck may find is for the long ones.
    seed = amount(1, int(os.environ["KERASCNN_TEST_SEED"]))
    count = amount(12, 3_000)
    report = batches.run("model_child.py", "models", seed, count, tmp_path)
    if request.config.getoption("--thorough"):
        with capsys.disabled():
            print(f"\nmodels: {report}")
    assert report.count >= count
    shown = "\n".join(f"{fault[:500]}\n    {case}" for case, fault in report.faults[:10])
    assert not report.faults, f"{len(report.faults)} faults, for corpus/models.jsonl:\n{shown}"
