"""Functions for bounding boxes equal Keras'."""

import itertools

import numpy as np
import pytest

import kerascnn
from kerascnn.utils import bounding_boxes

keras = pytest.importorskip("keras")
# Keras converts PyTorch tensors in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

FORMATS = bounding_boxes.FORMATS
SIZES = {"height": 31, "width": 47}
# Keras computes in float32, in another order.
CLOSE = {"rtol": 1e-5, "atol": 1e-4}


def boxes_of(rng, *shape):
    corners = rng.uniform(-5, 50, (*shape, 2, 2))
    return np.sort(corners, axis=-2).reshape(*shape, 4).astype("float32")


def to_numpy(x):
    return keras.ops.convert_to_numpy(x)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(FORMATS, FORMATS)))
def test_formats(source, target, rng, device):
    boxes = boxes_of(rng, 3, 5)
    own = keras.utils.bounding_boxes.convert_format(boxes, "xyxy", source, **SIZES)
    expected = keras.utils.bounding_boxes.convert_format(own, source, target, **SIZES)
    with kerascnn.device(device):
        found = bounding_boxes.convert_format(to_numpy(own), source.upper(), target, **SIZES)
    np.testing.assert_allclose(found.numpy(), to_numpy(expected), **CLOSE)
    again = bounding_boxes.convert_format(found, target, "xyxy", **SIZES)
    np.testing.assert_allclose(again.numpy(), boxes, **CLOSE)


def test_formats_of_dictionaries(rng):
    data = {"boxes": boxes_of(rng, 4), "labels": np.arange(4)}
    found = bounding_boxes.convert_format(data, "xyxy", "xywh")
    assert found["labels"] is data["labels"]
    assert data["boxes"].shape == (4, 4)
    np.testing.assert_allclose(
        found["boxes"].numpy(), bounding_boxes.convert_format(data["boxes"], "xyxy", "xywh").numpy()
    )


@pytest.mark.parametrize("form", ["xyxy", "rel_xyxy"])
def test_clipping(form, rng):
    boxes = boxes_of(rng, 2, 9) / (1 if form == "xyxy" else 20)
    boxes[0, 0] = [60, 60, 70, 70]
    data = {"boxes": boxes, "labels": rng.integers(0, 9, (2, 9))}
    there = {key: keras.ops.convert_to_tensor(value) for key, value in data.items()}
    expected = keras.utils.bounding_boxes.clip_to_image_size(
        there, bounding_box_format=form, **SIZES
    )
    found = bounding_boxes.clip_to_image_size(data, bounding_box_format=form, **SIZES)
    for key in data:
        np.testing.assert_allclose(found[key].numpy(), to_numpy(expected[key]), rtol=1e-6)
    assert found["labels"].numpy()[0, 0] == -1


@pytest.mark.parametrize("shape", [(6,), (2, 6)])
def test_crop_and_pad(shape, rng):
    boxes = boxes_of(rng, *shape)
    arguments = {"top": 3, "left": 7, "height": 20, "width": 30}
    tensor = keras.ops.convert_to_tensor(boxes)
    for name in ("crop", "pad"):
        expected = getattr(keras.utils.bounding_boxes, name)(tensor, **arguments)
        found = getattr(bounding_boxes, name)(boxes, **arguments)
        np.testing.assert_allclose(found.numpy(), to_numpy(expected), rtol=1e-6)


