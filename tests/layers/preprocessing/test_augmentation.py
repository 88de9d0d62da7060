"""Layers that spread values out, mix images, or combine several random layers."""

import json

import numpy as np
import pytest

import kerascnn
from kerascnn import layers, trees

from .helpers import compiled, equal_nearly_everywhere, keras, relative_error, to_keras, to_numpy

# PyTorch and NumPy warn about Keras' conversions.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Tensor.T is deprecated:UserWarning"),
]

SPREADING = [
    ("AutoContrast", {}),
    ("AutoContrast", {"value_range": (1.0, 0.0)}),
    ("Equalization", {}),
    ("Equalization", {"value_range": (0, 1)}),
    ("Equalization", {"bins": 50, "value_range": [10, 200]}),
    ("ContrastLimitedAdaptiveHistogramEqualization", {}),
    (
        "ContrastLimitedAdaptiveHistogramEqualization",
        {"clip_limit": 0, "tile_grid_size": (2, 3), "value_range": (0, 1)},
    ),
    ("ContrastLimitedAdaptiveHistogramEqualization", {"clip_limit": 1.5, "tile_grid_size": (4, 4)}),
]
POLICIES = [
    ("RandAugment", {}),
    ("RandAugment", {"num_ops": 1, "factor": (0.2, 0.9), "value_range": (0, 1)}),
    ("AugMix", {}),
    ("AugMix", {"num_chains": 2, "chain_depth": 4, "factor": 0.9, "all_ops": False}),
    ("AugMix", {"alpha": 0.4, "interpolation": "nearest", "value_range": (20, 255)}),
]
OTHERS = [
    ("RandomColorJitter", {}),
    ("RandomColorJitter", {"brightness_factor": 0.3, "saturation_factor": (0.2, 0.7)}),
    (
        "RandomColorJitter",
        {
            "brightness_factor": (-0.2, 0.4),
            "contrast_factor": 0.7,
            "saturation_factor": 0.8,
            "hue_factor": 0.6,
        },
    ),
    ("MixUp", {}),
    ("MixUp", {"alpha": 2.0}),
    ("CutMix", {}),
    ("CutMix", {"factor": (0.3, 0.8)}),
    ("RandomElasticTransform", {}),
    (
        "RandomElasticTransform",
        {"factor": (0.3, 0.9), "scale": (0.8, 1.0), "fill_mode": "wrap", "value_range": (20, 240)},
    ),
    ("RandomElasticTransform", {"scale": (0.9, 1.0), "interpolation": "nearest"}),
]


def identify(cases):
    return [f"{name}-{','.join(f'{k}={v}' for k, v in a.items())}" for name, a in cases]


def images_in(rng, arguments, shape=(5, 11, 13, 3), dtype="float32"):
    low, high = sorted(arguments.get("value_range", (0, 255)))
    images = rng.uniform(low, high, shape)
    return (np.round(images) if dtype == "uint8" else images).astype(dtype)


@pytest.fixture
def as_on_other_backends(monkeypatch):
    """Makes Keras' CLAHE work as it does with TensorFlow and JAX.

    With PyTorch it counts in integers, which truncates the limit, and pads with repeated borders
    where it should mirror.
    """
    nn, numpy = keras.src.backend.nn, keras.src.backend.numpy
    one_hot = nn.one_hot
    monkeypatch.setattr(nn, "one_hot", lambda *args: one_hot(*args, dtype="float32"))

    def pad(x, margins, mode):
        return keras.ops.convert_to_tensor(np.pad(to_numpy(x), margins, mode))

    monkeypatch.setattr(numpy, "pad", pad)


@pytest.mark.usefixtures("as_on_other_backends")
@pytest.mark.parametrize("first", [False, True], ids=["last", "first"])
@pytest.mark.parametrize(("name", "arguments"), SPREADING, ids=identify(SPREADING))
def test_values_are_spread_as_by_keras(name, arguments, first, device, rng):
    data_format = "channels_first" if first else "channels_last"
    here = getattr(layers, name)(**arguments, data_format=data_format)
    there = getattr(keras.layers, name)(**arguments)
    for shape in ((5, 11, 13, 3), (1, 16, 16, 1), (3, 9, 40, 2)):
        images = images_in(rng, arguments, shape)
        images[0, ..., 0] = images[0, 0, 0, 0]  # The first channel of this image is constant.
        expected = to_numpy(there(images, training=True))
        actual = compiled(
            lambda x: here(x, training=True),
            [np.moveaxis(images, -1, 1) if first else images],
            device,
        )
        actual = np.moveaxis(actual, 1, -1) if first else actual
        assert actual.dtype == expected.dtype
        # A value is a sum of up to 100 counts, interpolated between tiles in float32.
        assert relative_error(actual, expected) < 1e-5
        one = images[0].transpose(2, 0, 1) if first else images[0]
        with kerascnn.device(device):
            alone = here(one, training=True).numpy()
        alone = alone.transpose(1, 2, 0) if first else alone
        assert relative_error(alone, to_numpy(there(images[0], training=True))) < 1e-5


