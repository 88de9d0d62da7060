"""Bounding boxes follow their images: a box ends up where its bright rectangle does."""

import numpy as np
import pytest

import kerascnn
from kerascnn import layers
from kerascnn.layers.preprocessing.base import ImagePreprocessing
from kerascnn.utils import bounding_boxes

from . import helpers

keras = pytest.importorskip("keras")
# Keras converts PyTorch tensors in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

SIZE = (40, 56)
CONSTANT = {"fill_mode": "constant"}
MOVING = {
    "flip": lambda **k: layers.RandomFlip(**k),
    "flip_vertical": lambda **k: layers.RandomFlip("vertical", **k),
    "flip_horizontal": lambda **k: layers.RandomFlip("horizontal", **k),
    "translation": lambda **k: layers.RandomTranslation(0.2, 0.3, **CONSTANT, **k),
    "zoom": lambda **k: layers.RandomZoom((-0.3, 0.3), (-0.2, 0.3), **CONSTANT, **k),
    "rotation": lambda **k: layers.RandomRotation(0.5, **CONSTANT, **k),
    "shear": lambda **k: layers.RandomShear(0.3, 0.3, **CONSTANT, **k),
    "perspective": lambda **k: layers.RandomPerspective(1.0, 0.3, **k),
    "crop": lambda **k: layers.RandomCrop(28, 33, **k),
    "crop_of_small": lambda **k: layers.RandomCrop(50, 45, **k),
    "center_crop": lambda **k: layers.CenterCrop(26, 40, **k),
    "center_crop_of_small": lambda **k: layers.CenterCrop(60, 50, **k),
    "resizing": lambda **k: layers.Resizing(60, 30, **k),
    "resizing_padded": lambda **k: layers.Resizing(60, 30, pad_to_aspect_ratio=True, **k),
    "resizing_cropped": lambda **k: layers.Resizing(60, 30, crop_to_aspect_ratio=True, **k),
}


def rectangles(rng, n):
    """Returns images with one bright rectangle each, and the box of each."""
    images = np.zeros((n, *SIZE, 1), "float32")
    boxes = np.zeros((n, 1, 4), "float32")
    for i in range(n):
        top, left = rng.integers(8, 18), rng.integers(8, 26)
        bottom, right = top + rng.integers(6, 14), left + rng.integers(6, 20)
        images[i, top:bottom, left:right] = 1
        boxes[i, 0] = left, top, right, bottom
    return images, boxes


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("form", ["xyxy", "rel_center_xywh"])
def test_boxes_go_where_things_go(name, form, rng, device):
    layer = MOVING[name](bounding_box_format=form)
    images, boxes = rectangles(rng, 8)
    with kerascnn.device(device):
        given = bounding_boxes.convert_format(boxes, "xyxy", form, *SIZE)
        data = {
            "images": images,
            "bounding_boxes": {"boxes": given, "labels": np.ones((8, 1), "int32")},
        }
        found = layer(data, training=True)
        seen = found["images"].numpy()[..., 0]
        kept = bounding_boxes.convert_format(
            found["bounding_boxes"]["boxes"], form, "xyxy", *seen.shape[1:]
        ).numpy()[:, 0]
        labels = found["bounding_boxes"]["labels"].numpy()[:, 0]
    compared = 0
    for image, (left, top, right, bottom), label in zip(seen, kept, labels, strict=True):
        rows, columns = np.nonzero(image > 0.5)
        area = (right - left) * (bottom - top)
        assert label == (1 if area > 0 else -1)
        if len(rows) < 20:  # Most of the rectangle left the image.
            continue
        compared += 1
        # Images are moved by the centers of pixels and boxes by their corners, half a pixel away in
        # both axes. A rotation moves these halves by up to (1 + 2**0.5) / 2 in one of them, and of
        # a tip that it makes up to one row has no pixel that is bright enough: 2.21 in all.
        expected = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        np.testing.assert_allclose((left, top, right, bottom), expected, atol=2.25)
        assert 0 <= left <= right <= image.shape[1]
        assert 0 <= top <= bottom <= image.shape[0]
    assert compared


