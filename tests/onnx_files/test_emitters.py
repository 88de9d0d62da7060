"""Each op of the core has an emitter or a reason; onnxruntime computes what the core computes."""

import pytest
from ops import harness
from ops.cases import CASES, OF_PASSES

from kerascnn import _core
from kerascnn.onnx_files import writing
from kerascnn.onnx_files.emitter import EMITTERS, REFUSED
from kerascnn.recordings.recording import ExportError, Input, Program, Recording
from kerascnn.recordings.sizes import Axes

from .running import NotImplemented, run

# Only passes make these; they are no part of what is recorded.
_MADE_BY_PASSES = OF_PASSES | {"region", "cast_all"}
# What ONNX Runtime does otherwise: maxima pass over NaN, recurrent layers without rows or steps end
# the process, and a product of integers over nothing is left as it was.
_RUNTIME = {
    *("reduce_max-nan", "reduce_min-nan", "max_pool2d-nan"),
    *("lstm-no_steps", "lstm-no_rows", "gru-no_steps", "gru-no_rows"),
}
_EXPORTED = [
    case
    for case in CASES
    if not case.large
    and case.op in EMITTERS
    and str(case) not in _RUNTIME
    and not str(case).endswith("to_bfloat16")  # it becomes float32
    and not (case.op == "integer_matmul" and case.id.startswith("no_inner"))
]
# These are for gradients: another axis than the first, steps back, numbers of steps.
_REFUSED = ("slice_grad-reversed", "slice_grad-drawn", "gather_grad-", "loop-counted")
# The outputs that are for gradients alone are in no file.
_OF_GRADIENTS = {"max_pool2d": 1, "lstm": 3, "gru": 2}


def test_every_op_has_an_emitter_or_a_reason():
    names = set(_core.op_names()) - _MADE_BY_PASSES
    assert names - set(EMITTERS) - set(REFUSED) == set()
    assert not set(EMITTERS) & set(REFUSED)


def program_of(case, inputs, attributes, constants):
    """The call as a program whose inputs are the operands, but for those that are constants."""
    graph, given, values = _core.Graph(), [], []
    for i, array in enumerate(inputs):
        if i in constants:
            values.append(graph.constant(_core.from_numpy(array, "cpu")))
        else:
            values.append(graph.input(f"x{i}", list(array.shape), array.dtype.name))
            given.append((i, values[-1]))
    outputs = graph.apply(case.op, values, attributes)[: _OF_GRADIENTS.get(case.op)]
    if case.op == "loop":
        bodies = attributes["bodies"]
        outputs = outputs[: len(bodies[0].outputs)]
    axes = Axes([], [])
    program = Program(axes, [graph], [v.id for _, v in given], [v.id for v in outputs])
    shapes = [
        (Input(f"x{i}", inputs[i].shape, inputs[i].dtype.name), inputs[i].shape) for i, _ in given
    ]
    return Recording(program, axes, shapes, [f"y{i}" for i in range(len(outputs))]), given


def pytest_generate_tests(metafunc):
    """Every case with `--thorough`, else the first of each op."""
    if "case" in metafunc.fixturenames:
        first = {case.op: case for case in reversed(_EXPORTED)}
        thorough = metafunc.config.getoption("--thorough")
        metafunc.parametrize("case", _EXPORTED if thorough else list(first.values()), ids=str)


@pytest.mark.parametrize("constants", ["inputs", "constants"])
def test_emitters(case, constants, rng):
    """With all operands as inputs, and with all but the first as constants."""
    dtype = "float32" if "float32" in case.dtypes else case.dtypes[0]
    inputs, attributes = harness.draw(case, rng, dtype)
    fixed = range(1, len(inputs)) if constants == "constants" else range(0)
    recorded, given = program_of(case, inputs, attributes, fixed)
    try:
        content = writing.to_proto(recorded, "case", 18).SerializeToString()
    except ExportError as error:
        assert f"The op '{case.op}' of the model can't be exported: " in str(error)
        computed = case.op in ("lstm", "gru") and not fixed and "computed" in str(error)
        assert computed or str(case).startswith(_REFUSED)
        return
    try:
        found = run(content, [inputs[i] for i, _ in given])
    except NotImplemented as error:
        pytest.skip(f"ONNX Runtime has no such kernel: {error}")
    wanted = harness.run_eager(case, inputs, attributes, "cpu")
    for actual, expected in zip(found, wanted, strict=False):
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        assert harness.relative_error(actual, expected) < 1e-4