def test_affine_maps(rng):
    boxes = boxes_of(rng, 4, 6)
    names = ("angle", "translate_x", "translate_y", "scale", "shear_x", "shear_y")
    values = [
        rng.uniform(low, high, 4).astype("float32")
        for low, high in ((-180, 180), (-1, 1), (-1, 1), (0.5, 2), (-30, 30), (-30, 30))
    ]
    for centers in ({}, {"center_x": 0.2, "center_y": 0.9}):
        expected = keras.utils.bounding_boxes.affine_transform(
            keras.ops.convert_to_tensor(boxes),
            **{n: keras.ops.convert_to_tensor(v) for n, v in zip(names, values, strict=True)},
            **SIZES,
            **centers,
        )
        arguments = dict(zip(names, values, strict=True))
        found = bounding_boxes.affine_transform(boxes, **arguments, **SIZES, **centers)
        np.testing.assert_allclose(found.numpy(), to_numpy(expected), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shapes", [((5,), (7,)), ((2, 5), (2, 7)), ((2, 5), (7,))])
@pytest.mark.parametrize("form", ["xyxy", "center_xywh", "rel_yxyx"])
@pytest.mark.parametrize("masking", [False, True])
def test_overlap(shapes, form, masking, rng):
    image_shape = (31, 47, 3)
    one, other = (boxes_of(rng, *shape) + 5 for shape in shapes)
    one[..., 0, :] = -2
    arguments = {"image_shape": image_shape, "use_masking": masking}
    own = [
        to_numpy(keras.utils.bounding_boxes.convert_format(b, "xyxy", form, **SIZES))
        for b in (one, other)
    ]
    found = bounding_boxes.compute_iou(*own, form, **arguments).numpy()
    tops, ends = (np.maximum, np.minimum)
    a, b = one[..., :, None, :].astype("float64"), other[..., None, :, :].astype("float64")
    sides = np.maximum(ends(a[..., 2:], b[..., 2:]) - tops(a[..., :2], b[..., :2]), 0)
    common = sides.prod(-1)
    areas = [(x[..., 2:] - x[..., :2]).prod(-1) for x in (a, b)]
    expected = common / (areas[0] + areas[1] - common + 1e-7)
    if masking:
        expected[..., 0, :] = -1
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    if len(shapes[0]) == len(shapes[1]) and not masking:
        there = keras.utils.bounding_boxes.compute_iou(*own, form, **arguments)
        np.testing.assert_allclose(found, to_numpy(there), rtol=1e-3, atol=1e-4)


def test_complete_overlap(rng):
    one, other = boxes_of(rng, 3, 6), boxes_of(rng, 3, 6)
    expected = keras.utils.bounding_boxes.compute_ciou(one, other, "xyxy")
    found = bounding_boxes.compute_ciou(one, other, "xyxy")
    np.testing.assert_allclose(found.numpy(), to_numpy(expected), rtol=1e-3, atol=1e-4)
    shape = (31, 47, 3)
    relative = [bounding_boxes.convert_format(b, "xyxy", "rel_xywh", 31, 47) for b in (one, other)]
    again = bounding_boxes.compute_ciou(*relative, "rel_xywh", shape)
    np.testing.assert_allclose(again.numpy(), found.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("encoding", ["center_xywh", "center_yxhw"])
@pytest.mark.parametrize("variance", [None, [0.1, 0.1, 0.2, 0.2]])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_deltas(encoding, variance, batch, rng):
    anchors, boxes = boxes_of(rng, 6), boxes_of(rng, *batch, 6)
    shape = (31, 47, 3)
    rel = keras.utils.bounding_boxes.convert_format(boxes, "xyxy", "rel_xyxy", **SIZES)
    rest = ("xyxy", "rel_xyxy", encoding, variance, shape)
    expected = keras.utils.bounding_boxes.encode_box_to_deltas(anchors, rel, *rest)
    deltas = bounding_boxes.encode_box_to_deltas(anchors, to_numpy(rel), *rest)
    np.testing.assert_allclose(deltas.numpy(), to_numpy(expected), rtol=1e-3, atol=1e-3)
    back = bounding_boxes.decode_deltas_to_boxes(anchors, deltas, *rest)
    np.testing.assert_allclose(back.numpy(), to_numpy(rel), rtol=1e-3, atol=1e-3)
    there = keras.utils.bounding_boxes.decode_deltas_to_boxes(
        anchors, keras.ops.convert_to_tensor(deltas.numpy()), *rest
    )
    np.testing.assert_allclose(back.numpy(), to_numpy(there), rtol=1e-3, atol=1e-3)
    levels = bounding_boxes.decode_deltas_to_boxes({"p3": anchors}, {"p3": deltas}, *rest)
    np.testing.assert_array_equal(levels["p3"].numpy(), back.numpy())


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda b, x: b.convert_format(x, "xyxy", "corners"), ValueError, "format of boxes"),
        (lambda b, x: b.convert_format(x, "xyxy", "rel_xyxy"), ValueError, "`height` and `width`"),
        (lambda b, x: b.convert_format(x[:, :3], "xyxy", "xywh"), ValueError, "dimension of 4"),
        (lambda b, x: b.clip_to_image_size({"boxes": x}), ValueError, "needs `height` and `width`"),
        (
            lambda b, x: b.clip_to_image_size({"boxes": x}, 1, 1, "xywh"),
            NotImplementedError,
            "can't be clipped: `convert_format` makes",
        ),
        (lambda b, x: b.crop(x, 0, 0, 1, 1, "xywh"), NotImplementedError, "must be in"),
        (lambda b, x: b.compute_iou(x[0], x, "xyxy"), ValueError, "2 or 3 axes"),
        (lambda b, x: b.compute_iou(x, x, "rel_xyxy"), ValueError, "image_shape"),
        (lambda b, x: b.compute_ciou(x, x, "rel_xyxy"), ValueError, "image_shape"),
        (
            lambda b, x: b.encode_box_to_deltas(x, x, "xyxy", "xyxy", "xyxy"),
            ValueError,
            "encoding_format",
        ),
        (
            lambda b, x: b.decode_deltas_to_boxes(x, x, "xyxy", "xyxy", variance=[1.0]),
            ValueError,
            "length 4",
        ),
    ],
)
def test_wrong_arguments(call, kind, words):
    with pytest.raises(kind, match=words):
        call(bounding_boxes, np.ones((2, 4), "float32"))
