"""Writes the tables: needs torch, torchvision and timm."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import timm
import torch
import torchvision

from . import HERE, KINDS, images, weights

_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SHOWN = 8
_SCALES = tuple(round(0.5 * 1.1**n, 2) for n in range(20))
_TORCHVISION = {
    **dict.fromkeys(("resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small"), 48),
    **dict.fromkeys(("densenet121", "efficientnet_b0", "efficientnet_v2_s", "convnext_tiny"), 48),
    "vgg16": 32,
    "vit_tiny": 32,
}
_TIMM = {
    **dict.fromkeys(("mobilenetv2_100", "mobilenetv3_small_100", "tf_mobilenetv3_small_100"), 48),
    **dict.fromkeys(("efficientnet_b0", "tf_efficientnet_b0", "tf_efficientnetv2_b0"), 48),
    "convnext_tiny": 48,
    "vit_tiny_patch16_224": 32,
}


def _torchvision(name: str, size: int) -> Any:
    if name == "vit_tiny":  # a size that torchvision has not, made of its parts
        return torchvision.models.VisionTransformer(size, 16, 12, 3, 192, 4 * 192)
    return torchvision.models.get_model(name)


def _timm(name: str, size: int) -> Any:
    return timm.create_model(name, **({"img_size": size} if name.startswith("vit") else {}))


def _lines(state: dict[str, Any]) -> list[str]:
    modules: dict[str, list[str]] = {}
    for name in state:
        modules.setdefault(name.rpartition(".")[0], []).append(name.rpartition(".")[2])
    lines = []
    for module, endings in modules.items():
        kind = next((k for k, names in KINDS.items() if list(names) == endings), None)
        if kind is not None:
            shape = state[f"{module}.weight"].shape
            lines.append(" ".join([module, kind, *map(str, shape)]))
            continue
        for ending in endings:
            name = f"{module}.{ending}" if module else ending
            lines.append(" ".join([name, "tensor", *map(str, state[name].shape)]))
    return lines


def _scores(name: str, model: Any, state: dict[str, Any], size: int, scale: float) -> Any:
    arrays = weights({key: tuple(value.shape) for key, value in state.items()}, scale)
    model.load_state_dict({key: torch.from_numpy(np.array(a)) for key, a in arrays.items()})
    x = (images(size) / 255 - np.array(_MEAN)) / np.array(_DEVIATION)
    x = torch.from_numpy(x.astype("float32")).permute(0, 3, 1, 2)
    with torch.no_grad():
        if name == "vgg16":  # its classifier has 124 million weights
            return model.features(x).mean((2, 3)).numpy()
        return model(x).numpy()


def _write(source: Any, name: str, model: Any, size: int) -> None:
    model.eval()
    state = model.state_dict()
    for scale in _SCALES:
        scores = _scores(name, model, state, size, scale)
        if np.abs(scores[0] - scores[1]).max() > 0.03 * np.abs(scores).max():
            break
    else:
        raise SystemExit(f"{name}: its scores do not depend on the image")
    head = [
        f"# {source.__name__} {source.__version__}, {name}: module, kind, shape of its weight",
        f"size {size} scale {scale}",
        *("expected " + " ".join(f"{n:.7g}" for n in row[:_SHOWN]) for row in scores),
    ]
    path = HERE / f"{source.__name__}_{name}.txt"
    path.write_text("\n".join([*head, *_lines(state)]) + "\n")
    print(path.name, len(state), "tensors", scale, np.abs(scores).max(), file=sys.stderr)


for name, size in _TORCHVISION.items():
    _write(torchvision, name, _torchvision(name, size), size)
for name, size in _TIMM.items():
    _write(timm, name, _timm(name, size), size)
