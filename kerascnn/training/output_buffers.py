"""Buffers that keep the outputs of many steps on the device until the host takes them together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kerascnn import _core, dtypes
from kerascnn.ops import dispatch
from kerascnn.tracing import Trace
from kerascnn.training import memory
from kerascnn.training.device_state import StagedTensor
from kerascnn.training.pacing import PATIENCE


class OutputBuffers:
    """One buffer for each output, with room for the rows of several batches.

    Steps put their outputs behind those of the steps before; a counter on the device, `place`, says
    where that is. It is not the counter that batches are taken by: the next batch then need not
    wait until the outputs of the one before are put away.

    Args:
        specs: shape and dtype of each output of a step, all with the batch as their first axis.
        batch_size: the length of that axis.
        most: how many steps there may be before the host takes their outputs.
        device: where the buffers are.
    """

    def __init__(
        self,
        specs: Sequence[tuple[tuple[int, ...], str]],
        batch_size: int,
        most: int,
        device: str,
    ):
        self._batch_size = batch_size
        per_batch = sum(math.prod(s) * dtypes.numpy_dtype(dtype).itemsize for s, dtype in specs)
        self._capacity = memory.chunk_batches(per_batch, max(1, most), device)
        self._place = StagedTensor("place", (), "int64", device)
        rows = self._capacity * batch_size
        self._buffers = [
            _core.Variable("outputs", _core.zeros([rows, *shape[1:]], dtype, device))
            for shape, dtype in specs
        ]
        self._filled = 0  # batches

    def put(self, trace: Trace, leaves: Sequence[Any]) -> None:
        """Adds to a trace what puts the step's outputs into the buffers."""
        graph = trace.graph
        place = graph.read(self._place.core)
        for buffer, leaf in zip(self._buffers, leaves, strict=True):
            graph.assign(buffer, dispatch.apply_one("put_batch", [graph.read(buffer), leaf, place]))
        one = graph.full([], "int64", 1)
        graph.assign(self._place.core, dispatch.apply_one("add", [place, one]))

    @property
    def variables(self) -> list[Any]:
        """Returns the variables of the core that steps write to."""
        return [self._place.core, *self._buffers]

    def clear(self) -> None:
        """Drops the contents of the buffers; the next step is the first one."""
        self._filled = 0
        self._place.clear()

    @property
    def room(self) -> int:
        """Returns for how many more steps there is room."""
        return self._capacity - self._filled

    @property
    def is_empty(self) -> bool:
        return self._filled == 0

    def note(self, steps: int) -> None:
        """Notes that so many steps ran."""
        self._filled += steps

    def take(self, as_tensor: bool = False) -> list[Any]:
        """Returns copies of the outputs since the last call, as arrays or tensors."""
        rows = self._filled * self._batch_size
        values = [buffer.value for buffer in self._buffers]
        parts = [v.piece([rows, *v.shape[1:]], v.dtype, 0) for v in values]
        copies = copies_of(parts, as_tensor)
        self.clear()
        return copies


def copies_of(tensors: Sequence[_core.Tensor], as_tensor: bool) -> list[Any]:
    """Copies tensors on their device, or to arrays, which waits for the device."""
    if as_tensor:
        return [tensor.copy() for tensor in tensors]
    return _core.copies_on_host(tensors, PATIENCE)


def buffers_for(leaves: Sequence[Any], batch_size: int, steps: int, device: str) -> Any:
    """Makes buffers for the outputs of `steps` steps, or `None` unless all are rows of samples."""
    specs = [(tuple(leaf.shape), leaf.dtype) for leaf in leaves]
    if not specs or any(not shape or shape[0] != batch_size for shape, _ in specs):
        return None
    return OutputBuffers(specs, batch_size, steps, device)
