"""Boxes and masks in images equal Keras' or plain loops; galleries are files."""

import numpy as np
import pytest

import kerascnn
from kerascnn import visualization


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("form", ["channels_last", "channels_first"])
@pytest.mark.parametrize("blend", [True, False])
@pytest.mark.parametrize("given", [True, False])
def test_masks_are_those_of_keras(form, blend, given, rng):
    keras = pytest.importorskip("keras")
    images = rng.integers(0, 256, (2, 5, 7, 3)).astype("uint8")
    masks = rng.integers(-1, 3, (2, 5, 7, 1)).astype("int32")
    options = {"num_classes": 3, "blend": blend, "alpha": 0.6, "ignore_index": 2}
    if given:
        options["color_mapping"] = {0: (1, 2, 3), 1: (250, 0, 9), 2: (0, 0, 0)}
    if form == "channels_first":
        images, masks = (x.transpose(0, 3, 1, 2) for x in (images, masks))
    options["data_format"] = form
    want = np.asarray(keras.visualization.draw_segmentation_masks(images, masks, **options))
    got = visualization.draw_segmentation_masks(images, masks, **options)
    assert got.dtype == want.dtype
    # Float32 values in another order are truncated, which may differ by one step.
    np.testing.assert_allclose(got.astype(int), want.astype(int), atol=1)
    if blend:
        assert (got == want).mean() > 0.9


def test_as_many_classes_as_the_largest_number_says(rng):
    images = rng.integers(0, 256, (1, 2, 2, 3)).astype("uint8")
    masks = np.array([[[0, 1], [2, 2]]])
    got = visualization.draw_segmentation_masks(images, masks, blend=False)
    np.testing.assert_array_equal(got[0, 1], images[0, 1])  # The classes are 0 and 1.
    np.testing.assert_array_equal(got[0, 0, 0], [0, 0, 0])
    assert (got[0, 0, 1] == [(2**25 - 1) % 255, (2**15 - 1) % 255, (2**21 - 1) % 255]).all()


def test_boxes(rng):
    pytest.importorskip("PIL")
    images = np.zeros((2, 40, 50, 3), "float32")
    boxes = np.array(
        [[[5, 6, 20, 30], [0, 0, 49, 39]], [[10, 10, 15, 12], [1, 1, 2, 2]]], "float32"
    )
    labels = np.array([[0, -1], [1, 3]])
    got = visualization.draw_bounding_boxes(
        images, {"boxes": boxes, "labels": labels}, "xyxy", color=(255, 0, 7), line_thickness=1
    )
    want = np.zeros((2, 40, 50, 3), "uint8")
    for i, (left, top, right, bottom) in (
        (0, (5, 6, 20, 30)),
        (1, (10, 10, 15, 12)),
        (1, (1, 1, 2, 2)),
    ):
        want[i, top : bottom + 1, [left, right]] = (255, 0, 7)
        want[i, [top, bottom], left : right + 1] = (255, 0, 7)
    np.testing.assert_array_equal(got, want)
    assert images.max() == 0
    relative = boxes / np.array([50, 40, 50, 40], "float32")
    again = visualization.draw_bounding_boxes(
        images.transpose(0, 3, 1, 2),
        {"boxes": kerascnn.ops.convert_to_tensor(relative), "labels": labels},
        "rel_xyxy",
        color=(255, 0, 7),
        line_thickness=1,
        data_format="channels_first",
    )
    np.testing.assert_array_equal(again, want)
    named = visualization.draw_bounding_boxes(
        images,
        {"boxes": boxes, "labels": labels, "confidences": np.ones((2, 2))},
        "xyxy",
        {0: "cat"},
        (255, 0, 7),
        1,
        font_scale=0.5,
    )
    assert (named[0] != want[0]).any()
    np.testing.assert_array_equal(named[1], want[1])


@pytest.fixture
def pyplot(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    yield pyplot
    assert pyplot.get_fignums() == []


@pytest.mark.filterwarnings("ignore")
def test_galleries(tmp_path, rng, pyplot):
    images = rng.random((5, 8, 9, 3), dtype="float32")
    boxes = {"boxes": np.array([[[1, 1, 5, 6]]] * 5), "labels": np.zeros((5, 1), int)}
    masks = rng.integers(0, 3, (5, 8, 9, 1))
    names = {0: "cat", 1: "dog"}
    visualization.plot_image_gallery(
        images, [0, 1, 0, 1, 7], label_map=names, value_range=(0, 1), path=tmp_path / "a.png"
    )
    visualization.plot_bounding_box_gallery(
        images, "xyxy", boxes, boxes, (0, 1), legend=True, path=tmp_path / "b.png"
    )
    visualization.plot_segmentation_mask_gallery(
        images * 255, 3, y_true=masks, y_pred=masks, path=tmp_path / "c.png"
    )
    for name in "abc":
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    visualization.plot_image_gallery(images[..., :1], value_range=(0, 1), path=tmp_path / "d.png")


def test_mistakes(tmp_path, monkeypatch, pyplot):
    images = np.zeros((2, 4, 4, 3))
    for call, match in (
        (lambda: visualization.plot_image_gallery(images[0]), "4D"),
        (lambda: visualization.plot_image_gallery(images, [0, 1]), "label_map"),
        (lambda: visualization.plot_image_gallery(images, path="x.png", show=True), "not both"),
        (lambda: visualization.draw_bounding_boxes(images, {}, "xyxy"), "labels"),
    ):
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(TypeError, match="integer"):
        visualization.draw_segmentation_masks(images, np.zeros((2, 4, 4, 1)))
    with pytest.raises(TypeError, match="dict"):
        visualization.draw_bounding_boxes(images, [], "xyxy")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        visualization.plot_image_gallery(images)
