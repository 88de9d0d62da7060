"""`.keras` files: a zip archive of a model's configuration and its weights, as Keras 3 writes it.

Nothing is unpacked to disk, only the three members that a model consists of are looked at, and
their sizes are checked before they are read.
"""

from __future__ import annotations

import datetime
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kerascnn import registration, serialization
from kerascnn.saving import h5_file, state
from kerascnn.saving.atomic import replacing

# The version whose files these are; Keras looks at it only to tell users.
KERAS_VERSION = "3.15.1"
_CONFIG = "config.json"
_METADATA = "metadata.json"
_WEIGHTS = "model.weights.h5"
_MAX_CONFIG = 256 << 20
_SMALL = 16 << 20
_MAX_EXPANSION = 100


def config_texts(model: Any) -> tuple[str, str]:
    """The texts of config.json and metadata.json."""
    config = json.dumps(serialization.serialize_with_sharing(model))
    now = datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S")
    return config, json.dumps({"keras_version": KERAS_VERSION, "date_saved": now})


def save(model: Any, path: Path) -> None:
    """Writes a model, by way of a file beside the target."""
    with replacing(path) as beside:
        _write(model, beside)


def to_bytes(model: Any) -> bytes:
    """What a model's file would hold."""
    target = io.BytesIO()
    _write(model, target)
    return target.getvalue()


def from_bytes(content: bytes) -> Any:
    """The model of `to_bytes`. As with all pickles, who wrote it is trusted."""
    return _load(io.BytesIO(content), "the pickled model", None, True, False)


def _write(model: Any, target: Path | io.BytesIO) -> None:
    config, metadata = config_texts(model)
    weights = io.BytesIO()
    h5_file.write(weights, state.collect(model))
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(_METADATA, metadata)
        archive.writestr(_CONFIG, config)
        archive.writestr(_WEIGHTS, weights.getbuffer())


def load(
    path: Path, custom_objects: Mapping[str, Any] | None, compile: bool, safe_mode: bool
) -> Any:
    """The model of a file; see `kerascnn.saving.load_model`."""
    return _load(path, str(path), custom_objects, compile, safe_mode)


def _load(
    source: Path | io.BytesIO,
    name: str,
    custom_objects: Mapping[str, Any] | None,
    compile: bool,
    safe_mode: bool,
) -> Any:
    config, weights = _read(source, name, (_CONFIG, _WEIGHTS))
    # Bytes of weights are a bound for the weights that the configuration may ask for.
    model = model_from_text(
        config.decode("utf-8", "replace"),
        name,
        custom_objects,
        compile,
        safe_mode,
        2 * len(weights) + _SMALL,
    )
    with h5_file.opened(io.BytesIO(weights), f"{name}: {_WEIGHTS}") as groups:
        state.restore(model, groups, name)
    return model


def load_weights(model: Any, path: Path, skip_mismatch: bool) -> None:
    """Puts the weights of a file into a model."""
    (weights,) = _read(path, str(path), (_WEIGHTS,))
    with h5_file.opened(io.BytesIO(weights), f"{path}: {_WEIGHTS}") as groups:
        state.restore(model, groups, str(path), skip_mismatch)


def model_from_text(
    text: str,
    name: str,
    custom_objects: Mapping[str, Any] | None,
    compile: bool,
    safe_mode: bool,
    budget: int,
) -> Any:
    """The model that the text of a configuration describes, with new weights.

    Raises:
        ValueError: for a text that describes none, whatever is wrong with it.
    """
    from kerascnn.models import Model

    try:
        config = json.loads(text)
        if not isinstance(config, dict):
            raise ValueError("it is no dictionary")
        if not compile:
            config["compile_config"] = None
        inherited = registration.in_safe_mode()
        mode = safe_mode if inherited is None else inherited
        with (
            serialization.object_sharing(),
            serialization.weight_budget(budget),
            registration.SafeModeScope(mode),
        ):
            custom = registration.all_custom_objects(custom_objects)
            model = serialization.deserialize_object(config, custom)
    except serialization.DeserializationError:
        raise
    except Exception as error:
        raise ValueError(
            f"{name}: no model can be made of its configuration ({type(error).__name__}: {error})."
        ) from error
    if not isinstance(model, Model):
        raise ValueError(f"{name}: its configuration describes {model!r}, which is no model.")
    return model


def _read(source: Path | io.BytesIO, where: str, names: tuple[str, ...]) -> list[bytes]:
    """Members of an archive.

    Raises:
        ValueError: for what is no archive of a model, or is damaged.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            return [_read_member(archive, name, where) for name in names]
    except OSError:
        if isinstance(source, Path) and not source.is_file():
            raise
        raise ValueError(f"{where} cannot be read; it is damaged.") from None
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(
            f"{where} is no .keras file, or is damaged or cut off ({error})."
        ) from error


def _read_member(archive: zipfile.ZipFile, name: str, where: str) -> bytes:
    members = archive.infolist()
    for member in members:
        parts = member.filename.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or ":" in parts[0]:
            raise ValueError(
                f"{where} names a file outside of the archive ({member.filename!r}); not allowed."
            )
    found = [member for member in members if member.filename == name]
    if len(found) != 1:
        raise ValueError(f"{where} has {len(found)} members {name!r}; a .keras file has one.")
    size, stored = found[0].file_size, found[0].compress_size
    if size > _SMALL and size > _MAX_EXPANSION * stored:
        raise ValueError(
            f"{where}: {name} claims {size} bytes, but the file stores {stored} for it."
        )
    if name == _CONFIG and size > _MAX_CONFIG:
        raise ValueError(f"{where}: {name} has {size} bytes, more than any model's.")
    return archive.read(found[0])
