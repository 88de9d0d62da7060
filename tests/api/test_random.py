"""Random numbers and first values of weights: how they are distributed, and when they repeat."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, initializers, random
from kerascnn.tracing import Trace

SHAPE = (200, 300)


def test_uniform_and_normal_spread_as_they_should(device):
    with keras.device(device):
        u = random.uniform(SHAPE, -1.0, 3.0, seed=4).numpy()
        n = random.normal(SHAPE, 2.0, 0.5, seed=4).numpy()
        i = random.randint(SHAPE, 3, 8, seed=4).numpy()
    root = np.sqrt(u.size)
    assert u.min() >= -1
    assert u.max() < 3
    # Means and spreads of so many numbers lie within six standard errors.
    assert abs(u.mean() - 1) < 6 * (4 / np.sqrt(12)) / root
    assert abs(n.mean() - 2) < 6 * 0.5 / root
    assert abs(n.std() - 0.5) < 6 * 0.5 / np.sqrt(2) / root
    assert set(np.unique(i)) == {3, 4, 5, 6, 7}
    assert np.bincount(i.ravel())[3:].min() > 0.18 * i.size


def test_devices_draw_the_same_numbers(cuda_device):
    drawn = []
    for name in ("cpu", cuda_device):
        with keras.device(name):
            drawn.append(random.uniform(SHAPE, seed=9).numpy())
    np.testing.assert_array_equal(*drawn)


def test_seeds(device):
    with keras.device(device):
        same = [random.uniform(SHAPE, seed=5).numpy() for _ in range(2)]
        np.testing.assert_array_equal(*same)
        generator = random.SeedGenerator(5)
        different = [random.uniform(SHAPE, seed=generator).numpy() for _ in range(2)]
        assert (different[0] != different[1]).mean() > 0.9
        again = random.uniform(SHAPE, seed=random.SeedGenerator(5)).numpy()
        np.testing.assert_array_equal(different[0], again)
        keras.utils.set_random_seed(1)
        first = [random.normal(SHAPE).numpy() for _ in range(2)]
        keras.utils.set_random_seed(1)
        second = [random.normal(SHAPE).numpy() for _ in range(2)]
        np.testing.assert_array_equal(first, second)
        assert (first[0] != first[1]).mean() > 0.9


def test_recorded_draws_differ_from_each_other_and_from_step_to_step(device):
    with keras.device(device):
        with Trace(device) as trace:
            a, b = random.uniform(SHAPE), random.uniform(SHAPE)
        program = _core.Program.compile(trace.graph, [a, b], device)
        steps = []
        for _ in range(2):
            program.run([])
            _core.synchronize(device)
            steps += [np.array(t.numpy()) for t in program.outputs()]
    for i in range(4):
        for j in range(i):
            assert (steps[i] != steps[j]).mean() > 0.9


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True])
def test_wrong_seeds(seed):
    with pytest.raises(ValueError, match="seed"):
        random.SeedGenerator(seed)
    with pytest.raises(ValueError, match="seed"):
        keras.utils.set_random_seed(seed)


@pytest.mark.parametrize("bound", [float, np.float32, np.int64, keras.ops.convert_to_tensor])
def test_integers_between_whole_floats_and_tensors(bound):
    # Scripts pass minval=0.0, and sizes that they computed as tensors.
    found = random.randint((50,), bound(3), bound(8), dtype="int64", seed=4)
    assert found.dtype == "int64"
    np.testing.assert_array_equal(found.numpy(), random.randint((50,), 3, 8, seed=4).numpy())


def test_wrong_arguments_of_draws():
    with pytest.raises(ValueError, match="minval < maxval"):
        random.randint((2,), 3, 3)
    with pytest.raises(ValueError, match=r"whole numbers.*maxval=2\.5"):
        random.randint((2,), 0.0, 2.5)
    with pytest.raises(ValueError, match="floating"):
        random.normal((2,), dtype="int32")
    with pytest.raises(ValueError, match="`seed`"):
        random.uniform((2,), seed="x")


SCALED = {
    "glorot_uniform": ("uniform", 2 / (300 + 200)),
    "glorot_normal": ("normal", 2 / (300 + 200)),
    "he_uniform": ("uniform", 2 / 200),
    "he_normal": ("normal", 2 / 200),
    "lecun_uniform": ("uniform", 1 / 200),
    "lecun_normal": ("normal", 1 / 200),
}


@pytest.mark.parametrize("name", SCALED)
def test_scaled_initializers(name):
    kind, variance = SCALED[name]
    values = initializers.get(name)(SHAPE).numpy().astype("float64")
    # The relative error of the variance of n numbers is about sqrt(2 / n).
    assert values.var() == pytest.approx(variance, rel=6 * np.sqrt(2 / values.size))
    limit = np.sqrt(3 * variance) if kind == "uniform" else 2 * np.sqrt(variance) / 0.8796
    assert 0.95 * limit < np.abs(values).max() <= limit


def test_other_initializers():
    assert set(np.unique(initializers.Zeros()(SHAPE).numpy())) == {0.0}
    assert set(np.unique(initializers.Ones()(SHAPE).numpy())) == {1.0}
    assert set(np.unique(initializers.Constant(2.5)(SHAPE).numpy())) == {2.5}
    cut = initializers.TruncatedNormal(1.0, 0.5)(SHAPE).numpy()
    assert np.abs(cut - 1).max() <= 1.0
    assert initializers.RandomNormal(stddev=0.1)(SHAPE).numpy().std() == pytest.approx(
        0.1, rel=0.03
    )
    assert np.abs(initializers.RandomUniform(-2.0, -1.0)(SHAPE).numpy() + 1.5).max() <= 0.5
    assert initializers.compute_fans((3, 3, 4, 8)) == (36, 72)


def test_an_initializer_repeats_itself_and_another_does_not():
    one = initializers.GlorotUniform()
    np.testing.assert_array_equal(one(SHAPE).numpy(), one(SHAPE).numpy())
    assert (one(SHAPE).numpy() != initializers.GlorotUniform()(SHAPE).numpy()).any()
    seeded = [initializers.HeNormal(seed=3)(SHAPE).numpy() for _ in range(2)]
    np.testing.assert_array_equal(*seeded)
    moving = initializers.HeNormal(seed=random.SeedGenerator(3))
    assert (moving(SHAPE).numpy() != moving(SHAPE).numpy()).any()


def test_initializers_by_name_and_configuration():
    for name in ("he_normal", "HeNormal", "zeros", "Ones", "truncated_normal", "random_uniform"):
        made = initializers.get(name)
        again = initializers.deserialize(initializers.serialize(made))
        assert type(again) is type(made)
        assert again.get_config() == made.get_config()
    array = np.arange(3.0)
    np.testing.assert_array_equal(initializers.get(array)((3,)).numpy(), array)
    config = initializers.serialize(initializers.Constant(array))
    np.testing.assert_array_equal(initializers.deserialize(config)((3,)).numpy(), array)
    with pytest.raises(ValueError, match="Did you mean 'he_normal'"):
        initializers.get("he_normall")
    for bad in ({"mode": "fan_out_of"}, {"scale": 0.0}, {"distribution": "even"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            initializers.VarianceScaling(**bad)


def moments_of(draws):
    draws = draws.numpy().astype("float64")
    return draws.mean(), draws.var()


# name: how it is drawn, mean, variance, fourth moment about the mean
DISTRIBUTIONS = {
    "gamma": (lambda: random.gamma(SHAPE, 2.5, seed=2), 2.5, 2.5, 3 * 2.5**2 + 6 * 2.5),
    "gamma below 1": (lambda: random.gamma(SHAPE, 0.3, seed=2), 0.3, 0.3, 3 * 0.3**2 + 6 * 0.3),
    "beta": (lambda: random.beta(SHAPE, 2.0, 3.0, seed=2), 0.4, 0.04, 2.36 * 0.04**2),
    # With these parameters both gamma draws are too small for float32.
    "beta near 0": (
        lambda: random.beta(SHAPE, 0.01, 0.01, seed=2), 0.5, 0.25 / 1.02, 3 / (16 * 1.02 * 3.02),
    ),
    "binomial": (lambda: random.binomial(SHAPE, 10, 0.3, seed=2), 3.0, 2.1, 2.88 * 2.1**2),
    # These are integrals of the normal distribution from -2 to 2.
    "truncated_normal": (
        lambda: random.truncated_normal(SHAPE, 1.0, 0.5, seed=2), 1.0, 0.193435, 0.088512,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_moments_of_distributions(name, device):
    draw, mean, variance, fourth = DISTRIBUTIONS[name]
    with keras.device(device):
        drawn_mean, drawn_variance = moments_of(draw())
        np.testing.assert_array_equal(draw().numpy(), draw().numpy())
    count = np.prod(SHAPE)
    # Both lie within six standard errors.
    assert abs(drawn_mean - mean) < 6 * np.sqrt(variance / count)
    assert abs(drawn_variance - variance) < 6 * np.sqrt((fourth - variance**2) / count)


def test_beta_of_hardly_anything(device):
    """Only 0 and 1 have any probability left."""
    with keras.device(device):
        draws = random.beta((5000,), 1e-6, 1e-6, seed=2).numpy()
    assert np.minimum(draws, 1 - draws).max() < 0.01
    assert abs(draws.mean() - 0.5) < 6 * 0.5 / np.sqrt(5000)


def test_truncated_normal_is_cut():
    draws = random.truncated_normal(SHAPE, 1.0, 0.5, seed=3).numpy()
    assert 0.0 <= draws.min() < 0.01
    assert 1.99 < draws.max() <= 2.0


def test_categorical_and_shuffle(device):
    with keras.device(device):
        logits = np.log(np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 1e-30]], "float32"))
        drawn = random.categorical(logits, 30_000, seed=6)
        assert drawn.dtype == "int32"
        for row, shares in zip(drawn.numpy(), [[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]], strict=True):
            found = np.bincount(row, minlength=3) / row.size
            np.testing.assert_allclose(found, shares, atol=6 * 0.5 / np.sqrt(row.size))
        x = np.arange(60).reshape(20, 3)
        shuffled = random.shuffle(x, seed=6).numpy()
        assert (shuffled != x).any()
        np.testing.assert_array_equal(np.sort(shuffled[:, 0]), x[:, 0])
        np.testing.assert_array_equal(shuffled - shuffled[:, :1], x - x[:, :1])
        across = random.shuffle(x, axis=1, seed=9).numpy()
        np.testing.assert_array_equal(np.sort(across, 1), x)


def test_draws_of_alpha_tensors_and_16_bits():
    alpha = np.array([0.5, 4.0], "float32")
    means = random.gamma((40_000, 2), alpha, seed=1).numpy().mean(0)
    np.testing.assert_allclose(means, alpha, rtol=0.05)
    counts = random.binomial((5000, 2), np.array([0, 4]), np.array([0.5, 1.0]), seed=1).numpy()
    assert (counts == [0, 4]).all()
    for dtype in ("float16", "bfloat16", "float64"):
        assert random.truncated_normal((3,), dtype=dtype).dtype == dtype
        assert random.gamma((3,), 1.0, dtype=dtype).dtype == dtype
        assert random.beta((3,), 1.0, 1.0, dtype=dtype).dtype == dtype


def test_draws_in_a_compiled_step(device):
    """shuffle and gamma run without Python and give another result in each step."""
    with keras.device(device):
        with Trace(device) as trace:
            outputs = [random.shuffle(np.arange(50)), random.gamma((50,), 1.5)]
        program = _core.Program.compile(trace.graph, outputs, device)
        steps = []
        for _ in range(2):
            program.run([])
            _core.synchronize(device)
            steps.append([np.array(t.numpy()) for t in program.outputs()])
    for first, second in zip(*steps, strict=True):
        assert (first != second).any()
    np.testing.assert_array_equal(np.sort(steps[0][0]), np.arange(50))