@pytest.mark.usefixtures("as_on_other_backends")
@pytest.mark.parametrize(("name", "arguments"), SPREADING, ids=identify(SPREADING))
def test_values_of_integers_and_outside_of_training(name, arguments, device, rng):
    arguments = {**arguments, "value_range": (0, 255)}
    here, there = getattr(layers, name)(**arguments), getattr(keras.layers, name)(**arguments)
    images = images_in(rng, arguments, dtype="uint8")
    for training in (True, False):
        actual = compiled(lambda x: here(x, training=training), [images], device)  # noqa: B023
        expected = to_numpy(there(images, training=training))
        if name == "ContrastLimitedAdaptiveHistogramEqualization":
            assert actual.dtype == expected.dtype == np.uint8
            # Values are truncated to integers, so rounding decides between two neighbours.
            difference = np.abs(actual.astype("int32") - expected)
            assert difference.max() <= 1 and (difference > 0).mean() < 0.02
        else:
            assert actual.dtype == np.float32
            assert relative_error(actual, expected) < 1e-5
        assert (actual != images).any() == (training or name != "Equalization")


@pytest.mark.parametrize("name", ["AutoContrast", "Equalization"])
def test_half_precision(name, device, rng):
    images = images_in(rng, {}).astype("float16")
    here = getattr(layers, name)(dtype="float16")
    there = getattr(keras.layers, name)(dtype="float16")
    actual = compiled(lambda x: here(x, training=True), [images], device)
    assert actual.dtype == np.float16
    # The result may be one tone off where float16 rounds a value to the next one.
    expected = to_numpy(there(images, training=True)).astype("float64")
    assert np.abs(actual - expected).max() < 2


def test_counts_of_many_pixels(device, rng):
    """There are more rows and bins than a block has threads."""
    from kerascnn.layers.preprocessing.histograms import histograms, running_sums

    for bins in (2, 50, 256, 300):
        tones = rng.integers(0, bins, (7, 3001), dtype="int32")
        actual = compiled(lambda x: histograms(x, bins), [tones], device)  # noqa: B023
        expected = np.stack([np.bincount(row, minlength=bins) for row in tones])
        np.testing.assert_array_equal(actual, expected)
        sums = compiled(running_sums, [actual * 1000], device)
        np.testing.assert_array_equal(sums, expected.cumsum(1) * 1000)


@pytest.mark.parametrize("first", [False, True], ids=["last", "first"])
@pytest.mark.parametrize("factors", [OTHERS[1][1], OTHERS[2][1]])
def test_color_jitter_is_its_parts(factors, first, device, rng):
    data_format = "channels_first" if first else "channels_last"
    here = layers.RandomColorJitter(**factors, data_format=data_format)
    images = images_in(rng, {}, (5, 3, 11, 13) if first else (5, 11, 13, 3))

    def call(x):
        transformation = here.get_random_transformation(x)
        return here.transform_images(x, transformation), transformation

    actual, transformation = compiled(call, [images], device)
    expected = keras.ops.convert_to_tensor(images.copy())
    for name in ("brightness", "contrast", "saturation", "hue"):
        if f"{name}_factor" in factors:
            part = getattr(keras.layers, f"Random{name.title()}")
            part = part(factors[f"{name}_factor"], data_format=data_format)
            drawn = to_keras(transformation[f"random_{name}"])
            expected = part.transform_images(expected, drawn, training=True)
    assert relative_error(actual, to_numpy(expected)) < 2e-5


