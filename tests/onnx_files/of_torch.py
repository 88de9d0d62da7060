"""PyTorch's networks as ONNX files."""

import importlib
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")


def torchvision_models():
    """`torchvision.models`; skips where it is missing.

    Its wheel has ops for boxes in a library that a PyTorch for CPUs can't load, and its import asks
    for these ops. Networks need none of them: they are declared, without a kernel.
    """
    found = importlib.util.find_spec("torchvision")
    if found is None:
        pytest.skip("torchvision is not installed")
    try:
        return importlib.import_module("torchvision").models
    except RuntimeError:
        names = set()
        for file in Path(found.origin).parent.rglob("*.py"):
            text = file.read_text()
            names.update(re.findall(r"torchvision::(\w+)", text))
            names.update(re.findall(r'register_(?:meta|fake)\("(\w+)"', text))
        torchvision_models.library = torch.library.Library("torchvision", "FRAGMENT")
        for name in sorted(names):
            torchvision_models.library.define(f"{name}(Tensor x) -> Tensor")
        return importlib.import_module("torchvision").models


def randomize(module, seed=0):
    """Gives normalizations other values than ones and zeros."""
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            part.running_mean.uniform_(-0.1, 0.1, generator=generator)
            part.running_var.uniform_(0.7, 1.5, generator=generator)
            with torch.no_grad():
                part.weight.uniform_(0.2, 0.8, generator=generator)
                part.bias.uniform_(-0.1, 0.1, generator=generator)
    return module.eval()


def export(module, x, path, **options):
    """Writes a module with an open batch, by the exporter that needs no further package."""
    torch.onnx.export(
        module,
        (torch.from_numpy(np.asarray(x)),),
        str(path),
        dynamo=False,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "batch"}},
        opset_version=17,
        **options,
    )
