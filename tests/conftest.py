"""Fixtures and settings that all tests share."""

import contextlib
import ctypes
import gc
import os
import platform
import random
import secrets
import sys
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

with contextlib.suppress(ImportError):
    # It draws from Python's generator when it is imported, as Keras does, which a test may be the
    # first to do: its weights would not be those that it gets after others.
    import rich.themes  # noqa: F401

# The tests are of the installed package. `python -m pytest` puts the checkout first on the import
# path, and the kerascnn/ folder there has no compiled core.
_CHECKOUT = Path(__file__).resolve().parent.parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _CHECKOUT]

# Tests that compare with Keras run it on PyTorch. They are skipped where either is not installed.
os.environ.setdefault("KERAS_BACKEND", "torch")
# Keras runs on the CPU: there it computes in full float32, which is the reference for every device.
os.environ.setdefault("KERAS_TORCH_DEVICE", "cpu")

# The tests compute in full float32. kerascnn reads this variable when it is imported.
os.environ.setdefault("KERASCNN_TF32", "0")


def _gpus_of_worker(worker: str, visible: list[str]) -> str:
    """Returns the visible GPUs in another order for each worker of pytest-xdist, "gw3" for example.

    Their first GPUs, which most tests use, are different ones, and all see every GPU.
    """
    first = int(worker.removeprefix("gw")) % len(visible)
    return ",".join(visible[first:] + visible[:first])


def _visible_gpus() -> list[str]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    return [str(i) for i in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]


if (_worker := os.environ.get("PYTEST_XDIST_WORKER")) and (_gpus := _visible_gpus()):
    os.environ["CUDA_VISIBLE_DEVICES"] = _gpus_of_worker(_worker, _gpus)

# Every run draws new inputs and weights. The seed in the header of a run draws them again.
TEST_SEED = int(os.environ.get("KERASCNN_TEST_SEED") or secrets.randbits(31))
# Some modules draw their cases when they are imported, before any fixture exists.
os.environ["KERASCNN_TEST_SEED"] = str(TEST_SEED)

CUDA_DEVICE = "cuda:0"


def pytest_addoption(parser) -> None:
    parser.addoption(
        "--thorough",
        action="store_true",
        help="drills and fuzzing take their large amounts, which is hours, instead of seconds each",
    )


def pytest_report_header() -> str:
    return f"kerascnn: KERASCNN_TEST_SEED={TEST_SEED}"


def pytest_terminal_summary(terminalreporter) -> None:
    # Without a GPU half of the tests are skipped, so the summary has one line for each reason.
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count}: {reason}")
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f"repeat with KERASCNN_TEST_SEED={TEST_SEED}")
    if terminalreporter.config.getoption("--thorough"):
        _report_drills(terminalreporter)


def _report_drills(terminalreporter) -> None:
    """Lists what the drills of a thorough run have done; `--junitxml` has the same lines."""
    done = [
        f"{outcome} {Path(report.fspath).stem}: {text}"
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        for name, text in report.user_properties
        if name == "drill"
    ]
    if done:
        terminalreporter.section("drills")
        terminalreporter.write_line(f"KERASCNN_TEST_SEED={TEST_SEED}, {platform.platform()}")
        for line in done:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def away_from_the_checkout(tmp_path_factory):
    """`python -c` in a test imports from the working folder, so that is not the checkout either."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("working_folder"))
    yield
    os.chdir(before)


def _start_anew(name: str) -> None:
    """Seeds what draws weights and other numbers without a seed, from the run's seed and a name.

    Initializers of kerascnn and of Keras draw their seeds from Python's generator. Of libraries
    that nobody has imported there is nothing to seed: importing Keras takes seconds.
    """
    seed = (TEST_SEED * 0x9E3779B1 ^ zlib.crc32(name.encode())) & 0xFFFFFFFF
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (the one that shuffled data sets draw from)
    if (generators := sys.modules.get("kerascnn.seed_generators")) is not None:
        generators.reset_global_generator(seed)
    if (state := sys.modules.get("keras.src.backend.common.global_state")) is not None:
        # The first draw makes a new generator, with a seed of Python's.
        state.set_global_attribute("global_seed_generator", None)
        state.set_global_attribute("global_random_seed", None)
    if (torch := sys.modules.get("torch")) is not None:
        # torch.manual_seed would note a traceback for each GPU that is not in use yet.
        torch.default_generator.manual_seed(seed)


@pytest.fixture(scope="session")
def gpus_of_worker():
    """Returns the function that orders the GPUs of a worker, for the test of it."""
    return _gpus_of_worker


@pytest.fixture(scope="session")
def start_anew():
    """Returns the function that seeds each test, for the tests of it."""
    return _start_anew


def pytest_fixture_setup(fixturedef, request) -> None:
    # Which test comes first decides when a fixture of a module is made, and not what it draws.
    if fixturedef.scope != "function":
        _start_anew(f"{request.node.nodeid} {fixturedef.argname} {request.param_index}")


@pytest.fixture(autouse=True)
def few_threads_for_pytorch():
    """Lets PyTorch, where a module has imported it, have no more than 8 threads.

    With more, PyTorch 2.11 to 2.13 corrupt memory on a CPU with AVX-512: oneDNN's `jit_1x1`
    kernel for the gradient of a 1x1 kernel with strides does, where the number of input channels
    is no multiple of 16. kerascnn does not use that kernel there.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() > 8:
        torch.set_num_threads(8)


