"""`ops.ctc_loss` and `ops.ctc_decode` are compared with Keras, and refuse bad arguments."""

import numpy as np
import pytest

import kerascnn
from kerascnn import _core, ops
from kerascnn.tracing import Trace

keras = pytest.importorskip("keras")
torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

# PyTorch adds up to 40 logarithms of up to 100 in float32, each rounded to 4e-6. Its gradients are
# exponentials of that sum.
RTOL, ATOL = 1e-5, 1e-5
GRADIENT_RTOL, GRADIENT_ATOL = 2e-3, 1e-4


def sequences(rng):
    """Draws sizes at random; some samples have no labels, some have no frames, and some too few."""
    samples, frames, classes, most = (int(rng.integers(low, 9)) for low in (1, 1, 2, 1))
    frames *= int(rng.integers(1, 6))
    blank = int(rng.integers(0, classes))
    target = rng.integers(0, classes - 1, (samples, most))
    target += target >= blank
    return (
        target.astype("int32"),
        3 * rng.normal(size=(samples, frames, classes)).astype("float32"),
        rng.integers(0, most + 1, samples).astype("int32"),
        rng.integers(0, frames + 1, samples).astype("int32"),
        blank,
    )


def gradient_of(function, x, device):
    with kerascnn.device(device), Trace(device) as trace:
        value = trace.graph.input("x", list(x.shape), x.dtype.name)
        (gradient,) = trace.graph.gradients(function(value), [value])
    program = _core.Program.compile(trace.graph, [gradient], device)
    program.run([_core.from_numpy(x, device)])
    return np.array(program.outputs()[0].numpy())


@pytest.mark.parametrize("draw", range(12))
def test_losses_and_gradients_are_those_of_keras(draw, rng, device):
    target, output, target_length, output_length, blank = sequences(rng)
    leaf = torch.tensor(output, requires_grad=True)
    expected = keras.ops.ctc_loss(target, leaf, target_length, output_length, blank)
    weights = rng.uniform(0.5, 2, len(output)).astype("float32")
    (expected * torch.tensor(weights)).sum().backward()
    with kerascnn.device(device):
        value = ops.ctc_loss(target, output, target_length, output_length, blank)
        assert value.dtype == "float32"
        np.testing.assert_allclose(value.numpy(), expected.detach().numpy(), RTOL, ATOL)
    gradient = gradient_of(
        lambda x: ops.sum(ops.ctc_loss(target, x, target_length, output_length, blank) * weights),
        output,
        device,
    )
    np.testing.assert_allclose(gradient, leaf.grad.numpy(), GRADIENT_RTOL, GRADIENT_ATOL)


def test_a_sample_with_too_few_frames_has_a_gradient_of_nan_as_in_keras(rng, device):
    """Random sequences have such samples by chance; here there is one for sure."""
    output = rng.normal(size=(2, 4, 3)).astype("float32")
    arguments = [[1, 1], [1, 2]], [2, 2], [2, 3]
    gradient = gradient_of(
        lambda x: ops.sum(ops.ctc_loss(arguments[0], x, *arguments[1:])), output, device
    )
    assert np.isnan(gradient[0, :2]).all()
    assert np.isfinite(gradient[1]).all()
    np.testing.assert_array_equal(gradient[0, 2:], 0)
    np.testing.assert_array_equal(gradient[1, 3:], 0)


