"""Random models as ONNX files: what the generator of the fuzz tests makes of kerascnn's layers."""

import warnings
from random import Random

import numpy as np
import pytest

import kerascnn
from fuzzing import random_models

from .running import difference, run

keras = pytest.importorskip("keras")

# A few roundings of sums that are taken in another order.
_TOLERANCE = 1e-4


@pytest.mark.filterwarnings("ignore")
def test_random_models(amount, tmp_path):
    compared, worst, number = 0, 0.0, 0
    wanted = amount(12, 300)
    while compared < wanted:
        number += 1
        for library in (keras, kerascnn):
            library.utils.clear_session()
        description, (model, _) = random_models.draw(Random(f"onnx {number}"), (kerascnn, keras))
        model.set_weights(random_models.new_weights(model, description["seed"]))
        x = random_models.data(description, model.output_shape)["x"]
        path = tmp_path / "model.onnx"
        model.export(path)
        for batch in (4, 1, 3):  # the batch stays open
            with np.errstate(all="ignore"), warnings.catch_warnings():
                expected = model.predict(x[:batch], verbose=0)
                (found,) = run(path, [x[:batch]])
                apart = difference(found, expected)
            assert apart < _TOLERANCE, description
            worst = max(worst, apart)
        compared += 1
    print(f"{compared} random models, largest difference {worst}")