@pytest.fixture(autouse=True)
def seeded_test(request):
    """Makes weights that a test draws without a seed repeatable by KERASCNN_TEST_SEED."""
    _start_anew(request.node.nodeid)


@pytest.fixture
def rng(request) -> np.random.Generator:
    """Returns a generator whose numbers depend only on the seed of the run and the test's name."""
    return np.random.default_rng([TEST_SEED, zlib.crc32(request.node.nodeid.encode())])


@pytest.fixture
def note(record_property):
    """Returns a function that notes what a drill has done, for the report at a run's end."""

    def write(*what, **numbers):
        counts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in numbers.items())
        record_property("drill", f"{', '.join(map(str, what))}: {counts}")

    return write


@pytest.fixture
def amount(request):
    """Returns a function that chooses how much a drill does: in every run, or with `--thorough`."""
    thorough = request.config.getoption("--thorough")
    return lambda usual, large: large if thorough else usual


@pytest.fixture(autouse=True)
def settings_as_before():
    """What a test sets in kerascnn.config, the examples of docstrings included, ends with it."""
    config = sys.modules.get("kerascnn.config")
    before = dict(config._settings) if config else None
    yield
    if before is not None:
        config._settings.update(before)


@pytest.fixture(scope="module", autouse=True)
def earlier_objects_are_not_searched():
    """Searches for circles of objects pass over what there was before the module's first test.

    Libraries and tests are hundreds of thousands of objects. Many tests search, with
    `clear_session`, and each would look at all of them: that took almost half of a run's time.
    """
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    # When Python ends it searches all of them: the bindings report as leaked what it can't find.
    gc.unfreeze()


@pytest.fixture
def settled_memory():
    """Frees what other tests left behind, including the traceback of a failure.

    Otherwise Python might collect it in the middle of a test that counts bytes or objects.
    """
    from kerascnn import _core

    sys.last_value = sys.last_traceback = None
    devices = [name for name, usable, _ in _core.list_devices() if usable]
    counts = [-2, -1]
    while counts[-1] != counts[-2]:
        gc.collect()
        counts.append(sum(_core.memory_stats(name)["allocated"] for name in devices))
    # A smaller request may get a larger free block, whose whole size would count.
    for name in devices:
        _core.release_cached(name)


def _reason_against(device: str) -> str | None:
    """Returns why the device cannot be used, or None if it can."""
    from kerascnn import _core

    for name, usable, description in _core.list_devices():
        if name == device:
            return None if usable else f"{device}: {description}"
    return f"{device} is not among the devices of this machine"


def _check_device(device: str, request) -> None:
    """Ends this process of the tests if the GPU has failed: no later result would mean anything."""
    from kerascnn import _core

    try:
        _core.synchronize(device)
    except _core.DeviceError as error:
        reason = f"{device} failed in {request.node.nodeid}: {error}"
    else:
        return
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.exit(reason, returncode=3)
    # pytest-xdist reports a worker that dies, and starts another, which has a GPU again. Of one
    # that exits it knows nothing: it would stop in the middle, without the failures there were.
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{reason}", file=sys.stderr, flush=True)
    os._exit(3)


@pytest.fixture
def cuda_device(request):
    """Gives the first GPU. Where there is none, the test is skipped and the reason is shown."""
    reason = _reason_against(CUDA_DEVICE)
    if reason is not None:
        pytest.skip(reason)
    yield CUDA_DEVICE
    _check_device(CUDA_DEVICE, request)


@pytest.fixture
def on_cpu(monkeypatch) -> None:
    """Makes the CPU the default device, also in the processes that a test starts.

    It is for tests of what only CPUs have or do, such as several devices on a machine without a
    GPU, or bits that a CPU computes. Elsewhere the default is the first GPU, where there is one.
    """
    monkeypatch.setenv("KERASCNN_DEVICE", "cpu")


@pytest.fixture(params=["cpu", CUDA_DEVICE])
def device(request) -> str:
    """Runs the test on every device in turn."""
    return "cpu" if request.param == "cpu" else request.getfixturevalue("cuda_device")


@pytest.fixture(scope="session")
def cuda_ptx():
    """Returns a function that compiles CUDA C++ to PTX with NVRTC, which needs no GPU.

    It takes the source, the name of its kernel, and a kind of device such as "compute_90".
    """
    nvrtc = _nvrtc()

    def compiled(source, function, kind):
        program = ctypes.c_void_p()
        status = nvrtc.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"source.cu", 0, None, None
        )
        assert status == 0
        assert nvrtc.nvrtcAddNameExpression(program, function.encode()) == 0
        options = (ctypes.c_char_p * 2)(f"--gpu-architecture={kind}".encode(), b"--std=c++17")
        status = nvrtc.nvrtcCompileProgram(program, 2, options)
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        assert status == 0, log.value.decode()
        nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
        ptx = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetPTX(program, ptx)
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        return ptx.value.decode()

    return compiled


def _nvrtc():
    folders = [Path(entry) / "nvidia" / "cu13" / "lib" for entry in sys.path]
    for folder in [f for f in folders if f.is_dir()]:
        for builtins in folder.glob("libnvrtc-builtins.so*"):
            ctypes.CDLL(str(builtins))  # NVRTC does not search this folder itself.
        for library in folder.glob("libnvrtc.so.13"):
            return ctypes.CDLL(str(library))
    try:
        return ctypes.CDLL("libnvrtc.so.13")
    except OSError as error:
        pytest.skip(f"NVRTC is not installed: {error}")