@pytest.mark.parametrize(
    ("dtype", "result"),
    [("float16", "float32"), ("bfloat16", "float32"), ("int32", "float32"), ("float64", "float64")],
)
def test_dtypes_of_logits(dtype, result, rng, device):
    target, output, target_length, output_length, blank = sequences(rng)
    with kerascnn.device(device):
        x = ops.cast(output, dtype)
        value = ops.ctc_loss(target, x, target_length, output_length, blank)
        wide = ops.cast(x, "float64")
        expected = ops.ctc_loss(target, wide, target_length, output_length, blank)
    assert value.dtype == result
    # Only the rounding of the float32 result remains. A GPU also rounds its float32 sums, by 6e-8
    # of each of some dozen sums of size 10 at most, and a loss near 0 is their difference. Half
    # precision in between would cause an error of 1e-3.
    np.testing.assert_allclose(value.numpy(), expected.numpy(), 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int64", "float32"])
def test_dtypes_of_targets_and_lengths(dtype, rng):
    target, output, target_length, output_length, blank = sequences(rng)
    expected = ops.ctc_loss(target, output, target_length, output_length, blank).numpy()
    value = ops.ctc_loss(target.astype(dtype), output, target_length, output_length, blank)
    np.testing.assert_array_equal(value.numpy(), expected)
    if dtype != "float32":
        lengths = target_length.astype(dtype), output_length.astype(dtype)
        value = ops.ctc_loss(target, output, *lengths, mask_index=blank)
        np.testing.assert_array_equal(value.numpy(), expected)


X = np.zeros((2, 5, 4), "float32")
GOOD = {
    "target": np.ones((2, 3), "int32"),
    "output": X,
    "target_length": np.array([3, 2], "int32"),
    "output_length": np.array([5, 5], "int32"),
}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"target": np.ones((3, 3), "int32")}, ValueError, "the same first dimension"),
        ({"target": np.ones(6, "int32")}, ValueError, "the target must have 2 axes"),
        ({"output": X[0]}, ValueError, "the output must have 3 axes"),
        ({"target_length": [3]}, ValueError, "the target_length must have shape \\(2,\\)"),
        ({"output_length": [5, 5, 5]}, ValueError, "the output_length must have shape \\(2,\\)"),
        ({"target_length": [3.0, 2.0]}, TypeError, "`target_length` must be integers.*float32"),
        ({"output_length": [True, True]}, TypeError, "`output_length` must be integers.*bool"),
        ({"mask_index": 4}, ValueError, "mask_index must be the number of a class, from 0 to 3"),
        ({"mask_index": -1}, ValueError, "mask_index must be the number of a class"),
        ({"target_length": [4, 2]}, ValueError, "`target_length` must be from 0 to 3.*from 2 to 4"),
        ({"output_length": [5, -1]}, ValueError, "`output_length` must be from 0 to 5"),
        ({"target": np.full((2, 3), 4)}, ValueError, "the labels of `target` must be from 0 to 3"),
    ],
)
def test_what_ctc_loss_refuses(change, error, message):
    with pytest.raises(error, match=f"^ctc_loss: .*{message}"):
        ops.ctc_loss(**{**GOOD, **change})


def test_padding_behind_the_labels_is_not_read():
    padded = np.where(np.arange(3) < [[3], [2]], 1, -1)
    value = ops.ctc_loss(**{**GOOD, "target": padded}).numpy()
    np.testing.assert_array_equal(value, ops.ctc_loss(**GOOD).numpy())


def test_shapes_of_keras_tensors():
    def tensor(*shape, dtype="int32"):
        return kerascnn.KerasTensor(shape, dtype)

    target, output = tensor(None, 3), tensor(None, None, 5, dtype="float16")
    loss = ops.ctc_loss(target, output, tensor(None), tensor(None))
    assert (loss.shape, loss.dtype) == ((None,), "float32")
    labels, scores = ops.ctc_decode(output, tensor(None))
    assert (labels.shape, labels.dtype) == ((1, None, None), "int32")
    assert (scores.shape, scores.dtype) == ((None, 1), "float32")


def test_a_model_with_both_is_read_by_keras(rng):
    inputs = [kerascnn.Input((6, 4)), kerascnn.Input((2,), dtype="int32")]
    lengths = [kerascnn.Input((), dtype="int32"), kerascnn.Input((), dtype="int32")]
    loss = ops.ctc_loss(inputs[1], inputs[0], *lengths, mask_index=3)
    labels, scores = ops.ctc_decode(inputs[0], lengths[1], mask_index=3)
    model = kerascnn.Model([*inputs, *lengths], [loss, labels[0], scores])
    theirs = keras.models.model_from_json(model.to_json())
    values = [
        rng.normal(size=(3, 6, 4)).astype("float32"),
        rng.integers(0, 3, (3, 2)).astype("int32"),
        np.array([2, 1, 0], "int32"),
        np.array([6, 5, 3], "int32"),
    ]
    for own, other in zip(model(values), theirs(values), strict=True):
        np.testing.assert_allclose(own.numpy(), keras.ops.convert_to_numpy(other), RTOL, ATOL)