@pytest.mark.parametrize(("name", "arguments"), [c for c in OTHERS if "Mix" in c[0]])
@pytest.mark.parametrize("first", [False, True], ids=["last", "first"])
def test_mixtures_are_those_of_keras(name, arguments, first, device, rng):
    data_format = "channels_first" if first else "channels_last"
    here = getattr(layers, name)(**arguments, data_format=data_format)
    there = getattr(keras.layers, name)(**arguments, data_format=data_format)
    images = images_in(rng, {}, (5, 3, 11, 13) if first else (5, 11, 13, 3))
    labels = np.eye(5, 7, dtype="float32")

    def call(x, y):
        transformation = here.get_random_transformation({"images": x, "labels": y})
        mixed = here.transform_images(x, transformation)
        return mixed, here.transform_labels(y, transformation), transformation

    mixed, shares, transformation = compiled(call, [images, labels], device)
    expected = there.transform_images(images, to_keras(transformation), training=True)
    assert relative_error(mixed, to_numpy(expected)) < 1e-6
    expected = there.transform_labels(labels, to_keras(transformation), training=True)
    assert relative_error(shares, to_numpy(expected)) < 1e-6
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)


def test_a_cut_is_as_large_as_its_share_of_the_label(device):
    n = 64
    images = np.broadcast_to(np.arange(n, dtype="float32").reshape(-1, 1, 1, 1), (n, 40, 50, 1))
    data = {"images": images.copy(), "labels": np.eye(n, dtype="float32")}
    with kerascnn.device(device):
        mixed = layers.CutMix(seed=1)(data, training=True)
    images, labels = mixed["images"].numpy(), mixed["labels"].numpy()
    share = (images == np.arange(n).reshape(-1, 1, 1, 1)).mean((1, 2, 3))
    # An edge may lie between two pixels, which adds or removes up to one row and one column.
    np.testing.assert_allclose(share, np.diag(labels), atol=1 / 40 + 1 / 50)
    assert (share < 1).mean() > 0.1


def test_weights_of_mixing_are_beta_distributed(device):
    images = np.zeros((4000, 2, 2, 1), "float32")
    with kerascnn.device(device):
        layer = layers.MixUp(0.5)
        drawn = layer.get_random_transformation(kerascnn.ops.convert_to_tensor(images))
    weight, order = drawn["mix_weight"].numpy(), drawn["permutation_order"].numpy()
    assert sorted(order) == list(range(4000)) and (order != np.arange(4000)).mean() > 0.9
    # The weights have mean 1/2 and variance 1/8, and a quarter lies below sin^2(pi/8). Each bound
    # is six standard deviations.
    assert abs(weight.mean() - 0.5) < 6 * np.sqrt(1 / 8 / 4000)
    assert abs(weight.var() - 1 / 8) < 6 * np.sqrt((3 / 128 - 1 / 64) / 4000)
    assert abs((weight < np.sin(np.pi / 8) ** 2).mean() - 0.25) < 6 * np.sqrt(3 / 16 / 4000)


def test_labels_that_cannot_be_mixed(rng):
    data = {"images": images_in(rng, {}), "labels": np.arange(5)}
    for name in ("MixUp", "CutMix"):
        with pytest.raises(ValueError, match=r"\(batch, classes\).*to_categorical"):
            getattr(layers, name)()(data, training=True)
        unchanged = getattr(layers, name)()(data, training=False)
        np.testing.assert_array_equal(unchanged["labels"].numpy(), data["labels"])
        np.testing.assert_array_equal(unchanged["images"].numpy(), data["images"])


def test_masks_are_mixed_as_their_images(device, rng):
    images = images_in(rng, {})
    data = {"images": images, "segmentation_masks": images.copy()}
    with kerascnn.device(device):
        for layer in (layers.MixUp(2.0, seed=1), layers.CutMix(seed=1)):
            mixed = layer(data, training=True)
            np.testing.assert_array_equal(
                mixed["images"].numpy(), mixed["segmentation_masks"].numpy()
            )
            assert (mixed["images"].numpy() != images).any()


