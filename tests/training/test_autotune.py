"""Kernels chosen by time: what is timed, where that is kept, and that results stay right."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers

PROGRAM = """
import json, sys
import numpy as np
import kerascnn as keras
from kerascnn import layers

keras.config.set_device(sys.argv[1])
keras.utils.set_random_seed(1)
model = keras.Sequential([
    keras.Input((20, 24, 160)),
    layers.Conv2D(192, 3, padding="same", activation="relu"),
    layers.GlobalAveragePooling2D(),
    layers.Dense(1000),
    layers.Dense(7000),
])
model.compile("sgd", "mse")
rng = np.random.default_rng(0)
x = rng.standard_normal((32, 20, 24, 160)).astype("float32")
y = rng.standard_normal((32, 7000)).astype("float32")
loss = model.fit(x, y, batch_size=32, epochs=3, verbose=0).history["loss"]
print(json.dumps({"loss": loss, "choices": keras.profiler.kernel_choices()}))
"""


def run(device, home, program=PROGRAM, **environment):
    result = subprocess.run(
        [sys.executable, "-c", program, device],
        capture_output=True,
        text=True,
        cwd=home,
        env={**os.environ, "KERASCNN_HOME": str(home), **environment},
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def chosen_files(home):
    """Returns the files of choices; compiled kernels have their own folder beside them."""
    return [path for path in home.glob("kernels/*") if path.is_file()]


@pytest.mark.parametrize("tf32", ["0", "1"])
def test_the_fastest_is_found_once_and_kept(cuda_device, tmp_path, tf32):
    plain = run(cuda_device, tmp_path, KERASCNN_AUTOTUNE="0", KERASCNN_TF32=tf32)
    assert plain["choices"] == []
    assert chosen_files(tmp_path) == []

    first = run(cuda_device, tmp_path, KERASCNN_AUTOTUNE="1", KERASCNN_TF32=tf32)
    assert chosen_files(tmp_path) != []
    ops = {row["call"].split("(")[0] for row in first["choices"]}
    assert {"conv2d", "matmul"} <= ops
    for row in first["choices"]:
        assert not row["is_from_disk"]
        assert row["kernel"] in row["seconds"]
        # No other kernel is clearly faster than the chosen one.
        assert row["seconds"][row["kernel"]] <= min(row["seconds"].values()) / 0.96
    assert max(len(row["seconds"]) for row in first["choices"]) > 1

    second = run(cuda_device, tmp_path, KERASCNN_AUTOTUNE="1", KERASCNN_TF32=tf32)
    assert all(row["is_from_disk"] for row in second["choices"])
    chosen = [{row["call"]: row["kernel"] for row in found["choices"]} for found in (first, second)]
    assert chosen[0] == chosen[1]
    assert first["loss"] == second["loss"]  # The bits are equal.
    # Other kernels add 1,440 products in another order, in three steps of training. TF32 keeps 10
    # bits of each factor (1e-3) and float32 24 bits (6e-8). The root of 1,440 makes about 2e-6 of
    # that, and the later steps a few dozen times more.
    tolerance = 1e-2 if tf32 == "1" else 1e-4
    np.testing.assert_allclose(first["loss"], plain["loss"], rtol=tolerance)


def test_timing_is_nobodys_work_in_profiles(cuda_device, tmp_path):
    program = PROGRAM.replace(
        "loss = model.fit", "with keras.profiler.trace() as t: loss = model.fit"
    )
    program = program.replace('"choices": keras', '"rows": t.rows, "choices": keras')
    timed, known = (run(cuda_device, tmp_path, program, KERASCNN_AUTOTUNE="1") for _ in range(2))
    assert timed["choices"] and known["choices"][0]["is_from_disk"]
    assert all(row["layer"] for row in timed["rows"])

    def of_compilation(found):
        rows = [row for row in found["rows"] if row["layer"] == "compilation"]
        return {row["op"] for row in rows} & {"conv2d", "matmul"}

    def products_of_layers(found):
        names = ("phase", "layer", "op", "kernel", "calls")
        rows = [row for row in found["rows"] if row["layer"] != "compilation" and row["flop"]]
        return sorted(tuple(row[name] for name in names) for row in rows)

    assert of_compilation(timed) == {"conv2d", "matmul"} and not of_compilation(known)
    # The layers ran the same kernels equally often, whether these had been timed before or not.
    assert products_of_layers(timed) == products_of_layers(known) != []


def test_a_folder_that_cannot_be_written_changes_nothing(cuda_device, tmp_path):
    found = run(cuda_device, tmp_path, KERASCNN_AUTOTUNE="1", KERASCNN_HOME=os.devnull)
    assert found["choices"]
    assert np.isfinite(found["loss"]).all()


def test_small_networks_are_not_timed(device):
    keras.config.set_autotune(True)
    try:
        before = len(keras.profiler.kernel_choices())
        with keras.device(device):
            model = keras.Sequential(
                [keras.Input((8, 8, 3)), layers.Conv2D(4, 3), layers.Flatten(), layers.Dense(2)]
            )
            model.compile("sgd", "mse")
            model.fit(np.ones((8, 8, 8, 3), "float32"), np.ones((8, 2), "float32"), verbose=0)
        assert len(keras.profiler.kernel_choices()) == before
    finally:
        keras.config.set_autotune(False)
