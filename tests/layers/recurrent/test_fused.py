"""The op for whole sequences and the loop give the same results and gradients."""

import re

import numpy as np
import pytest

import kerascnn
from kerascnn import layers, ops
from kerascnn.tracing import Trace

from .running import as_list, assert_close, run_compiled, run_eagerly
from .test_against_keras import make_mask

# Sums of a dozen products are carried on by nine steps and back.
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


def ops_in(layer, x, training=False, masked=False, **arguments):
    """Returns the names of the ops in a trace of the layer's call."""
    with Trace("cpu", scratch=True) as trace:
        if masked:
            arguments["mask"] = trace.graph.input("mask", list(x.shape[:2]), "bool")
        layer(trace.graph.input("x", list(x.shape), str(x.dtype)), training=training, **arguments)
        return set(re.findall(r"= (\w+)\(", trace.graph.to_string()))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("mask", [None, "random", "first", "right"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_both_routes_agree(name, dtype, mask, compiled, device, rng):
    run = run_compiled if compiled else run_eagerly
    x = rng.uniform(-1, 1, (3, 9, 5)).astype(dtype)
    mask = make_mask(mask, (3, 9), rng)
    for sequences, backwards, zeros in (
        (True, False, False),
        (True, True, True),
        (False, False, True),
        (False, True, False),
    ):
        with kerascnn.device(device):
            both = [
                getattr(layers, name)(
                    7,
                    return_sequences=sequences,
                    return_state=True,
                    go_backwards=backwards,
                    zero_output_for_mask=zeros,
                    use_cudnn=route,
                    dtype=dtype,
                    name="layer",
                )
                for route in (True, False)
            ]
            for layer in both:
                layer.build(x.shape)
            weights = [rng.uniform(-1, 1, w.shape) for w in both[0].weights]
            for layer in both:
                layer.set_weights(weights)
        states = [rng.uniform(-1, 1, (3, 7)).astype(dtype) for _ in both[0].state_size]
        shapes = both[0].compute_output_shape(x.shape)
        directions = [rng.uniform(0.5, 1.5, s).astype(dtype) for s in shapes]
        fused, loop = (run(layer, x, states, mask, directions, device) for layer in both)
        assert_close(fused, loop, TOLERANCE[dtype], f"{name} {sequences} {backwards} {zeros}")


def test_which_route_is_taken():
    x = np.ones((2, 3, 4), "float32")
    for layer, op in (
        (layers.LSTM(5), "lstm"),
        (layers.GRU(5), "gru"),
        (layers.RNN(layers.LSTMCell(5)), "lstm"),
        (layers.Bidirectional(layers.GRU(5)), "gru"),
        (layers.LSTM(5, use_bias=False, dropout=0.5), "lstm"),
    ):
        layer.build(x.shape)
        assert op in ops_in(layer, x, training=True)
    for layer in (
        layers.LSTM(5, use_cudnn=False),
        layers.LSTM(5, unroll=True),
        layers.LSTM(5, activation="relu"),
        layers.GRU(5, recurrent_activation="hard_sigmoid"),
        layers.GRU(5, reset_after=False),
        layers.LSTM(5, recurrent_dropout=0.5),
    ):
        layer.build(x.shape)
        assert not {"lstm", "gru"} & ops_in(layer, x, training=True)
    with pytest.raises(ValueError, match="use_cudnn=True"):
        layers.GRU(5, reset_after=False, use_cudnn=True)(x)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
@pytest.mark.parametrize("sequences", [False, True])
def test_masks_cost_no_pass_where_states_begin_with_zeros(name, sequences):
    """Steps masked from the start show the first state; only one other than zeros needs an op."""
    x = np.ones((2, 3, 4), "float32")
    layer = getattr(layers, name)(5, return_sequences=sequences)
    layer.build(x.shape)
    assert not {"where", "cumsum"} & ops_in(layer, x, masked=True)
    states = [ops.ones((2, 5)) for _ in layer.state_size]
    assert "where" in ops_in(layer, x, masked=True, initial_state=states)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_masks_of_other_kinds(name, device, rng):
    """Masks of numbers, or with an axis for the features, mean what booleans (n, steps) mean."""
    x = rng.normal(size=(3, 5, 2)).astype("float32")
    mask = rng.random((3, 5)) < 0.5
    with kerascnn.device(device):
        layer = getattr(layers, name)(4, return_sequences=True)
        expected = layer(x, mask=mask).numpy()
        for other in (mask.astype("int32"), mask[..., None]):
            # The loop adds float32 in another order.
            assert_close([layer(x, mask=other).numpy()], [expected], TOLERANCE["float32"])


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_dropout_of_inputs_is_the_same_on_both_routes(name, device):
    """The same seed gives the same masks, since they are drawn before the kernel is applied."""
    with kerascnn.device(device):
        x = ops.ones((3, 5, 8))
        results = []
        for route in (True, False):
            layer = getattr(layers, name)(4, dropout=0.5, seed=7, use_cudnn=route)
            layer.build(x.shape)
            layer.set_weights(
                [np.cos(np.arange(np.prod(w.shape))).reshape(w.shape) for w in layer.weights]
            )
            results.append([y.numpy() for y in as_list(layer(x, training=True))])
        assert_close(*results, TOLERANCE["float32"])


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_half_precision_on_both_routes(name, device, rng):
    x = rng.uniform(-1, 1, (3, 6, 4)).astype("float32")
    with kerascnn.device(device):
        both = [
            getattr(layers, name)(5, use_cudnn=route, dtype="mixed_float16")
            for route in (True, False)
        ]
        for layer in both:
            layer.build(x.shape)
        both[1].set_weights(both[0].get_weights())
        results = [[layer(x).numpy()] for layer in both]
    assert results[0][0].dtype == results[1][0].dtype == np.float16
    # There are six steps, each with sums of ten numbers below 1 that are rounded at 5e-4.
    assert_close(*results, 2e-2)