SAME = ["flip_horizontal", "flip_vertical", "translation", "zoom", "rotation"]


@pytest.mark.parametrize("name", SAME)
def test_boxes_are_those_of_keras(name, rng):
    layer = MOVING[name](bounding_box_format="xyxy")
    images, boxes = rectangles(rng, 6)
    labels = rng.integers(0, 5, (6, 1))
    transformation = layer.get_random_transformation(images, training=True)
    found = layer.transform_bounding_boxes({"boxes": boxes, "labels": labels}, transformation)
    there = getattr(keras.layers, type(layer).__name__).from_config(layer.get_config())
    expected = there.transform_bounding_boxes(
        {
            "boxes": keras.ops.convert_to_tensor(boxes),
            "labels": keras.ops.convert_to_tensor(labels),
        },
        helpers.to_keras(transformation),
    )
    np.testing.assert_allclose(
        found["boxes"].numpy(), helpers.to_numpy(expected["boxes"]), rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("name", ["center_crop", "resizing", "resizing_padded", "resizing_cropped"])
def test_fixed_layers_are_those_of_keras(name, rng):
    layer = MOVING[name](bounding_box_format="xywh")
    images, boxes = rectangles(rng, 3)
    boxes = bounding_boxes.convert_format(boxes, "xyxy", "xywh").numpy()
    boxes = np.concatenate([boxes, np.full((3, 1, 4), -1, "float32")], 1)
    data = {"images": images, "bounding_boxes": {"boxes": boxes, "labels": np.ones((3, 2), int)}}
    found = layer(data)["bounding_boxes"]["boxes"].numpy()
    there = getattr(keras.layers, type(layer).__name__).from_config(layer.get_config())
    copy = {**data, "bounding_boxes": dict(data["bounding_boxes"])}
    expected = helpers.to_numpy(there(copy)["bounding_boxes"]["boxes"])
    # Keras rounds borders to whole pixels of the result; here they lie where the image has them.
    apart = 1.1 if name in ("resizing_padded", "resizing_cropped") else 1e-3
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=apart)


@pytest.mark.parametrize("name", MOVING)
def test_one_image_and_compiled_steps(name, rng, device):
    images, boxes = rectangles(rng, 3)
    layer = (
        MOVING[name](bounding_box_format="xyxy", seed=4)
        if "re" not in name[:2] and ("center" not in name)
        else MOVING[name](bounding_box_format="xyxy")
    )
    labels = np.ones((3, 1), "int32")

    def step(x, b, n):
        return layer({"images": x, "bounding_boxes": {"boxes": b, "labels": n}}, training=True)

    found = helpers.compiled(step, [images, boxes, labels], device)
    height, width = found["images"].shape[1:3]
    moved = found["bounding_boxes"]["boxes"]
    assert moved.shape == (3, 1, 4)
    assert (moved >= 0).all()
    assert (moved <= np.array([width, height] * 2)).all()
    single = {"boxes": boxes[0], "labels": labels[0]}
    one = layer({"images": images[0], "bounding_boxes": single}, training=True)
    assert one["bounding_boxes"]["boxes"].shape == (1, 4)
    assert one["bounding_boxes"]["labels"].shape == (1,)


@pytest.mark.parametrize("name", [n for n in MOVING if n[:2] != "re" and n[:6] != "center"])
def test_nothing_happens_outside_of_training(name, rng):
    images, boxes = rectangles(rng, 2)
    data = {"images": images, "bounding_boxes": {"boxes": boxes, "labels": np.ones((2, 1), int)}}
    found = MOVING[name](bounding_box_format="xyxy")(data, training=False)
    np.testing.assert_array_equal(found["bounding_boxes"]["boxes"].numpy(), boxes)


