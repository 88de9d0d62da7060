"""Bounding boxes in `RandAugment`, `AugMix`, `CutMix` and `RandomElasticTransform`."""

import numpy as np
import pytest

import kerascnn
from kerascnn import layers, trees
from kerascnn.utils import bounding_boxes

from . import helpers

keras = pytest.importorskip("keras")
# Keras converts PyTorch tensors in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

SIZE = (88, 104)
FORMS = ["xyxy", "rel_center_xywh", "center_yxhw"]
ALL = ["RandAugment", "AugMix", "CutMix", "RandomElasticTransform"]


def rectangles(rng, n, channels=3):
    """Returns images with a rectangle in the middle, whose value is its number, and their boxes."""
    images = np.zeros((n, *SIZE, channels), "float32")
    boxes = np.zeros((n, 1, 4), "float32")
    for i in range(n):
        top, left = rng.integers(32, 40), rng.integers(32, 50)
        bottom, right = top + rng.integers(8, 16), left + rng.integers(8, 20)
        images[i, top:bottom, left:right] = i + 1
        boxes[i, 0] = left, top, right, bottom
    return images, boxes


def extent(there):
    """Returns the box around the true elements of (height, width), or zeros if there are none."""
    rows, columns = np.nonzero(there)
    if not len(rows):
        return np.zeros(4)
    return np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])


def numpy(structure):
    return trees.map_structure(
        lambda x: np.array(x.numpy()) if hasattr(x, "numpy") else x, structure
    )


