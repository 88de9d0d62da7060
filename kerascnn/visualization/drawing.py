"""Draws boxes and masks in images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kerascnn import config

Color = Sequence[int]
# This is the height of a letter at `font_scale=1`, in pixels.
_LETTER = 22
_TO_LAST = (0, 2, 3, 1)


def batch_of(images: Any, data_format: str | None) -> np.ndarray[Any, Any]:
    """Images as an array with the channels last.

    Raises:
        ValueError: for other than four axes.
    """
    array = _array(images)
    if array.ndim != 4:
        raise ValueError(f"`images` must be batched 4D tensor. Received: shape={array.shape}")
    is_first = (data_format or config.image_data_format()) == "channels_first"
    return array.transpose(_TO_LAST) if is_first else array


def _array(values: Any) -> np.ndarray[Any, Any]:
    return values.numpy() if hasattr(values, "numpy") else np.asarray(values)


def draw_bounding_boxes(
    images: Any,
    bounding_boxes: Mapping[str, Any],
    bounding_box_format: str,
    class_mapping: Mapping[int, str] | None = None,
    color: Color = (128, 128, 128),
    line_thickness: int = 2,
    text_thickness: int = 1,
    font_scale: float = 1.0,
    data_format: str | None = None,
) -> np.ndarray[Any, Any]:
    """Copies of images with boxes in them.

    Args:
        images: (batch, height, width, 3), from 0 to 255, or fractions from 0 to 1.
        bounding_boxes: `"boxes"` (batch, number, 4), `"labels"` (batch, number), -1 for none, and
            perhaps `"confidences"` (batch, number).
        bounding_box_format: See `kerascnn.utils.bounding_boxes.convert_format`.
        class_mapping: Names of classes; the boxes of others have no text.
        color: Red, green and blue of boxes and texts.
        line_thickness: Of the boxes, in pixels.
        text_thickness: How bold texts are; 0 as bold as boxes.
        font_scale: Size of the texts.
        data_format: By default `keras.config.image_data_format()`.

    Returns:
        (batch, height, width, 3), uint8.

    Raises:
        ValueError: for images without four axes, or boxes without their labels.
        TypeError: for boxes that are no dictionary.
        ImportError: where the package Pillow is missing.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> boxes = {"boxes": np.array([[[2.0, 2.0, 10.0, 8.0]]]), "labels": np.array([[0]])}
    >>> drawn = keras.visualization.draw_bounding_boxes(
    ...     np.zeros((1, 16, 16, 3)), boxes, "xyxy", color=(255, 0, 0)
    ... )
    >>> drawn.shape, drawn[0, 2, 5].tolist(), drawn[0, 5, 5].tolist()
    ((1, 16, 16, 3), [255, 0, 0], [0, 0, 0])
    """
    from kerascnn.utils import bounding_boxes as boxes_of

    draw_module, image_module = _pillow("draw_bounding_boxes")
    pixels = batch_of(images, data_format)
    if not isinstance(bounding_boxes, dict):
        raise TypeError(f"`bounding_boxes` should be a dict. Received: {type(bounding_boxes)}")
    if "boxes" not in bounding_boxes or "labels" not in bounding_boxes:
        raise ValueError(
            "`bounding_boxes` should have the keys 'boxes' and 'labels'. Received: "
            f"{sorted(bounding_boxes)}"
        )
    height, width = pixels.shape[1:3]
    corners = _array(
        boxes_of.convert_format(
            _array(bounding_boxes["boxes"]), bounding_box_format, "xyxy", height, width
        )
    )
    labels = _array(bounding_boxes["labels"]).astype(int)
    confidences = bounding_boxes.get("confidences")
    certain = None if confidences is None else _array(confidences)
    results = []
    for i, array in enumerate(_bytes(pixels)):
        image = image_module.fromarray(array)
        canvas = draw_module.Draw(image)
        for j, label in enumerate(labels[i]):
            if label == -1:
                continue
            left, top, right, bottom = (int(n) for n in corners[i, j])
            if right >= left and bottom >= top:
                canvas.rectangle((left, top, right, bottom), None, tuple(color), line_thickness)
            if class_mapping and int(label) in class_mapping:
                text = str(class_mapping[int(label)])
                text += "" if certain is None else f" | {certain[i, j]:.2f}"
                bold = max(0, (text_thickness or line_thickness) - 1)
                _write(canvas, (left, top), text, tuple(color), font_scale, bold)
        results.append(np.asarray(image))
    return np.stack(results)


def _pillow(name: str) -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise ImportError(f"{name} needs the package Pillow: pip install pillow.") from error
    return ImageDraw, Image


def _bytes(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Converts to numbers from 0 to 255; fractions count as shares of 255."""
    if pixels.dtype.kind == "f" and pixels.size:
        pixels = np.clip(pixels, 0, 1) * 255 if pixels.max() <= 1 else np.clip(pixels, 0, 255)
    return pixels.astype("uint8")


