"""The base of layers that prepare images."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kerascnn import _core, config, ops, random, tracing
from kerascnn.device import device as on_device
from kerascnn.layers.layer import Layer
from kerascnn.ops.image import spatial_axes
from kerascnn.symbolic import inference
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.utils import bounding_boxes as box_utils

FILL_MODES = ("reflect", "wrap", "constant", "nearest")
INTERPOLATIONS = ("nearest", "bilinear")


def factor_range(
    value: Any, lowest: float, highest: float, message: str, open_below: bool = False
) -> tuple[float, float]:
    """A factor given as a number, for both directions, or as two bounds, all in a range.

    Raises:
        ValueError: for anything else.
    """
    is_pair = isinstance(value, (tuple, list))
    values = list(value) if is_pair else [value]
    for x in values:
        known = isinstance(x, (int, float))
        if not known or x > highest or x < lowest or (open_below and x == lowest):
            raise ValueError(message)
    if not is_pair:
        return -abs(value), abs(value)
    if len(values) != 2:
        raise ValueError(message)
    lower, upper = sorted(values)
    return lower, upper


def factor_overlapping(value: Any, lowest: float, highest: float, name: str) -> tuple[float, float]:
    """A factor given as a number in a range, or as two bounds that overlap with it.

    Raises:
        ValueError: for anything else.
    """
    message = (
        f"The `{name}` argument should be a number (or a list of two numbers) in the range "
        f"[{lowest}, {highest}]. Received: {name}={value}"
    )
    if not isinstance(value, (tuple, list)):
        lower, upper = factor_range(value, lowest, highest, message)
        return max(lower, lowest), upper
    if len(value) != 2 or value[0] > highest or value[1] < lowest:
        raise ValueError(message)
    lower, upper = sorted(value)
    return lower, upper


def sorted_value_range(value_range: Any) -> list[float]:
    """The range of an image's values, smaller number first.

    Raises:
        ValueError: for anything but a pair.
    """
    if not isinstance(value_range, (tuple, list)) or len(value_range) != 2:
        raise ValueError(
            "The `value_range` argument should be a list of two numbers. Received: "
            f"value_range={value_range}"
        )
    return sorted(value_range)


def to_range(images: Any, original: Sequence[float], target: Sequence[float]) -> Any:
    """Maps values of one range to another range."""
    if original[0] == target[0] and original[1] == target[1]:
        return images
    low, high = float(original[0]), float(original[1])
    shares = ops.divide(ops.subtract(images, low), high - low)
    return ops.add(ops.multiply(shares, float(target[1]) - target[0]), float(target[0]))


def check_choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    """As Keras does, raises a NotImplementedError for an unknown name."""
    if value not in known:
        raise NotImplementedError(f"Unknown `{name}` {value}. Expected of one {known}.")


class ImagePreprocessing(Layer):
    """Base of the layers that prepare images, at random in training or always in the same way.

    Takes one image (height, width, channels), a batch of them, or a dictionary of "images",
    "labels", "segmentation_masks" and "bounding_boxes": {"boxes": (n, k, 4), "labels": (n, k)}.
    `get_random_transformation` draws what happens to each image, and `transform_images` and similar
    methods do it. They run on the device, inside the compiled step.

    Args:
        bounding_box_format: The format of boxes, where there are any; see
            `keras.utils.bounding_boxes.convert_format`.
        data_format: By default the configured one.
    """

    _factor_bounds: tuple[float, float] = (-1, 1)
    # If true, segmentation masks follow their images. If false, only values change.
    _moves_pixels = True
    _needs_format = True  # applies if there are boxes
    factor: tuple[float, float]
    interpolation = "bilinear"
    generator: random.SeedGenerator | None = None

    def __init__(
        self, bounding_box_format: Any = None, data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.bounding_box_format: str | None = None
        if bounding_box_format is not None:
            self.bounding_box_format = box_utils.checked_format(bounding_box_format)
        self.data_format = config.standardize_data_format(data_format)
        self.height_axis, self.width_axis = spatial_axes(self.data_format)

    def _set_factor(self, factor: Any) -> None:
        self.factor = factor_overlapping(factor, *self._factor_bounds, "factor")

    def _set_seed(self, seed: Any) -> None:
        """Gives the layer its own generator if there is a seed; otherwise it uses the program's."""
        self.seed = seed
        if seed is not None:
            own = isinstance(seed, random.SeedGenerator)
            self.generator = seed if own else random.SeedGenerator(seed)

    @property
    def channel_axis(self) -> int:
        """The axis of the channels, counted from the end."""
        return -1 if self.data_format == "channels_last" else -3

    @contextlib.contextmanager
    def _drawing(self, images: Any, seed: Any) -> Iterator[Any]:
        """Yields the generator to draw from, on the device of the images."""
        generator = self.generator if seed is None else seed
        if tracing.current() is not None or not isinstance(images, _core.Tensor):
            yield generator
            return
        if isinstance(generator, random.SeedGenerator):
            generator.state_on(images.device)
        with on_device(images.device):
            yield generator

    def _uniform(
        self,
        images: Any,
        shape: tuple[int, ...],
        low: float = 0.0,
        high: float = 1.0,
        dtype: Any = None,
        seed: Any = None,
    ) -> Any:
        """Draws numbers uniformly from [low, high) on the device of the images."""
        with self._drawing(images, seed) as generator:
            return random.uniform(shape, low, high, dtype, generator)

    def _chosen(self, images: Any, factor: tuple[float, float], seed: Any) -> Any:
        """Draws which images change, (n,), with a probability that is drawn from a factor."""
        shape = (self._sizes(images)[0],)
        probability = self._uniform(images, shape, *factor, seed=seed)
        return ops.less(self._uniform(images, shape, seed=seed), probability)

    def _span(self, images: Any, part: Any, size: int, axis: int, seed: Any) -> tuple[Any, Any]:
        """A part of an axis, (n,), at a random place: where it is, and how long.

        Returns:
            Booleans (n, 1, size, 1) or their like, and lengths (n,).
        """
        dtype = self.compute_dtype
        length = ops.multiply(part, float(size))
        start = self._uniform(images, tuple(part.shape), 0.0, 1.0, dtype, seed)
        start = ops.multiply(start, ops.subtract(float(size), length))
        first, end = per_image(start), per_image(ops.add(start, length))
        shape = [1, 1, 1, 1]
        shape[axis] = size
        places = ops.cast(np.arange(size, dtype="float32").reshape(shape), dtype)
        return ops.logical_and(ops.greater_equal(places, first), ops.less(places, end)), length

    def _sizes(self, images: Any) -> tuple[int, int, int]:
        """Returns the number of images (1 for one without a batch), their height and width."""
        shape = images.shape
        if len(shape) not in (3, 4):
            raise ValueError(
                "Expected image tensor to have rank 3 (single image) or 4 (batch of images). "
                f"Received: data.shape={tuple(shape)}"
            )
        batch = shape[0] if len(shape) == 4 else 1
        return batch, shape[self.height_axis], shape[self.width_axis]

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        """Draws what happens to these images.

        Args:
            data: Images, or a dictionary with them.
            training: Outside of training there is nothing random.
            seed: A SeedGenerator or an integer; by default the layer's own generator.
        """
        return None

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not implement transform_images.")

    def transform_images(self, images: Any, transformation: Any, training: bool = True) -> Any:
        """A batch of images with a transformation done to it."""
        images = ops.cast(images, self.compute_dtype)
        if not training or transformation is None:
            return images
        return self._transform_images(images, transformation, self.interpolation)

    def transform_labels(self, labels: Any, transformation: Any, training: bool = True) -> Any:
        """The labels, which stay as they are."""
        return labels

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: bool = True
    ) -> Any:
        """Masks that follow their images; what lies between two pixels takes the nearer one.

        They stay as they are where only the images' values change.
        """
        if not training or transformation is None or not self._moves_pixels:
            return segmentation_masks
        return self._transform_images(segmentation_masks, transformation, "nearest")

    def _input_sizes(self, transformation: Any) -> tuple[int, int]:
        """Returns height and width of the images for which a transformation was drawn."""
        shape = transformation["input_shape"]
        return shape[self.height_axis], shape[self.width_axis]

    def _output_sizes(self, transformation: Any) -> tuple[int, int]:
        return self._input_sizes(transformation)

    def _transform_boxes(self, boxes: Any, transformation: Any) -> Any:
        """Applies a transformation to boxes (n, k, 4) in pixels, "xyxy"."""
        raise NotImplementedError

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: bool = True
    ) -> Any:
        """Boxes that follow their images, cut at the borders; labels of lost ones become -1.

        Args:
            bounding_boxes: {"boxes": (n, k, 4), "labels": (n, k)} in the layer's format.
            transformation: What `get_random_transformation` drew.
            training: Whether something happens to them.
        """
        if not training or transformation is None or not self._moves_pixels:
            return bounding_boxes
        if type(self)._transform_boxes is ImagePreprocessing._transform_boxes:
            raise NotImplementedError(
                f"{type(self).__name__} does not know where bounding boxes go: leave them out, or "
                "use another layer."
            )
        own, pixels = self.bounding_box_format or "xyxy", "xyxy"
        before, after = self._input_sizes(transformation), self._output_sizes(transformation)
        found = box_utils.convert_format(bounding_boxes, own, pixels, *before)
        found["boxes"] = self._transform_boxes(found["boxes"], transformation)
        found = box_utils.clip_to_image_size(found, *after)
        return box_utils.convert_format(found, pixels, own, *after)

    def transform_single_bounding_box(
        self, bounding_box: Any, transformation: Any, training: bool = True
    ) -> Any:
        """As `transform_bounding_boxes`, for the boxes of one image without a batch."""
        batch = {key: ops.expand_dims(value, 0) for key, value in bounding_box.items()}
        found = self.transform_bounding_boxes(batch, transformation, training=training)
        return {key: ops.squeeze(value, 0) for key, value in found.items()}

    def _checked_boxes(self, boxes: Any) -> Any:
        name = type(self).__name__
        if self._needs_format and self.bounding_box_format is None:
            raise ValueError(
                "You passed an input with a 'bounding_boxes' key, but you didn't specify a "
                f"bounding box format. Pass a `bounding_box_format` argument to your {name} layer, "
                "e.g. `bounding_box_format='xyxy'`."
            )
        if not isinstance(boxes, dict) or not {"boxes", "labels"} <= boxes.keys():
            raise ValueError(
                f"{name}: `bounding_boxes` must be a dictionary with the keys 'boxes' and "
                f"'labels'. Received: {type(boxes).__name__}"
            )
        return boxes

    def transform_single_image(self, image: Any, transformation: Any, training: bool = True) -> Any:
        """As `transform_images`, for one image without a batch."""
        images = ops.expand_dims(image, 0)
        return ops.squeeze(self.transform_images(images, transformation, training=training), 0)

    def transform_single_label(self, label: Any, transformation: Any, training: bool = True) -> Any:
        """As `transform_labels`, for one label without a batch."""
        labels = ops.expand_dims(label, 0)
        return ops.squeeze(self.transform_labels(labels, transformation, training=training), 0)

    def transform_single_segmentation_mask(
        self, segmentation_mask: Any, transformation: Any, training: bool = True
    ) -> Any:
        """As `transform_segmentation_masks`, for one mask without a batch."""
        masks = ops.expand_dims(segmentation_mask, 0)
        masks = self.transform_segmentation_masks(masks, transformation, training=training)
        return ops.squeeze(masks, 0)

    def call(self, data: Any, training: bool = True) -> Any:
        images = images_in(data)
        self._sizes(images)
        transformation = self.get_random_transformation(data, training=training)
        single = len(images.shape) == 3
        name = "single_image" if single else "images"
        transformed = getattr(self, f"transform_{name}")(images, transformation, training=training)
        if not isinstance(data, dict):
            return transformed
        results = {**data, "images": transformed}
        if "bounding_boxes" in data:
            boxes = self._checked_boxes(data["bounding_boxes"])
            name = "single_bounding_box" if single else "bounding_boxes"
            transform = getattr(self, f"transform_{name}")
            results["bounding_boxes"] = transform(boxes, transformation, training=training)
        for key in ("labels", "segmentation_masks"):
            if key in data:
                name = f"single_{key[:-1]}" if single else key
                transform = getattr(self, f"transform_{name}")
                results[key] = transform(data[key], transformation, training=training)
        return results

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def _output_dtype(self, dtype: str) -> str:
        """Returns the dtype of the results for images of a dtype."""
        return self.compute_dtype

    def compute_output_spec(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(data, dict):
            return inference.infer(self.call, (data, *args), kwargs)
        shape = self.compute_output_shape(data.shape)
        return KerasTensor(shape, self._output_dtype(data.dtype))

    def get_config(self) -> dict[str, Any]:
        own = {"data_format": self.data_format}
        if self.bounding_box_format is not None:
            own["bounding_box_format"] = self.bounding_box_format
        return {**super().get_config(), **own}

    def _shape_with_sizes(self, input_shape: Any, height: int, width: int) -> tuple[Any, ...]:
        """Returns a shape of one or several images with new sizes."""
        shape = list(input_shape)
        if len(shape) not in (3, 4) or isinstance(shape[0], (list, tuple)):
            raise ValueError(
                "`input_shape` must be a non-nested tuple or list of rank-1 with size 3 "
                f"(unbatched) or 4 (batched). Received: input_shape={input_shape}"
            )
        shape[self.height_axis] = height
        shape[self.width_axis] = width
        return tuple(shape)


class ColorPreprocessing(ImagePreprocessing):
    """Base of the layers that change the values of images by a random factor for each of them."""

    _moves_pixels = False
    value_range: Sequence[float]

    def _set_all(self, factor: Any, value_range: Any, seed: Any) -> None:
        self._set_factor(factor)
        self.value_range = sorted_value_range(value_range)
        self._set_seed(seed)

    def _clipped(self, images: Any) -> Any:
        return ops.clip(images, float(self.value_range[0]), float(self.value_range[1]))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "factor": self.factor,
            "value_range": self.value_range,
            "seed": saved_seed(self.seed),
        }


def images_in(data: Any) -> Any:
    """Returns the images: all that a layer was given, or one entry of a dictionary."""
    return data["images"] if isinstance(data, dict) else data


def per_image(values: Any) -> Any:
    """Reshapes one number for each image, (n,), to broadcast with (n, ..., ..., ...)."""
    return ops.reshape(values, (-1, 1, 1, 1))


def saved_seed(seed: Any) -> int | None:
    """Returns a seed in the form that configurations hold."""
    return seed if isinstance(seed, int) else None
