"""The functions of `kerascnn.saving`: which kind of file, and whether it may be replaced."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PathLike = str | os.PathLike[str]


def save_model(
    model: Any,
    filepath: PathLike,
    overwrite: bool = True,
    zipped: bool | None = None,
    **kwargs: Any,
) -> None:
    """Writes a model as a whole: configuration, weights, and how it was compiled and trained.

    Keras 3 reads the file, and `load_model` those of Keras 3. It is written beside its target and
    then moved there.

    Args:
        model: A model.
        filepath: Ends in ".keras".
        overwrite: Whether a file of that name may be replaced.
        zipped: Only None and True.

    Raises:
        ValueError: for another ending.
        FileExistsError: where there is a file and it may not be replaced.

    Example:

    >>> import os, tempfile
    >>> import kerascnn as keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.keras")
    >>> keras.saving.save_model(model, path)
    >>> keras.saving.load_model(path).count_params()
    3
    """
    from kerascnn.saving import archive

    kwargs.pop("include_optimizer", None)
    if kwargs:
        raise ValueError(f"save_model does not have the arguments {sorted(kwargs)}")
    if zipped is False or str(filepath).startswith("hf://"):
        raise ValueError("Models are saved as one .keras file. Received: zipped=False or hf://")
    path = Path(filepath)
    if path.name.endswith((".h5", ".hdf5")):
        raise ValueError(
            f"Models are saved as .keras files, which Keras reads too. Received: {filepath} (the "
            "form of Keras 2; for weights alone use save_weights('name.weights.h5'))"
        )
    if not path.name.endswith(".keras"):
        raise ValueError(
            "A model is saved to a file whose name ends in '.keras' (use model.export for "
            f"inference elsewhere). Received: filepath={str(filepath)!r}"
        )
    _check_overwrite(path, overwrite)
    if not model.built:
        warnings.warn(
            f"Model '{model.name}' is saved without weights, which it does not have yet. Call it "
            "on data (or build(input_shape)) first.",
            stacklevel=2,
        )
    archive.save(model, path)


def load_model(
    filepath: PathLike,
    custom_objects: Mapping[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
) -> Any:
    """The model of a file that `save_model` or Keras 3 wrote, or `export`.

    Args:
        filepath: Ends in ".keras" (or ".safetensors", for what `export` wrote).
        custom_objects: Classes and functions of one's own by name.
        compile: Whether to compile the model as it was, with the state of its optimizer.
        safe_mode: Whether lambdas are refused. They are code, which would be run.

    Raises:
        ValueError: for a file that is damaged, that holds something unknown or not allowed.
        FileNotFoundError: where there is no such file. (A ValueError too, as in Keras.)

    Example:

    >>> import os, tempfile
    >>> import kerascnn as keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.keras")
    >>> model.save(path)
    >>> bool((keras.saving.load_model(path).layers[0].kernel.numpy()
    ...       == model.layers[0].kernel.numpy()).all())
    True
    """
    from kerascnn.saving import archive, exporting

    path = Path(filepath)
    _check_exists(path)
    if path.name.endswith(".safetensors"):
        return exporting.load(path, custom_objects, safe_mode)
    if not path.name.endswith(".keras"):
        raise ValueError(
            f"A model is loaded from a file whose name ends in '.keras'. Received: {filepath} "
            "(files of Keras 2, .h5, can be loaded in Keras 3 and saved as .keras there)"
        )
    return archive.load(path, custom_objects, compile, safe_mode)


def save_weights(
    model: Any,
    filepath: PathLike,
    overwrite: bool = True,
    max_shard_size: float | None = None,
    **kwargs: Any,
) -> None:
    """Writes a model's weights, and the state of its optimizer.

    Args:
        model: A model that is built.
        filepath: Ends in ".weights.h5", which Keras reads too, or in ".safetensors" (weights
            alone).
        overwrite: Whether a file of that name may be replaced.
        max_shard_size: Only None.

    Raises:
        ValueError: for another ending, or a model that is not built.
        FileExistsError: where there is a file and it may not be replaced.
    """
    from kerascnn.models import weights_file
    from kerascnn.saving import h5_file, state
    from kerascnn.saving.atomic import replacing

    if max_shard_size is not None or kwargs:
        raise ValueError(
            "Weights are kept in one file: `max_shard_size` and `objects_to_skip` are not "
            f"available. Received: max_shard_size={max_shard_size}, {sorted(kwargs)}"
        )
    path = Path(filepath)
    if path.name.endswith(".safetensors"):
        return weights_file.save(model, filepath, overwrite)
    if not path.name.endswith(".weights.h5"):
        raise ValueError(
            "Weights are kept in files whose name ends in '.weights.h5', as in Keras, or in "
            f"'.weights.safetensors'. Received: filepath={str(filepath)!r}"
        )
    _check_overwrite(path, overwrite)
    if not model.built:
        raise ValueError(
            f"Model '{model.name}' has no weights yet. Call it on data (or build(input_shape)) "
            "before saving."
        )
    with replacing(path) as beside:
        h5_file.write(str(beside), state.collect(model))
    return None


def load_weights(
    model: Any, filepath: PathLike, skip_mismatch: bool = False, **kwargs: Any
) -> None:
    """Reads weights that `save_weights` or Keras 3 wrote; on an error nothing is changed.

    The state of an optimizer that is built is read too, where the file has one.

    Args:
        model: A model that is built.
        filepath: Ends in ".weights.h5", ".keras" or ".safetensors".
        skip_mismatch: Whether layers that the file does not fit keep what they have; each is
            warned about.

    Raises:
        ValueError: for weights that don't fit (naming layer and shapes), a damaged file, or a
            model that is not built.
        FileNotFoundError: where there is no such file.
    """
    from kerascnn.models import weights_file
    from kerascnn.saving import archive, h5_file, state

    if any(value is not None for value in kwargs.values()):
        raise ValueError(f"load_weights does not have the arguments {sorted(kwargs)}")
    path = Path(filepath)
    if path.name.endswith(".safetensors"):
        return weights_file.load(model, filepath, skip_mismatch)
    if not path.name.endswith((".weights.h5", ".keras")):
        raise ValueError(
            "Weights are kept in files whose name ends in '.weights.h5', '.keras' or "
            f"'.safetensors'. Received: filepath={str(filepath)!r}"
        )
    _check_exists(path)
    if not model.built:
        raise ValueError(
            f"Model '{model.name}' has no weights yet to load {path} into. Call it on data (or "
            "build(input_shape)) first."
        )
    if path.name.endswith(".keras"):
        return archive.load_weights(model, path, skip_mismatch)
    with h5_file.opened(str(path), str(path)) as groups:
        state.restore(model, groups, str(path), skip_mismatch)
    return None


class _MissingFileError(FileNotFoundError, ValueError):
    """No such file; Keras raises ValueError for models and FileNotFoundError for weights."""


def _check_exists(path: Path) -> None:
    if not path.is_file():
        raise _MissingFileError(f"File not found: filepath={path}")


def _check_overwrite(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists. Pass overwrite=True to replace it.")