def _write(
    canvas: Any, corner: tuple[int, int], text: str, color: Any, scale: float, bold: int
) -> None:
    """Writes above a box, or inside it if there is no room above."""
    from PIL import ImageFont

    size = _LETTER * scale
    x, y = corner
    above = y - size - 8
    place = (x, above) if above > 0 else (x + 3, y + 3)
    font = ImageFont.load_default(size)
    canvas.text(place, text, color, font=font, stroke_width=bold)


def draw_segmentation_masks(
    images: Any,
    segmentation_masks: Any,
    num_classes: int | None = None,
    color_mapping: Mapping[int, Color] | None = None,
    alpha: float = 0.8,
    blend: bool = True,
    ignore_index: int = -1,
    data_format: str | None = None,
) -> np.ndarray[Any, Any]:
    """Copies of images with the classes of their pixels in color.

    Args:
        images: (batch, height, width, 3), from 0 to 255.
        segmentation_masks: (batch, height, width, 1), integers: a class for each pixel.
        num_classes: How many classes have a color, from 0 on; by default as many as the largest
            number in the masks says.
        color_mapping: Red, green and blue of each class; by default made up.
        alpha: How much of the color there is; the rest is the image.
        blend: Whether image and color are mixed; else the pixels are the colors.
        ignore_index: A class whose pixels stay as they are, where `blend` is true.
        data_format: By default `keras.config.image_data_format()`.

    Returns:
        (batch, height, width, 3): uint8, or without `blend` float32.

    Raises:
        ValueError: for images without four axes.
        TypeError: for masks of fractions.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> masks = np.array([[[[0], [1]]]])
    >>> colors = {0: (0, 0, 0), 1: (0, 200, 0)}
    >>> keras.visualization.draw_segmentation_masks(
    ...     np.zeros((1, 1, 2, 3)), masks, num_classes=2, color_mapping=colors, alpha=0.5
    ... ).tolist()
    [[[[0, 0, 0], [0, 100, 0]]]]
    """
    pixels = batch_of(images, data_format).astype("float32")
    masks = _array(segmentation_masks)
    if masks.dtype.kind not in "iu":
        raise TypeError(
            "`segmentation_masks` must be in integer dtype. Received: "
            f"segmentation_masks.dtype={masks.dtype}"
        )
    if masks.ndim == 3:
        masks = masks[..., None]
    elif (data_format or config.image_data_format()) == "channels_first":
        masks = masks.transpose(_TO_LAST)
    masks = masks[..., 0]
    if num_classes is None:
        num_classes = int(masks.max())
    colors = color_mapping or dict(enumerate(_palette(num_classes)))
    colored = pixels.copy()
    for number in range(num_classes):
        colored[masks == number] = np.asarray(colors[number], "float32")
    if not blend:
        return colored
    mixed = pixels * np.float32(1 - alpha) + colored * np.float32(alpha)
    return np.where((masks != ignore_index)[..., None], mixed, pixels).astype("uint8")


def _palette(count: int) -> list[list[int]]:
    steps = (2**25 - 1, 2**15 - 1, 2**21 - 1)
    return [[number * step % 255 for step in steps] for number in range(count)]
