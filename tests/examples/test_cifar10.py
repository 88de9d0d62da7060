"""The examples on CIFAR-10: their parts against NumPy, and whole runs on a few random images."""

import json

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, ops

from .scripts import BENCHMARKS, ROOT, run


@pytest.fixture
def images(rng):
    return rng.integers(0, 256, (6, 32, 32, 3), np.uint8)


# Layers of the speedrun ---------------------------------------------------------------------------


def test_each_image_is_seen_both_ways_in_two_epochs(example, images):
    layer = example("cifar10_speedrun").AlternatingFlip(steps_per_epoch=3)
    epochs = [
        np.concatenate([np.array(layer(images[i : i + 2], training=True)) for i in (0, 2, 4)])
        for _ in range(2)
    ]
    mirrored = images[:, :, ::-1]
    for place in range(len(images)):
        found = {
            "as it is" if np.array_equal(epoch[place], images[place]) else "mirrored"
            for epoch in epochs
        }
        assert found == {"as it is", "mirrored"}
        for epoch in epochs:
            assert any(np.array_equal(epoch[place], x[place]) for x in (images, mirrored))
    assert np.array_equal(np.array(layer(images, training=False)), images)


def test_some_images_begin_mirrored(example, rng):
    layer = example("cifar10_speedrun").AlternatingFlip(steps_per_epoch=1)
    images = rng.integers(0, 256, (64, 4, 4, 3), np.uint8)
    seen = np.array(layer(images, training=True))
    mirrored = sum(not np.array_equal(a, b) for a, b in zip(seen, images, strict=True))
    assert mirrored == sum(int(x.sum()) % 2 for x in images)
    assert 0 < mirrored < 64


def test_light_changes_each_image_by_a_line_of_its_own(example, rng):
    module = example("cifar10_speedrun")
    images = rng.standard_normal((64, 5, 4, 3)).astype("float32")
    layer = module.RandomLight()
    assert np.array_equal(np.array(layer(images, training=False)), images)
    seen = np.array(layer(images, training=True))
    lines = [np.polyfit(x.ravel(), y.ravel(), 1) for x, y in zip(images, seen, strict=True)]
    factors, offsets = np.transpose(lines)
    for image, changed, line in zip(images, seen, lines, strict=True):
        # float32: a few roundings of numbers up to 5
        np.testing.assert_allclose(changed, np.polyval(line, image), atol=1e-5)
    assert np.abs(factors - 1).max() <= module.CONTRAST + 1e-5
    assert np.abs(offsets / factors).max() <= module.BRIGHTNESS + 1e-5
    # 64 numbers that were drawn evenly: that all lie in one half has a chance of 2^-63.
    for values in (factors - 1, offsets):
        assert values.min() < 0 < values.max()
        assert len(np.unique(values)) == 64


def test_first_filters_pass_on_channels(example, rng):
    kernel = np.array(example("cifar10_speedrun").PassOn()((3, 3, 4, 7), "float32"))
    layer = layers.Conv2D(7, 3, padding="same", use_bias=False)
    x = rng.standard_normal((2, 5, 6, 4)).astype("float32")
    layer.build(x.shape)
    layer.set_weights([kernel])
    assert np.array_equal(np.array(layer(x))[..., :4], x)
    # The others are uniform below one over the root of the 36 inputs.
    assert 0 < np.abs(kernel[..., 4:]).max() <= 1 / 6
    assert len(np.unique(kernel[..., 4:])) > 50


def test_whitened_patches_are_uncorrelated(example, rng):
    speedrun = example("cifar10_speedrun")
    # Neighbors that resemble each other, as in photographs.
    rough = rng.integers(0, 256, (40, 9, 10, 3)).astype("float64")
    smooth = rough[:, 1:, 1:] + rough[:, :-1, 1:] + rough[:, 1:, :-1] + rough[:, :-1, :-1]
    images = (smooth / 4).astype(np.uint8)
    filters = speedrun.whitening_filters(ops.convert_to_tensor(images))
    assert filters.shape == (2, 2, 3, 24)
    assert np.array_equal(filters[..., :12], -filters[..., 12:])
    x = (images - np.array(speedrun.MEAN)) / np.sqrt(speedrun.VARIANCE)
    corners = [x[:, i : i + 7, j : j + 8] for i in (0, 1) for j in (0, 1)]
    patches = np.concatenate(corners, axis=-1).reshape(-1, 12)
    outputs = patches @ filters[..., :12].reshape(12, 12)
    covariance = outputs.T @ outputs / len(outputs)
    # Only what is added to the eigenvalues, at least 0.01 here, keeps them below 1.
    assert covariance == pytest.approx(np.eye(12), abs=0.06)


