"""Trainings that are killed again and again end as one that nobody disturbed."""

import json
import signal

import numpy as np
import pytest
import trainings

import kerascnn as keras
from kerascnn.saving import nested_state

# A start opens no more files of the folder than this before it has trained for an epoch.
FILE_EVENTS = 40


def check_files(folder):
    """What lies in the folder after a kill is whole, whenever that was."""
    backup = folder / "backup"
    states = [backup / f"{name}latest.training_state.safetensors" for name in ("", "previous.")]
    for path in filter(lambda path: path.exists(), states):
        variables = nested_state.read(path)["variables"]
        assert all(np.isfinite(value).all() for value in variables.values())
    for path in folder.glob("*.weights.h5"):
        model = keras.Sequential([keras.Input((6, 6, 1)), *trainings.small_net()])
        model.load_weights(path)


def kill_again_and_again(folder, mode, device, processes, rng, kills):
    """Runs the training until it was killed so many times, and then to its end."""
    for _ in range(kills):
        if rng.random() < 0.5:
            limits = int(rng.integers(0, 2 * trainings.STEPS)), None
        else:
            limits = None, int(rng.integers(0, FILE_EVENTS))
        code = processes(trainings.train, mode, folder, device, *limits)
        if code == 0:
            return
        assert code == -signal.SIGKILL
        check_files(folder)
    assert processes(trainings.train, mode, folder, device, None, None) == 0


@pytest.mark.parametrize("mode", trainings.MODES)
def test_a_training_that_is_killed_ends_as_one_that_is_not(
    tmp_path, mode, device, processes, rng, amount
):
    whole = tmp_path / "whole"
    whole.mkdir()
    assert processes(trainings.train, mode, whole, device, None, None) == 0
    expected = json.loads((whole / "result.json").read_text())
    kills = amount(4, 100)
    killed = 0
    # Few kills leave a training of this length unfinished, so many trainings share many kills.
    for number in range(amount(1, 25)):
        folder = tmp_path / str(number)
        folder.mkdir()
        kill_again_and_again(folder, mode, device, processes, rng, kills // amount(1, 25))
        killed += kills // amount(1, 25)
        assert json.loads((folder / "result.json").read_text()) == expected
        assert not (folder / "backup").exists()
        assert not list(folder.rglob("*.part"))
    assert killed == kills
