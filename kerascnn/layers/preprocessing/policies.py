"""Layers that choose among several changes of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops, random
from kerascnn.dtypes import is_float
from kerascnn.layers.layer import Layer
from kerascnn.layers.preprocessing.base import (
    INTERPOLATIONS,
    ImagePreprocessing,
    check_choice,
    images_in,
    per_image,
    saved_seed,
)
from kerascnn.layers.preprocessing.histograms import AutoContrast, Equalization
from kerascnn.layers.preprocessing.random_affine import (
    RandomAffine,
    RandomRotation,
    RandomShear,
    RandomTranslation,
)
from kerascnn.layers.preprocessing.random_color import (
    RandomBrightness,
    RandomColorDegeneration,
    RandomContrast,
)
from kerascnn.layers.preprocessing.random_filters import RandomSharpness
from kerascnn.layers.preprocessing.tones import RandomPosterization, Solarization
from kerascnn.ops.image.sampling import affine_pixels
from kerascnn.utils import bounding_boxes as box_utils

_RAND_AUGMENT = (
    "random_shear",
    "random_translation",
    "random_rotation",
    "random_brightness",
    "random_color_degeneration",
    "random_contrast",
    "random_sharpness",
    "random_posterization",
    "solarization",
    "auto_contrast",
    "equalization",
)
_AUG_MIX = (
    "random_shear",
    "random_translation",
    "random_rotation",
    "random_posterization",
    "solarization",
    "auto_contrast",
    "equalization",
)
_AUG_MIX_COLORS = (
    "random_brightness",
    "random_color_degeneration",
    "random_contrast",
    "random_sharpness",
)
_MOVING = ("random_shear", "random_translation", "random_rotation")


class _Policy(ImagePreprocessing):
    """The base of both layers: a list of layers, one of which is applied at a time.

    A step on the device has no branches, so that all of them are computed and one is selected.
    Those that move pixels differ in six numbers only: these are selected, and pixels are moved
    once.
    """

    _factor_bounds = (0, 1)
    _names: tuple[str, ...]

    def _set_policy(
        self, value_range: Any, factor: Any, interpolation: str, seed: Any, names: Sequence[str]
    ) -> None:
        check_choice("interpolation", interpolation, INTERPOLATIONS)
        self._names = tuple(names)
        self.value_range = value_range
        self._set_factor(factor)
        self.interpolation = interpolation
        self._set_seed(seed)
        common = {"data_format": self.data_format, "dtype": self.dtype_policy}
        for name in names:
            setattr(self, name, self._part(name, common))

    def _part(self, name: str, common: dict[str, Any]) -> Layer:
        """Makes one of the layers; it draws from this layer's generator."""
        affine = {**common, "interpolation": self.interpolation}
        color = {**common, "value_range": self.value_range}
        factor = self.factor
        if name == "random_shear":
            return RandomShear(factor, factor, **affine)
        if name == "random_translation":
            return RandomTranslation(factor, factor, **affine)
        if name == "random_rotation":
            return RandomRotation(factor, **affine)
        if name == "random_posterization":
            return RandomPosterization(max(1, int(8 * factor[1])), **color)
        if name == "solarization":
            return Solarization(factor, factor, **color)
        if name == "auto_contrast":
            return AutoContrast(**color)
        if name == "equalization":
            return Equalization(**color)
        kinds: dict[str, Any] = {
            "random_brightness": RandomBrightness,
            "random_color_degeneration": RandomColorDegeneration,
            "random_contrast": RandomContrast,
            "random_sharpness": RandomSharpness,
        }
        return kinds[name](factor, **color)

    def _drawn(self, images: Any, seed: Any) -> dict[str, Any]:
        """Draws what happens to these images in each of the layers."""
        return {
            name: getattr(self, name).get_random_transformation(images, seed=seed)
            for name in self._names
        }

    def _changed(self, images: Any, transformation: Any, is_mask: bool = False) -> Any:
        raise NotImplementedError

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        return self._changed(images, transformation)

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: bool = True
    ) -> Any:
        """Masks that follow where pixels move."""
        if not training or transformation is None:
            return segmentation_masks
        masks = ops.convert_to_tensor(segmentation_masks)
        return self._changed(masks, transformation, is_mask=True)

    def _input_sizes(self, transformation: Any) -> tuple[int, int]:
        name = "random_shear"
        return getattr(self, name)._input_sizes(transformation["transforms"][name])

    def _choices(self, images: Any, shape: tuple[int, ...], count: int, seed: Any) -> Any:
        """Draws numbers below `count`, int32."""
        with self._drawing(images, seed) as generator:
            return random.randint(shape, 0, count, seed=generator)

    def _one_of(
        self,
        images: Any,
        choice: Any,
        transforms: dict[str, Any],
        groups: int = 1,
        is_mask: bool = False,
    ) -> Any:
        """Images (n, ...) that went through the layer of a number; out of range, through none.

        Args:
            images: A batch of images or masks.
            choice: (1,) for all images or (n,), one number for each.
            transforms: What was drawn for each of the layers.
            groups: How many equal parts of the batch are equalized each for itself.
            is_mask: Masks only follow where pixels move.
        """
        result = images
        parts: tuple[Any, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
        moved: Any = None
        for index, name in enumerate(self._names):
            layer, transformation = getattr(self, name), transforms[name]
            chosen = ops.equal(choice, index)
            if isinstance(layer, RandomAffine):
                own, here = layer.parts(images, transformation), ops.reshape(chosen, (-1, 1))
                parts = tuple(
                    b if a is b else ops.where(here, a, b) for a, b in zip(own, parts, strict=True)
                )
                moved = chosen if moved is None else ops.logical_or(moved, chosen)
            elif not is_mask:
                options = {"groups": groups} if name == "equalization" else {}
                changed = layer.transform_images(images, transformation, **options)
                result = ops.where(per_image(chosen), changed, result)
        interpolation = "nearest" if is_mask else self.interpolation
        affine = affine_pixels(images, parts, interpolation, "reflect", 0.0, self.data_format)
        return ops.where(per_image(moved), affine, result)


class RandAugment(_Policy):
    """In training, does some of eleven random changes, drawn anew for each batch.

    These are `RandomShear`, `RandomTranslation`, `RandomRotation`, `RandomBrightness`,
    `RandomColorDegeneration`, `RandomContrast`, `RandomSharpness`, `RandomPosterization`,
    `Solarization`, `AutoContrast` and `Equalization`. How much each of them changes is drawn for
    each image. Outside of training nothing happens.

    Args:
        value_range: The smallest and the largest value of images.
        num_ops: How many changes are done, one after the other.
        factor: How much is changed, from 0 to 1: two bounds, or one number f for 0 to f.
        interpolation: "bilinear" or "nearest".
        seed: An integer for a generator of this layer's own; by default the program's is used.
        data_format: By default the configured one.

    Raises:
        ValueError: for a factor out of range.
        NotImplementedError: for an unknown interpolation.

    Input: (height, width, 3), or with a batch; of any dtype. Boxes follow their images through the
        changes that move pixels.

    Output: The same shape, in the layer's dtype.

    Source: Cubuk et al., "RandAugment: Practical Automated Data Augmentation with a Reduced Search
        Space", 2019.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RandAugment()
    >>> layer(keras.ops.ones((2, 8, 8, 3)), training=True).shape
    (2, 8, 8, 3)
    """

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        num_ops: int = 2,
        factor: Any = 0.5,
        interpolation: str = "bilinear",
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self.num_ops = num_ops
        self._set_policy(value_range, factor, interpolation, seed, _RAND_AUGMENT)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training:
            return None
        images = images_in(data)
        seed = self.generator if seed is None else seed
        return {
            "transforms": self._drawn(images, seed),
            "layer_idxes": self._choices(images, (self.num_ops,), len(self._names), seed),
        }

    def _changed(self, images: Any, transformation: Any, is_mask: bool = False) -> Any:
        choices = transformation["layer_idxes"]
        for i in range(self.num_ops):
            choice = choices[i : i + 1]
            images = self._one_of(images, choice, transformation["transforms"], is_mask=is_mask)
        return images

    def _transform_boxes(self, boxes: Any, transformation: Any) -> Any:
        choices, transforms = transformation["layer_idxes"], transformation["transforms"]
        sizes = self._input_sizes(transformation)
        moving = [(i, name) for i, name in enumerate(self._names) if name in _MOVING]
        for step in range(self.num_ops):
            before = boxes
            for index, name in moving:
                moved = getattr(self, name)._transform_boxes(before, transforms[name])
                boxes = ops.where(ops.equal(choices[step], index), moved, boxes)
            boxes = _inside(boxes, *sizes)
        return boxes

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "value_range": self.value_range,
            "num_ops": self.num_ops,
            "factor": self.factor,
            "interpolation": self.interpolation,
            "seed": saved_seed(self.seed),
        }