def decoded_by_keras(inputs, lengths, **arguments):
    results = keras.ops.ctc_decode(inputs, lengths, **arguments)
    return [keras.ops.convert_to_numpy(x) for x in results]


def is_a_tie(own, theirs, inputs, lengths, rng, **arguments):
    """Whether labels differ because of rounding.

    That is so if two labellings have the same float32 score, or if Keras finds other labels itself
    when the last bits of its inputs change.
    """
    differ = (own != theirs).any(axis=-1)  # (paths, samples)
    if "top_paths" in arguments:
        # One path more is needed, because the last one may be equal to it.
        more = {**arguments, "top_paths": arguments["top_paths"] + 1}
        scores = decoded_by_keras(inputs, lengths, **more)[1].T
        # Every score is counted as equal to itself.
        equals = np.isclose(scores[:, None], scores, RTOL, ATOL).sum(axis=0)
        if (equals[:-1][differ] > 1).all():
            return True
    for _ in range(10):
        near = inputs * (1 + 1e-6 * rng.normal(size=inputs.shape)).astype(inputs.dtype)
        if not np.array_equal(theirs, decoded_by_keras(near, lengths, **arguments)[0]):
            return True
    return False


def compare_decoded(inputs, lengths, device, rng, **arguments):
    """If the scores of two labellings differ only by rounding, either may come first."""
    expected = decoded_by_keras(inputs, lengths, **arguments)
    with kerascnn.device(device):
        decoded = [np.array(x.numpy()) for x in ops.ctc_decode(inputs, lengths, **arguments)]
    for own, theirs in zip(decoded, expected, strict=True):
        assert own.dtype == theirs.dtype
        assert own.shape == theirs.shape
    if not np.array_equal(decoded[0], expected[0]) and is_a_tie(
        decoded[0], expected[0], inputs, lengths, rng, **arguments
    ):
        return
    np.testing.assert_array_equal(decoded[0], expected[0], err_msg=str(arguments))
    np.testing.assert_allclose(decoded[1], expected[1], RTOL, ATOL, err_msg=str(arguments))


@pytest.mark.parametrize("scale", [2, 60], ids=["usual", "certain"])
@pytest.mark.parametrize("draw", range(4))
def test_decoding_is_that_of_keras(draw, scale, rng, device):
    """Some inputs leave most classes a float32 probability of 0."""
    samples, frames, classes = (int(rng.integers(low, 8)) for low in (1, 1, 2))
    inputs = (scale * rng.normal(size=(samples, frames, classes))).astype("float32")
    # Below exp(-80) float32 probabilities have few bits, so many would be equal. All of them become
    # 0.
    unlikely = inputs.max(axis=-1, keepdims=True) - inputs > 80
    inputs[unlikely] -= 40
    lengths = rng.integers(0, frames + 1, samples).astype("int32")
    for mask_index in (0, int(rng.integers(0, classes)), None):
        for merge_repeated in (True, False):
            compare_decoded(
                inputs, lengths, device, rng, merge_repeated=merge_repeated, mask_index=mask_index
            )
        compare_decoded(
            inputs,
            lengths,
            device,
            rng,
            strategy="beam_search",
            # There are as many labellings as this, or fewer.
            beam_width=int(rng.integers(1, 12)),
            top_paths=int(rng.integers(1, 2 * classes)),
            mask_index=mask_index,
        )


def test_of_equal_classes_the_first_is_decoded(rng, device):
    """There is only one frame: after more, rounding decides which of two equal sums is larger."""
    inputs = rng.integers(0, 3, (6, 1, 7)).astype("float32")
    inputs[:, :, 2] = -1.0  # the blank differs from all others
    for beam_width in (1, 3, 20):
        compare_decoded(
            inputs, np.ones(6, "int32"), device, rng, strategy="beam_search",
            beam_width=beam_width, top_paths=3, mask_index=2,
        )  # fmt: skip
    compare_decoded(inputs, np.ones(6, "int32"), device, rng, mask_index=2)


