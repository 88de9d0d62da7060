"""What all tests share."""

import ctypes
import os
import secrets
import sys
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

# The tests prove the installed package. `python -m pytest` puts the checkout first on the import
# path, and the kerascnn/ folder there has no compiled core.
_CHECKOUT = Path(__file__).resolve().parent.parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _CHECKOUT]

# Tests that compare with Keras run it on PyTorch, and are skipped where either is not installed.
os.environ.setdefault("KERAS_BACKEND", "torch")
# On the CPU: its results are the reference for every device, and hold full float32.
os.environ.setdefault("KERAS_TORCH_DEVICE", "cpu")

# Float32 means float32 in the tests: read when kerascnn is imported.
os.environ.setdefault("KERASCNN_TF32", "0")

# Fresh inputs in every run; the same ones again with the seed that the header shows.
TEST_SEED = int(os.environ.get("KERASCNN_TEST_SEED") or secrets.randbits(31))
# For the cases of modules, which are made before there are fixtures.
os.environ["KERASCNN_TEST_SEED"] = str(TEST_SEED)

CUDA_DEVICE = "cuda:0"


def pytest_report_header() -> str:
    return f"kerascnn: KERASCNN_TEST_SEED={TEST_SEED}"


def pytest_terminal_summary(terminalreporter) -> None:
    # Without a GPU half of the tests are skipped: a line for each reason, not for each place.
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count}: {reason}")
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f"repeat with KERASCNN_TEST_SEED={TEST_SEED}")


@pytest.fixture(scope="session", autouse=True)
def away_from_the_checkout(tmp_path_factory):
    """`python -c` in a test imports from the working folder: it must not be the checkout either."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("working_folder"))
    yield
    os.chdir(before)


@pytest.fixture
def rng(request) -> np.random.Generator:
    """Random numbers of this run's seed and this test's name, whatever else runs."""
    return np.random.default_rng([TEST_SEED, zlib.crc32(request.node.nodeid.encode())])


def _reason_against(device: str) -> str | None:
    """Why the device can't be used, or None."""
    from kerascnn import _core

    for name, usable, description in _core.list_devices():
        if name == device:
            return None if usable else f"{device}: {description}"
    return f"{device} is not among the devices of this machine"


def _check_device(device: str, test: str) -> None:
    """Ends the run where the GPU has failed: nothing that follows would mean anything."""
    from kerascnn import _core

    try:
        _core.synchronize(device)
    except _core.DeviceError as error:
        pytest.exit(f"{device} failed in {test}: {error}", returncode=3)


@pytest.fixture
def cuda_device(request):
    """The first GPU; the test is skipped, with the reason, where there is none."""
    reason = _reason_against(CUDA_DEVICE)
    if reason is not None:
        pytest.skip(reason)
    yield CUDA_DEVICE
    _check_device(CUDA_DEVICE, request.node.nodeid)


@pytest.fixture(params=["cpu", CUDA_DEVICE])
def device(request) -> str:
    """Every device in turn."""
    return "cpu" if request.param == "cpu" else request.getfixturevalue("cuda_device")


@pytest.fixture(scope="session")
def cuda_ptx():
    """A function that compiles CUDA C++ with NVRTC, which needs no GPU, and returns the PTX.

    It takes the source, the name of its kernel, and a kind of device like "compute_90".
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
            ctypes.CDLL(str(builtins))  # where NVRTC itself would not look
        for library in folder.glob("libnvrtc.so.13"):
            return ctypes.CDLL(str(library))
    try:
        return ctypes.CDLL("libnvrtc.so.13")
    except OSError as error:
        pytest.skip(f"NVRTC is not installed: {error}")
