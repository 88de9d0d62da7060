"""The ops that take batches out of data sets and store results, in NumPy."""

from __future__ import annotations

import numpy as np

from .reference import reference


@reference("take_batch")
def take_batch(data, order, step, batch_size):
    positions = np.clip(int(step) * batch_size + np.arange(batch_size), 0, order.size - 1)
    return data[np.clip(order[positions], 0, data.shape[0] - 1)]


@reference("put_batch")
def put_batch(buffer, batch, step):
    first = np.clip(float(step) * len(batch), -len(batch), len(buffer))
    rows = int(first) + np.arange(len(batch))
    inside = (rows >= 0) & (rows < len(buffer))
    result = buffer.copy()
    result[rows[inside]] = batch[inside]
    return result