STILL = [
    layers.RandomBrightness(0.3),
    layers.RandomContrast(0.3),
    layers.RandomGrayscale(),
    layers.RandomHue(0.2),
    layers.RandomSaturation(0.2),
    layers.RandomSharpness(0.2),
    layers.RandomPosterization(4),
    layers.RandomInvert(),
    layers.RandomErasing(),
    layers.RandomGaussianBlur(),
    layers.RandomColorJitter(brightness_factor=0.2),
    layers.Solarization(),
    layers.AutoContrast(),
    layers.Equalization(),
]


@pytest.mark.parametrize("layer", STILL, ids=lambda layer: type(layer).__name__)
def test_boxes_stay_where_only_values_change(layer, rng):
    config = {**layer.get_config(), "bounding_box_format": "xyxy"}
    layer = type(layer).from_config(config)
    assert layer.get_config()["bounding_box_format"] == "xyxy"
    images = np.repeat(rectangles(rng, 2)[0], 3, -1)
    boxes = rng.uniform(0, 30, (2, 3, 4)).astype("float32")
    data = {"images": images, "bounding_boxes": {"boxes": boxes, "labels": np.ones((2, 3), int)}}
    found = layer(data, training=True)
    np.testing.assert_array_equal(found["bounding_boxes"]["boxes"].numpy(), boxes)


def test_mixed_images_have_the_boxes_of_both(rng):
    layer = layers.MixUp(bounding_box_format="xyxy")
    images, boxes = rectangles(rng, 4)
    labels = np.arange(4)[:, None]
    data = {
        "images": images,
        "labels": np.eye(4, dtype="float32"),
        "bounding_boxes": {"boxes": boxes, "labels": labels},
    }
    found = layer(data, training=True)["bounding_boxes"]
    partners = found["labels"].numpy()[:, 1]
    np.testing.assert_array_equal(found["labels"].numpy()[:, 0], np.arange(4))
    np.testing.assert_array_equal(found["boxes"].numpy()[:, 1], boxes[partners, 0])


@pytest.mark.parametrize("number", [1, 3, 5])
def test_the_same_number_of_boxes(number, rng):
    boxes = rng.uniform(0, 30, (2, 3, 4)).astype("float32")
    labels = rng.integers(0, 5, (2, 3))
    data = {"images": np.ones((2, 8, 9, 3)), "bounding_boxes": {"boxes": boxes, "labels": labels}}
    found = layers.MaxNumBoundingBoxes(number, fill_value=-2)(data)["bounding_boxes"]
    there = keras.layers.MaxNumBoundingBoxes(number, -2, bounding_box_format="xyxy")
    expected = there({**data, "bounding_boxes": dict(data["bounding_boxes"])})["bounding_boxes"]
    for key in ("boxes", "labels"):
        np.testing.assert_allclose(found[key].numpy(), helpers.to_numpy(expected[key]))


def test_pipelines_and_errors(rng):
    images, boxes = rectangles(rng, 2)
    data = {"images": images, "bounding_boxes": {"boxes": boxes, "labels": np.ones((2, 1), int)}}
    pipeline = layers.Pipeline(
        [
            layers.RandomFlip(bounding_box_format="xyxy"),
            layers.Resizing(20, 28, bounding_box_format="xyxy"),
        ]
    )
    found = pipeline(data)["bounding_boxes"]["boxes"].numpy()
    size = boxes[..., 2:] - boxes[..., :2]
    np.testing.assert_allclose(found[..., 2:] - found[..., :2], size / 2, atol=1e-4)
    with pytest.raises(ValueError, match="specify a bounding box format"):
        layers.RandomFlip()(data)
    with pytest.raises(ValueError, match="keys 'boxes' and 'labels'"):
        layers.RandomFlip(bounding_box_format="xyxy")({**data, "bounding_boxes": {"boxes": boxes}})
    with pytest.raises(ValueError, match="format of boxes"):
        layers.RandomFlip(bounding_box_format="corners")

    class Swirl(ImagePreprocessing):
        def get_random_transformation(self, data, training=True, seed=None):
            return {}

        def _transform_images(self, images, transformation, interpolation):
            return images

    with pytest.raises(NotImplementedError, match="Swirl does not know where"):
        Swirl(bounding_box_format="xyxy")(data, training=True)
