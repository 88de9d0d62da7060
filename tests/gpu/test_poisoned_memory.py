"""Nothing is read that was not written: NaN in fresh memory leaves all results as they are."""

import os
import pathlib
import re
import subprocess
import sys

STEPS = pathlib.Path(__file__).with_name("sanitized_steps.py")


def losses(folder, poison):
    """Returns what the steps print, less the warnings."""
    folder.mkdir()
    result = subprocess.run(
        [sys.executable, str(STEPS), "--by-rules"],
        capture_output=True,
        text=True,
        env={**os.environ, "KERASCNN_POISON_MEMORY": poison, "KERASCNN_HOME": str(folder)},
        timeout=300,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    return result.stdout.splitlines()


def test_steps_of_all_kinds(cuda_device, tmp_path):
    plain, poisoned = (losses(tmp_path / poison, poison) for poison in "01")
    assert re.fullmatch(r"mixed_bfloat16 by rules [\d.]+", plain[-1])
    assert poisoned == plain
