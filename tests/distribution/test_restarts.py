"""A training whose processes are killed goes on by itself where a launcher starts them again.

`--thorough` kills fifty processes under each launcher and reports what that took.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from .conftest import QUICK_RAY, check_nobody_left, run, start

HERE = Path(__file__).parent
WORKERS = 2
SAVE_FREQ = 2  # of faults.py
# Ray has a checkpoint when it next asks its workers what they have done, up to two more of them
# may be on their way.
UNREGISTERED = 2
# One has to wait for its launcher; where this machine does other things too, longer.
SECONDS = 30.0


@pytest.fixture(scope="module")
def undisturbed(mpich, tmp_path_factory):
    """The weights after the same training without faults."""
    folder = tmp_path_factory.mktemp("undisturbed")
    outcome = start(WORKERS, "none", folder, script=HERE / "faults.py")
    assert outcome.code == 0, outcome.output
    return np.load(folder / "weights.npy")


def by_torchrun(plan, folder, **variables):
    restarts = len(plan.split(","))
    options = ["--standalone", f"--nproc-per-node={WORKERS}", f"--max-restarts={restarts}"]
    command = [sys.executable, "-m", "torch.distributed.run", *options]
    return run([*command, str(HERE / "faults.py"), plan, str(folder)], **variables)


def by_ray(plan, folder, **variables):
    command = [sys.executable, str(HERE / "ray_faults.py"), str(WORKERS), plan, str(folder)]
    return run(command, **QUICK_RAY, **variables)


WAYS = {"torchrun": (by_torchrun, "torch", 0), "ray": (by_ray, "ray", UNREGISTERED)}


def random_plan(rng, kills):
    """Faults of any process, before any of the next steps: 30 steps must be enough for all."""
    return ",".join(f"killed@{rng.integers(WORKERS)}:{rng.integers(1, 6)}" for _ in range(kills))


def read_steps(folder, kills):
    """The first and last step of each start, and the seconds from each kill to the next step."""
    begun = {}
    for line in (folder / "steps").read_text().splitlines():
        attempt, step, seconds = line.split()
        begun.setdefault(int(attempt), []).append((int(step), float(seconds)))
    assert sorted(begun) == list(range(kills + 1))
    spans = [(begun[i][0][0], begun[i][-1][0]) for i in range(kills + 1)]
    killed = [(folder / f"failed-{i}").stat().st_mtime for i in range(kills)]
    return spans, [begun[i + 1][0][1] - killed[i] for i in range(kills)]


@pytest.mark.parametrize("launcher", WAYS)
def test_kills(undisturbed, launcher, rng, amount, note, tmp_path):
    begin, package, unregistered = WAYS[launcher]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    runs, kills = amount((1, 1), (10, 5))
    waits, repeated = [], []
    for i in range(runs):
        folder = tmp_path / str(i)
        folder.mkdir()
        plan = random_plan(rng, kills)
        mark = {"KERASCNN_TEST_DRILL": str(folder)}
        outcome = begin(plan, folder, **mark)
        assert outcome.code == 0, f"{plan}\n{outcome.output}"
        check_nobody_left(mark)
        assert np.load(folder / "weights.npy").tobytes() == undisturbed.tobytes(), plan
        spans, seconds = read_steps(folder, kills)
        waits += seconds
        for (_, last), (first, _) in itertools.pairwise(spans):
            # Of two steps after a checkpoint the first may be computed again, and those of
            # checkpoints that the launcher did not have yet. Where the first process was ended
            # between a checkpoint and the next step, there is none.
            assert -1 <= last - first <= 1 + SAVE_FREQ * unregistered, (plan, spans)
            repeated.append(last - first)
    if runs * kills > 1:
        assert max(waits) < SECONDS, waits
    note(
        launcher,
        kills=runs * kills,
        seconds_from_kill_to_next_step=f"{np.median(waits):.1f} (median)",
        at_most=f"{max(waits):.1f}",
        steps_computed_again=f"{np.mean(repeated):.2f} (mean)",
        at_most_=max(repeated),
        left_over=0,
    )


def test_trainers_of_ray_take_configurations_of_kerascnn():
    pytest.importorskip("ray")
    from ray.train.backend import BackendConfig

    from kerascnn.distribution.ray_train import KerascnnConfig, KerascnnTrainer

    with pytest.raises(TypeError, match="takes a KerascnnConfig as `backend_config`. Received: "):
        KerascnnTrainer(print, backend_config=BackendConfig())
    assert isinstance(KerascnnTrainer(print).backend_config, KerascnnConfig)
