"""Kernels that are compiled while a program runs: what users are told, and what is kept on disk.

Tests that need NVRTC are skipped without it; they need no GPU. The tests in tests/core cover files,
threads and forks, with a compiler of their own.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import warnings

import pytest

import kerascnn
from kerascnn import _core

SOURCE = """
extern "C" __global__ void scale(float* x, float by) { x[threadIdx.x] *= by + NUMBER; }
"""
needs_nvrtc = pytest.mark.skipif(
    not _core.nvrtc_state().startswith("NVRTC "), reason=_core.nvrtc_state()
)


def run_python(code, home, **environment):
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "KERASCNN_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def compile_in_process(home, numbers, **environment):
    """Returns for each number what compiling gave: (state, bytes of code, is it from disk)."""
    code = f"""if True:
        import json
        from kerascnn import _core
        sources = [({SOURCE!r}.replace("NUMBER", str(n)), "scale") for n in {list(numbers)}]
        rows = _core.compile_cuda(sources, ["--fmad=false"], 90)
        print(json.dumps([[r["state"], len(r["code"]), r["is_from_disk"]] for r in rows]))
        """
    return json.loads(run_python(code, home, **environment))


def shown_versions(home, **environment):
    return run_python("import kerascnn; kerascnn.show_versions()", home, **environment)


def test_show_versions_names_the_compiler_and_the_folder(tmp_path):
    text = io.StringIO()
    kerascnn.show_versions(file=text)
    assert f"compiler: {_core.nvrtc_state()}" in text.getvalue()
    home = tmp_path / "home"
    folder = home / "kernels" / "compiled"
    shown = shown_versions(home)
    assert f"kept in {folder}: 0 kernels, 0.0 of at most 256 MiB" in shown
    assert "not kept" not in shown
    assert not home.exists()  # showing it creates no folder
    folder.mkdir(parents=True)
    (folder / ("ab" * 32 + ".kernel")).write_bytes(bytes(3 << 19))
    (folder / "another file").write_bytes(bytes(100))
    shown = shown_versions(home, KERASCNN_KERNEL_CACHE_MB="12")
    assert f"kept in {folder}: 1 kernel, 1.5 of at most 12 MiB" in shown


def test_show_versions_says_why_nothing_is_kept(tmp_path):
    shown = shown_versions(tmp_path, KERASCNN_KERNEL_CACHE_MB="0")
    assert "not kept for the next process: KERASCNN_KERNEL_CACHE_MB is 0" in shown
    assert "kept in" not in shown
    home = tmp_path / "file"
    home.write_text("no folder")
    assert f"not kept for the next process: {home} is not a folder" in shown_versions(home)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if not os.access(locked, os.W_OK):  # the superuser may write everywhere
        assert f"{locked}: Permission denied" in shown_versions(locked)


def test_a_cache_size_that_is_no_number_is_refused(tmp_path):
    code = """if True:
        from kerascnn import _core
        try:
            _core.compiled_kernels()
        except ValueError as error:
            print(error)
        """
    printed = run_python(code, tmp_path, KERASCNN_KERNEL_CACHE_MB="much")
    assert 'KERASCNN_KERNEL_CACHE_MB="much"' in printed
    assert "0 or a positive integer" in printed


def test_a_source_that_fails_is_a_warning_with_the_file(tmp_path):
    code = """if True:
        import warnings
        from kerascnn import _core
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                _core.warn_of_failed_source("the kernel of add+relu", "a source", "error: x")
        (one,) = caught
        assert one.category is UserWarning
        print(one.message)
        """
    printed = run_python(code, tmp_path)
    (kept,) = (tmp_path / "kernels" / "failed").iterdir()
    assert "the kernel of add+relu could not be compiled (error: x)" in printed
    assert str(kept) in printed
    assert kept.read_text() == "// the kernel of add+relu\n// error: x\na source"


def test_warnings_of_the_core_can_be_errors(tmp_path, monkeypatch):
    monkeypatch.setenv("KERASCNN_HOME", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="the kernel of add could not be compiled"):
            _core.warn_of_failed_source("the kernel of add", f"of {tmp_path}", "error: x")


@needs_nvrtc
def test_compiled_kernels_are_kept_for_the_next_process(tmp_path):
    first = compile_in_process(tmp_path, range(4))
    assert all(state == "compiled" and size > 0 for state, size, _ in first)
    assert not any(from_disk for _, _, from_disk in first)
    again = compile_in_process(tmp_path, range(5))
    assert [row[:2] for row in again[:4]] == [row[:2] for row in first]
    assert [from_disk for _, _, from_disk in again] == [True] * 4 + [False]
    kept = list((tmp_path / "kernels" / "compiled").iterdir())
    assert len(kept) == 5
    for path in kept:
        path.write_bytes(path.read_bytes()[:-1])
    damaged = compile_in_process(tmp_path, range(4))
    assert damaged == first


@needs_nvrtc
def test_processes_compile_at_the_same_time(tmp_path):
    code = f"""if True:
        from kerascnn import _core
        sources = [({SOURCE!r}.replace("NUMBER", str(n)), "scale") for n in range(6)]
        assert all(r["state"] == "compiled" for r in _core.compile_cuda(sources, [], 90))
        """
    environment = {**os.environ, "KERASCNN_HOME": str(tmp_path)}
    processes = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(3)]
    assert [process.wait(timeout=600) for process in processes] == [0, 0, 0]
    assert len(list((tmp_path / "kernels" / "compiled").iterdir())) == 6


@needs_nvrtc
@pytest.mark.parametrize("threads", ["1", "4"])
def test_sources_that_do_not_compile_are_told_with_the_log(tmp_path, threads):
    code = f"""if True:
        from kerascnn import _core
        good = {SOURCE!r}.replace("NUMBER", "1")
        sources = [(good, "scale"), (good + "no such thing;", "scale"), (good, "absent")]
        rows = _core.compile_cuda(sources, [], 90)
        (option,) = _core.compile_cuda(sources[:1], ["--no-such-option"], 90)
        print([row["state"] for row in [*rows, option]])
        assert not rows[1]["code"]
        print(rows[1]["log"])
        """
    printed = run_python(code, tmp_path, KERASCNN_COMPILE_THREADS=threads)
    assert printed.startswith("['compiled', 'refused', 'refused', 'refused']")
    assert "source.cu" in printed
    assert len(list((tmp_path / "kernels" / "compiled").iterdir())) == 1


@needs_nvrtc
def test_a_folder_that_can_not_be_written_costs_time_only(tmp_path):
    home = tmp_path / "home"
    home.write_text("no folder")
    for _ in range(2):
        assert [row[0] for row in compile_in_process(home, range(2))] == ["compiled"] * 2


@needs_nvrtc
@pytest.mark.parametrize("end", ["pass", "os._exit(0)", "assert os.fork() >= 0"])
def test_the_process_may_end_or_fork_while_kernels_are_compiled(tmp_path, end):
    code = f"""if True:
        import os, time
        from kerascnn import _core
        sources = [({SOURCE!r}.replace("NUMBER", str(n)), "scale") for n in range(40)]
        _core.compile_cuda(sources, [], 90, wait=False)
        while _core.compiled_kernels()["num_kernels"] == 0:
            time.sleep(0.001)
        {end}
        """
    run_python(code, tmp_path)


@needs_nvrtc
def test_devices_older_than_all_that_nvrtc_knows_are_told():
    with pytest.raises(RuntimeError, match="does not compile for compute capability 1.0"):
        _core.compile_cuda([("", "f")], [], 10)
