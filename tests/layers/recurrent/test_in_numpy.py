"""Forward results in float64 equal the formulas in NumPy; Keras on PyTorch computes in float32."""

import functools

import numpy as np
import pytest

import kerascnn

from . import references

STEPS = {
    "SimpleRNN": (references.simple_step, {}),
    "LSTM": (references.lstm_step, {}),
    "GRU": (references.gru_step, {"reset_after": True}),
    "GRU, reset before": (
        functools.partial(references.gru_step, reset_after=False),
        {"reset_after": False},
    ),
}


@pytest.mark.parametrize("zero_masked", [False, True])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("case", STEPS)
def test_outputs_and_states(case, masked, backwards, zero_masked, device, rng):
    step, arguments = STEPS[case]
    layer = getattr(kerascnn.layers, case.split(",")[0])
    x = rng.normal(size=(3, 9, 5))
    mask = rng.random((3, 9)) < 0.6 if masked else None
    with kerascnn.device(device):
        layer = layer(
            4,
            **arguments,
            return_sequences=True,
            return_state=True,
            go_backwards=backwards,
            zero_output_for_mask=zero_masked,
            dtype="float64",
        )
        layer.build(x.shape)
        weights = [rng.normal(size=w.shape) for w in layer.weights]
        layer.set_weights(weights)
        states = [rng.normal(size=(3, 4)) for _ in layer.state_size]
        outputs, *after = (y.numpy() for y in layer(x, initial_state=states, mask=mask))
        last = type(layer).from_config({**layer.get_config(), "return_sequences": False})
        last.build(x.shape)
        last.set_weights(weights)
        last_output = last(x, initial_state=states, mask=mask)[0].numpy()
    expected, expected_last, expected_after = references.run(
        step, x, states, weights, mask, backwards, zero_masked
    )
    for actual, wanted in zip(
        [outputs, last_output, *after], [expected, expected_last, *expected_after], strict=True
    ):
        # Sums of ten products over nine steps round far below the effect of a wrong term.
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-13)


def test_recurrence_of_nested_inputs_and_states(device, rng):
    """The loop takes a pair of sequences and a dictionary of states, and gives nested outputs."""
    from kerascnn import ops
    from kerascnn.ops.recurrence import rnn

    a, b = rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 5))

    def step(inputs, states):
        total = states["total"] + inputs[0] * ops.expand_dims(inputs[1], -1)
        return {"sum": total, "count": states["count"]}, {
            "total": total,
            "count": states["count"] + 1,
        }

    with kerascnn.device(device):
        states = {"total": ops.zeros((2, 3), "float64"), "count": ops.zeros((2,), "int32")}
        last, outputs, after = rnn(step, (a, b), states)
    sums = np.cumsum(a * b[..., None], axis=1)
    np.testing.assert_allclose(outputs["sum"].numpy(), sums, rtol=0, atol=1e-13)
    np.testing.assert_allclose(last["sum"].numpy(), sums[:, -1], rtol=0, atol=1e-13)
    assert outputs["count"].numpy().tolist() == [[0, 1, 2, 3, 4]] * 2
    assert after["count"].numpy().tolist() == [5, 5]