def test_decoding_takes_narrow_logits_and_integers(rng, device):
    for dtype in ("float16", "int32"):
        inputs = (5 * rng.normal(size=(2, 6, 4))).astype(dtype)
        for strategy in ("greedy", "beam_search"):
            compare_decoded(inputs, np.array([6, 4], "int32"), device, rng, strategy=strategy)


def test_the_search_finds_what_the_loss_says(rng, device):
    """When all labellings are kept, each has the probability exp(-loss), and they add up to 1."""
    logits = rng.normal(size=(1, 4, 3))
    with kerascnn.device(device):
        labels, scores = ops.ctc_decode(
            logits, [4], strategy="beam_search", beam_width=100, top_paths=40
        )
        labels, scores = np.array(labels.numpy())[:, 0], np.array(scores.numpy())[0]
        assert np.exp(scores).sum() == pytest.approx(1.0, rel=1e-12)
        known = np.isfinite(scores)
        assert (labels[~known] == -1).all()
        for path, score in zip(labels[known], scores[known], strict=True):
            loss = ops.ctc_loss(path[None], logits, [int((path >= 0).sum())], [4])
            assert score == pytest.approx(-float(loss[0]), rel=1e-9, abs=1e-12)


def test_a_compiled_step_decodes_greedily(rng, device):
    inputs = rng.normal(size=(3, 7, 4)).astype("float32")
    with kerascnn.device(device), Trace(device) as trace:
        x = trace.graph.input("x", list(inputs.shape), "float32")
        results = ops.ctc_decode(x, np.array([7, 3, 5], "int32"))
    program = _core.Program.compile(trace.graph, list(results), device)
    program.run([_core.from_numpy(inputs, device)])
    expected = ops.ctc_decode(inputs, np.array([7, 3, 5], "int32"))
    for recorded, eager in zip(program.outputs(), expected, strict=True):
        np.testing.assert_allclose(recorded.numpy(), eager.numpy(), 1e-6)


def test_the_search_is_refused_where_values_are_not_known():
    inputs = kerascnn.Input((5, 4)), kerascnn.Input((), dtype="int32")
    with pytest.raises(ValueError, match="runs on the host and cannot be part of a compiled step"):
        ops.ctc_decode(*inputs, strategy="beam_search")


def test_a_search_in_what_is_known_before_a_step_is_a_constant_of_it(rng, device):
    inputs = rng.normal(size=(2, 5, 4)).astype("float32")
    lengths = np.array([5, 3], "int32")
    with kerascnn.device(device):
        expected = ops.ctc_decode(inputs, lengths, strategy="beam_search")
        with Trace(device) as trace:
            results = ops.ctc_decode(inputs, lengths, strategy="beam_search")
    program = _core.Program.compile(trace.graph, list(results), device)
    program.run([])
    for recorded, eager in zip(program.outputs(), expected, strict=True):
        np.testing.assert_array_equal(recorded.numpy(), eager.numpy())


def test_scores_of_nan_have_no_labelling():
    labels, scores = ops.ctc_decode(np.full((1, 3, 2), np.nan), [3], strategy="beam_search")
    assert (labels.numpy() == -1).all()
    assert np.isneginf(scores.numpy()).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strategy": "best"}, "Invalid strategy best. Supported values are 'greedy'"),
        ({"inputs": X[0]}, "`inputs` must be of shape \\(samples, frames, classes\\)"),
        ({"sequence_lengths": [5]}, "`sequence_lengths` must be of shape \\(2,\\)"),
        ({"sequence_lengths": [5, 6]}, "`sequence_lengths` must be from 0 to 5"),
        ({"beam_width": 0}, "`beam_width` must be at least 1"),
        ({"top_paths": 0}, "`top_paths` must be at least 1"),
        ({"mask_index": 4}, "`mask_index` must be the number of a class, from 0 to 3"),
        ({"inputs": X[:, :0], "sequence_lengths": [0, 0]}, "at least 1 frame"),
    ],
)
def test_what_ctc_decode_refuses(change, message):
    arguments = {"inputs": X, "sequence_lengths": [5, 4], "strategy": "beam_search"}
    with pytest.raises(ValueError, match=message):
        ops.ctc_decode(**{**arguments, **change})
