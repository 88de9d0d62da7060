"""`python -m pytest` runs every test file."""

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]

# pytest's settings leave out these folders; the value names the script that runs their tests, and
# how.
LEFT_OUT = {
    CHECKOUT / "tests" / "gpu": ("tests/gpu/run_on_gpu.sh", "pytest -p no:benchmark tests/gpu"),
    CHECKOUT / "tests" / "site": (".ci/run", "pytest -p no:cacheprovider tests/site"),
}

# This program lists the files that pytest collects, without importing them.
LISTING = """
import sys
import pytest

class Listing:
    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path):
        if not collection_path.is_file():
            return None
        print(f"file: {collection_path}")
        return True

# pytest-benchmark, where it is installed, warns below pytest-xdist, and warnings are errors here.
options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark"]
sys.exit(pytest.main(options, plugins=[Listing()]))
"""


def test_no_file_of_tests_is_left_out():
    """A name in `norecursedirs` leaves out every folder of that name, as `core` once did."""
    done = subprocess.run(
        [sys.executable, "-c", LISTING], cwd=CHECKOUT, capture_output=True, text=True, timeout=600
    )
    # pytest returns 5 where no test was collected.
    assert done.returncode == 5, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    found = {Path(line.removeprefix("file: ")) for line in lines if line.startswith("file: ")}
    files = set((CHECKOUT / "tests").rglob("test_*.py"))
    assert {path for path in files - found if path.parent not in LEFT_OUT} == set()


def test_what_is_left_out_has_something_else_that_runs_it():
    for script, command in LEFT_OUT.values():
        assert command in (CHECKOUT / script).read_text(encoding="utf-8")


def test_each_worker_has_another_first_gpu(gpus_of_worker):
    orders = [gpus_of_worker(f"gw{worker}", ["0", "1", "GPU-77"]) for worker in range(4)]
    assert orders == ["0,1,GPU-77", "1,GPU-77,0", "GPU-77,0,1", "0,1,GPU-77"]
