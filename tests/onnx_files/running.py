"""Running ONNX files in ONNX Runtime, and comparing with the model."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented  # noqa: F401

onnxruntime.set_default_logger_severity(3)


def run(content, arrays):
    """The outputs of a file, its path or its bytes, for arrays in the order of its inputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        content if isinstance(content, bytes) else str(content), options
    )
    given = [each.name for each in session.get_inputs()]
    return session.run(None, dict(zip(given, arrays, strict=True)))


def ops_in(path):
    """How often each op is in a file."""
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def difference(actual, wanted):
    """The largest difference, relative to values above 1; shapes, dtypes and NaN must be equal."""
    actual, wanted = np.asarray(actual), np.asarray(wanted)
    assert actual.shape == wanted.shape
    assert actual.dtype == wanted.dtype
    a, b = actual.astype("float64"), wanted.astype("float64")
    assert np.array_equal(np.isnan(a), np.isnan(b))
    same = (a == b) | np.isnan(a)
    apart = np.where(same, 0.0, np.abs(a - b) / np.maximum(1.0, np.abs(b)))
    return float(apart.max(initial=0.0))
