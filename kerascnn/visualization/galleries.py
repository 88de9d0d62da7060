"""Draws many images in one figure, by Matplotlib."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from kerascnn.visualization.drawing import (
    _array,
    batch_of,
    draw_bounding_boxes,
    draw_segmentation_masks,
)

Range = tuple[float, float]


def _matplotlib(name: str) -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            f"{name} needs the package Matplotlib: pip install matplotlib."
        ) from error
    return pyplot


def plot_image_gallery(
    images: Any,
    y_true: Any = None,
    y_pred: Any = None,
    label_map: Mapping[int, str] | None = None,
    rows: int | None = None,
    cols: int | None = None,
    value_range: Range = (0, 255),
    scale: float = 2,
    path: str | os.PathLike[str] | None = None,
    show: bool | None = None,
    transparent: bool = True,
    dpi: int = 60,
    legend_handles: Any = None,
    data_format: str | None = None,
) -> None:
    """Images in rows, with their classes above them.

    Args:
        images: (batch, height, width, channels).
        y_true: Classes as numbers.
        y_pred: Classes that a model says.
        label_map: Names of classes, needed where there are any.
        rows: By default about as many as columns.
        cols: By default as many as the images need.
        value_range: What black and white are in the images.
        scale: Size of each image, in inches.
        path: A file to write, in place of showing the picture.
        show: Whether to show it; by default where no `path` is given.
        transparent: Whether the file's background is.
        dpi: Dots per inch of the file.
        legend_handles: What Matplotlib puts into a legend.
        data_format: By default `keras.config.image_data_format()`.

    Raises:
        ValueError: for images without four axes, `path` together with `show`, and classes without
            their names.
        ImportError: where Matplotlib is missing.

    Example:

    >>> import os
    >>> import kerascnn as keras
    >>> (images, labels), _ = keras.datasets.digits.load_data()
    >>> names = {digit: str(digit) for digit in range(10)}
    >>> keras.visualization.plot_image_gallery(
    ...     images[:4, ..., None], y_true=labels[:4], label_map=names, path="digits.png"
    ... )
    >>> os.path.getsize("digits.png") > 0
    True
    """
    pyplot = _matplotlib("plot_image_gallery")
    if path is not None and show:
        raise ValueError("Give `path`, or show=True, not both.")
    if (y_true is not None or y_pred is not None) and label_map is None:
        raise ValueError("`y_true` and `y_pred` need a `label_map` with the names of classes.")
    pixels = batch_of(images, data_format)
    rows = rows or math.ceil(math.sqrt(len(pixels)))
    cols = cols or math.ceil(len(pixels) / rows)
    low, high = value_range
    pixels = (pixels.astype("float64") - low) * (255 / (high - low))
    pixels = np.clip(pixels, 0, 255).astype("uint8")
    figure, axes = pyplot.subplots(
        nrows=rows,
        ncols=cols,
        figsize=(cols * scale, rows * scale),
        frameon=False,
        layout="tight",
        squeeze=False,
    )
    if legend_handles is not None:
        figure.legend(handles=legend_handles, loc="lower center")
    known = {
        what: _array(labels)
        for what, labels in (("Label", y_true), ("Pred", y_pred))
        if labels is not None
    }
    for index, axis in enumerate(axes.flat):
        axis.axis("off")
        if index >= len(pixels):
            continue
        axis.imshow(pixels[index], cmap="gray" if pixels.shape[-1] == 1 else None)
        title = [
            f"{what}: {(label_map or {}).get(int(labels[index]), 'Unknown')}"
            for what, labels in known.items()
            if index < len(labels)
        ]
        axis.set_title("  ".join(title), fontsize=8)
    if path is not None:
        figure.savefig(path, pad_inches=0, bbox_inches="tight", transparent=transparent, dpi=dpi)
    elif show is None or show:
        pyplot.show()
    if path is not None or show is None or show:
        pyplot.close(figure)


def plot_bounding_box_gallery(
    images: Any,
    bounding_box_format: str,
    y_true: Mapping[str, Any] | None = None,
    y_pred: Mapping[str, Any] | None = None,
    value_range: Range = (0, 255),
    true_color: tuple[int, int, int] = (0, 188, 212),
    pred_color: tuple[int, int, int] = (255, 235, 59),
    line_thickness: int = 2,
    font_scale: float = 1.0,
    text_thickness: int | None = None,
    class_mapping: Mapping[int, str] | None = None,
    ground_truth_mapping: Mapping[int, str] | None = None,
    prediction_mapping: Mapping[int, str] | None = None,
    legend: bool = False,
    legend_handles: Any = None,
    rows: int | None = None,
    cols: int | None = None,
    data_format: str | None = None,
    **kwargs: Any,
) -> None:
    """Images in rows, with true boxes and those of a model.

    Args:
        images: (batch, height, width, 3).
        bounding_box_format: See `draw_bounding_boxes`.
        y_true: True boxes; see there.
        y_pred: Boxes of a model.
        value_range: What black and white are in the images.
        true_color: Red, green and blue of true boxes.
        pred_color: Those of a model's.
        line_thickness: See `draw_bounding_boxes`.
        font_scale: See there.
        text_thickness: See there; by default as `line_thickness`.
        class_mapping: Names of classes.
        ground_truth_mapping: Those of true boxes, where they are others.
        prediction_mapping: Those of a model's, where they are others.
        legend: Whether a legend says which boxes are which.
        legend_handles: Another legend, of Matplotlib's patches.
        rows: See `plot_image_gallery`.
        cols: See there.
        data_format: By default `keras.config.image_data_format()`.
        **kwargs: For `plot_image_gallery`.

    Raises:
        ValueError: for images without four axes, and `legend` together with `legend_handles`.
        ImportError: where Matplotlib or Pillow is missing.

    Example:

    >>> import os
    >>> import kerascnn as keras
    >>> import numpy as np
    >>> boxes = {"boxes": np.array([[[2.0, 2.0, 10.0, 8.0]]]), "labels": np.array([[0]])}
    >>> keras.visualization.plot_bounding_box_gallery(
    ...     np.zeros((1, 16, 16, 3)), "xyxy", y_true=boxes, path="boxes.png"
    ... )
    >>> os.path.getsize("boxes.png") > 0
    True
    """
    _matplotlib("plot_bounding_box_gallery")
    from matplotlib import patches

    if legend and legend_handles:
        raise ValueError("Give `legend` or `legend_handles`, not both.")
    pixels = batch_of(images, data_format)
    groups = (
        ("Ground Truth", y_true, true_color, ground_truth_mapping),
        ("Prediction", y_pred, pred_color, prediction_mapping),
    )
    for _, boxes, color, names in groups:
        if boxes is not None:
            pixels = draw_bounding_boxes(
                pixels,
                boxes,
                bounding_box_format,
                names or class_mapping,
                color,
                line_thickness,
                text_thickness or line_thickness,
                font_scale,
                "channels_last",
            )
            value_range = (0, 255)  # drawing returns this range
    if legend:
        legend_handles = [
            patches.Patch(color=np.array(color) / 255, label=label) for label, _, color, _ in groups
        ]
    plot_image_gallery(
        pixels,
        value_range=value_range,
        legend_handles=legend_handles,
        rows=rows,
        cols=cols,
        data_format="channels_last",
        **kwargs,
    )


def plot_segmentation_mask_gallery(
    images: Any,
    num_classes: int,
    value_range: Range = (0, 255),
    y_true: Any = None,
    y_pred: Any = None,
    color_mapping: Mapping[int, Any] | None = None,
    blend: bool = True,
    alpha: float = 0.8,
    ignore_index: int = -1,
    data_format: str | None = None,
    **kwargs: Any,
) -> None:
    """A row for each image: the image, with its true mask, and with that of a model.

    Args:
        images: (batch, height, width, 3).
        num_classes: See `draw_segmentation_masks`.
        value_range: What black and white are in the images.
        y_true: True masks; see there.
        y_pred: Masks of a model.
        color_mapping: See `draw_segmentation_masks`.
        blend: See there.
        alpha: See there.
        ignore_index: See there.
        data_format: By default `keras.config.image_data_format()`.
        **kwargs: For `plot_image_gallery`.

    Raises:
        ValueError: for images without four axes.
        ImportError: where Matplotlib is missing.

    Example:

    >>> import os
    >>> import kerascnn as keras
    >>> import numpy as np
    >>> masks = np.zeros((1, 16, 16, 1), int)
    >>> keras.visualization.plot_segmentation_mask_gallery(
    ...     np.zeros((1, 16, 16, 3)), num_classes=2, y_true=masks, path="masks.png"
    ... )
    >>> os.path.getsize("masks.png") > 0
    True
    """
    pixels = batch_of(images, data_format)
    columns = [pixels]
    for masks in (y_true, y_pred):
        if masks is None:
            continue
        numbers = _array(masks).astype("int32")
        if numbers.ndim == 4:
            numbers = batch_of(numbers, data_format)
        columns.append(
            draw_segmentation_masks(
                pixels,
                numbers,
                num_classes,
                color_mapping,
                alpha,
                blend,
                ignore_index,
                "channels_last",
            )
        )
    gallery = np.stack(columns, axis=1).reshape(-1, *pixels.shape[1:])
    plot_image_gallery(
        gallery,
        rows=len(pixels),
        cols=len(columns),
        value_range=value_range,
        data_format="channels_last",
        **kwargs,
    )
