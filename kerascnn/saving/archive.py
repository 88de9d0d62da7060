"""`.keras` files: a zip archive of a model's configuration and its weights, as Keras 3 writes it.

A folder can hold the same files. Only what a model consists of is looked at; nothing but assets,
for objects that read them, is unpacked to disk.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kerascnn import file_budget, registration, serialization
from kerascnn.saving import assets, h5_file, members, state
from kerascnn.saving.atomic import replacing

# The files have the format of this version. Keras only shows it to users.
KERAS_VERSION = "3.15.1"
CONFIG = "config.json"
METADATA = "metadata.json"
_FIRST_TIME, _LAST_TIME = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)
WEIGHTS = "model.weights.h5"


def config_texts(model: Any) -> tuple[str, str]:
    """Returns the texts of config.json and metadata.json."""
    config = json.dumps(serialization.serialize_with_sharing(model))
    now = datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S")
    return config, json.dumps({"keras_version": KERAS_VERSION, "date_saved": now})


def save(model: Any, path: Path) -> None:
    """Writes a model to a file beside the target, which then replaces the target."""
    with replacing(path) as beside:
        _write(model, beside)


def save_folder(model: Any, folder: Path) -> None:
    """Writes a model as files in a folder, each by way of a file beside its target."""
    with _contents(model) as contents:
        for name, content in contents.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as beside:
                beside.write_bytes(content.read_bytes() if isinstance(content, Path) else content)


@contextlib.contextmanager
def _contents(model: Any) -> Iterator[dict[str, bytes | Path]]:
    """Yields the names of a model's files, with their contents or where these are."""
    config, metadata = config_texts(model)
    weights = io.BytesIO()
    h5_file.write(weights, state.collect(model))
    with assets.written(model) as files:
        yield {
            METADATA: metadata.encode(),
            CONFIG: config.encode(),
            WEIGHTS: weights.getvalue(),
            **files,
        }


def to_bytes(model: Any) -> bytes:
    """Returns the contents of a model's file."""
    target = io.BytesIO()
    _write(model, target)
    return target.getvalue()


def from_bytes(content: bytes) -> Any:
    """Returns the model of `to_bytes`. As with all pickles, the writer is trusted."""
    return _load(io.BytesIO(content), "the pickled model", None, True, False)


def _write(model: Any, target: Path | io.BytesIO) -> None:
    # Not strict, and with times that ZIP can state: clocks are wrong now and then, which is no
    # reason to lose a model.
    with (
        _contents(model) as contents,
        zipfile.ZipFile(target, "w", strict_timestamps=False) as archive,
    ):
        for name, content in contents.items():
            if isinstance(content, Path):
                archive.write(content, name)
            else:
                entry = zipfile.ZipInfo(name, max(_FIRST_TIME, min(_now(), _LAST_TIME)))
                entry.external_attr = 0o600 << 16
                archive.writestr(entry, content)


def _now() -> tuple[int, int, int, int, int, int]:
    return time.localtime(time.time())[:6]


def load(
    path: Path, custom_objects: Mapping[str, Any] | None, compile: bool, safe_mode: bool
) -> Any:
    """Loads the model of a file; see `kerascnn.saving.load_model`."""
    return _load(path, str(path), custom_objects, compile, safe_mode)


def _load(
    source: Path | io.BytesIO,
    name: str,
    custom_objects: Mapping[str, Any] | None,
    compile: bool,
    safe_mode: bool,
) -> Any:
    with members.opened(source, name) as files:
        config, weights = files.read(CONFIG), files.read(WEIGHTS)
        with h5_file.opened(io.BytesIO(weights), f"{name}: {WEIGHTS}") as groups:
            # What the file holds limits the weights that the configuration may create.
            model = model_from_text(
                config.decode("utf-8", "replace"),
                name,
                custom_objects,
                compile,
                safe_mode,
                h5_file.held_bytes(groups),
            )
            state.restore(model, groups, name)
        assets.load(model, files, name)
    return model


def load_weights(model: Any, path: Path, skip_mismatch: bool) -> None:
    """Loads the weights of a file into a model."""
    with members.opened(path, str(path)) as files:
        weights = files.read(WEIGHTS)
    with h5_file.opened(io.BytesIO(weights), f"{path}: {WEIGHTS}") as groups:
        state.restore(model, groups, str(path), skip_mismatch)


def model_from_text(
    text: str,
    name: str,
    custom_objects: Mapping[str, Any] | None,
    compile: bool,
    safe_mode: bool,
    held: int,
    modernize: Callable[[Any], Any] | None = None,
) -> Any:
    """The model that the text of a configuration describes, with new weights.

    Args:
        text: JSON.
        name: What errors call the file.
        custom_objects: Custom classes and functions by name.
        compile: Whether to compile the model as it was.
        safe_mode: Whether lambdas are refused.
        held: How many bytes of weights the file holds; a model cannot make many more.
        modernize: From a configuration of an older form to that of today.

    Raises:
        ValueError: for a text that describes none, whatever is wrong with it.
    """
    from kerascnn.models import Model
    from kerascnn.utils.feature_space import FeatureSpace

    with (
        reading(f"{name}: no model can be made of its configuration", custom_objects, safe_mode),
        file_budget.weight_budget(held),
    ):
        config = json.loads(text)
        if not isinstance(config, dict):
            raise ValueError("it is no dictionary")
        if modernize is not None:
            config = modernize(config)
        if not compile:
            config["compile_config"] = None
        custom = registration.all_custom_objects(custom_objects)
        model = serialization.deserialize_object(config, custom)
    if not isinstance(model, (Model, FeatureSpace)):
        raise ValueError(f"{name}: its configuration describes {model!r}, which is no model.")
    return model


@contextlib.contextmanager
def reading(what: str, custom_objects: Mapping[str, Any] | None, safe_mode: bool) -> Iterator[None]:
    """In this block, configurations of a file are read; what is wrong with them is one error.

    Args:
        what: How the error begins.
        custom_objects: Custom classes and functions by name.
        safe_mode: Whether lambdas are refused, where nothing around says so.
    """
    inherited = registration.in_safe_mode()
    custom = registration.all_custom_objects(custom_objects)
    try:
        with (
            serialization.object_sharing(),
            registration.SafeModeScope(safe_mode if inherited is None else inherited),
            registration.CustomObjectScope(custom),
        ):
            yield
    except (serialization.DeserializationError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(f"{what} ({type(error).__name__}: {error}).") from error