def orthogonalized(matrix, steps):
    """Newton-Schulz iterations in float64, as Jordan's article on Muon has them."""
    x = matrix / np.linalg.norm(matrix)
    for _ in range(steps):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x


def test_steps_of_filters(example, rng):
    muon = example("cifar10_speedrun").FilterMuon(0.25, momentum=0.6, ns_steps=3, weight_decay=None)
    kernel, *gradients = rng.standard_normal((3, 3, 3, 5, 8)).astype("float32")
    variable = keras.Variable(kernel)
    expected, momentum = kernel.astype("float64"), np.zeros_like(kernel, "float64")
    for gradient in gradients:
        muon.apply([gradient], [variable])
        momentum = 0.6 * momentum + gradient
        direction = (gradient + 0.6 * momentum).reshape(-1, 8)
        step = orthogonalized(direction.T, 3).T.reshape(kernel.shape)
        expected = expected * np.sqrt(8) / np.linalg.norm(expected) - 0.25 * step
    # bfloat16 has 8 bits, and each of 9 products rounds elements of about 0.1, times 0.25.
    assert np.array(variable) == pytest.approx(expected, abs=0.02)


def test_six_views(example, images):
    speedrun = example("cifar10_speedrun")
    body = keras.Sequential([keras.Input((32, 32, 3)), layers.Flatten(), layers.Dense(10)])
    inputs = keras.Input((32, 32, 3), dtype="uint8")
    predicted = keras.Model(inputs, speedrun.six_views(body, inputs)).predict(images, verbose=0)
    x = (images - np.array(speedrun.MEAN)) / np.sqrt(speedrun.VARIANCE)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), "reflect")
    kernel, bias = (w.astype("float64") for w in body.get_weights())
    expected = 0.0
    for view, weight in ((x, 0.5), (padded[:, :32, :32], 0.25), (padded[:, 2:, 2:], 0.25)):
        for shown in (view, view[:, :, ::-1]):
            expected = expected + weight * (shown.reshape(len(x), -1) @ kernel + bias)
    # Sums of 3072 products in float32.
    assert predicted == pytest.approx(expected, abs=1e-4)


def test_only_the_first_layer_is_not_trained(example):
    model, predictor = example("cifar10_speedrun").build(1, 1)
    kernels = [v for v in model.trainable_variables if len(v.shape) == 4]
    assert [v.shape[2:] for v in kernels] == [(24, 64), (64, 64), (64, 256), *[(256, 256)] * 3]
    untrained = {v.path for v in model.weights} - {v.path for v in model.trainable_variables}
    assert sum(path.endswith("whitening/kernel") for path in untrained) == 1
    assert {v.path for v in predictor.trainable_variables} == {
        v.path for v in model.trainable_variables
    }


@pytest.mark.parametrize(("script", "pixels"), [("cifar10_speedrun", 2), ("cifar10_resnet", 4)])
def test_images_move_by_whole_pixels(example, script, pixels):
    """The brightest pixel of each image is found where it was, or up to some pixels beside it."""
    images = np.zeros((400, 32, 32, 1), np.float32)
    images[:, 15, 16] = 1
    inputs = keras.Input((32, 32, 1))
    if script == "cifar10_resnet":
        moved = keras.Model(inputs, example(script).augment(inputs))
        columns = {16, 15}  # mirrored or not
    else:
        moved = keras.Model(inputs, example(script).move(inputs))
        columns = {16}
    seen = np.array(moved(images, training=True))
    assert set(np.unique(seen)) == {0.0, 1.0}
    rows_of, columns_of = np.nonzero(seen[..., 0])[1:]
    around = range(-pixels, pixels + 1)
    assert set(rows_of) == {15 + i for i in around}
    assert set(columns_of) == {c + i for c in columns for i in around}


# Whole runs ---------------------------------------------------------------------------------------


def test_speedrun(little_cifar10):
    done = run(
        ROOT / "examples" / "cifar10_speedrun.py",
        *("--data", little_cifar10, "--device", "cpu", "--seeds", 2, "--epochs", 1.5),
        *("--batch-size", 20),
    )
    first, accuracy, seconds = done.stdout.splitlines()
    assert first == "2 trainings of 1.5 epochs on cpu"
    assert accuracy.startswith("Test accuracy: mean 0.")
    assert accuracy.endswith("; 0 of 2 reached 0.94")
    assert float(seconds.split()[2].rstrip(",")) > 0