class AugMix(_Policy):
    """In training, mixes each image with a mixture of its randomly changed copies.

    Each copy goes through a chain of random changes, those of `RandAugment`, or none in their
    place; which ones is drawn for the batch, how much each of them changes for each image. Outside
    of training nothing happens.

    Args:
        value_range: The smallest and the largest value of images; what comes out is kept in it.
        num_chains: How many changed copies there are of each image.
        chain_depth: How many changes each copy goes through at most.
        factor: How much is changed, from 0 to 1: two bounds, or one number f for 0 to f.
        alpha: Of the Dirichlet and beta distributions from which the shares of the copies and of
            the image itself are drawn.
        all_ops: Whether `RandomBrightness`, `RandomColorDegeneration`, `RandomContrast` and
            `RandomSharpness` are among the changes.
        interpolation: "bilinear" or "nearest".
        seed: An integer for a generator of this layer's own; by default the program's is used.
        data_format: By default the configured one.

    Raises:
        ValueError: for a factor out of range.
        NotImplementedError: for an unknown interpolation.

    Input: (height, width, 3), or with a batch; of any dtype. Memory for `num_chains` batches is
        needed. Boxes stay where the image itself has them.

    Output: The same shape, in the layer's dtype.

    Source: Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and
        Uncertainty", 2020.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.AugMix()
    >>> layer(keras.ops.ones((2, 8, 8, 3)), training=True).shape
    (2, 8, 8, 3)
    """

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        num_chains: int = 3,
        chain_depth: int = 3,
        factor: Any = 0.3,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: str = "bilinear",
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self.num_chains = num_chains
        self.chain_depth = chain_depth
        self.alpha = alpha
        self.all_ops = all_ops
        names = [*_AUG_MIX, *_AUG_MIX_COLORS] if all_ops else _AUG_MIX
        self._set_policy(value_range, factor, interpolation, seed, names)

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: bool = True
    ) -> Any:
        """The boxes as they are, since the image itself is part of the mixture."""
        return bounding_boxes

    def _copies(self, images: Any) -> Any:
        """Repeats a batch once for each chain."""
        return ops.concatenate([images] * self.num_chains, 0)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        """The shares of the copies, and of all of them; and for each depth, what happens to them.

        `layer_idxes` (chains, depth) numbers the layers; the number after the last one is for none.
        """
        if not training:
            return None
        images = ops.convert_to_tensor(images_in(data))
        self._sizes(images)
        copies = self._copies(images if len(images.shape) == 4 else ops.expand_dims(images, 0))
        seed = self.generator if seed is None else seed
        with self._drawing(images, seed) as generator:
            shares = random.gamma((self.num_chains,), self.alpha, seed=generator)
            shares = ops.maximum(shares, 1e-30)  # for a small alpha all shares may be 0
            weight = random.beta((), self.alpha, self.alpha, seed=generator)
        shape = (self.num_chains, self.chain_depth)
        return {
            "chain_mixing_weights": ops.divide(shares, ops.sum(shares)),
            "weight_sample": weight,
            "layer_idxes": self._choices(images, shape, len(self._names) + 1, seed),
            "transforms": [self._drawn(copies, seed) for _ in range(self.chain_depth)],
        }

    def _changed(self, images: Any, transformation: Any, is_mask: bool = False) -> Any:
        batch, chains = images.shape[0], self.num_chains
        copies = self._copies(images)
        choices = transformation["layer_idxes"]
        for depth, transforms in enumerate(transformation["transforms"]):
            choice = ops.repeat(choices[:, depth], batch)
            copies = self._one_of(copies, choice, transforms, chains, is_mask)
        if not is_float(copies.dtype):  # this is true of masks
            images, copies = (ops.cast(x, self.compute_dtype) for x in (images, copies))
        shares, weight = (
            ops.cast(transformation[name], copies.dtype)
            for name in ("chain_mixing_weights", "weight_sample")
        )
        copies = ops.reshape(copies, (chains, *images.shape))
        mixture = ops.sum(ops.multiply(copies, ops.reshape(shares, (-1, 1, 1, 1, 1))), 0)
        rest = ops.subtract(1.0, weight)
        images = ops.add(ops.multiply(weight, images), ops.multiply(rest, mixture))
        if is_mask:
            return images
        return ops.clip(images, float(self.value_range[0]), float(self.value_range[1]))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "value_range": self.value_range,
            "num_chains": self.num_chains,
            "chain_depth": self.chain_depth,
            "factor": self.factor,
            "alpha": self.alpha,
            "all_ops": self.all_ops,
            "interpolation": self.interpolation,
            "seed": saved_seed(self.seed),
        }


def _inside(boxes: Any, height: int, width: int) -> Any:
    """Clips boxes to the image; those outside become a point, and stay one."""
    boxes = box_utils.clip_to_image_size({"boxes": boxes}, height, width)["boxes"]
    there = ops.all(ops.greater(boxes[..., 2:], boxes[..., :2]), -1, keepdims=True)
    return ops.where(there, boxes, 0.0)
