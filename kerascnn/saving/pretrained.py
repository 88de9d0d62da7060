"""Models as folders in the form of Hugging Face's hub: weights, configuration and a model card.

`model.safetensors` has the weights under the names of `save_weights`, `config.json` is Keras'
configuration as in a `.keras` file, and `README.md` is the card, whose header the hub reads.
Formats: https://huggingface.co/docs/hub/model-cards and https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WEIGHTS = "model.safetensors"
CARD = "README.md"
PathLike = str | os.PathLike[str]


def save_pretrained(
    model: Any,
    save_directory: PathLike,
    *,
    license: str | None = None,
    tags: Sequence[str] = (),
    pipeline_tag: str | None = None,
    metrics: Mapping[str, float] | None = None,
    dataset: str | None = None,
    description: str = "",
) -> None:
    """Writes a model to a folder as Hugging Face's hub has them, for inference and for others.

    The folder gets `model.safetensors`, `config.json` and `README.md`, the model card. A card that
    is there stays as it is. Nothing is uploaded: `hf upload NAME FOLDER` does that. How the model
    was compiled, and the state of its optimizer, are left out; `save_model` keeps them.

    Args:
        model: A model that is built.
        save_directory: The folder; it is made if need be.
        license: Such as "apache-2.0", for the card.
        tags: Further tags besides "keras" and "kerascnn".
        pipeline_tag: What it does, such as "image-classification".
        metrics: Results by name, as `evaluate(..., return_dict=True)` returns them.
        dataset: What the results are of.
        description: Text for the card.

    Raises:
        ValueError: for a model that is not built, and metrics that are no numbers.

    Example:

    >>> import os, tempfile
    >>> import kerascnn as keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)], name="tiny")
    >>> folder = tempfile.mkdtemp()
    >>> keras.saving.save_pretrained(model, folder, license="mit", metrics={"accuracy": 0.97})
    >>> sorted(os.listdir(folder))
    ['README.md', 'config.json', 'model.safetensors']
    >>> keras.saving.load_model(folder).count_params()
    3
    """
    from kerascnn import serialization
    from kerascnn.models import weights_file
    from kerascnn.recordings.signatures import check_built
    from kerascnn.saving import archive
    from kerascnn.saving.atomic import replacing

    check_built(model)
    results = {name: _number(name, value) for name, value in (metrics or {}).items()}
    folder = Path(save_directory)
    folder.mkdir(parents=True, exist_ok=True)
    config = serialization.serialize_with_sharing(model)
    config.pop("compile_config", None)
    arrays = {name: variable.numpy() for name, variable, _ in weights_file.named_variables(model)}
    weights_file.write(folder / WEIGHTS, arrays, {"keras_version": archive.KERAS_VERSION})
    with replacing(folder / archive.CONFIG) as beside:
        beside.write_text(json.dumps(config, indent=2), encoding="utf-8")
    if (folder / CARD).exists():
        return
    header = _header(model.name, license, tags, pipeline_tag, results, dataset)
    with replacing(folder / CARD) as beside:
        beside.write_text(header + _text(model, folder, results, dataset, description), "utf-8")


def load(folder: Path, custom_objects: Mapping[str, Any] | None, safe_mode: bool) -> Any:
    """Loads the model of a folder that `save_pretrained` wrote."""
    from kerascnn.models import weights_file
    from kerascnn.saving import archive, members

    with members.opened(folder, str(folder)) as files:
        text, held = files.read(archive.CONFIG), files.size(WEIGHTS)
    config = text.decode("utf-8", "replace")
    _refuse_others(folder, config)
    model = archive.model_from_text(config, str(folder), custom_objects, False, safe_mode, held)
    weights_file.load(model, folder / WEIGHTS)
    return model


def _refuse_others(folder: Path, text: str) -> None:
    """Raises a ValueError for the configurations of other libraries that use such folders."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        return  # which is said elsewhere
    if not isinstance(config, dict) or "class_name" in config:
        return
    name = config.get("architecture") or config.get("model_type") or config.get("architectures")
    raise ValueError(
        f"The folder {folder} holds weights of another library's model ({str(name)[:100]}), not a "
        "model of Keras. Make the network, keras.applications.X(weights=folder) for one of timm, "
        "or load the weights by names: saving.load_torch_weights."
    )


# The card -------------------------------------------------------------------------------------


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"`metrics` are numbers by name. Received: {name}={value!r}") from None


def _quoted(value: str) -> str:
    """A text in YAML, which takes those of JSON."""
    return json.dumps(value, ensure_ascii=False)


def _header(
    name: str,
    license: str | None,
    tags: Sequence[str],
    pipeline_tag: str | None,
    results: Mapping[str, float],
    dataset: str | None,
) -> str:
    """What the hub reads: YAML between two lines of dashes."""
    lines = ["---", "library_name: keras"]
    if license is not None:
        lines.append(f"license: {_quoted(license)}")
    if pipeline_tag is not None:
        lines.append(f"pipeline_tag: {_quoted(pipeline_tag)}")
    lines += ["tags:", *(f"- {_quoted(t)}" for t in dict.fromkeys(["keras", "kerascnn", *tags]))]
    if dataset is not None:
        lines += ["datasets:", f"- {_quoted(dataset)}"]
    if results:
        lines += ["metrics:", *(f"- {_quoted(metric)}" for metric in results)]
    # Results belong to a task and a data set; the hub takes none without them.
    if results and dataset is not None and pipeline_tag is not None:
        lines += ["model-index:", f"- name: {_quoted(name)}", "  results:", "  - task:"]
        lines += [f"      type: {_quoted(pipeline_tag)}", "    dataset:"]
        lines += [f"      name: {_quoted(dataset)}", f"      type: {_quoted(dataset)}"]
        lines.append("    metrics:")
        for metric, value in results.items():
            lines += [f"    - type: {_quoted(metric)}", f"      value: {json.dumps(value)}"]
    return "\n".join([*lines, "---", "", ""])


def _text(
    model: Any, folder: Path, results: Mapping[str, float], dataset: str | None, description: str
) -> str:
    rows = [
        ("layers", str(len(model.layers))),
        ("parameters", f"{model.count_params():,}"),
        ("input", str(getattr(model, "input_shape", "as the class says"))),
        ("output", str(getattr(model, "output_shape", "as the class says"))),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    lines = [f"# {model.name}", "", *([description, ""] if description else [])]
    lines += ["| | |", "| --- | --- |", table, ""]
    if results:
        lines += [f"| metric | {dataset or 'value'} |", "| --- | --- |"]
        lines += [f"| {metric} | {value:.4g} |" for metric, value in results.items()]
        lines.append("")
    lines += [
        "```python",
        "import kerascnn as keras",
        "",
        f"model = keras.saving.load_model({folder.name!r})  # the folder with these files",
        "```",
        "",
    ]
    return "\n".join(lines)
