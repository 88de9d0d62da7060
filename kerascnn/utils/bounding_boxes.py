"""Boxes around things in images: formats, clipping, overlap, and what detectors predict.

A box is four numbers along the last axis of a tensor, in one of these formats (written in any
case): "xyxy" (left, top, right, bottom), "yxyx" (top, left, bottom, right), "xywh" (left, top,
width, height), "center_xywh" and "center_yxhw" (the middle and the sizes), all in pixels; and
"rel_xyxy", "rel_yxyx", "rel_xywh", "rel_center_xywh" in shares of the image's width and height.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerascnn import config, ops
from kerascnn.ops import dispatch

__all__ = [
    "affine_transform",
    "clip_to_image_size",
    "compute_ciou",
    "compute_iou",
    "convert_format",
    "crop",
    "decode_deltas_to_boxes",
    "encode_box_to_deltas",
    "pad",
]

FORMATS = (
    "xyxy",
    "yxyx",
    "xywh",
    "center_xywh",
    "center_yxhw",
    "rel_xyxy",
    "rel_yxyx",
    "rel_xywh",
    "rel_center_xywh",
)
_SWAPPED = ("yxyx", "center_yxhw")


def convert_format(
    boxes: Any,
    source: str,
    target: str,
    height: Any = None,
    width: Any = None,
    dtype: str = "float32",
) -> Any:
    """Boxes in another format.

    Args:
        boxes: Of shape (..., 4), or a dictionary that has them as "boxes".
        source: The format that they are in.
        target: The format that they are wanted in.
        height: Of the image; needed to go between pixels and shares.
        width: The same.
        dtype: Of the result.

    Returns:
        Boxes of the same shape, or a dictionary with the same keys.

    Raises:
        ValueError: for an unknown format, missing sizes, or another last axis.

    Example:

    >>> import kerascnn as keras
    >>> boxes = [[10.0, 20.0, 30.0, 40.0]]
    >>> convert = keras.utils.bounding_boxes.convert_format
    >>> convert(boxes, source="xyxy", target="center_xywh").numpy().tolist()
    [[20.0, 30.0, 20.0, 20.0]]
    """
    if isinstance(boxes, dict):
        converted = convert_format(boxes["boxes"], source, target, height, width, dtype)
        return {**boxes, "boxes": converted}
    source, target = checked_format(source), checked_format(target)
    if tuple(boxes.shape if hasattr(boxes, "shape") else ops.shape(boxes))[-1:] != (4,):
        raise ValueError(
            "`boxes` must be a tensor with the last dimension of 4. Received: boxes.shape="
            f"{tuple(ops.convert_to_tensor(boxes).shape)}"
        )
    relative = source.startswith("rel_"), target.startswith("rel_")
    if any(relative) and (height is None or width is None):
        raise ValueError(
            "convert_format() must receive `height` and `width` to go between relative and "
            f"absolute formats. Received: source={source!r}, target={target!r}, height={height}, "
            f"width={width}"
        )
    boxes = ops.cast(ops.convert_to_tensor(boxes), dtype)
    if source == target:
        return boxes
    corners = _corners(boxes, source.removeprefix("rel_"))
    if relative[0] != relative[1]:
        scale = [
            dispatch.convert(size, dtype, like=boxes) for size in (width, height, width, height)
        ]
        change = ops.multiply if relative[0] else ops.divide
        corners = [change(x, size) for x, size in zip(corners, scale, strict=True)]
    return ops.concatenate(_from_corners(corners, target.removeprefix("rel_")), -1)


def checked_format(name: Any) -> str:
    """The name of a format in lower case.

    Raises:
        ValueError: for another one.
    """
    known = name.lower() if isinstance(name, str) else name
    if known not in FORMATS:
        raise ValueError(f"A format of boxes is one of {FORMATS}. Received: {name!r}")
    return known


def _corners(boxes: Any, form: str) -> list[Any]:
    """Returns left, top, right and bottom, each (..., 1)."""
    a, b, c, d = ops.split(boxes, 4, -1)
    if form in _SWAPPED:
        a, b, c, d = b, a, d, c
    if form in ("xyxy", "yxyx"):
        return [a, b, c, d]
    if form == "xywh":
        return [a, b, a + c, b + d]
    return [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0]


def _from_corners(corners: list[Any], form: str) -> list[Any]:
    left, top, right, bottom = corners
    width, height = right - left, bottom - top
    parts = corners
    if form == "xywh":
        parts = [left, top, width, height]
    elif form.startswith("center"):
        parts = [left + width / 2.0, top + height / 2.0, width, height]
    if form in _SWAPPED:
        a, b, c, d = parts
        parts = [b, a, d, c]
    return parts


def clip_to_image_size(
    bounding_boxes: Any, height: Any = None, width: Any = None, bounding_box_format: str = "xyxy"
) -> Any:
    """Boxes cut at the borders of the image; labels of those that nothing is left of become -1.

    Args:
        bounding_boxes: {"boxes": (..., 4), "labels": (...)}, maybe without labels.
        height: Of the image, in the units of the boxes.
        width: The same.
        bounding_box_format: "xyxy" or "rel_xyxy".

    Returns:
        A dictionary with the same keys.

    Raises:
        NotImplementedError: for another format.
        ValueError: without sizes, for "xyxy".

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> boxes = {"boxes": np.array([[-10.0, 5.0, 50.0, 60.0]]), "labels": np.array([3])}
    >>> clipped = keras.utils.bounding_boxes.clip_to_image_size(boxes, height=40, width=30)
    >>> clipped["boxes"].numpy().tolist()
    [[0.0, 5.0, 30.0, 40.0]]
    """
    if bounding_box_format not in ("xyxy", "rel_xyxy"):
        raise NotImplementedError(
            f"Boxes in the format {bounding_box_format!r} can't be clipped: `convert_format` makes "
            "'xyxy' or 'rel_xyxy' of them."
        )
    if bounding_box_format == "rel_xyxy":
        height = width = 1.0
    elif height is None or width is None:
        raise ValueError(
            "clip_to_image_size() needs `height` and `width` of the image for boxes in 'xyxy'. "
            f"Received: height={height}, width={width}"
        )
    boxes = ops.convert_to_tensor(bounding_boxes["boxes"])
    clipped = _clipped(ops.split(boxes, 4, -1), height, width)
    result = {**bounding_boxes, "boxes": ops.concatenate(clipped, -1)}
    labels = bounding_boxes.get("labels")
    if labels is not None:
        left, top, right, bottom = clipped
        there = ops.greater(ops.squeeze((right - left) * (bottom - top), -1), 0)
        result["labels"] = ops.where(there, labels, -1)
    return result


def _clipped(corners: Any, height: Any, width: Any) -> list[Any]:
    sizes = [ops.cast(size, corners[0].dtype) for size in (width, height, width, height)]
    pairs = zip(corners, sizes, strict=True)
    return [ops.minimum(ops.maximum(x, 0.0), size) for x, size in pairs]


def crop(
    boxes: Any, top: Any, left: Any, height: Any, width: Any, bounding_box_format: str = "xyxy"
) -> Any:
    """Boxes in a part of the image, cut at its borders.

    Args:
        boxes: Of shape (..., 4).
        top: Where the part begins.
        left: The same.
        height: How large it is.
        width: The same.
        bounding_box_format: Only "xyxy".

    Returns:
        Boxes of the same shape; those that lie outside have no size.

    Raises:
        NotImplementedError: for another format.

    Example:

    >>> import kerascnn as keras
    >>> b = keras.utils.bounding_boxes
    >>> b.crop([[2.0, 2.0, 9.0, 4.0]], top=1, left=1, height=4, width=4).numpy().tolist()
    [[1.0, 1.0, 4.0, 3.0]]
    """
    _only_xyxy(bounding_box_format)
    moved = pad(boxes, -top, -left)
    return ops.concatenate(_clipped(ops.split(moved, 4, -1), height, width), -1)


def pad(
    boxes: Any,
    top: Any,
    left: Any,
    height: Any = None,
    width: Any = None,
    bounding_box_format: str = "xyxy",
) -> Any:
    """Boxes in an image that got rows above and columns to the left.

    Args:
        boxes: Of shape (..., 4).
        top: How many rows.
        left: How many columns.
        height: Without effect.
        width: Without effect.
        bounding_box_format: Only "xyxy".

    Returns:
        Boxes of the same shape.

    Raises:
        NotImplementedError: for another format.

    Example:

    >>> import kerascnn as keras
    >>> b = keras.utils.bounding_boxes
    >>> b.pad([[2.0, 2.0, 9.0, 4.0]], top=1, left=10).numpy().tolist()
    [[12.0, 3.0, 19.0, 5.0]]
    """
    _only_xyxy(bounding_box_format)
    x1, y1, x2, y2 = ops.split(ops.convert_to_tensor(boxes), 4, -1)
    return ops.concatenate([x1 + left, y1 + top, x2 + left, y2 + top], -1)


def affine_transform(
    boxes: Any,
    angle: Any,
    translate_x: Any,
    translate_y: Any,
    scale: Any,
    shear_x: Any,
    shear_y: Any,
    height: Any,
    width: Any,
    center_x: Any = None,
    center_y: Any = None,
    bounding_box_format: str = "xyxy",
) -> Any:
    """The boxes around what boxes become under affine maps, one for each image.

    Args:
        boxes: Of shape (n, boxes, 4).
        angle: In degrees, counter-clockwise, (n,) as all that follow but the sizes.
        translate_x: A share of the width less one pixel.
        translate_y: A share of the height less one pixel.
        scale: A factor.
        shear_x: An angle in degrees.
        shear_y: The same.
        height: Of the image.
        width: The same.
        center_x: What stays where it is, as a share of the width; by default the middle.
        center_y: The same for the height.
        bounding_box_format: Only "xyxy".

    Returns:
        Boxes of the same shape, in pixels.

    Raises:
        NotImplementedError: for another format.

    Example:

    >>> import kerascnn as keras
    >>> b = keras.utils.bounding_boxes
    >>> boxes, zero, one = [[[0.0, 0.0, 4.0, 2.0]]], [0.0], [1.0]
    >>> b.affine_transform(boxes, zero, [0.5], zero, one, zero, zero, 8, 8).numpy().tolist()
    [[[3.5, 0.0, 7.5, 2.0]]]
    """
    _only_xyxy(bounding_box_format)
    angle = ops.convert_to_tensor(angle)
    rotation, along_x, along_y = (
        ops.multiply(x, -math.pi / 180.0) for x in (angle, shear_x, shear_y)
    )
    middle_x = (0.5 if center_x is None else center_x) * (width - 1)
    middle_y = (0.5 if center_y is None else center_y) * (height - 1)
    from_x = ops.subtract(middle_x, ops.multiply(translate_x, width - 1))
    from_y = ops.subtract(middle_y, ops.multiply(translate_y, height - 1))
    rest = rotation - along_y
    a = ops.cos(rest) / ops.cos(along_y)
    b = a * ops.tan(along_x) + ops.sin(rotation)
    c = -ops.sin(rest) / ops.cos(along_y)
    d = ops.cos(rotation) - c * ops.tan(along_x)
    a0, a1, b0, b1 = d * scale, -b * scale, -c * scale, a * scale
    parts = [
        a0,
        a1,
        middle_x - a0 * from_x - a1 * from_y,
        b0,
        b1,
        middle_y - b0 * from_x - b1 * from_y,
    ]
    parts = [ops.reshape(part, (-1, 1)) for part in parts]
    boxes = ops.cast(ops.convert_to_tensor(boxes), angle.dtype)

    def move(x: Any, y: Any) -> tuple[Any, Any]:
        p, q, r, s, t, u = parts
        return p * x + q * y + r, s * x + t * y + u

    return around(boxes, move)


def around(boxes: Any, move: Any) -> Any:
    """The boxes around what becomes of the corners of boxes.

    Args:
        boxes: In "xyxy", (n, boxes, 4).
        move: Gives x and y of where points go to, of x and y (n, boxes).
    """
    x1, y1, x2, y2 = (ops.squeeze(x, -1) for x in ops.split(boxes, 4, -1))
    points = [move(x, y) for x, y in ((x1, y1), (x2, y1), (x2, y2), (x1, y2))]
    columns, rows = (ops.stack(values, -1) for values in zip(*points, strict=True))
    corners = [ops.min(columns, -1), ops.min(rows, -1), ops.max(columns, -1), ops.max(rows, -1)]
    return ops.stack(corners, -1)


def extent(there: Any) -> tuple[Any, Any]:
    """The first place where something is, and the one after the last, (n,) int32; 0 for nothing.

    Args:
        there: Booleans (n, places).
    """
    places = np.arange(there.shape[1], dtype="int32")
    end = ops.max(ops.where(there, places + 1, 0), 1)
    first = ops.min(ops.where(there, places, there.shape[1]), 1)
    return ops.minimum(first, end), end


def _only_xyxy(bounding_box_format: str) -> None:
    if bounding_box_format != "xyxy":
        raise NotImplementedError(
            "Boxes must be in the format 'xyxy': `convert_format` converts them. Received: "
            f"bounding_box_format={bounding_box_format!r}"
        )


def compute_iou(
    boxes1: Any,
    boxes2: Any,
    bounding_box_format: str,
    use_masking: bool = False,
    mask_val: float = -1,
    image_shape: Any = None,
) -> Any:
    """How much each box overlaps with each of others: intersection over union.

    Args:
        boxes1: Of shape (m, 4) or (n, m, 4).
        boxes2: Of shape (k, 4) or (n, k, 4).
        bounding_box_format: The format of both.
        use_masking: Whether boxes that are negative throughout are no boxes.
        mask_val: What pairs with such a one get.
        image_shape: (height, width, channels); needed for relative formats.

    Returns:
        (m, k), or with a batch (n, m, k).

    Raises:
        ValueError: for other numbers of axes, and relative formats without `image_shape`.

    Example:

    >>> import kerascnn as keras
    >>> iou = keras.utils.bounding_boxes.compute_iou
    >>> iou([[0.0, 0.0, 4.0, 2.0]], [[2.0, 0.0, 4.0, 2.0]], "xyxy").numpy().round(3).tolist()
    [[0.5]]
    """
    boxes1, boxes2 = ops.convert_to_tensor(boxes1), ops.convert_to_tensor(boxes2)
    for name, boxes in (("boxes1", boxes1), ("boxes2", boxes2)):
        if len(boxes.shape) not in (2, 3):
            raise ValueError(
                f"compute_iou() expects {name} to have 2 or 3 axes, (boxes, 4) or (batch, boxes, "
                f"4). Received: {name}.shape={tuple(boxes.shape)}"
            )
    height, width = _image_sizes(bounding_box_format, image_shape)
    first, second = (
        convert_format(boxes, bounding_box_format, "xyxy", height, width)
        for boxes in (boxes1, boxes2)
    )
    one = [ops.squeeze(x, -1)[..., :, None] for x in ops.split(first, 4, -1)]
    other = [ops.squeeze(x, -1)[..., None, :] for x in ops.split(second, 4, -1)]
    common = _overlap(one, other)
    union = _area(one) + _area(other) - common
    result = common / (union + config.epsilon())
    if not use_masking:
        return result
    absent = [ops.less(ops.max(x, -1), 0.0) for x in (first, second)]
    nothing = ops.logical_or(absent[0][..., :, None], absent[1][..., None, :])
    return ops.where(nothing, ops.cast(mask_val, result.dtype), result)


def _overlap(one: list[Any], other: list[Any]) -> Any:
    wide = ops.minimum(one[2], other[2]) - ops.maximum(one[0], other[0])
    high = ops.minimum(one[3], other[3]) - ops.maximum(one[1], other[1])
    return ops.maximum(wide, 0.0) * ops.maximum(high, 0.0)


def _area(corners: list[Any]) -> Any:
    left, top, right, bottom = corners
    return (right - left) * (bottom - top)


def _image_sizes(bounding_box_format: str, image_shape: Any) -> tuple[Any, Any]:
    if image_shape is None:
        if "rel" in bounding_box_format:
            raise ValueError(
                "For relative formats of boxes `image_shape` must be given, (height, width, "
                f"channels). Received: bounding_box_format={bounding_box_format!r}"
            )
        return None, None
    height, width, _ = image_shape
    return height, width


def compute_ciou(
    boxes1: Any, boxes2: Any, bounding_box_format: str, image_shape: Any = None
) -> Any:
    """How well boxes fit on those at the same places, by overlap, middle and proportions.

    Args:
        boxes1: Of shape (..., 4).
        boxes2: The same.
        bounding_box_format: The format of both.
        image_shape: (height, width, channels); needed for relative formats.

    Returns:
        (...); 1 for equal boxes, and less the less they fit.

    Source: Zheng et al., "Distance-IoU Loss: Faster and Better Learning for Bounding Box
        Regression", 2020.

    Example:

    >>> import kerascnn as keras
    >>> boxes = [[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 4.0, 3.0]]
    >>> keras.utils.bounding_boxes.compute_ciou(boxes, boxes, "xyxy").numpy().round(3).tolist()
    [1.0, 1.0]
    """
    height, width = _image_sizes(bounding_box_format, image_shape)
    one, other = (
        [
            ops.squeeze(x, -1)
            for x in ops.split(
                convert_format(boxes, bounding_box_format, "xyxy", height, width), 4, -1
            )
        ]
        for boxes in (boxes1, boxes2)
    )
    tiny = config.epsilon()
    width1, height1 = one[2] - one[0], one[3] - one[1] + tiny
    width2, height2 = other[2] - other[0], other[3] - other[1] + tiny
    common = _overlap(one, other)
    union = width1 * height1 + width2 * height2 - common + tiny
    iou = common / (union + tiny)
    hull_x = ops.maximum(one[2], other[2]) - ops.minimum(one[0], other[0])
    hull_y = ops.maximum(one[3], other[3]) - ops.minimum(one[1], other[1])
    diagonal = ops.square(hull_x) + ops.square(hull_y) + tiny
    apart_x = (one[0] + one[2]) / 2.0 - (other[0] + other[2]) / 2.0
    apart_y = (one[1] + one[3]) / 2.0 - (other[1] + other[3]) / 2.0
    distance = ops.square(apart_x) + ops.square(apart_y)
    turn = ops.arctan(width2 / height2) - ops.arctan(width1 / height1)
    shape = ops.square(turn) * (4 / math.pi**2)
    weight = shape / (shape - iou + (1 + tiny))
    return iou - (distance / diagonal + shape * weight)


def encode_box_to_deltas(
    anchors: Any,
    boxes: Any,
    anchor_format: str,
    box_format: str,
    encoding_format: str = "center_yxhw",
    variance: Any = None,
    image_shape: Any = None,
) -> Any:
    """How boxes differ from anchors, as a detector predicts it.

    Args:
        anchors: Of shape (m, 4).
        boxes: Of shape (m, 4) or (n, m, 4).
        anchor_format: The format of the anchors.
        box_format: The format of the boxes.
        encoding_format: "center_yxhw" or "center_xywh": the order of the result.
        variance: Four numbers that the result is divided by.
        image_shape: (height, width, channels); needed for relative formats.

    Returns:
        Of the shape of the boxes: where the middle is in sizes of the anchor, and the logarithm of
        how much larger the box is.

    Raises:
        ValueError: for another encoding, or other than four variances.

    Example:

    >>> import kerascnn as keras
    >>> b = keras.utils.bounding_boxes
    >>> anchors, boxes = [[0.0, 0.0, 4.0, 4.0]], [[1.0, 0.0, 5.0, 4.0]]
    >>> b.encode_box_to_deltas(anchors, boxes, "xyxy", "xyxy").numpy().tolist()  # y, x, h, w
    [[0.0, 0.25, 0.0, 0.0]]
    """
    variance = _checked_variance(variance)
    _check_encoding("encoding_format", encoding_format)
    height, width = (None, None) if image_shape is None else image_shape[:2]
    own = convert_format(anchors, anchor_format, encoding_format, height, width)
    boxes = convert_format(boxes, box_format, encoding_format, height, width)
    sizes = ops.maximum(own[..., 2:], config.epsilon())
    wanted = ops.maximum(boxes[..., 2:], config.epsilon())
    parts = [(boxes[..., :2] - own[..., :2]) / sizes, ops.log(wanted / sizes)]
    deltas = ops.concatenate(parts, -1)
    return deltas if variance is None else deltas / variance


def decode_deltas_to_boxes(
    anchors: Any,
    boxes_delta: Any,
    anchor_format: str,
    box_format: str,
    encoded_format: str = "center_yxhw",
    variance: Any = None,
    image_shape: Any = None,
) -> Any:
    """The boxes that a detector's output means: the inverse of `encode_box_to_deltas`.

    Args:
        anchors: Of shape (m, 4), or a dictionary of such.
        boxes_delta: Of shape (m, 4) or (n, m, 4), or a dictionary with the same keys.
        anchor_format: The format of the anchors.
        box_format: The format that boxes are wanted in.
        encoded_format: "center_yxhw" or "center_xywh".
        variance: Four numbers that the deltas are multiplied by.
        image_shape: (height, width, channels); needed for relative formats.

    Returns:
        Boxes of the shape of the deltas, or a dictionary of such.

    Raises:
        ValueError: for another encoding, or other than four variances.

    Example:

    >>> import kerascnn as keras
    >>> b = keras.utils.bounding_boxes
    >>> anchors, boxes = [[0.0, 0.0, 4.0, 4.0]], [[1.0, 1.0, 3.0, 5.0]]
    >>> deltas = b.encode_box_to_deltas(anchors, boxes, "xyxy", "xyxy")
    >>> b.decode_deltas_to_boxes(anchors, deltas, "xyxy", "xyxy").numpy().round(4).tolist()
    [[1.0, 1.0, 3.0, 5.0]]
    """
    scale = _checked_variance(variance)
    _check_encoding("encoded_format", encoded_format)
    if isinstance(anchors, dict) and isinstance(boxes_delta, dict):
        rest = (anchor_format, box_format, encoded_format, variance, image_shape)
        return {
            key: decode_deltas_to_boxes(own, boxes_delta[key], *rest)
            for key, own in anchors.items()
        }
    height, width = (None, None) if image_shape is None else image_shape[:2]
    own = convert_format(anchors, anchor_format, encoded_format, height, width)
    deltas = ops.convert_to_tensor(boxes_delta)
    deltas = deltas if scale is None else deltas * scale
    parts = [
        deltas[..., :2] * own[..., 2:] + own[..., :2],
        ops.exp(deltas[..., 2:]) * own[..., 2:],
    ]
    boxes = ops.concatenate(parts, -1)
    return convert_format(boxes, encoded_format, box_format, height, width)


def _checked_variance(variance: Any) -> Any:
    if variance is None:
        return None
    variance = ops.convert_to_tensor(variance, "float32")
    if tuple(variance.shape)[-1:] != (4,):
        raise ValueError(f"`variance` must be length 4, got shape {tuple(variance.shape)}")
    return variance


def _check_encoding(name: str, value: str) -> None:
    if value not in ("center_xywh", "center_yxhw"):
        raise ValueError(
            f"`{name}` should be one of 'center_xywh' or 'center_yxhw'. Received: {value!r}"
        )
