"""The functions of `kerascnn.saving`: they choose the kind of file and check for existing ones."""

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
        filepath: Ends in ".keras"; or in ".h5" or ".hdf5" for the older form, which Keras 2 has
            too; or is a folder, with `zipped=False`.
        overwrite: Whether a file of that name may be replaced.
        zipped: False for a folder with the files of a `.keras` archive.
        include_optimizer: Whether an ".h5" file holds how the model was compiled and trained.

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
    from kerascnn.saving import archive, legacy_h5

    include_optimizer = kwargs.pop("include_optimizer", True)
    kwargs.pop("save_format", None)  # the ending of the name decides
    if kwargs:
        raise ValueError(f"save_model does not have the arguments {sorted(kwargs)}")
    _refuse_hub(filepath)
    path = Path(filepath)
    if zipped is False and path.name.endswith(".keras"):
        raise ValueError(
            f"A folder (zipped=False) has no name that ends in '.keras'. Received: {filepath}"
        )
    if zipped is not False and not path.name.endswith((".keras", *_H5)):
        raise ValueError(
            "A model is saved to a file whose name ends in '.keras' (or in '.h5', the older form), "
            "or with zipped=False to a folder; use model.export for inference elsewhere. "
            f"Received: filepath={str(filepath)!r}"
        )
    _check_overwrite(path, overwrite)
    if not model.built:
        warnings.warn(
            f"Model '{model.name}' is saved without the weights that it does not have yet. Call it "
            "on data (or build(input_shape)) first.",
            stacklevel=2,
        )
    if zipped is False:
        archive.save_folder(model, path)
    elif path.name.endswith(_H5):
        legacy_h5.save(model, path, include_optimizer)
    else:
        archive.save(model, path)


