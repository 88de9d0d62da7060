"""Exports models with their graphs, loads them as C++ does, and compares predictions."""

import numpy as np

import kerascnn as keras
from kerascnn import _core


def loaded(model, folder, device="cpu", **options):
    """What C++ makes of a model that was exported to the folder."""
    path = folder / "model.safetensors"
    model.export(path, include_graph=True, **options)
    return _core.InferenceModel.load(str(path), device)


def same_bits(model, there, inputs, batch_sizes=(32,)):
    """Asserts that predictions in C++ are those of `model.predict`, to the last bit."""
    given = keras.tree.flatten(inputs)
    for batch_size in batch_sizes:
        expected = model.predict(inputs, batch_size=batch_size, verbose=0)
        found = there.predict(given, batch_size)
        expected = keras.tree.flatten(expected)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            one = one.numpy()
            assert one.dtype == other.dtype and one.shape == other.shape
            np.testing.assert_array_equal(one, other)
        assert any(np.ptp(np.asarray(each, "float64")) > 1e-6 for each in expected)


def randomize(model, seed=0):
    """Gives every weight other numbers, so that no part of a model computes nothing."""
    rng = np.random.default_rng(seed)
    for v in model.weights:
        if str(v.dtype).startswith(("float", "bfloat")):
            lowest = 0.5 if "variance" in v.path else -0.5
            v.assign(rng.uniform(lowest, 1.0, v.shape))
    return model
