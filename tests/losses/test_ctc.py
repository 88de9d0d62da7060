"""The loss CTC: which paths it counts, what it refuses, and training with it."""

import itertools

import numpy as np
import pytest

import kerascnn
from kerascnn import _core, layers, losses, ops
from kerascnn.tracing import Trace

CLASSES, FRAMES = 6, 12


def spelled(path):
    """Returns a path without repetitions and then without blanks (0)."""
    return tuple(label for label, _ in itertools.groupby(path) if label)


def loss_by_counting(labels, logits):
    """Adds up the probabilities of all paths, which is the definition of the loss."""
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(axis=1, keepdims=True)
    frames, classes = logits.shape
    total = sum(
        np.prod(p[np.arange(frames), list(path)])
        for path in itertools.product(range(classes), repeat=frames)
        if spelled(path) == tuple(labels)
    )
    with np.errstate(divide="ignore"):
        return -np.log(total)


@pytest.mark.parametrize("labels", [(), (1,), (2, 1), (1, 1), (2, 2, 1), (1, 1, 1), (1, 2, 1, 2)])
def test_the_loss_is_that_of_all_paths_together(labels, rng, device):
    logits = rng.normal(size=(1, 5, 3))
    y_true = np.zeros((1, 4), "int32")
    y_true[0, : len(labels)] = labels
    with kerascnn.device(device):
        value = losses.ctc(y_true, logits).numpy()[0]
    # The result has a few hundred float64 roundings.
    assert value == pytest.approx(loss_by_counting(labels, logits[0]), rel=1e-12)


def test_too_few_frames_are_infinitely_unlikely(device):
    y_pred = np.zeros((3, 3, 4), "float32")
    y_true = np.array([[1, 2, 3], [1, 1, 2], [1, 1, 0]])
    with kerascnn.device(device):
        value = losses.ctc(y_true, y_pred).numpy()
    # For three labels in three frames there is one path. A repetition needs a blank in between.
    np.testing.assert_allclose(value, [3 * np.log(4), np.inf, 3 * np.log(4)], rtol=1e-6)


def test_as_many_labels_count_as_are_not_blank(rng):
    y_pred = rng.normal(size=(1, 6, 4)).astype("float32")
    value = losses.ctc([[0, 2, 1]], y_pred).numpy()
    expected = ops.ctc_loss([[0, 2]], y_pred, [2], [6]).numpy()
    np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float32"])
def test_targets_of_any_type_of_number(dtype, rng):
    y_pred = rng.normal(size=(4, 7, 5)).astype("float32")
    y_true = rng.integers(0, 5, (4, 3))
    expected = losses.CTC()(y_true.astype("int32"), y_pred)
    assert float(losses.CTC()(y_true.astype(dtype), y_pred)) == float(expected)


def test_labels_stay_exact_where_the_loss_is_computed_in_few_bits():
    """bfloat16 cannot represent 301, so a label in bfloat16 would be another class."""
    y_pred = np.zeros((1, 1, 400), "float32")
    y_pred[0, 0, 301] = 30.0
    assert float(losses.CTC(dtype="bfloat16")(np.array([[301]]), y_pred)) < 0.1


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((4,), (4, 5, 3)), "needs targets `y_true` of shape `\\(batch_size, max_length\\)`"),
        (
            ((4, 2), (4, 3)),
            "needs logits `y_pred` of shape `\\(batch_size, frames, num_classes\\)`",
        ),
        (((3, 2), (4, 5, 3)), "the same first dimension, received target \\(3, 2\\)"),
    ],
)
def test_shapes_that_do_not_fit_are_named(shapes, message):
    with pytest.raises(ValueError, match=message):
        losses.ctc(np.ones(shapes[0], "int32"), np.ones(shapes[1], "float32"))


def data(rng, count=40):
    x = rng.normal(size=(count, FRAMES, 3)).astype("float32")
    counted = np.arange(4) < rng.integers(0, 5, (count, 1))
    return x, rng.integers(1, CLASSES, (count, 4)) * counted


def trained(module, x, y, weights, **arguments):
    start = np.random.default_rng(7)
    model = module.Sequential([module.Input((FRAMES, 3)), module.layers.Dense(CLASSES)])
    model.set_weights([0.3 * start.normal(size=w.shape) for w in model.get_weights()])
    model.compile(module.optimizers.Adam(0.01), **arguments)
    return model.fit(
        x, y, sample_weight=weights, batch_size=16, epochs=4, shuffle=False, verbose=0,
        validation_data=(x[:9], y[:9]),
    ).history  # fmt: skip


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("loss", ["ctc", "CTC"])
@pytest.mark.parametrize("weighted", [False, True])
def test_training_goes_as_in_keras(loss, weighted, rng, device):
    keras = pytest.importorskip("keras")
    x, y = data(rng)
    weights = rng.uniform(0, 2, 40).astype("float32") if weighted else None
    expected = trained(keras, x, y, weights, loss=loss)
    with kerascnn.device(device):
        history = trained(kerascnn, x, y, weights, loss=loss)
    assert set(history) == set(expected)
    for name in expected:
        # There are twelve Adam steps with different float32 rounding, measured below 1e-5.
        np.testing.assert_allclose(history[name], expected[name], rtol=1e-4, err_msg=name)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_computes_the_loss_in_float32(policy, rng, device):
    x, y = data(rng)
    with kerascnn.device(device):
        model = kerascnn.Sequential(
            [kerascnn.Input((FRAMES, 3)), layers.Dense(CLASSES, dtype=policy)]
        )
        model.compile(kerascnn.optimizers.Adam(0.01), "ctc")
        history = model.fit(x, y, batch_size=20, epochs=5, verbose=0).history["loss"]
    assert np.isfinite(history).all()
    assert history[-1] < history[0]


def test_the_same_seed_trains_to_the_same_bits(rng, device):
    x, y = data(rng)
    with kerascnn.device(device):
        first = trained(kerascnn, x, y, None, loss="ctc")
        again = trained(kerascnn, x, y, None, loss="ctc")
    assert first == again


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: y + 3, "needs class numbers from 0 to 5.*Give the last layer \\d units"),
        (lambda y: np.where(y == 0, -1, y), "Number the labels from 1, and pad with 0"),
        (lambda y: y + 0.5, "that are not whole"),
    ],
)
def test_labels_that_are_no_classes_are_found_before_training(change, message, rng):
    x, y = data(rng)
    with pytest.raises(ValueError, match=f"The loss 'ctc' .*{message}"):
        trained(kerascnn, x, change(y), None, loss="ctc")


def test_a_label_out_of_range_in_a_step_makes_its_sample_nan(rng, device):
    """The losses and gradients of the other samples do not change."""
    logits = rng.normal(size=(3, 5, 4)).astype("float32")
    target = np.array([[1, 2], [1, 4], [3, 3]], "int32")
    with kerascnn.device(device), Trace(device) as trace:
        x = trace.graph.input("x", list(logits.shape), "float32")
        y = trace.graph.input("y", list(target.shape), "int32")
        values = losses.ctc(y, x)
        (gradient,) = trace.graph.gradients(ops.sum(values), [x])
    program = _core.Program.compile(trace.graph, [values, gradient], device)
    program.run([_core.from_numpy(a, device) for a in (logits, target)])
    values, gradient = (np.array(result.numpy()) for result in program.outputs())
    np.testing.assert_array_equal(np.isnan(values), [False, True, False])
    np.testing.assert_array_equal(np.isnan(gradient).all((1, 2)), [False, True, False])
    assert np.isfinite(gradient[[0, 2]]).all()
