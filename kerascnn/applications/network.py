"""What all architectures share: the checks of arguments, the input, the end, the weights."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kerascnn import activations, config, layers
from kerascnn.applications.imagenet_utils import DEVIATION, MEAN
from kerascnn.applications.published import Weights as PublishedWeights
from kerascnn.applications.published import fetch
from kerascnn.applications.torch_names import Naming
from kerascnn.applications.torch_weights import VARIANTS, load_weights
from kerascnn.models import Model
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.utils import get_source_inputs

# What constructors take as `weights` and `input_shape`.
Weights = str | os.PathLike[str] | None
Shape = Sequence[int | None] | None
IMAGENET_CLASSES = 1000
_POOLING = {"avg": layers.GlobalAveragePooling2D, "max": layers.GlobalMaxPooling2D}


@dataclass
class Network:
    """The arguments that all constructors have, and what is made of them.

    A constructor calls `image`, goes on from there, and returns `model(end(x), image)`.
    """

    include_top: bool
    weights: str | os.PathLike[str] | None
    input_tensor: Any
    input_shape: Sequence[int | None] | None
    pooling: str | None
    classes: int
    classifier_activation: Any
    name: str
    variant: str = "keras"
    _file: str | os.PathLike[str] | None = field(default=None, init=False)

    @property
    def takes_imagenet(self) -> bool:
        """Whether published weights are wanted."""
        return isinstance(self.weights, str) and self.weights == "imagenet"

    def image(
        self,
        size: int,
        published: PublishedWeights | None,
        smallest: int = 32,
        needs_sizes: bool = True,
    ) -> KerasTensor:
        """Checks the arguments and finds the weights; the images that the network takes.

        Args:
            size: Height and width of images where no shape is given.
            published: The files for "imagenet", or None where there are none. They are downloaded
                here, before time is spent on making the network.
            smallest: The least height and width.
            needs_sizes: Whether the classifier needs images of a known size.

        Raises:
            ValueError: for arguments that don't fit together.
            ConnectionError: where weights cannot be downloaded.
        """
        self._check_weights(published is not None)
        if self.variant not in VARIANTS:
            raise ValueError(
                f"{self.name}: `variant` can be {', '.join(map(repr, VARIANTS))}. Received: "
                f"variant={self.variant!r}"
            )
        if not self.include_top and self.pooling not in (None, *_POOLING):
            raise ValueError(
                f"{self.name}: `pooling` can be 'avg', 'max' or None. Received: "
                f"pooling={self.pooling!r}"
            )
        shape = self._shape(size, smallest, needs_sizes and self.include_top)
        image = self._input(shape)
        self._file = self._find(published)
        return image

    def end(
        self, x: KerasTensor, dropout: float = 0.0, is_named: bool = True, **classifier: Any
    ) -> KerasTensor:
        """Average and classifier; or, without a top, the pooling that was asked for.

        Args:
            x: The last features.
            dropout: The rate of a dropout before the classifier.
            is_named: Whether the pooling has a name of its own where there is no top.
            classifier: Further arguments of the classifier.
        """
        if not self.include_top:
            return self.pooled(x, is_named)
        x = layers.GlobalAveragePooling2D(name="avg_pool")(x)
        if dropout > 0:
            x = layers.Dropout(dropout, name="top_dropout")(x)
        return self.classified(x, **classifier)

    def pooled(self, x: KerasTensor, is_named: bool = True) -> KerasTensor:
        """What a network without a classifier returns."""
        if self.pooling is None:
            return x
        return _POOLING[self.pooling](name=f"{self.pooling}_pool" if is_named else None)(x)

    def classified(self, x: KerasTensor, name: str = "predictions", **options: Any) -> KerasTensor:
        """The classifier: a dense layer with the activation that was asked for."""
        options["activation"] = self.checked_activation()
        return layers.Dense(self.classes, name=name, **options)(x)

    def checked_activation(self) -> Any:
        """`classifier_activation`.

        Raises:
            ValueError: for one that weights that are loaded were not trained with.
        """
        usual = (activations.get("softmax"), activations.get(None))
        if self.weights is not None and activations.get(self.classifier_activation) not in usual:
            raise ValueError(
                f"{self.name}: weights that are loaded were trained with softmax, so that "
                "`classifier_activation` can be 'softmax', or None for scores. Received: "
                f"classifier_activation={self.classifier_activation!r}"
            )
        return self.classifier_activation

    def model(self, x: KerasTensor, image: KerasTensor, namings: Sequence[Naming] = ()) -> Model:
        """The network from the inputs of `image` to `x`, with the weights that were asked for.

        Args:
            x: What it returns.
            image: What `image` returned.
            namings: Names in the files of torchvision and timm.
        """
        model = Model(get_source_inputs(image), x, name=self.name)
        if self._file is not None:
            load_weights(model, self._file, namings, self.variant)
        return model

    # Variants -----------------------------------------------------------------------------------

    @property
    def is_of_keras(self) -> bool:
        """Whether the network computes as in Keras, not as in a library of PyTorch."""
        return self.variant == "keras"

    def before_stride(self, x: KerasTensor, kernel_size: int) -> tuple[tuple[int, int], ...]:
        """The zeros around images before a valid convolution of stride 2.

        With those of `halving_padding` Keras' weights were trained. PyTorch puts as many before a
        side as behind it.
        """
        if self.is_of_keras:
            return halving_padding(x, kernel_size)
        return ((kernel_size // 2,) * 2,) * 2

    def prepared(self, x: KerasTensor) -> KerasTensor:
        """Pixels from 0 to 255 as the networks of PyTorch take them."""
        return layers.Normalization(
            axis=channel_axis(),
            mean=[255 * mean for mean in MEAN],
            variance=[(255 * deviation) ** 2 for deviation in DEVIATION],
        )(x)

    def _find(self, published: PublishedWeights | None) -> str | os.PathLike[str] | None:
        """Returns the path of the weights, and downloads them if need be."""
        if not self.takes_imagenet or published is None:
            return self.weights
        file = published.top if self.include_top else published.no_top
        advice = (
            "Download it where there is a network, and put it there or pass its path as `weights`"
        )
        return fetch(file, f"The weights of {self.name}", advice)

    # Checks -------------------------------------------------------------------------------------

    def _check_weights(self, is_published: bool) -> None:
        if self.weights is None:
            return
        if not self.takes_imagenet:
            if not os.path.exists(self.weights):
                raise ValueError(
                    f"{self.name}: `weights` can be None, 'imagenet' or the path of a file. "
                    f"Received: weights={self.weights!r}, and there is no such file"
                )
        elif not self.is_of_keras:
            raise ValueError(
                f"{self.name}: Keras' published weights are for variant='keras'. Pass the path of "
                f"a file of {self.variant} as `weights`, or None. Received: weights='imagenet', "
                f"variant={self.variant!r}"
            )
        elif not is_published:
            raise ValueError(
                f"{self.name}: Keras publishes no weights of this architecture. Pass weights=None "
                "to begin with random ones, or the path of a file. Received: weights='imagenet'"
            )
        elif self.include_top and self.classes != IMAGENET_CLASSES:
            raise ValueError(
                f"{self.name}: the published classifier has {IMAGENET_CLASSES} classes. Pass "
                "include_top=False, and add a classifier of your own. Received: "
                f"weights='imagenet', classes={self.classes}"
            )

    def _shape(self, size: int, smallest: int, needs_sizes: bool) -> tuple[int | None, ...]:
        """Returns the shape of one image."""
        first = config.image_data_format() == "channels_first"
        usual = (3, size, size) if first else (size, size, 3)
        if self.input_shape is None:
            if needs_sizes:
                return usual
            return (3, None, None) if first else (None, None, 3)
        shape = tuple(self.input_shape)
        if len(shape) != 3:
            raise ValueError(
                f"{self.name}: `input_shape` is the shape of one image, such as {usual}. "
                f"Received: input_shape={shape}"
            )
        channels, sides = (shape[0], shape[1:]) if first else (shape[2], shape[:2])
        if self.takes_imagenet and needs_sizes and shape != usual:
            raise ValueError(
                f"{self.name}: with include_top=True and weights='imagenet', `input_shape` is "
                f"{usual}. Received: input_shape={shape}"
            )
        if self.takes_imagenet and channels != 3:
            raise ValueError(
                f"{self.name}: the published weights are for images with 3 channels. Received: "
                f"input_shape={shape}"
            )
        if channels not in (1, 3):
            warnings.warn(
                f"{self.name}: images usually have 1 or 3 channels. Received: input_shape={shape}, "
                f"with {channels} channels",
                stacklevel=5,
            )
        if any(side is not None and side < smallest for side in sides):
            raise ValueError(
                f"{self.name}: images have at least {smallest} x {smallest} pixels. Received: "
                f"input_shape={shape}"
            )
        if needs_sizes and None in shape:
            raise ValueError(
                f"{self.name}: with include_top=True, `input_shape` has no unknown sizes. "
                f"Received: input_shape={shape}"
            )
        return shape

    def _input(self, shape: tuple[int | None, ...]) -> KerasTensor:
        if self.input_tensor is None:
            return layers.Input(shape)
        if not isinstance(self.input_tensor, KerasTensor):
            raise ValueError(
                f"{self.name}: `input_tensor` is what keras.Input or a layer returned. Received: "
                f"{type(self.input_tensor).__name__}. Leave it out, and call the network with that."
            )
        self._check_tensor(shape)
        return self.input_tensor

    def _check_tensor(self, shape: tuple[int | None, ...]) -> None:
        given = tuple(self.input_tensor.shape)
        if len(given) != 4:
            raise ValueError(
                f"{self.name}: `input_tensor` is a batch of images, with 4 axes. Received: a "
                f"tensor of shape {given}"
            )
        if self.input_shape is None:
            return
        pairs = zip(given[1:], shape, strict=True)
        if any(None not in pair and pair[0] != pair[1] for pair in pairs):
            raise ValueError(
                f"{self.name}: `input_shape` is not the shape of `input_tensor`. Received: "
                f"input_shape={shape}, and a tensor of shape {given}"
            )


def channel_axis() -> int:
    """The axis of channels in a batch of images: 3, or 1 with "channels_first" configured."""
    return 1 if config.image_data_format() == "channels_first" else 3


def last_or_first_axis() -> int:
    """The same as `channel_axis`, with -1 for 3: some of Keras' configurations say it so."""
    return 1 if config.image_data_format() == "channels_first" else -1