def test_speedrun_starts_again_from_each_seed(example, little_cifar10, monkeypatch):
    speedrun = example("cifar10_speedrun")
    monkeypatch.setattr(speedrun, "WIDTHS", (24, 24, 24))
    data = keras.datasets.cifar10.load_data(little_cifar10)
    trainings = speedrun.Speedrun(data, epochs=1, batch_size=20)
    weights = []
    for seed in (1, 2, 1):
        accuracy, seconds = trainings.train(seed, trainings.y_train)
        assert 0 <= accuracy <= 1 and seconds > 0
        weights.append(trainings.model.get_weights())
    first, second, again = weights
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    for a, b in zip(first, again, strict=True):
        assert np.array_equal(a, b)


def test_speedrun_needs_seeds():
    done = run(ROOT / "examples" / "cifar10_speedrun.py", "--seeds", "0", expected=2)
    assert "must be at least 1" in done.stderr


def test_resnet(little_cifar10):
    done = run(
        ROOT / "examples" / "cifar10_resnet.py",
        *("--data", little_cifar10, "--device", "cpu", "--epochs", 1, "--batch-size", 20),
    )
    *_, seconds, accuracy = done.stdout.splitlines()
    assert seconds.startswith("1 epochs in ")
    assert 0 <= float(accuracy.split()[-1]) <= 1


def test_resnet_is_the_one_with_11_million_weights(example):
    model = example("cifar10_resnet").resnet18()
    assert sum(np.prod(v.shape) for v in model.trainable_variables) == 11_173_962


# Losses -------------------------------------------------------------------------------------------

LOSSES = BENCHMARKS / "cifar_losses.py"


def test_losses_beside_keras(little_cifar10, tmp_path):
    pytest.importorskip("torch")
    output = tmp_path / "losses.json"
    done = run(
        LOSSES,
        *(little_cifar10, "--device", "cpu", "--net", "resnet18@16x8", "--seeds", 2),
        *("--steps", 4, "--window", 1, "--output", output),
    )
    document = json.loads(output.read_text())
    full, mixed, peer = document["rows"]
    assert [row["library"] for row in document["rows"]] == ["kerascnn", "kerascnn", "keras-torch"]
    for a, b, c in zip(full["seeds"], mixed["seeds"], peer["seeds"], strict=True):
        # The same weights and the same batch: the first losses differ by rounding alone, in
        # float32 behind 20 layers and in bfloat16 by some of its 256ths.
        assert a["losses"][0] == pytest.approx(c["losses"][0], rel=1e-4)
        assert a["losses"][0] == pytest.approx(b["losses"][0], rel=0.1)
        assert len(a["losses"]) == len(b["losses"]) == len(c["losses"]) == 4
    first, second = (found["losses"] for found in full["seeds"])
    assert first != second
    figures = document["comparisons"][2]
    assert (figures["policy"], figures["loss"]) == ("mixed_bfloat16", "last steps")
    differences = [
        b["losses"][3] - a["losses"][3] for a, b in zip(full["seeds"], mixed["seeds"], strict=True)
    ]
    assert figures["difference"] == pytest.approx(np.mean(differences))
    spread = np.std([a["losses"][3] for a in full["seeds"]], ddof=1)
    assert figures["within"] == (abs(np.mean(differences)) <= spread)
    assert "| kerascnn | mixed_bfloat16 | last steps |" in done.stdout


def test_losses_without_keras(little_cifar10):
    options = ("--device", "cpu", "--net", "resnet18@8x8", "--seeds", 1, "--steps", 1)
    done = run(LOSSES, little_cifar10, *options, "--window", 1, "--backend", "none")
    assert "keras" not in done.stdout.replace("kerascnn", "")


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("--net", "resnet19", "'resnet19' is no net"),
        ("--net", "resnet18@8x12", "cannot become 12 pixels wide"),
        ("--backend", "abacus", "'abacus' is none of"),
        ("--steps", "30", "whole windows"),
        ("--seeds", "0", "must be at least 1"),
    ],
)
def test_losses_wrong_command_lines(little_cifar10, option, value, part):
    done = run(LOSSES, little_cifar10, "--device", "cpu", option, value, expected=2)
    assert part in done.stderr.splitlines()[-1]


def test_losses_need_data():
    done = run(LOSSES, "absent", "--device", "cpu", expected=2)
    assert "absent does not exist" in done.stderr
