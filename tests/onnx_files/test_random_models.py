"""Random models as ONNX files: what the generator of the fuzz tests makes of kerascnn's layers."""

import re
from random import Random

import pytest
from fuzzing import random_models

import kerascnn

from .running import difference, run

keras = pytest.importorskip("keras")

# A few roundings of sums that are taken in another order.
_TOLERANCE = 1e-4


# Loops are written, and not read.
_NOT_READ = "The graph has ops that are not read: (Scan|Loop|If) "


@pytest.mark.filterwarnings("ignore")
def test_random_models(amount, tmp_path, capsys, request):
    compared, read, number = 0, 0, 0
    worst = {"written": 0.0, "read": 0.0}
    wanted = amount(6, 300)
    while compared < wanted:
        number += 1
        for library in (keras, kerascnn):
            library.utils.clear_session()
        description, (model, _) = random_models.draw(Random(f"onnx {number}"), (kerascnn, keras))
        model.set_weights(random_models.new_weights(model, description["seed"]))
        x = random_models.data(description, model.output_shape)["x"]
        path = tmp_path / "model.onnx"
        model.export(path)
        again = from_file(path)
        for batch in (4, 1, 3):  # the batch stays open
            expected = model.predict(x[:batch], verbose=0)
            apart = difference(run(path, [x[:batch]])[0], expected)
            assert apart < _TOLERANCE, description
            worst["written"] = max(worst["written"], apart)
            if again is not None:
                apart = difference(again.predict(x[:batch], verbose=0), expected)
                assert apart < _TOLERANCE, description
                worst["read"] = max(worst["read"], apart)
        compared, read = compared + 1, read + (again is not None)
    assert read > 0.8 * compared
    if request.config.getoption("--thorough"):
        with capsys.disabled():
            print(f"\n{compared} random models written, {read} read; differences {worst}")


def from_file(path):
    """The model of a file; None where it has a loop."""
    try:
        return kerascnn.models.from_onnx(path)
    except ValueError as error:
        assert re.match(_NOT_READ, str(error)), error
        return None