def moved_boxes(layer, boxes, transformation, form="xyxy"):
    given = {
        "boxes": bounding_boxes.convert_format(boxes, "xyxy", form, *SIZE),
        "labels": np.ones(boxes.shape[:2], "int32"),
    }
    found = layer.transform_bounding_boxes(given, transformation)
    kept = bounding_boxes.convert_format(found["boxes"], form, "xyxy", *SIZE)
    return kept.numpy(), np.array(found["labels"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("choices", [[0], [1], [2], [0, 2], [2, 1, 1], [6, 0, 9]])
def test_rand_augment_moves_boxes_with_images(choices, form, rng):
    layer = layers.RandAugment(
        factor=0.1, num_ops=len(choices), interpolation="nearest", bounding_box_format=form
    )
    images, boxes = rectangles(rng, 5)
    images = np.minimum(images, 1) * 200
    transformation = layer.get_random_transformation(images)
    transformation["layer_idxes"] = np.array(choices, "int32")
    seen = layer.transform_images(images, transformation).numpy()[..., 0] > 100
    kept, labels = moved_boxes(layer, boxes, transformation, form)
    assert (labels == 1).all()
    for image, box in zip(seen, kept[:, 0], strict=True):
        expected = extent(image)
        # Images are moved by the centers of pixels and boxes by their corners, which differ by half
        # a pixel for each rotation. Rounding adds another half.
        assert (box[:2] <= expected[:2] + 1.1 * len(choices)).all()
        assert (box[2:] >= expected[2:] - 1.1 * len(choices)).all()
        if sum(x < 3 for x in choices) == 1:  # A box around a rotated box grows with each rotation.
            np.testing.assert_allclose(box, expected, atol=2.1)


@pytest.mark.parametrize("choice", [1, 2, 3, 8])
def test_rand_augment_with_one_change_is_that_of_keras(choice, rng):
    layer = layers.RandAugment(factor=0.3, num_ops=1, bounding_box_format="xyxy")
    images, boxes = rectangles(rng, 5)
    transformation = numpy(layer.get_random_transformation(images))
    transformation["layer_idxes"] = np.array([choice], "int32")
    found, _ = moved_boxes(layer, boxes, transformation)
    there = keras.layers.RandAugment(factor=0.3, num_ops=1, bounding_box_format="xyxy")
    given = {
        "boxes": keras.ops.convert_to_tensor(boxes),
        "labels": keras.ops.convert_to_tensor(np.ones((5, 1), "int32")),
    }
    expected = there.transform_bounding_boxes(given, helpers.to_keras(transformation))
    # The coordinates are float32, up to some hundred pixels.
    np.testing.assert_allclose(found, helpers.to_numpy(expected["boxes"]), rtol=1e-4, atol=1e-3)
    if choice > 2:
        np.testing.assert_array_equal(found, boxes)


def test_what_left_the_image_stays_away(rng):
    layer = layers.RandAugment(factor=0.5, num_ops=2, bounding_box_format="xyxy")
    images, boxes = rectangles(rng, 2)
    boxes[:] = 2, 3, 12, 20
    transformation = numpy(layer.get_random_transformation(images))
    # The first layer moves the box out at the left. The second one rotates it while it has rows but
    # no columns left.
    transformation["layer_idxes"] = np.array([1, 2], "int32")
    moves = transformation["transforms"]["random_translation"]["translations"]
    moves[:] = -40, 0
    kept, labels = moved_boxes(layer, boxes, transformation)
    np.testing.assert_array_equal(labels, -1)
    np.testing.assert_array_equal(kept, 0)


def test_aug_mix_leaves_boxes_as_keras_does(rng):
    images, boxes = rectangles(rng, 3)
    labels = rng.integers(0, 5, (3, 1))
    data = {"images": images, "bounding_boxes": {"boxes": boxes, "labels": labels}}
    found = layers.AugMix(bounding_box_format="xywh")(data, training=True)["bounding_boxes"]
    there = keras.layers.AugMix(bounding_box_format="xywh")
    expected = there.transform_bounding_boxes(dict(data["bounding_boxes"]), {})
    for key in ("boxes", "labels"):
        np.testing.assert_array_equal(np.asarray(found[key]), expected[key])


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("form", ["xyxy", "rel_center_xywh"])
def test_cut_mix_has_boxes_around_what_is_seen(form, data_format, rng):
    n, cut = 24, 0
    layer = layers.CutMix(bounding_box_format=form, data_format=data_format)
    images, boxes = rectangles(rng, n, channels=1)
    for i in range(0, n, 3):  # These rectangles are large: a cut takes one of their sides.
        images[i, 4:80, 20:24], boxes[i, 0] = i + 1, (20, 4, 24, 80)
        images[i, :4] = images[i, 80:] = images[i, :, :20] = images[i, :, 24:] = 0
    if data_format == "channels_first":
        images = np.transpose(images, (0, 3, 1, 2))
    transformation = layer.get_random_transformation(images)
    seen = layer.transform_images(images, transformation).numpy().reshape(n, *SIZE)
    order = transformation["permutation_order"].numpy()
    kept, labels = moved_boxes(layer, boxes, transformation, form)
    assert kept.shape == (n, 2, 4)
    for i in range(n):
        if order[i] == i:
            continue
        for column, number in enumerate((i + 1, order[i] + 1)):
            expected = extent(seen[i] == number)
            assert labels[i, column] == (1 if expected.any() else -1)
            cut += not np.array_equal(expected, boxes[number - 1, 0])
            if expected.any():
                np.testing.assert_allclose(kept[i, column], expected, atol=1e-3)
    assert cut


@pytest.mark.parametrize("form", FORMS)
def test_boxes_that_end_where_cut_mix_cuts_leave_no_sliver(form):
    """No sliver is left when another format rounds the coordinates."""
    layer = layers.CutMix(bounding_box_format=form)
    spans = [(a, b) for a in range(20, 60, 3) for b in range(a + 1, 64, 4)]
    boxes = np.array([[[a, a, b, b]] for a, b in spans], "float32")
    masks = np.zeros((len(spans), *SIZE, 1), bool)
    for mask, (a, b) in zip(masks, spans, strict=True):
        mask[a:b, a:b] = True
    transformation = {"batch_masks": masks, "permutation_order": np.arange(len(spans))}
    _, labels = moved_boxes(layer, boxes, transformation, form)
    np.testing.assert_array_equal(labels, np.tile([-1, 1], (len(spans), 1)))


def test_cut_mix_mixes_the_labels_of_images_as_before(rng):
    images, boxes = rectangles(rng, 4)
    layer = layers.CutMix(bounding_box_format="xyxy")
    data = {
        "images": images,
        "labels": np.eye(4, dtype="float32"),
        "bounding_boxes": {"boxes": boxes, "labels": np.arange(4)[:, None]},
    }
    found = layer(data, training=True)
    np.testing.assert_allclose(found["labels"].numpy().sum(1), 1, rtol=1e-6)
    assert found["bounding_boxes"]["labels"].shape == (4, 2)


@pytest.mark.parametrize("form", FORMS)
def test_elastic_transforms_have_boxes_around_what_is_seen(form, rng):
    layer = layers.RandomElasticTransform(
        factor=(0.6, 0.9), fill_mode="constant", interpolation="nearest", bounding_box_format=form
    )
    images, boxes = rectangles(rng, 12, channels=1)
    boxes = np.concatenate([boxes, np.tile(np.float32([0, 0, SIZE[1], SIZE[0]]), (12, 1, 1))], 1)
    transformation = layer.get_random_transformation(images)
    # The moves are the largest ones, of about three pixels. Small ones might all round to none.
    transformation["distortion_factor"] = np.ones_like(transformation["distortion_factor"].numpy())
    transformation["apply_transform"] = np.ones_like(transformation["apply_transform"].numpy())
    seen = layer.transform_images(images, transformation).numpy()[..., 0] > 0
    full = np.ones_like(images)
    whole = layer.transform_images(full, transformation).numpy()[..., 0] > 0
    kept, labels = moved_boxes(layer, boxes, transformation, form)
    assert (labels == 1).all()
    for i in range(12):
        np.testing.assert_allclose(kept[i, 0], extent(seen[i]), atol=1e-3)
        np.testing.assert_allclose(kept[i, 1], extent(whole[i]), atol=1e-3)
    assert not np.allclose(kept[:, 0], boxes[:, 0], atol=0.5)


def test_elastic_transforms_of_no_boxes(rng):
    images, boxes = rectangles(rng, 2)
    labels = np.ones((2, 0), "int32")
    data = {"images": images, "bounding_boxes": {"boxes": boxes[:, :0], "labels": labels}}
    found = layers.RandomElasticTransform(bounding_box_format="xyxy")(data, training=True)
    assert found["bounding_boxes"]["boxes"].shape == (2, 0, 4)


@pytest.mark.parametrize("name", ALL)
def test_compiled_steps_and_single_images(name, rng, device):
    with kerascnn.device(device):
        layer = getattr(layers, name)(bounding_box_format="xyxy", seed=3)
        images, boxes = rectangles(rng, 3)
        boxes = np.concatenate([boxes, boxes + 3], 1)
        labels = np.ones((3, 2), "int32")

        def step(x, b, n):
            return layer({"images": x, "bounding_boxes": {"boxes": b, "labels": n}}, training=True)

        found = helpers.compiled(step, [images, boxes, labels], device)["bounding_boxes"]
        count = 4 if name == "CutMix" else 2
        assert found["boxes"].shape == (3, count, 4)
        assert (found["boxes"] >= 0).all()
        assert (found["boxes"] <= np.array([SIZE[1], SIZE[0]] * 2)).all()
        drawn = numpy(layer.get_random_transformation(images, training=True))
        given = {"boxes": boxes, "labels": labels}

        def move(b):
            return layer.transform_bounding_boxes({"boxes": b, "labels": labels}, drawn)["boxes"]

        at_once = np.array(layer.transform_bounding_boxes(given, drawn)["boxes"])
        # A pixel that is rounded to the border of a box may count as inside or outside.
        np.testing.assert_allclose(helpers.compiled(move, [boxes], device), at_once, atol=1.01)
        single = {"boxes": boxes[0], "labels": labels[0]}
        one = layer({"images": images[0], "bounding_boxes": single}, training=True)[
            "bounding_boxes"
        ]
        assert np.asarray(one["boxes"]).shape == (2, 4)
        assert np.asarray(one["labels"]).shape == (2,)
