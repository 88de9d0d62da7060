"""Images mixed with other images of their batch, and their labels likewise."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import ops, random
from kerascnn.dtypes import is_float
from kerascnn.layers.preprocessing.base import (
    ImagePreprocessing,
    images_in,
    per_image,
    saved_seed,
)
from kerascnn.utils import bounding_boxes as box_utils


class _Mixing(ImagePreprocessing):
    """Pairs each image with another one; its label gets a share of that one's."""

    def _partners(self, images: Any, seed: Any) -> Any:
        """Draws a random order of the batch, (n,)."""
        order = np.arange(self._sizes(images)[0], dtype="int32")
        with self._drawing(images, seed) as generator:
            return random.shuffle(order, seed=generator)

    def transform_labels(self, labels: Any, transformation: Any, training: bool = True) -> Any:
        """A weighted mean of two labels, in floating point: (n, classes), one-hot labels say.

        Raises:
            ValueError: for labels that are numbers of classes, (n,).
        """
        if not training or transformation is None:
            return labels
        labels = ops.convert_to_tensor(labels)
        if len(labels.shape) < 2:
            raise ValueError(
                f"{type(self).__name__} mixes labels of shape (batch, classes), such as those of "
                f"`utils.to_categorical`. Received: labels.shape={tuple(labels.shape)}"
            )
        if not is_float(labels.dtype):
            labels = ops.cast(labels, self.compute_dtype)
        weight = ops.reshape(transformation["mix_weight"], (-1, *[1] * (len(labels.shape) - 1)))
        return _mixed(labels, weight, transformation["permutation_order"])


def _mixed(values: Any, weight: Any, order: Any) -> Any:
    """Mixes a share of each value with the rest of its partner's."""
    weight = ops.cast(weight, values.dtype)
    others = ops.take(values, order, 0)
    return ops.add(ops.multiply(weight, values), ops.multiply(ops.subtract(1.0, weight), others))


class MixUp(_Mixing):
    """In training, mixes each image and its label with another one of the batch.

    Outside of training nothing happens. Where a model's input has no labels, as in `fit`, the layer
    belongs into what makes the batches, or into a `train_step` as below: it is traced, so that
    images are mixed on the device.

    Args:
        alpha: Weights are drawn from a beta distribution with this for both of its parameters: the
            smaller, the less is mixed.
        data_format: By default the configured one.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for labels that are numbers of classes; `utils.to_categorical` makes others.

    Input: {"images": (n, height, width, channels), "labels": (n, classes)}, and maybe
        "segmentation_masks". Images alone are taken too, without their labels.

    Output: The same, images in the layer's dtype.

    Source: Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018.

    Example:

    >>> import kerascnn as keras
    >>> data = {"images": keras.ops.ones((2, 8, 8, 3)), "labels": keras.ops.eye(2)}
    >>> mixed = keras.layers.MixUp(0.5)(data, training=True)
    >>> mixed["labels"].numpy().sum(1).tolist()
    [1.0, 1.0]

    >>> class Mixing(keras.Sequential):
    ...     mix_up = keras.layers.MixUp(0.5)
    ...
    ...     def train_step(self, data):
    ...         images, labels = data
    ...         mixed = self.mix_up({"images": images, "labels": labels}, training=True)
    ...         return super().train_step((mixed["images"], mixed["labels"]))
    >>> model = Mixing([keras.layers.Flatten(), keras.layers.Dense(2)])
    >>> model.compile("sgd", "mse")
    >>> history = model.fit(data["images"], data["labels"], verbose=0)
    """

    def __init__(
        self, alpha: float = 0.2, data_format: str | None = None, seed: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self.alpha = alpha
        self._set_seed(seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training:
            return None
        images = images_in(data)
        with self._drawing(images, seed) as generator:
            weight = random.beta((self._sizes(images)[0],), self.alpha, self.alpha, seed=generator)
        return {"mix_weight": weight, "permutation_order": self._partners(images, seed)}

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        images = ops.convert_to_tensor(images)
        if not is_float(images.dtype):  # this is true of masks
            images = ops.cast(images, self.compute_dtype)
        weight = per_image(transformation["mix_weight"])
        return _mixed(images, weight, transformation["permutation_order"])

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: bool = True
    ) -> Any:
        """Each image's boxes, followed by those of the image that is mixed into it."""
        if not training or transformation is None:
            return bounding_boxes
        order = transformation["permutation_order"]
        return {
            key: ops.concatenate([values, ops.take(values, order, 0)], 1)
            for key, values in bounding_boxes.items()
        }

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "alpha": self.alpha, "seed": saved_seed(self.seed)}


