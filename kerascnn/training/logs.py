"""Logs: metrics as numbers, which are read from the device on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kerascnn import _core
from kerascnn import metrics as metrics_module
from kerascnn.training.compile_utils import CompileMetrics
from kerascnn.training.pacing import PATIENCE


def host_results(metrics: list) -> dict[str, Any]:
    """Returns the results of metrics by name, as numbers, in the order of the metrics.

    As in Keras, the entries of a dictionary that a metric returns are among the others where the
    model has the metric by itself, and in a dictionary by its name where `compile` got it.
    """
    named: list[tuple[str, Any, bool]] = []
    for metric in metrics:
        compiled = isinstance(metric, CompileMetrics)
        whole = metric.named() if compiled else {metric.name: metric}
        named.extend((name, item, compiled) for name, item in whole.items())
    means = [item for _, item, _ in named if type(item).result in _MEAN_RESULTS]
    states = _states_on_host(means)
    results: dict[str, Any] = {}
    for name, item, compiled in named:
        value = _on_host(item, states.get(id(item)))
        results.update({name: value} if compiled or not isinstance(value, dict) else value)
    return results


def _states_on_host(means: list[Any]) -> dict[int, list[np.ndarray]]:
    """Reads the states for `result_on_host` by `id`, all at once, as each read waits for a GPU."""
    parts = [item.state_on_device() for item in means]
    tensors = [tensor for part in parts for tensor in part]
    if any(tensor.device != "cpu" for tensor in tensors):
        arrays = iter(_core.copies_on_host(tensors, PATIENCE))
    else:  # this needs no copy
        arrays = iter([tensor.numpy() for tensor in tensors])
    return {id(m): [next(arrays) for _ in part] for m, part in zip(means, parts, strict=True)}


def _on_host(metric: Any, state: list[np.ndarray] | None) -> Any:
    if state is not None:
        return metric.result_on_host(state)
    result = metric.result()
    if isinstance(result, dict):
        return {name: as_number(value) for name, value in result.items()}
    return as_number(result)


# A subclass with its own `result` is called instead.
_MEAN_RESULTS = (metrics_module.Mean.result,)


def as_number(value: Any) -> Any:
    """Returns a Python float for one element, or else an array that no later step changes."""
    array = np.asarray(value)
    return float(array.astype(np.float64).reshape(())) if array.size == 1 else np.array(array)


def sorted_logs(results: dict[str, Any]) -> dict[str, Any]:
    """Sorts logs by name for callbacks and the history, as Keras does."""
    return {name: results[name] for name in sorted(results)}


def flat_logs(results: Any) -> Any:
    """Moves the entries of dictionaries inside logs into the logs themselves, as Keras does."""
    if not isinstance(results, dict):
        return results
    flat: dict[str, Any] = {}
    for name in sorted(results):
        value = results[name]
        flat.update(flat_logs(value) if isinstance(value, dict) else {name: value})
    return flat


class LazyLogs(dict):
    """Logs of a batch that are read from the device at the first access."""

    def __init__(self, read: Callable[[], dict]):
        super().__init__()
        self._read: Callable[[], dict] | None = read

    def _fill(self) -> None:
        if self._read is not None:
            read, self._read = self._read, None
            super().update(read())

    def __getitem__(self, name: str) -> Any:
        self._fill()
        return super().__getitem__(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self._fill()
        super().__setitem__(name, value)

    def __contains__(self, name: object) -> bool:
        self._fill()
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        self._fill()
        return super().__iter__()

    def __len__(self) -> int:
        self._fill()
        return super().__len__()

    def __eq__(self, other: object) -> bool:
        self._fill()
        return super().__eq__(other)

    __hash__ = None

    def __repr__(self) -> str:
        self._fill()
        return super().__repr__()

    def get(self, name: str, default: Any = None) -> Any:
        self._fill()
        return super().get(name, default)

    def keys(self) -> Any:
        self._fill()
        return super().keys()

    def values(self) -> Any:
        self._fill()
        return super().values()

    def items(self) -> Any:
        self._fill()
        return super().items()

    def copy(self) -> dict:
        self._fill()
        return dict(super().items())
