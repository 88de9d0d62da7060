"""No call of what `kerascnn._core` has ends the process, whatever it is given."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core

SCRIPT = Path(__file__).with_name("core_calls.py")


def tensor(*shape):
    return _core.from_numpy(np.ones(shape, "float32"), "cpu")


needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="each function is called in a forked process"
)


def run(*arguments):
    # No GPU: to start one in each process would take minutes.
    settings = {"KERASCNN_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=SCRIPT.parent,
        capture_output=True,
        text=True,
        env=os.environ | settings,
        timeout=3500,  # it takes seconds of a processor, of which others may leave little
    )


@needs_fork
@pytest.mark.timeout(3600)
def test_no_call_ends_the_process(amount):
    done = run(SCRIPT, os.environ["KERASCNN_TEST_SEED"], amount(60, 5_000))
    assert done.returncode == 0, done.stdout + done.stderr
    called, ended = map(int, re.findall(r"\d+", done.stdout.splitlines()[-1]))
    assert called > 500 and ended == 0


def test_no_variable_among_the_inputs():
    """Fuzzing found it: in lists nanobind takes None for a shared pointer to nothing."""
    with pytest.raises(ValueError, match="received None"):
        _core.record_function("conv2d", [None], [tensor(3)], int)


@needs_fork
@pytest.mark.parametrize("end, how", [("abort()", "SIGABRT"), ("_exit(3)", "exit status 3")])
def test_a_call_that_ends_the_process_is_named(end, how):
    lines = [
        "import os, sys, core_calls",
        f"core_calls._core.end = lambda *arguments: os.{end}",
        "core_calls.callables = lambda: [(None, 'end')]",
        "sys.exit(core_calls.main(1, 2))",
    ]
    done = run("-c", "; ".join(lines))
    assert done.returncode == 1, done.stderr
    assert re.match(f"{how} from None.end with ", done.stdout)


def test_a_piece_outside_of_the_memory():
    x = tensor(8)
    for offset in (2**63 - 8, 2**62, 28, -4):
        with pytest.raises(ValueError, match=r"piece: .* is not an aligned piece"):
            x.piece((2,), "float32", offset)
    np.testing.assert_array_equal(x.piece((2,), "float32", 24).numpy(), [1, 1])


@pytest.mark.filterwarnings("ignore:nanobind")
def test_what_was_never_initialized():
    unfinished = _core.Tensor.__new__(_core.Tensor)
    with pytest.raises(TypeError, match="numpy: expected an initialized Tensor"):
        unfinished.numpy()
    with pytest.raises(TypeError, match="received a int"):
        _core.Tensor.numpy(5)
    with pytest.raises(TypeError):
        unfinished + tensor(2)


def test_a_variable_whose_core_was_replaced():
    variable = keras.Variable(np.ones(3, "float32"))
    variable.core = 5
    with pytest.raises(TypeError, match="expected an initialized Variable, received a int"):
        variable + tensor(3)


def test_ranks_are_bounded():
    x = keras.ops.ones((1,))
    deep = keras.ops.reshape(x, (1,) * 64)
    np.testing.assert_array_equal((deep + 1).numpy(), np.full((1,) * 64, 2))
    assert keras.ops.sum(keras.ops.transpose(deep)).shape == ()
    with pytest.raises(ValueError, match="up to 64 axes; this one has 65"):
        keras.ops.reshape(x, (1,) * 65)
    with pytest.raises(ValueError, match="up to 64 axes; this one has 1000"):
        _core.zeros((1,) * 1000, "float32", "cpu")


def test_products_of_extents_that_overflow():
    x = keras.ops.ones((8,))
    # 3 * 0x2AAA...AB * 2 is 2 modulo 2^64.
    for shape in ((-1, 2**32, 2**32), (3, (2**63 + 1) // 3, -1, 2), (0, 2**40, 2**40)):
        with pytest.raises(ValueError):
            keras.ops.reshape(x, shape)
        with pytest.raises(ValueError):
            _core.zeros(tuple(abs(extent) for extent in shape), "float32", "cpu")


def test_a_scope_that_was_not_pushed():
    with pytest.raises(ValueError, match="no scope was pushed"):
        _core.Graph().pop_scope()
