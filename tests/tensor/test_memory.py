"""Memory statistics, running out of memory, and devices that are missing."""

import pickle
import subprocess
import sys

import pytest

from kerascnn import _core


def test_statistics_follow_a_tensor(device, settled_memory):
    _core.release_cached(device)
    before = _core.memory_stats(device)
    _core.reset_peak_memory(device)
    t = _core.empty((1 << 20,), "float32", device)
    during = _core.memory_stats(device)
    assert during["allocated"] - before["allocated"] == 4 << 20
    assert during["num_allocations"] - before["num_allocations"] == 1
    assert during["peak"] >= before["allocated"] + (4 << 20)
    del t
    after = _core.memory_stats(device)
    assert after["allocated"] == before["allocated"]
    assert after["cached"] >= 4 << 20
    assert after["peak"] == during["peak"] and after["available"] > 0
    _core.release_cached(device)
    assert _core.memory_stats(device)["cached"] == 0


def test_freed_memory_is_used_again(device, settled_memory):
    t = _core.empty((1 << 20,), "float32", device)
    del t
    before = _core.memory_stats(device)
    again = _core.empty((1 << 20,), "float32", device)
    after = _core.memory_stats(device)
    assert after["allocated"] == before["allocated"] + again.nbytes
    assert after["allocated"] + after["cached"] == before["allocated"] + before["cached"]


def test_out_of_memory_is_a_memory_error_with_sizes(device):
    kept = _core.zeros((1000,), "float32", device)
    with pytest.raises(MemoryError, match=f"out of memory on {device}: asked for 8 PiB") as caught:
        _core.empty((1 << 50,), "float64", device)
    error = caught.value
    assert isinstance(error, _core.OutOfMemoryError)
    assert error.requested == 1 << 53
    assert error.allocated >= kept.nbytes and error.cached == 0 and error.free > 0
    restored = pickle.loads(pickle.dumps(error))
    assert (restored.requested, str(restored)) == (error.requested, str(error))
    assert _core.zeros((1000,), "float32", device).size == 1000


def test_launches_are_counted(device):
    t = _core.zeros((10,), "float32", device)
    before = _core.launch_stats(device)["kernel_launches"]
    _core.apply("negative", [t])
    assert _core.launch_stats(device)["kernel_launches"] == before + 1


def test_a_missing_gpu_is_explained():
    devices = _core.list_devices()
    assert devices[0][:2] == ("cpu", True)
    name, usable, description = devices[1]
    with pytest.raises(_core.DeviceError, match="device cuda:99 can't be used"):
        _core.zeros((2,), "float32", "cuda:99")
    if not usable:
        assert name == "cuda:0"
        with pytest.raises(RuntimeError) as caught:
            _core.zeros((2,), "float32", "gpu")
        assert description in str(caught.value)


def test_importing_loads_no_cuda_library():
    code = (
        "import pathlib, kerascnn._core as c;"
        "c.apply('exp', [c.zeros((2,), 'float32', 'cpu')]);"
        "maps = pathlib.Path('/proc/self/maps').read_text();"
        "print([n for n in ('libcuda', 'libkerascnn_cuda', 'libcudart') if n in maps])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout.strip(), result.stderr) == ("[]", "")


def test_ops_describe_themselves():
    names = _core.op_names()
    assert len(names) == len(set(names)) and "conv2d" in names
    info = _core.op_info("conv2d")
    assert info["differentiable"] and info["reason"] == "" and info["has_cpu_kernel"]
    assert _core.op_info("reshape")["is_view"]
    assert not _core.op_info("argmax")["differentiable"] and _core.op_info("argmax")["reason"]
    with pytest.raises(ValueError, match="no_such_op"):
        _core.op_info("no_such_op")
    assert _core.build_info()["version"]
