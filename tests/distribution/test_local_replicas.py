"""Several devices of one process train as one. The CPU counts as several where no GPUs are used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core
from kerascnn.distribution import replicas
from kerascnn.tracing import Trace
from kerascnn.training import batch_feed, memory
from kerascnn.training.replicated_routes import ReplicatedRingRoute

from . import work
from .conftest import environment, on_cpus, start_on_gpus, trained_on_cpus
from .test_gpus import NEAR
from .test_gpus import WORK as GPU_WORK
from .test_training import LOCAL, TOLERANCE, check_equal, results

pytestmark = pytest.mark.usefixtures("several_cpus")
# In every run; with MPI all others have the bits of processes (test_training.py).
FEW = ("arrays", "short_arrays", "masked", "sources", "own_step")


def small_model(**compiled):
    layers = [keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(3, "softmax")]
    model = keras.Sequential(layers)
    compiled = {"optimizer": keras.optimizers.SGD(0.1), **compiled}
    model.compile(loss="sparse_categorical_crossentropy", **compiled)
    return model


@pytest.mark.parametrize("job", LOCAL)
def test_devices_train_as_one(request, job):
    if job not in FEW and not request.config.getoption("--thorough"):
        pytest.skip("only with --thorough")
    expected = trained_on_cpus(job, 1)
    for size in (2, 3):
        check_equal(trained_on_cpus(job, size), expected, TOLERANCE)


def test_two_runs_end_with_the_same_bits():
    once, twice = trained_on_cpus("noise", 2), trained_on_cpus("noise", 2)
    for name, value in once.items():
        assert value.tobytes() == twice[name].tobytes(), name


def test_devices_have_random_numbers_of_their_own():
    """The same rows on both devices come out of dropout differently."""

    class Noisy(keras.Sequential):
        def test_step(self, data):
            return {
                "kept": keras.ops.cast(
                    keras.ops.not_equal(self(data[0], training=True), 0), "int32"
                )
            }

    with on_cpus(2):
        model = Noisy([keras.Input((40,)), keras.layers.Dropout(0.5, seed=3)])
        model.compile()
        kept = model.test_on_batch(np.ones((2, 40)), np.zeros(2), return_dict=True)["kept"]
    assert 5 < (np.asarray(kept) == 0.5).sum() < 35  # where the devices differ


@pytest.mark.parametrize("job", ["resumed", "resumed_data_set"])
def test_a_resumed_training_ends_with_the_same_bits(tmp_path, job):
    found = trained_on_cpus(job, 2, tmp_path)
    for name in [name for name in found if name.startswith(("weight", "log"))]:
        assert found[name].tobytes() == found[f"whole_{name}"].tobytes(), name


def test_what_python_assigns_reaches_all_devices():
    """Weights, the learning rate and metrics, between trainings and within one."""
    x, y = work.labelled()
    x = x.astype("float32")

    class Changes(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                self.model.optimizer.learning_rate = 0.01
                self.model.layers[0].bias.assign(np.full(8, 0.5))
                self.model.reset_metrics()

    def train(size):
        keras.utils.set_random_seed(1)
        model = small_model(metrics=["accuracy"])
        found = []
        for devices in (size, 1, size):  # the first device alone in between
            with on_cpus(devices):
                found += model.fit(x, y, 16, epochs=2, verbose=0, callbacks=[Changes()]).history[
                    "loss"
                ]
                model.set_weights([w * 0.5 for w in model.get_weights()])
                model.optimizer.learning_rate = 0.1
                found += model.evaluate(x, y, 16, verbose=0)
        return {"found": np.array(found), **work.outcome(model)}

    check_equal(train(2), train(1), {"rtol": 1e-4, "atol": 1e-6})


def test_batches_of_sources_by_way_of_rings(monkeypatch):
    """On GPUs they wait for one another in memory that a copy brings to the device."""

    def on_ring(model, kind, source, state, is_on_device):
        return ReplicatedRingRoute(model, replicas.local_group(), kind, source, state)

    x, y = work.labelled()
    batches = [(x[i : i + 16].astype("float32"), y[i : i + 16]) for i in range(0, 50, 16)]

    def train(size):
        keras.utils.set_random_seed(1)
        model = small_model(metrics=["accuracy"])
        with on_cpus(size):
            found = model.fit(iter(batches * 3), steps_per_epoch=4, epochs=3, verbose=0).history
            found["evaluated"] = model.evaluate(iter(batches), verbose=0)
        return {**work.outcome(model), **{key: np.array(value) for key, value in found.items()}}

    expected = train(1)
    monkeypatch.setattr(batch_feed, "make_route", on_ring)
    check_equal(train(3), expected, {"rtol": 1e-4, "atol": 1e-6})


def test_data_that_comes_in_chunks(monkeypatch):
    """Chunks of the devices need not have the same number of batches."""
    x, y = work.labelled(200)

    def train(size):
        keras.utils.set_random_seed(1)
        model = small_model(metrics=["accuracy"])
        with on_cpus(size):
            history = model.fit(x.astype("float32"), y, 15, epochs=3, verbose=0)
        return work.outcome(model, history)

    expected = train(1)
    monkeypatch.setattr(memory, "fits_on_device", lambda *_: False)
    # Of a batch of 15 the first of two devices computes 8 samples and the other one 7.
    sample = 6 * 4 + y.itemsize
    monkeypatch.setattr(memory, "chunk_batches", lambda num_bytes, *_: num_bytes // sample - 5)
    check_equal(train(2), expected, {"rtol": 1e-4, "atol": 1e-6})


class TestPredict:
    def test_bits_are_those_of_one_device(self):
        model = small_model()
        x = np.random.default_rng(0).standard_normal((131, 6), np.float32)
        expected = model.predict(x, 16, verbose=0)
        few = model.predict(x, 16, steps=5, verbose=0)
        for size in (2, 3):
            with on_cpus(size):
                assert model.predict(x, 16, verbose=0).tobytes() == expected.tobytes()
                assert model.predict(x, 16, steps=5, verbose=0).tobytes() == few.tobytes()
                kept = model.predict(x, 16, verbose=0, as_tensor=True)
                assert kept.numpy().tobytes() == expected.tobytes()

    def test_all_devices_take_part(self, monkeypatch):
        from kerascnn.training import replicated_prediction

        rows = []
        run = replicated_prediction.Predictor.run

        def noted(self, steps):
            found = run(self, steps)
            rows.append(len(found))
            return found

        monkeypatch.setattr(replicated_prediction.Predictor, "run", noted)
        model = small_model()
        with on_cpus(3):
            model.predict(np.zeros((131, 6), np.float32), 16, verbose=0)
        assert sorted(rows) == [35, 48, 48]

    def test_new_weights_are_used(self):
        model = small_model()
        x = np.random.default_rng(0).standard_normal((64, 6), np.float32)
        with on_cpus(2):
            before = model.predict(x, 16, verbose=0)
            model.set_weights([w + 0.1 for w in model.get_weights()])
            after = model.predict(x, 16, verbose=0)
        assert after.tobytes() == model.predict(x, 16, verbose=0).tobytes()
        assert np.abs(after - before).max() > 1e-3


class TestErrors:
    @pytest.mark.parametrize(
        ("devices", "said"),
        [
            (["cpu:0", "cpu:7"], r"no device 'cpu:7'; there are \['cpu:0', 'cpu:1', 'cpu:2'\]"),
            (["cpu:0", "CPU:0"], "can't be listed twice"),
            (["cpu", "cpu:0"], "can't be listed twice"),
            (["cpu:0", "gpu:0"], "are CPUs or GPUs"),
            (["gpu:97", "gpu:98"], "no device 'gpu:97'"),
        ],
    )
    def test_devices(self, devices, said):
        with pytest.raises(ValueError, match=said):
            keras.distribution.DataParallel(devices=devices)

    @pytest.mark.parametrize("text", ["0", "two", "-1"])
    def test_number_of_cpus(self, monkeypatch, text):
        monkeypatch.setenv("KERASCNN_CPU_DEVICES", text)
        with pytest.raises(ValueError, match="KERASCNN_CPU_DEVICES must be a whole number above 0"):
            keras.distribution.list_devices("cpu")

    def test_a_batch_with_too_few_samples(self):
        with on_cpus(3), pytest.raises(ValueError, match="batch_size=3"):
            small_model().fit(np.zeros((8, 6)), np.zeros(8), 2, verbose=0)

    def test_steps_that_python_runs(self):
        model = small_model(run_eagerly=True)
        for method in (model.fit, model.evaluate, model.train_on_batch):
            with on_cpus(2), pytest.raises(RuntimeError, match="run_eagerly=False"):
                method(np.zeros((8, 6)), np.zeros(8))

    @pytest.mark.parametrize("compiled", [False, True])
    def test_a_loop_of_the_users_own(self, compiled):
        model = small_model()

        def step(x):
            with keras.GradientTape() as tape:
                loss = keras.ops.sum(model(x))
            weights = model.trainable_variables
            model.optimizer.apply(tape.gradient(loss, weights), weights)

        run = keras.jit(step) if compiled else step
        before = model.get_weights()
        with (
            on_cpus(2),
            pytest.raises(RuntimeError, match="cpu:0, cpu:1, train together in compil"),
        ):
            run(np.zeros((4, 6), np.float32))
        for old, new in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(old, new)

    def test_profiles(self):
        with on_cpus(2), pytest.raises(RuntimeError, match="measures one device"):
            small_model().profile(np.zeros((8, 6)), np.zeros(8))

    def test_the_memory_of_a_step_is_known(self):
        model = small_model()
        x, y = np.zeros((8, 6), np.float32), np.zeros(8)
        alone = model.step_memory(x, y)
        with on_cpus(2):
            several = model.step_memory(x, y)
        # The number of samples that the loss is the mean of is counted on the devices.
        assert several.weights == alone.weights + 4


def summed_on(group, rank, size, times=1):
    """A program of one device that sums a vector over all, and its variable."""
    state = _core.Variable("state", _core.from_numpy(np.full(size, rank, np.float32), "cpu"))
    attributes = {"processes": group.size, "scale": 1.0, "factor": 1.0}
    with Trace("cpu") as trace:
        x = trace.graph.input("x", [size], "float32")
        for _ in range(times):
            (x,) = trace.graph.apply("all_reduce", [x], attributes)
        trace.graph.assign(state, x)
    with _core.AsReplica(group, rank):
        return _core.Program.compile(trace.graph, [x], "cpu"), state


class TestPrograms:
    """The core's part: programs that run at the same time."""

    @pytest.mark.parametrize("count", [3, 1 << 14])  # short messages and long ones
    def test_sums(self, count):
        group = _core.Replicas(["cpu"] * 3, ["cpu:0", "cpu:1", "cpu:2"])
        programs = [summed_on(group, rank, count)[0] for rank in range(3)]
        step = _core.ReplicatedProgram(group, programs, [], [])
        arrays = [np.arange(count, dtype=np.float32) * 10**rank for rank in range(3)]
        for _ in range(20):
            step.run([[_core.from_numpy(array, "cpu")] for array in arrays], 3)
            for program in programs:
                np.testing.assert_array_equal(program.outputs()[0].numpy(), sum(arrays))

    def test_an_error_on_one_device_releases_the_others(self):
        group = _core.Replicas(["cpu"] * 3, ["cpu:0", "cpu:1", "cpu:2"])
        programs = [summed_on(group, rank, 4)[0] for rank in range(3)]
        step = _core.ReplicatedProgram(group, programs, [], [])
        good, bad = (_core.from_numpy(np.ones(n, np.float32), "cpu") for n in (4, 5))
        for place in range(3):
            inputs = [[bad if rank == place else good] for rank in range(3)]
            with pytest.raises(ValueError, match=rf'^cpu:{place}: program: input "x" must be'):
                step.run(inputs)
        step.run([[good]] * 3)  # and they go on
        np.testing.assert_array_equal(programs[2].outputs()[0].numpy(), np.full(4, 3.0))

    def test_programs_have_to_sum_the_same(self):
        group = _core.Replicas(["cpu"] * 2, ["cpu:0", "cpu:1"])
        programs = [summed_on(group, rank, 4, times=1 + rank)[0] for rank in range(2)]
        with pytest.raises(ValueError, match=r"sum 1 of the step is of none on cpu and of float32"):
            _core.ReplicatedProgram(group, programs, [], [])

    def test_a_program_of_one_device_cant_run_alone(self):
        group = _core.Replicas(["cpu"] * 2, ["cpu:0", "cpu:1"])
        program, _ = summed_on(group, 0, 4)
        with pytest.raises(_core.DeviceError, match="it is for 2 processes"):
            program.run([_core.from_numpy(np.ones(4, np.float32), "cpu")])

    @pytest.mark.parametrize("adds_up", [False, True])
    def test_mirrors_follow_what_is_assigned(self, adds_up):
        def numbers(value):
            return _core.from_numpy(np.full(2, value, np.float32), "cpu")

        first, other = (_core.Variable("v", numbers(value)) for value in (1, 2))
        mirror = _core.Mirror([other], adds_up)
        mirror.refresh(first)
        followed = other.value.numpy().tolist()
        assert followed == ([0, 0] if adds_up else [1, 1])
        other.assign(numbers(5))
        mirror.refresh(first)  # nothing was assigned
        assert other.value.numpy().tolist() == [5, 5]
        first.assign(numbers(7))
        mirror.settle(first)
        mirror.refresh(first)
        assert other.value.numpy().tolist() == [5, 5]
        first.assign(numbers(1))
        mirror.refresh(first)
        assert other.value.numpy().tolist() == followed