class Mixing(kerascnn.Model):
    """Mixes each batch in its training step."""

    def __init__(self, mix, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.mix = mix

    def train_step(self, data):
        images, labels = data
        mixed = self.mix({"images": images, "labels": labels}, training=True)
        return super().train_step((mixed["images"], mixed["labels"]))


@pytest.mark.parametrize("name", ["MixUp", "CutMix"])
def test_mixing_in_a_training_step(name, device, rng):
    """Compares with the same step by hand: a linear model's gradient shows its inputs."""
    x = rng.uniform(0, 1, (6, 4, 4, 1)).astype("float32")
    y = np.eye(6, 3, dtype="float32")
    with kerascnn.device(device):
        inputs = kerascnn.Input((4, 4, 1))
        outputs = layers.Dense(3, use_bias=False)(layers.Flatten()(inputs))
        mix = getattr(layers, name)(seed=4)
        model = Mixing(mix, inputs, outputs)
        model.compile(kerascnn.optimizers.SGD(0.1), "mse")
        before = model.get_weights()[0]
        model.fit(x, y, batch_size=6, epochs=1, shuffle=False, verbose=0)
        change = model.get_weights()[0] - before

        def step(images, labels):
            same = getattr(layers, name)(seed=4)
            mixed = same({"images": images, "labels": labels}, training=True)
            return mixed["images"], mixed["labels"]

        images, labels = compiled(step, [x, y], device)
    flat = images.reshape(6, -1)
    gradient = flat.T @ (flat @ before - labels) * 2 / labels.size
    np.testing.assert_allclose(change, -0.1 * gradient, atol=1e-5)
    assert (labels != y).any()


def test_mixing_in_what_makes_the_batches(device, rng):
    x, y = images_in(rng, {}), np.eye(5, 2, dtype="float32")
    with kerascnn.device(device):
        mix = layers.MixUp(1.0, seed=1)

        def batches():
            for _ in range(3):
                mixed = mix({"images": x, "labels": y}, training=True)
                yield mixed["images"], mixed["labels"]

        model = kerascnn.Sequential([layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(2)])
        model.compile("sgd", "mse")
        history = model.fit(batches(), shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize("first", [False, True], ids=["last", "first"])
@pytest.mark.parametrize(("name", "arguments"), [c for c in OTHERS if "Elastic" in c[0]])
def test_elastic_transforms_are_those_of_keras(name, arguments, first, device, rng, monkeypatch):
    """Keras gets the noise that was drawn here; the sizes reach over several pixels."""
    torch = pytest.importorskip("torch")
    data_format = "channels_first" if first else "channels_last"
    here = getattr(layers, name)(**arguments, seed=2, data_format=data_format)
    there = getattr(keras.layers, name)(**arguments, seed=2, data_format=data_format)
    images = images_in(rng, {}, (4, 3, 40, 52) if first else (4, 40, 52, 3))

    def call(x):
        transformation = here.get_random_transformation(x)
        return here.transform_images(x, transformation), transformation

    actual, transformation = compiled(call, [images], device)
    noise = torch.from_numpy(transformation["noise"])
    axes = iter([noise[..., 0], noise[..., 1]])
    monkeypatch.setattr(torch, "normal", lambda *args, **kwargs: next(axes))
    drawn = {**to_keras(transformation), "seed": None}
    drawn["distortion_factor"] = keras.ops.convert_to_tensor(transformation["distortion_factor"])
    expected = to_numpy(there.transform_images(images.copy(), drawn, training=True))
    if "interpolation" in arguments:
        equal_nearly_everywhere(actual, expected)
    else:
        # Positions of up to 50 pixels have an error of 4e-6 pixels, times a contrast of 255.
        assert relative_error(actual, expected) < 1e-4
    low, high = arguments.get("value_range", (0, 255))
    assert (np.clip(images, low, high) != actual).any()
    none = getattr(layers, name)(scale=0)
    with kerascnn.device(device):
        np.testing.assert_array_equal(none(images, training=True).numpy(), images)


def test_masks_are_pushed_as_their_images(device, rng):
    masks = rng.integers(0, 9, (4, 40, 30, 3)).astype("int32")
    data = {"images": masks.astype("float32"), "segmentation_masks": masks}
    with kerascnn.device(device):
        layer = layers.RandomElasticTransform((1, 1), (1, 1), interpolation="nearest", seed=2)
        pushed = layer(data, training=True)
    found = pushed["segmentation_masks"].numpy()
    np.testing.assert_array_equal(found, pushed["images"].numpy())
    assert found.dtype == masks.dtype and (found != masks).any()


def keras_policy(name, here, there, transformation, batch):
    """Returns a transformation that was drawn here in the form that Keras' layer takes."""
    transforms = transformation["transforms"]
    if name == "RandAugment":
        ordered = {key: transforms[key] for key in here._names}
        return to_keras({**transformation, "transforms": ordered})
    chains = []
    for chain, choices in enumerate(transformation["layer_idxes"]):
        own = slice(chain * batch, (chain + 1) * batch)
        chains.append(
            [
                {
                    "layer_name": here._names[choice],
                    "transformation": to_keras(
                        {
                            key: value[own] if np.ndim(value) and len(value) > batch else value
                            for key, value in (transforms[depth][here._names[choice]] or {}).items()
                        }
                    ),
                }
                for depth, choice in enumerate(choices)
                if choice < len(here._names)
            ]
        )
    assert list(here._names) == there._augment_layers
    kept = {k: transformation[k] for k in ("chain_mixing_weights", "weight_sample")}
    kept = {k: keras.ops.convert_to_tensor(v.copy()) for k, v in kept.items()}
    return {**kept, "chain_transforms": chains}


@pytest.fixture
def no_change_in_place(monkeypatch):
    """On PyTorch, Keras changes images and matrices in place that later layers still need."""
    copy = keras.ops.copy
    for name in ("RandomBrightness", "RandomRotation"):
        kind = getattr(keras.layers, name)

        def transform(self, images, transformation, kept=kind.transform_images):
            fresh = {k: copy(v) if hasattr(v, "cpu") else v for k, v in transformation.items()}
            return kept(self, copy(images), fresh)

        monkeypatch.setattr(kind, "transform_images", transform)


@pytest.mark.usefixtures("no_change_in_place")
@pytest.mark.parametrize(("name", "arguments"), POLICIES, ids=identify(POLICIES))
def test_policies_do_what_those_of_keras_do(name, arguments, device, rng):
    """One program draws and applies the changes, and Keras applies them again, in all orders."""
    here, there = getattr(layers, name)(**arguments), getattr(keras.layers, name)(**arguments)
    images = images_in(rng, arguments)

    def call(x):
        transformation = here.get_random_transformation(x)
        return here.transform_images(x, transformation), transformation

    seen, shares = set(), []
    for _ in range(5 if name == "AugMix" else 7):
        actual, transformation = compiled(call, [images], device)
        seen |= set(transformation["layer_idxes"].ravel().tolist())
        drawn = keras_policy(name, here, there, transformation, len(images))
        expected = to_numpy(there.transform_images(images.copy(), drawn, training=True))
        span = np.ptp(arguments.get("value_range", (0, 255)))
        difference = np.abs(actual - expected) / span
        assert np.median(difference) < 1e-4
        more_than_a_tone = difference > 1.25 / 255
        shares.append(more_than_a_tone.mean(axis=(1, 2, 3)).max())
    # AutoContrast gives values that would be whole numbers without rounding. Equalization and
    # RandomPosterization cut off what is behind the point. So all pixels of a tone, of which there
    # may be few, come out as its neighbour, and the others of the image move with them. That was
    # so for a tenth of an image in one of some hundred draws, which is not half of five or seven.
    assert np.median(shares) < 0.1
    assert len(seen) > 1


@pytest.mark.parametrize("name", ["RandAugment", "AugMix"])
def test_each_layer_of_a_policy_in_its_turn(name, device, rng):
    """The test chooses each layer itself, so that none is left out."""
    here = getattr(layers, name)(factor=0.7)
    there = getattr(keras.layers, name)(factor=0.7)
    images = images_in(rng, {})
    with kerascnn.device(device):
        x = kerascnn.ops.convert_to_tensor(images)
        for index, part in enumerate([*here._names, None]):
            drawn = here._drawn(x, None)
            actual = here._one_of(x, kerascnn.ops.convert_to_tensor([index]), drawn).numpy()
            if part is None:
                np.testing.assert_array_equal(actual, images)
                continue
            numbers = trees.map_structure(
                lambda v: v.numpy() if hasattr(v, "numpy") else v, drawn[part]
            )
            layer = getattr(there, part)
            fresh = keras.ops.convert_to_tensor(images.copy())
            expected = to_numpy(layer.transform_images(fresh, to_keras(numbers)))
            assert relative_error(actual, expected) < 2e-5, part


def test_choices_of_a_policy_are_evenly_spread(device, rng):
    with kerascnn.device(device):
        x = kerascnn.ops.convert_to_tensor(images_in(rng, {}))
        drawn = layers.RandAugment(num_ops=2)._choices(x, (6600,), 11, None).numpy()
    counts = np.bincount(drawn, minlength=11)
    assert len(counts) == 11
    assert np.abs(counts - 600).max() < 6 * np.sqrt(600)  # The bound is six standard deviations.


@pytest.mark.parametrize("name", ["RandAugment", "AugMix"])
def test_masks_follow_a_policy(name, device, rng):
    """A mask moves with its image, as the test computes by hand, and keeps its values."""
    masks = rng.integers(0, 9, (4, 11, 13, 1)).astype("int32")
    with kerascnn.device(device):
        layer = getattr(layers, name)(interpolation="nearest", factor=0.9)
        x = kerascnn.ops.convert_to_tensor(np.repeat(masks, 3, -1).astype("float32"))
        for index, part in enumerate(layer._names):
            drawn = layer._drawn(x, None)
            choice = kerascnn.ops.convert_to_tensor([index])
            moved = layer._one_of(x, choice, drawn).numpy()[..., :1]
            y = kerascnn.ops.convert_to_tensor(masks)
            own = layer._one_of(y, choice, drawn, is_mask=True).numpy()
            follows = part in ("random_shear", "random_translation", "random_rotation")
            np.testing.assert_array_equal(own, moved if follows else masks)
        data = {"images": x, "segmentation_masks": masks}
        assert layer(data, training=True)["segmentation_masks"].shape == masks.shape


ALL = SPREADING + POLICIES + OTHERS


@pytest.mark.parametrize(("name", "arguments"), ALL, ids=identify(ALL))
def test_configurations_are_those_of_keras(name, arguments):
    arguments = {**arguments, "name": "a_layer"}
    if (name, {}) not in SPREADING:
        arguments["seed"] = 5
    here = getattr(layers, name)(**arguments)
    there = getattr(keras.layers, name)(**arguments)
    plain = lambda config: json.loads(json.dumps(config))  # noqa: E731
    assert plain(here.get_config()) == plain(there.get_config())
    again = layers.deserialize(plain(layers.serialize(here)))
    assert plain(again.get_config()) == plain(here.get_config())
    assert here.compute_output_shape((None, 11, 13, 3)) == (None, 11, 13, 3)
    assert here(kerascnn.Input((11, 13, 3))).shape == (None, 11, 13, 3)


DRAWING = POLICIES + OTHERS[1:]


@pytest.mark.parametrize(("name", "arguments"), DRAWING, ids=identify(DRAWING))
def test_seeds_and_inference(name, arguments, device, rng):
    images = images_in(rng, arguments)
    with kerascnn.device(device):
        make = lambda **seed: getattr(layers, name)(**arguments, **seed)  # noqa: E731
        a, b = make(seed=7), make(seed=7)
        first = a(images, training=True).numpy()
        np.testing.assert_array_equal(first, b(images, training=True).numpy())
        assert any((a(images, training=True).numpy() != first).any() for _ in range(4))
        assert len(a.variables) == 1 and a.weights == []
        np.testing.assert_array_equal(a(images, training=False).numpy(), images)
        assert a(images[0], training=True).shape == (11, 13, 3)
        runs = []
        for _ in range(2):
            kerascnn.utils.set_random_seed(3)
            runs.append(make()(images, training=True).numpy())
        np.testing.assert_array_equal(*runs)


def test_a_model_augments_in_its_steps(device, rng):
    images = rng.integers(0, 256, (8, 12, 12, 3), dtype=np.uint8)
    labels = rng.integers(0, 2, 8)
    with kerascnn.device(device):
        model = kerascnn.Sequential(
            [
                kerascnn.Input((12, 12, 3), dtype="uint8"),
                layers.RandAugment(),
                layers.AugMix(num_chains=2, chain_depth=2),
                layers.RandomColorJitter(hue_factor=0.2, contrast_factor=0.2),
                layers.Rescaling(1 / 255),
                layers.Flatten(),
                layers.Dense(2),
            ]
        )
        loss = kerascnn.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss)
        history = model.fit(images, labels, batch_size=4, epochs=2, verbose=0)
        assert np.isfinite(history.history["loss"]).all()
        kept = kerascnn.Sequential([kerascnn.Input((12, 12, 3)), *model.layers[3:]])
        expected = kept.predict(images.astype("float32"), verbose=0)
        np.testing.assert_allclose(model.predict(images, verbose=0), expected, atol=1e-5)
