"""On which cores the CPU's threads run: those of the process, or one core each if asked for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# This program prints the cores that each thread may use, after kernels that keep all threads busy.
PROGRAM = """
import json
from pathlib import Path
import kerascnn as keras
from kerascnn import ops

keras.config.set_device("cpu")
x = ops.ones((512, 512))
for _ in range(20):
    x = ops.matmul(x, x) / 512
float(x[0, 0])
cores = []
for task in Path("/proc/self/task").iterdir():
    lines = (task / "status").read_text().splitlines()
    found = {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}
    cores.append(found["Cpus_allowed_list"])
print(json.dumps(cores))
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="needs Linux' list of threads"
)


def quota():
    """Returns how many CPUs' time the container may use."""
    try:
        share, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except OSError:
        return float("inf")
    return float("inf") if share == "max" else int(share) / int(period)


def cores_of_threads(allowed, **environment):
    names = ("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "KERASCNN_NUM_THREADS")
    rest = {name: value for name, value in os.environ.items() if name not in names}
    # Only kerascnn's core may start threads.
    quiet = {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=600,
        env={**rest, **quiet, **environment},
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_one_thread_on_one_core():
    core = min(os.sched_getaffinity(0))
    assert cores_of_threads({core}) == [str(core)]


@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2 or quota() < 2, reason="needs two cores, and may use them"
)
def test_as_many_threads_as_cores():
    first, second, *_ = sorted(os.sched_getaffinity(0))
    both = cores_of_threads({first, second})
    assert len(both) == 2 and both[0] == both[1]  # Each thread may use both cores.
    assert len(cores_of_threads({first, second}, KERASCNN_NUM_THREADS="1")) == 1
    bound = cores_of_threads({first, second}, OMP_PROC_BIND="close", OMP_PLACES="threads")
    assert sorted(bound, key=int) == [str(first), str(second)]  # Each thread has its own core.
