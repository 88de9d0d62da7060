"""Disks that fail and quotas that are used up, at each call of the system in turn."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import compiled

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="takes the place of Linux' calls")


@pytest.mark.timeout(20_000)
def test_any_call_may_fail(tmp_path, rng, amount, note):
    """Of opening, reading, writing, closing and renaming, in saving, loading and `fit`."""
    library = compiled(HERE / "failing_files.c", tmp_path)
    folder = tmp_path / "files"
    folder.mkdir()
    # What is loaded first already, a sanitizer for example, stays first.
    before = [os.environ["LD_PRELOAD"]] if "LD_PRELOAD" in os.environ else []
    most = amount("2", None)
    command = [sys.executable, HERE / "failing.py", library, folder, rng.integers(2**31)]
    done = subprocess.run(
        [*map(str, command), *([] if most is None else [most])],
        env=os.environ
        | {"LD_PRELOAD": " ".join([*before, str(library)]), "KERASCNN_DEVICE": "cpu"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0
    report = json.loads(done.stdout.splitlines()[-1])
    # Sixteen kinds of work with four errors each, which all meet calls of the system.
    assert report["count"] >= 16 * 4
    note("calls that fail", calls=report["count"])
    shown = "\n".join(report["faults"][:5])
    assert not report["faults"], f"{len(report['faults'])} faults:\n{shown}"
