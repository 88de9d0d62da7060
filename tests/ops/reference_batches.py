"""What the ops mean that put the results of batches away."""

from __future__ import annotations

import numpy as np

from .reference import reference


@reference("put_batch")
def put_batch(buffer, batch, step):
    first = np.clip(float(step) * len(batch), -len(batch), len(buffer))
    rows = int(first) + np.arange(len(batch))
    inside = (rows >= 0) & (rows < len(buffer))
    result = buffer.copy()
    result[rows[inside]] = batch[inside]
    return result
