"""Lets several processes compile with `max-autotune` on one GPU at once.

Compiling takes most of the time, and runs on the host. What is timed must have the GPU alone: each
candidate while a model compiles, and the algorithms that cuDNN tries when a compiled model first
runs (`torch.backends.cudnn.benchmark`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from gpu_lock import GpuLock


class SharedGpu:
    """Takes the lock where PyTorch 2.11 and later time something.

    Args:
        lock: the lock.
        only_compiles: Does the process end after the first step? Then a run of the compiled model
            times nothing but candidates, and cuDNN tries nothing.
    """

    def __init__(self, lock: GpuLock, only_compiles: bool):
        self._lock, self._only_compiles, self._holds = lock, only_compiles, False
        self._flags = importlib.import_module("torch").backends.cudnn
        self._time_candidates_alone()
        self._compile_candidates_by_threads()
        graph = importlib.import_module("torch._inductor.output_code").CompiledFxGraph
        graph.__call__ = self._first_run(graph.__call__)

    def is_ready(self) -> None:
        """Gives back the lock that a first run of a compiled model took."""
        if self._holds:
            self._holds = False
            self._lock.__exit__()

    def _time_candidates_alone(self) -> None:
        module = importlib.import_module("torch._inductor.runtime.benchmarking")
        for name in ("TritonBenchmarker", "InductorBenchmarker", "TorchProfilerBenchmarker"):
            kind = getattr(module, name, None)
            if kind is not None and "benchmark_gpu" in vars(kind):
                kind.benchmark_gpu = self._alone(kind.benchmark_gpu)

    def _alone(self, run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def call(*args: Any, **options: Any) -> Any:
            with self._lock, self._cudnn_tries(True):
                return run(*args, **options)

        return call

    def _compile_candidates_by_threads(self) -> None:
        """Keeps PyTorch's pool of processes from what is timed next.

        Once that pool is ready nothing waits for what it compiles, and each candidate is compiled
        again when it is timed, one after another ("0.0003 seconds precompiling" in PyTorch 2.11).
        """
        cache = importlib.import_module("torch._inductor.select_algorithm").AlgorithmSelectorCache
        compiler = importlib.import_module("torch._inductor.async_compile").AsyncCompile
        make = cache.make_precompile_fn

        def with_threads(*args: Any, **options: Any) -> Any:
            never = classmethod(lambda _: False)
            with mock.patch.object(compiler, "use_process_pool", never):
                return make(*args, **options)

        cache.make_precompile_fn = with_threads

    def _first_run(self, run: Callable[..., Any]) -> Callable[..., Any]:
        has_run = False

        def call(graph: Any, inputs: Any) -> Any:
            nonlocal has_run
            if self._only_compiles:
                with self._cudnn_tries(False):
                    return run(graph, inputs)
            if not has_run:
                has_run = self._holds = True
                self._lock.__enter__()
            return run(graph, inputs)

        return call

    @contextlib.contextmanager
    def _cudnn_tries(self, whether: bool) -> Iterator[None]:
        before, self._flags.benchmark = self._flags.benchmark, whether
        try:
            yield
        finally:
            self._flags.benchmark = before
