"""Weights of torchvision and timm for our networks, where they compute the same."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kerascnn import layers
from kerascnn.applications.imagenet_utils import DEVIATION, MEAN
from kerascnn.applications.torch_names import Naming
from kerascnn.models import Model

VARIANTS = ("keras", "torchvision", "timm")
_ENDINGS = (".pth", ".pt", ".bin", ".ckpt")
_IN_FOLDERS = ("model.safetensors", "pytorch_model.bin")


def load_weights(
    model: Model, weights: str | os.PathLike[str], namings: Sequence[Naming], variant: str
) -> None:
    """Loads the file of `weights=` into a network, whoever wrote it.

    Args:
        model: The network.
        weights: A file that `Model.load_weights` takes, one of PyTorch, or a folder with such a
            file as timm and Hugging Face's hub have it.
        namings: The names in files of torchvision and timm, where they have this network.
        variant: What the network was built as.

    Raises:
        ValueError: for files that don't fit, and for those of a network that computes something
            else than this variant.
    """
    from kerascnn.saving import read_torch_weights
    from kerascnn.torch_files.loading import load_tensors, without_wrappers

    path = Path(weights)
    folder = path if path.is_dir() else None
    if folder is not None:
        path = _file_in(folder)
    is_torch = path.name.endswith(_ENDINGS)
    if not is_torch and not path.name.endswith(".safetensors"):
        return model.load_weights(path)
    tensors = without_wrappers(read_torch_weights(path))
    naming = next((n for n in namings if n.marker in tensors), None)
    if naming is None:
        if not is_torch and any(name.startswith(("layers/", "vars/")) for name in tensors):
            return model.load_weights(path)  # of kerascnn
        raise ValueError(
            f"{model.name}: {_unknown(namings)}. {path} has tensors such as {list(tensors)[:3]}. "
            "Make the network with weights=None, and say by saving.load_torch_weights(network, "
            "path, names=...) which layer takes what."
        )
    _check_variant(model, path, naming, variant, folder)
    places = naming.places([layer.name for layer in model._flatten_layers()], tensors)
    load_tensors(
        model,
        tensors,
        path,
        lambda layer_path: places.get(layer_path.rpartition("/")[2]),
        spare=() if _has_classifier(places, naming) else naming.classifier,
    )
    _prepare_like_torch(model)
    return None


def _unknown(namings: Sequence[Naming]) -> str:
    if not namings:
        return "torchvision and timm have no network that computes the same, or none is known here"
    sources = dict.fromkeys(naming.source for naming in namings)
    return f"the file's names are not those of this network in {' or '.join(sources)}"


def _has_classifier(places: dict[str, Any], naming: Naming) -> bool:
    return any(
        f"{place}.".startswith(naming.classifier)
        for place in places.values()
        if isinstance(place, str)
    )


def _file_in(folder: Path) -> Path:
    found = [folder / name for name in _IN_FOLDERS if (folder / name).is_file()]
    if not found:
        raise ValueError(
            f"The folder {folder} has none of the files {', '.join(_IN_FOLDERS)}. Pass the path of "
            "the file with the weights."
        )
    return found[0]


def _check_variant(
    model: Model, path: Path, naming: Naming, variant: str, folder: Path | None
) -> None:
    fitting = naming.variants
    architecture = "" if folder is None else _architecture(folder)
    if set(fitting) == {"keras", "timm"} and architecture:
        fitting = ("keras",) if architecture.startswith("tf_") else ("timm",)
    if variant not in fitting:
        shown = architecture or naming.source
        raise ValueError(
            f"{model.name}: the weights in {path} are those of {shown}, whose network differs from "
            f"variant={variant!r} in strides, padding, biases or epsilons, so that it would "
            f"predict something else. Pass variant={fitting[0]!r}, which is that network."
        )


def _architecture(folder: Path) -> str:
    """Returns the name of the network that timm writes beside the weights, or ""."""
    path = folder / "config.json"
    if not path.is_file() or path.stat().st_size > 1 << 20:
        return ""
    try:
        config = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError):
        return ""
    name = config.get("architecture") if isinstance(config, dict) else None
    return name if isinstance(name, str) else ""


def _prepare_like_torch(model: Model) -> None:
    """Lets an EfficientNet's own preparation make of pixels what PyTorch's networks take."""
    for layer in model.layers:
        if isinstance(layer, layers.Normalization) and layer.weights:
            layer.adapt_mean.assign(MEAN)
            layer.adapt_variance.assign([deviation**2 for deviation in DEVIATION])
            layer._after_loading()
