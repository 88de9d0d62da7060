"""The rows of the op tests leave no objects of the core at the end of a process."""

import subprocess
import sys
from pathlib import Path

# PyTorch keeps what tests are made of until after the core has looked; one reference too many does
# the same.
_SOURCE = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
from ops import cases, harness
import numpy as np
for case in cases.CASES:
    if case.op in ("loop", "switch", "region"):
        harness.draw(case, np.random.default_rng(0), case.dtypes[0])
ctypes.pythonapi.Py_IncRef(ctypes.py_object([cases.CASES, cases.BAD]))
"""


def test_rows_that_outlive_the_core_hold_no_graphs():
    done = subprocess.run(
        [sys.executable, "-c", _SOURCE, str(Path(__file__).resolve().parents[1])],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "leaked" not in done.stderr
