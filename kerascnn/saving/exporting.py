"""Models for use elsewhere: weights and configuration in one safetensors file.

The weights have the names of `save_weights("...safetensors")`; the configuration is Keras' JSON,
in the file's metadata, and so is what the model computes, where that is wanted. There is no state
of training in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kerascnn import serialization
from kerascnn.models import weights_file
from kerascnn.recordings.signatures import check_built
from kerascnn.saving import archive, inference_graph


def export(
    model: Any, path: Path, include_graph: bool = False, input_signature: Any = None
) -> None:
    """Writes a model for inference, by way of a file beside the target.

    Raises:
        ValueError: for a model that is not built, and one whose graph can't be written.
    """
    check_built(model)
    config = serialization.serialize_with_sharing(model)
    config.pop("compile_config", None)
    arrays = {name: variable.numpy() for name, variable, _ in weights_file.named_variables(model)}
    metadata = {"keras_version": archive.KERAS_VERSION, "config": json.dumps(config)}
    if include_graph:
        metadata["graph"], more = inference_graph.write(model, input_signature)
        arrays.update(more)
    weights_file.write(path, arrays, metadata)


def load(path: Path, custom_objects: Mapping[str, Any] | None, safe_mode: bool) -> Any:
    """Loads the model of a file that `export` wrote."""
    metadata = weights_file.read_metadata(path)
    if "config" not in metadata:
        raise ValueError(
            f"{path} holds weights without a configuration. Make the model, and use "
            "model.load_weights."
        )
    text, held = metadata["config"], path.stat().st_size
    model = archive.model_from_text(text, str(path), custom_objects, False, safe_mode, held)
    weights_file.load(model, path)
    return model
