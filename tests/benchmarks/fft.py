"""Measures Fourier transforms beside those of NumPy and PyTorch.

    python tests/benchmarks/fft.py --device cpu
    python tests/benchmarks/fft.py --device cuda:0 --threads 1

Each line is for one transform of float32 numbers. It shows the microseconds of the best of several
runs of a compiled program, of `torch.fft` on the same device, and of `numpy.fft` on the host. The
other two take complex numbers as they are. The last figures are ratios: kerascnn's time over
theirs.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from kerascnn import _core, ops
from kerascnn.tracing import Trace

# (lines, length): many short lines as in spectrograms, a few long ones, and prime lengths.
SIZES = [(1024, 256), (256, 1024), (64, 4096), (1, 4096), (16, 16384), (4, 65536), (1, 65536)]
SIZES += [(64, 4099), (1, 65537)]


def best(function, seconds):
    """Returns the seconds of the fastest call."""
    function()
    end = time.perf_counter() + seconds
    fastest = float("inf")
    while time.perf_counter() < end:
        start = time.perf_counter()
        function()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest


def program_of(function, arrays, device):
    with Trace(device) as trace:
        values = [trace.graph.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(arrays)]
        results = list(function(*values))
    program = _core.Program.compile(trace.graph, results, device)
    inputs = [_core.from_numpy(x, device) for x in arrays]

    def run():
        program.run(inputs)
        _core.synchronize(device)

    return run


def torch_of(function, array, device):
    x = torch.from_numpy(array).to(device)

    def run():
        function(x)
        if device != "cpu":
            torch.cuda.synchronize()

    return run


def rivals(name, real, imaginary, device):
    """Returns functions without arguments: kerascnn's, PyTorch's and NumPy's."""
    if name == "fft":
        joined = (real + 1j * imaginary).astype("complex64")
        result = np.empty_like(joined)
        return (
            program_of(lambda a, b: ops.fft((a, b)), [real, imaginary], device),
            torch_of(torch.fft.fft, joined, device),
            lambda: np.fft.fft(joined, out=result),
        )
    result = np.empty((*real.shape[:-1], real.shape[-1] // 2 + 1), "complex64")
    return (
        program_of(ops.rfft, [real], device),
        torch_of(torch.fft.rfft, real, device),
        lambda: np.fft.rfft(real, out=result),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="PyTorch's; OMP_NUM_THREADS is ours")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each number")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rng = np.random.default_rng(0)
    print(f"{'':22}{'kerascnn':>10}{'torch':>10}{'numpy':>10}{'/ torch':>9}{'/ numpy':>9}")
    for name in ("fft", "rfft"):
        for lines, length in SIZES:
            real, imaginary = rng.standard_normal((2, lines, length)).astype("float32")
            functions = rivals(name, real, imaginary, arguments.device)
            ours, torchs, numpys = (best(f, arguments.seconds) * 1e6 for f in functions)
            title = f"{name} {lines} x {length}"
            print(
                f"{title:22}{ours:10.0f}{torchs:10.0f}{numpys:10.0f}"
                f"{ours / torchs:9.2f}{ours / numpys:9.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