def test_one_device_imports_nothing_of_this():
    code = (
        "import sys, numpy, kerascnn as keras; d = keras.distribution; d.initialize(); "
        "d.set_distribution(d.DataParallel()); "
        "m = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]); "
        "m.compile('sgd', 'mse'); "
        "m.fit(numpy.ones((4, 1)), numpy.ones(4), verbose=0); "
        "print([n for n in sys.modules if 'replicated' in n or 'local_replicas' in n])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(KERASCNN_CPU_DEVICES="1"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.strip() == "[]"


GPU_JOBS = tuple(NEAR)
BOTH = {"KERASCNN_TEST_DEVICES": "gpu:0,gpu:1"}


@pytest.fixture(scope="module")
def on_gpus(two_gpus, tmp_path_factory):
    """Returns a function that gives the folder with the results of jobs on some GPUs."""
    folders = {}

    def run(name, size=1, **variables):
        if name not in folders:
            folder = tmp_path_factory.mktemp(name)
            jobs, script = (
                (LOCAL, Path(work.__file__)) if "float64" in name else (GPU_JOBS, GPU_WORK)
            )
            outcome = start_on_gpus(
                size, folder, *jobs, script=script, KERASCNN_TF32="0", **variables
            )
            assert outcome.code == 0, outcome.output
            folders[name] = folder
        return folders[name]

    return run


class TestOnGpus:
    """Two GPUs of one process."""

    @pytest.mark.parametrize("job", GPU_JOBS)
    def test_train_as_one(self, on_gpus, job):
        one, two = results(on_gpus("one"), job), results(on_gpus("both", **BOTH), job)
        assert one["losses"].std() > 1e-3  # something was learned
        np.testing.assert_allclose(two["losses"], one["losses"], rtol=NEAR[job])
        for name, value in one.items():
            assert np.abs(two[name] - value).max() < 10 * NEAR[job], name

    @pytest.mark.parametrize("job", GPU_JOBS)
    def test_two_runs_end_with_the_same_bits(self, on_gpus, job):
        once, twice = results(on_gpus("both", **BOTH), job), results(on_gpus("again", **BOTH), job)
        for name, value in once.items():
            assert value.tobytes() == twice[name].tobytes(), name

    @pytest.mark.parametrize("job", GPU_JOBS)
    def test_two_processes_end_with_the_same_bits(self, on_gpus, job):
        here, there = results(on_gpus("both", **BOTH), job), results(on_gpus("two", 2), job)
        for name, value in here.items():
            assert value.tobytes() == there[name].tobytes(), name

    @pytest.mark.parametrize("job", LOCAL)
    def test_train_as_one_in_float64(self, on_gpus, job):
        two = results(on_gpus("both_in_float64", **BOTH), job)
        check_equal(two, results(on_gpus("one_in_float64"), job), TOLERANCE)

    def test_an_error_on_one_gpu_ends_the_call(self, two_gpus):
        """It names the GPU. As nothing has started, training goes on."""
        code = (
            "import numpy, kerascnn as keras\n"
            "from kerascnn.training.replicated_step import ReplicatedStep\n"
            "d = keras.distribution\n"
            "d.set_distribution(d.DataParallel(devices=['gpu:0', 'gpu:1']))\n"
            "m = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])\n"
            "m.compile('sgd', 'mse'); x, y = numpy.ones((64, 4)), numpy.ones((64, 2))\n"
            "m.fit(x, y, verbose=0); usual = ReplicatedStep.run\n"
            "def short(self, inputs, *more, **options):\n"
            "    return usual(self, [inputs[0], inputs[1][:-1]], *more, **options)\n"
            "ReplicatedStep.run = short\n"
            "try: m.fit(x, y, verbose=0)\n"
            "except ValueError as error: print(error)\n"
            "ReplicatedStep.run = usual; m.fit(x, y, verbose=0); print('goes on')"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment(KERASCNN_DEVICE="gpu:0"),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(r"gpu:1: program: expected.*\ngoes on\n", done.stdout), done.stdout