def channels_of(x: KerasTensor) -> int:
    """How many channels a batch of maps has.

    Raises:
        ValueError: where that is not known.
    """
    channels = x.shape[channel_axis()]
    if channels is None:
        raise ValueError(
            "The number of channels has to be known. Received: images or maps of shape "
            f"{tuple(x.shape)}"
        )
    return channels


def require_channels_last(name: str) -> None:
    """Raises a ValueError where "channels_first" is configured."""
    if config.image_data_format() == "channels_first":
        raise ValueError(
            f"{name} takes images with their channels last. Call "
            "keras.config.set_image_data_format('channels_last')"
        )


def halving_padding(x: KerasTensor, kernel_size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Zeros around images before a valid convolution of stride 2, so that it halves their sides.

    Before an even side there is one zero less, as TensorFlow's `same` has it, with which the
    published weights were trained. A side that is not known counts as even.
    """
    start = 2 if channel_axis() == 1 else 1
    half = kernel_size // 2
    before = [half if (side or 0) % 2 else half - 1 for side in x.shape[start : start + 2]]
    return ((before[0], half), (before[1], half))


def first_convolution(
    network: Network, x: KerasTensor, filters: int, name: str, **options: Any
) -> KerasTensor:
    """A convolution with a window of 3 pixels and stride 2, padded as the variant has it."""
    padding = "same"
    if not network.is_of_keras:
        x, padding = (
            layers.ZeroPadding2D(network.before_stride(x, 3), name=f"{name}_pad")(x),
            "valid",
        )
    return layers.Conv2D(filters, 3, strides=2, padding=padding, name=name, **options)(x)


def multiple_of(value: float, divisor: int = 8) -> int:
    """The nearest multiple of `divisor` that is no more than a tenth below the value."""
    nearest = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < 0.9 * value else nearest


def sides_of(
    shape: Shape, published: Sequence[int], size: int
) -> tuple[int | None, int | None, int]:
    """Rows, columns and default size of networks with published weights for several sizes.

    Args:
        shape: Shape of one image, or None.
        published: The sizes of square images with weights of their own.
        size: The default for others.
    """
    if shape is None or len(shape) != 3:
        return None, None, size
    rows, columns = shape[1:] if channel_axis() == 1 else shape[:2]
    if rows is None or rows != columns or rows not in published:
        return rows, columns, size
    return rows, columns, rows


def warn_of_other_size(sides: tuple[int | None, int | None], published: Sequence[int]) -> None:
    """Says that published weights were trained with images of another size than `sides`."""
    rows, columns = sides
    if None in sides or (rows == columns and rows in published):
        return
    warnings.warn(
        f"Weights are published for square images of a side of {', '.join(map(str, published))}. "
        f"Those for {published[-1]} are loaded for images of {rows} x {columns}.",
        stacklevel=3,
    )