def load_model(
    filepath: PathLike,
    custom_objects: Mapping[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
) -> Any:
    """The model of a file that `save_model`, Keras 3 or Keras 2 wrote, or `export`.

    Args:
        filepath: Ends in ".keras", ".h5" or ".hdf5" (or ".safetensors", for what `export` wrote);
            or a folder that `save_model(..., zipped=False)` or `save_pretrained` wrote.
        custom_objects: Custom classes and functions by name.
        compile: Whether to compile the model as it was, with the state of its optimizer.
        safe_mode: Whether lambdas are refused, in all of these files. They are code, which would
            be run.

    Returns:
        A model of the class that was saved.

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
    from kerascnn.saving import archive, exporting, legacy_h5, pretrained

    _refuse_hub(filepath)
    path = Path(filepath)
    if path.is_dir():
        if not (path / archive.CONFIG).exists():
            raise ValueError(
                f"The folder {path} holds no model: it has no {archive.CONFIG}. (A SavedModel or a "
                "checkpoint of Orbax needs Keras on the library that wrote it.)"
            )
        if (path / pretrained.WEIGHTS).exists() and not (path / archive.WEIGHTS).exists():
            return pretrained.load(path, custom_objects, safe_mode)
        return archive.load(path, custom_objects, compile, safe_mode)
    _check_exists(path)
    if path.name.endswith(".safetensors"):
        return exporting.load(path, custom_objects, safe_mode)
    if path.name.endswith(_H5):
        return legacy_h5.load(path, custom_objects, compile, safe_mode)
    if not path.name.endswith(".keras"):
        raise ValueError(
            "A model is loaded from a file whose name ends in '.keras' (or in '.h5', the older "
            f"form), or from a folder that holds one. Received: {filepath}"
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
            alone); with `max_shard_size` in ".weights.json".
        overwrite: Whether a file of that name may be replaced.
        max_shard_size: GiB of arrays in one file, for several files beside the JSON one, which
            lists them.
        objects_to_skip: Layers and other objects whose state stays out.

    Raises:
        ValueError: for another ending, or a model that is not built.
        FileExistsError: where there is a file and it may not be replaced.

    Example:

    >>> import tempfile
    >>> import kerascnn as keras
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save_weights(f"{folder}/model.weights.h5")
    """
    from kerascnn.models import weights_file
    from kerascnn.saving import h5_file, shards, state
    from kerascnn.saving.atomic import replacing

    skipped = kwargs.pop("objects_to_skip", None)
    if kwargs:
        raise ValueError(f"save_weights does not have the arguments {sorted(kwargs)}")
    path = Path(filepath)
    if path.name.endswith(".safetensors") and max_shard_size is None:
        return weights_file.save(model, filepath, overwrite)
    ending = ".weights.h5" if max_shard_size is None else ".weights.json"
    if not path.name.endswith(ending):
        raise ValueError(
            f"Weights are kept in files whose name ends in '{ending}'"
            + (", as in Keras, or in '.weights.safetensors'" if max_shard_size is None else "")
            + f". Received: filepath={str(filepath)!r}, max_shard_size={max_shard_size}"
        )
    _check_overwrite(path, overwrite)
    if not model.built:
        raise ValueError(
            f"Model '{model.name}' has no weights yet. Call it on data (or build(input_shape)) "
            "before saving."
        )
    objects = state.collect(model, skipped)
    if max_shard_size is not None:
        return shards.save(path, objects, max_shard_size)
    with replacing(path) as beside:
        h5_file.write(str(beside), objects)
    return None


def load_weights(
    model: Any, filepath: PathLike, skip_mismatch: bool = False, **kwargs: Any
) -> None:
    """Reads weights that `save_weights` or Keras wrote; on an error nothing is changed.

    The state of an optimizer that is built is read too, where the file has one.

    Args:
        model: A model that is built.
        filepath: Ends in ".weights.h5", ".weights.json" (several files), ".keras" or
            ".safetensors"; or in ".h5" or ".hdf5" for the form of Keras 2, of weights or of a
            model; or in ".pth" or ".pt" for files of PyTorch.
        skip_mismatch: Whether layers that the file does not fit keep what they have; each is
            warned about.
        by_name: Whether layers of `.h5` files are found by their names; otherwise they are taken
            in their order.
        objects_to_skip: Layers and other objects that keep what they have.
        names: For files of PyTorch (".pth", ".pt", ".bin", ".ckpt", or ".safetensors" with its
            names): which module each layer's weights are of; see `load_torch_weights`.
        key: Which dictionary of tensors in such a file.

    Raises:
        ValueError: for weights that don't fit (naming layer and shapes), a damaged file, or a
            model that is not built.
        FileNotFoundError: where there is no such file.

    Example:

    >>> import tempfile
    >>> import kerascnn as keras
    >>> model, other = (
    ...     keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]) for _ in range(2)
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save_weights(f"{folder}/model.weights.h5")
    ...     other.load_weights(f"{folder}/model.weights.h5")
    >>> bool((other.get_weights()[0] == model.get_weights()[0]).all())
    True
    """
    from kerascnn.models import weights_file
    from kerascnn.saving import archive, h5_file, legacy_h5, shards, state

    by_name, skipped = kwargs.pop("by_name", None), kwargs.pop("objects_to_skip", None)
    of_torch = {name: kwargs.pop(name) for name in ("names", "key") if name in kwargs}
    if kwargs:
        raise ValueError(f"load_weights does not have the arguments {sorted(kwargs)}")
    path = Path(filepath)
    if path.name.endswith(_TORCH) or (of_torch and path.name.endswith(".safetensors")):
        from kerascnn.torch_files.loading import load_torch_weights

        return load_torch_weights(model, filepath, skip_mismatch=skip_mismatch, **of_torch)
    if of_torch:
        raise ValueError(
            f"`{next(iter(of_torch))}` is for files of PyTorch. Received: filepath={filepath}"
        )
    is_older = path.name.endswith(_H5) and not path.name.endswith(".weights.h5")
    if by_name is not None and not is_older:
        raise ValueError(f"`by_name` is for .h5 and .hdf5 files. Received: filepath={filepath}")
    if skipped is not None and not path.name.endswith((".weights.h5", ".weights.json")):
        raise ValueError(
            f"`objects_to_skip` is for files of weights. Received: filepath={filepath}"
        )
    if path.name.endswith(".safetensors"):
        return weights_file.load(model, filepath, skip_mismatch)
    if not path.name.endswith((".weights.json", ".keras", *_H5)):
        raise ValueError(
            "Weights are kept in files whose name ends in '.weights.h5', '.weights.json', '.keras' "
            "or '.safetensors', in '.h5' in the form of Keras 2, or in '.pth' or '.pt' where "
            "PyTorch wrote them. Received: "
            f"filepath={str(filepath)!r}"
        )
    _check_exists(path)
    if not model.built:
        raise ValueError(
            f"Model '{model.name}' has no weights yet to load {path} into. Call it on data (or "
            "build(input_shape)) first."
        )
    if path.name.endswith(".keras"):
        return archive.load_weights(model, path, skip_mismatch)
    if is_older:
        return legacy_h5.load_weights(model, path, bool(by_name), skip_mismatch)
    is_list = path.name.endswith(".json")
    with shards.opened(path) if is_list else h5_file.opened(str(path), str(path)) as groups:
        state.restore(model, groups, str(path), skip_mismatch, skipped)
    return None


_H5 = (".h5", ".hdf5")
_TORCH = (".pth", ".pt", ".bin", ".ckpt")


class _MissingFileError(FileNotFoundError, ValueError):
    """The file is missing: Keras raises ValueError for models, FileNotFoundError for weights."""

    def __reduce__(self) -> tuple:
        return _missing_file_error, self.args  # its shown name is that of another class


# Tracebacks show the name that one catches it by.
_MissingFileError.__name__ = _MissingFileError.__qualname__ = FileNotFoundError.__name__
_MissingFileError.__module__ = FileNotFoundError.__module__


def _missing_file_error(text: str) -> FileNotFoundError:
    return _MissingFileError(text)


def _check_exists(path: Path) -> None:
    if not path.is_file():
        where = "" if path.is_absolute() else f", in the working folder {Path.cwd()}"
        raise _missing_file_error(f"File not found: filepath={path}{where}")


def _check_overwrite(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists. Pass overwrite=True to replace it.")


def _refuse_hub(filepath: PathLike) -> None:
    if str(filepath).startswith("hf://"):
        raise ValueError(
            "Models of the Hugging Face Hub are not fetched here: download the folder, and load "
            f"that. Received: {filepath}"
        )