class CutMix(_Mixing):
    """In training, replaces a random rectangle of each image by that of another one of the batch.

    Labels are mixed by the share of the rectangle. Outside of training nothing happens, nor with
    one image without a batch. How to use it in `fit` is said at `MixUp`.

    Args:
        factor: Two numbers from 0 to 1 between which the parameter of a beta distribution is
            drawn for the batch, or one number f for 0 to f; the share that is kept of each image is
            drawn from that distribution.
        seed: An integer for a generator of this layer's own; by default the program's is used.
        data_format: By default the configured one.

    Raises:
        ValueError: for a factor out of range, or labels that are numbers of classes;
            `utils.to_categorical` makes others.

    Input: {"images": (n, height, width, channels), "labels": (n, classes)}, and maybe
        "segmentation_masks" and "bounding_boxes". Images alone are taken too, without their labels.

    Output: The same, images in the layer's dtype; boxes of both images, around what is seen of
        them.

    Source: Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with
        Localizable Features", 2019.

    Example:

    >>> import kerascnn as keras
    >>> data = {"images": keras.ops.ones((2, 8, 8, 3)), "labels": keras.ops.eye(2)}
    >>> mixed = keras.layers.CutMix()(data, training=True)
    >>> mixed["labels"].numpy().sum(1).round(3).tolist()
    [1.0, 1.0]
    """

    _factor_bounds = (0, 1)

    def __init__(
        self, factor: Any = 1.0, seed: Any = None, data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._set_factor(factor)
        self._set_seed(seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        images = images_in(data)
        if not training or len(images.shape) == 3:
            return None
        batch, height, width = self._sizes(images)
        dtype = self.compute_dtype
        alpha = ops.add(self._uniform(images, (), *self.factor, dtype, seed), 1e-6)
        with self._drawing(images, seed) as generator:
            kept = random.beta((batch,), alpha, alpha, dtype, generator)
        part = ops.sqrt(ops.subtract(1.0, kept))
        columns, cut_width = self._span(images, part, width, self.width_axis, seed)
        rows, cut_height = self._span(images, part, height, self.height_axis, seed)
        area = ops.multiply(per_image(cut_width), per_image(cut_height))
        return {
            "permutation_order": self._partners(images, seed),
            "batch_masks": ops.logical_and(rows, columns),
            "mix_weight": ops.subtract(1.0, ops.divide(area, float(height * width))),
        }

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        others = ops.take(images, transformation["permutation_order"], 0)
        return ops.where(transformation["batch_masks"], others, images)

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: bool = True
    ) -> Any:
        """Masks cut as their images are, in the layer's dtype."""
        return self.transform_images(segmentation_masks, transformation, training)

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: bool = True
    ) -> Any:
        """Boxes around what is seen of an image's things, followed by those of its other part.

        Labels of boxes of which nothing is seen become -1.

        Args:
            bounding_boxes: {"boxes": (n, k, 4), "labels": (n, k)} in the layer's format.
            transformation: What `get_random_transformation` drew.
            training: Whether something happens to them.

        Returns:
            Boxes (n, 2 k, 4) and labels (n, 2 k).
        """
        if not training or transformation is None:
            return bounding_boxes
        masks = transformation["batch_masks"]
        sizes = masks.shape[self.height_axis], masks.shape[self.width_axis]
        own, pixels = self.bounding_box_format or "xyxy", "xyxy"
        found = box_utils.convert_format(bounding_boxes, own, pixels, *sizes)
        found["boxes"] = _on_pixels(found["boxes"])
        inside = ops.any(masks, self.channel_axis)
        cut = [*box_utils.extent(ops.any(inside, 1)), *box_utils.extent(ops.any(inside, 2))]
        left, right, top, bottom = (ops.cast(x, found["boxes"].dtype)[:, None] for x in cut)
        order = transformation["permutation_order"]
        others = {key: ops.take(values, order, 0) for key, values in found.items()}
        others["boxes"] = _common_part(others["boxes"], left, top, right, bottom)
        found["boxes"] = _rest_around(found["boxes"], left, top, right, bottom)
        joined = {key: ops.concatenate([found[key], others[key]], 1) for key in found}
        joined = box_utils.clip_to_image_size(joined, *sizes)
        return box_utils.convert_format(joined, pixels, own, *sizes)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "factor": self.factor, "seed": saved_seed(self.seed)}


def _on_pixels(boxes: Any) -> Any:
    """Corners that rounding has moved off a pixel's border, put back on it.

    The rectangle's sides are borders of pixels. A box that ends at one of them must neither keep a
    sliver nor count as reaching beyond it because its coordinates were relative.
    """
    borders = ops.round(boxes)
    return ops.where(ops.abs(boxes - borders) < 1e-3, borders, boxes)


def _common_part(boxes: Any, left: Any, top: Any, right: Any, bottom: Any) -> Any:
    """Intersects boxes (n, k, 4) with one rectangle for each image, (n, 1)."""
    first = ops.maximum(boxes[..., :2], ops.stack([left, top], -1))
    last = ops.minimum(boxes[..., 2:], ops.stack([right, bottom], -1))
    return ops.concatenate([first, ops.maximum(first, last)], -1)


def _rest_around(boxes: Any, left: Any, top: Any, right: Any, bottom: Any) -> Any:
    """Returns the boxes around what a rectangle leaves of boxes (n, k, 4)."""
    x1, y1, x2, y2 = (boxes[..., i] for i in range(4))
    meets = (left < x2) & (right > x1) & (top < y2) & (bottom > y1)
    # true where the rectangle covers whole columns of the box
    columns = meets & (top <= y1) & (bottom >= y2)
    rows = meets & (left <= x1) & (right >= x2)
    new_x1 = ops.where(columns & (left <= x1), ops.minimum(right, x2), x1)
    new_x2 = ops.where(columns & (right >= x2), ops.maximum(left, new_x1), x2)
    new_y1 = ops.where(rows & (top <= y1), ops.minimum(bottom, y2), y1)
    new_y2 = ops.where(rows & (bottom >= y2), ops.maximum(top, new_y1), y2)
    return ops.stack([new_x1, new_y1, new_x2, new_y2], -1)
