"""The part of their docstrings that all constructors share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_TEXT = """{summary}

    The network takes batches of images of {size} x {size} pixels, or of other sizes from
    {smallest} x {smallest}{sizes}. The pixels are {pixels}.

    Args:
        include_top: Whether the network ends with its classifier.
        weights: {weights}
        input_tensor: What `keras.Input` or a layer returned, to compute from.
        input_shape: Shape of one image, by default ({size}, {size}, 3); without a classifier, sizes
            may be None, and are by default {default}. With "channels_first" configured, the
            channels come first.
        pooling: Without a classifier, how the last features become one vector: "avg" (mean over all
            places), "max", or None for {features}.
        classes: How many classes the classifier has.
        classifier_activation: The activation of the classifier, by name or a function; None for
            scores.
        name: The model's name.{options}

    Returns:
        A functional `keras.Model` from images (n, height, width, 3) to (n, classes), or without a
        classifier to features.

    Raises:
        ValueError: for shapes and sizes that are too small or don't fit, for `weights` that are
            neither known nor a file, and for other `classes` or activations than published weights
            were trained for.
        ConnectionError: where published weights are not in the cache and cannot be downloaded.

    Source: {paper}

{example}
    """

_PUBLISHED = """"imagenet" (downloaded once into the cache, `~/.kerascnn` or what
            `KERASCNN_HOME` names), the path of a file, also one of torchvision or timm where they
            have the network, or None for random ones."""
_UNPUBLISHED = """The path of a file, also one of torchvision or timm where they have the network,
            or None for random ones. Keras publishes none of this architecture, so that "imagenet"
            is an error."""
_MAPS = "the maps themselves"


def documented(
    paper: str,
    *,
    size: int,
    pixels: str,
    smallest: int = 32,
    published: bool = True,
    options: str = "",
    sizes: str = "",
    features: str = _MAPS,
    default: str = "unknown",
    example: str = "",
) -> Callable[[F], F]:
    """Completes the one-line docstring of a constructor.

    Args:
        paper: Authors, title, year, and where it is.
        size: Height and width of the images by default.
        pixels: What the pixels are.
        smallest: The least height and width.
        published: Whether Keras publishes weights.
        options: Arguments that only this family has, as lines of "Args".
        sizes: What else is true of sizes.
        default: The sizes by default without a classifier.
        features: What the network returns without classifier and pooling.
        example: By default one that makes the network for smaller images.
    """

    def complete(function: F) -> F:
        side = max(smallest, 32)
        function.__doc__ = _TEXT.format(
            summary=function.__doc__,
            size=size,
            smallest=smallest,
            sizes=sizes,
            pixels=pixels,
            paper=paper,
            weights=_PUBLISHED if published else _UNPUBLISHED,
            options=options,
            features=features,
            default=default,
            example=example or _example(function.__name__, side),
        )
        return function

    return complete


def _example(name: str, side: int) -> str:
    return f"""    >>> import kerascnn as keras
    >>> network = keras.applications.{name}(
    ...     weights=None, classes=10, input_shape=({side}, {side}, 3)
    ... )
    >>> network.output_shape
    (None, 10)"""
