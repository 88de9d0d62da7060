"""Tensors by name in PyTorch's files, in any of three forms.

- zip (`torch.save` since PyTorch 1.6): a pickle, and a member for the numbers of each storage;
- the older form: four pickles, the names of storages, and their numbers, one after the other;
- safetensors.

What a file claims is compared with its size before memory is taken.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.models import weights_file
from kerascnn.system_errors import naming_file
from kerascnn.torch_files import pickles
from kerascnn.torch_files.pickles import ForeignError, Storage, Tensor

Arrays = dict[str, np.ndarray[Any, Any]]
PathLike = str | os.PathLike[str]

# Names under which training scripts keep a model's weights beside other things.
_WRAPPERS = ("state_dict", "model_state_dict", "model", "net", "module", "weights")
_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
# PyTorch packs nothing: what is unpacked has at most these bytes more than the file.
_FREE = 16 << 20
_SHOWN = 5


def read_torch_weights(filepath: PathLike, key: str | None = None) -> Arrays:
    """The tensors of a file of PyTorch as arrays, by name. PyTorch is not needed.

    Whoever wrote the file: nothing in it runs, and memory is bounded by its size. A file that holds
    more than tensors, such as a whole model, is refused.

    Args:
        filepath: What `torch.save` wrote (".pth", ".pt", ".bin", ".ckpt"), in the form of today or
            that of before PyTorch 1.6; or a ".safetensors" file.
        key: Which dictionary of tensors in the file, where it has several. By default the file
            itself is that dictionary, or has one under a usual name such as "state_dict".

    Returns:
        Arrays by name, in the file's order and dtypes (bfloat16 as that of `ml_dtypes`). They can't
        be written to.

    Raises:
        ValueError: for a file that is damaged, or that holds something else than tensors; the
            message names it.
        FileNotFoundError: where there is no such file.

    Source: the formats, https://docs.pytorch.org/docs/stable/notes/serialization.html and
    https://huggingface.co/docs/safetensors

    Example:

    >>> import os, tempfile
    >>> import kerascnn as keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> path = os.path.join(tempfile.mkdtemp(), "x.safetensors")
    >>> model.save_weights(path)
    >>> {name: a.shape for name, a in keras.saving.read_torch_weights(path).items()}
    {'layers/dense/vars/0': (2, 3), 'layers/dense/vars/1': (3,)}
    """
    path = Path(filepath)
    if not path.is_file():
        raise FileNotFoundError(f"File not found: filepath={filepath}")
    if path.name.endswith(".safetensors"):
        return weights_file.read(path)
    try:
        with naming_file(path):
            with open(path, "rb") as file:
                is_zip = file.read(4) == b"PK\x03\x04"
            return (_read_zip if is_zip else _read_old)(path, key)
    except ForeignError as error:
        raise ValueError(f"{path} can't be read: {error}. {pickles.WAY_OUT}") from error


# The two forms --------------------------------------------------------------------------------


def _read_zip(path: Path, key: str | None) -> Arrays:
    from kerascnn.saving import members

    with members.opened(path, str(path), "PyTorch file") as files:
        names = files.names()
        found = [n for n in names if n.endswith("/data.pkl") and n.count("/") == 1]
        if len(found) != 1:
            raise ValueError(
                f"{path} is no file of torch.save: it has {len(found)} members 'data.pkl'."
            )
        root = found[0].removesuffix("data.pkl")
        if f"{root}constants.pkl" in names:
            raise ForeignError("it is a TorchScript archive, which holds code")
        total = files.size(found[0])
        _check_total(path, total)
        tensors = _tensors_of(_unpickled(path, files.read(found[0])), path, key)
        order = "little"
        if f"{root}byteorder" in names:
            size = files.size(f"{root}byteorder")
            order = (
                files.read(f"{root}byteorder").decode("latin1") if size < 20 else f"{size} bytes"
            )
        if order not in ("little", "big"):
            raise ValueError(f"{path} is damaged: its byte order is {order!r}.")
        storages = _storages_of(path, tensors)
        for name, storage in storages.items():
            size = files.size(f"{root}data/{name}")
            expected = storage.count * dtypes.ITEMSIZE[storage.dtype]
            if size != expected:
                raise ValueError(
                    f"{path}: the storage {name!r} should take {expected} bytes, but the file has "
                    f"{size} for it; it is damaged."
                )
            total += size
        _check_total(path, total)
        numbers = {
            name: _numbers(files.read(f"{root}data/{name}"), storage.dtype, order)
            for name, storage in storages.items()
        }
    return _arrays(path, tensors, numbers)


def _read_old(path: Path, key: str | None) -> Arrays:
    """Reads the form of before PyTorch 1.6, whose numbers are always little endian."""
    content = path.read_bytes()
    if content[:1] != b"\x80":
        raise ValueError(
            f"{path} is no file of torch.save: it begins with {content[:4]!r}, not as a zip "
            "archive or a pickle does."
        )
    place = 0
    parts = []
    for _ in range(5):
        try:
            value, place = pickles.load(content, place)
        except ForeignError:
            raise
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error}.") from error
        parts.append(value)
        if len(parts) == 1 and value != _MAGIC:
            raise ValueError(f"{path} is a pickle, but no file of torch.save. {pickles.WAY_OUT}")
    if parts[1] != _VERSION or not isinstance(parts[4], list):
        raise ValueError(
            f"{path} is damaged: expected version {_VERSION}, found {_shown(parts[1])}."
        )
    tensors = _tensors_of(parts[3], path, key)
    known = _all_storages(path, parts[3])
    numbers = {}
    for name in parts[4]:
        storage = known.get(name) if isinstance(name, str) else None
        if storage is None:
            raise ValueError(f"{path} is damaged: no tensor has the storage {_shown(name)}.")
        size = storage.count * dtypes.ITEMSIZE[storage.dtype]
        count, begin = int.from_bytes(content[place : place + 8], "little"), place + 8
        if count != storage.count or size > len(content) - begin:
            raise ValueError(
                f"{path}: the storage {name!r} should take {size} bytes, but the file has {count} "
                f"numbers for it and {max(len(content) - begin, 0)} bytes; it is damaged or cut "
                "off."
            )
        place = begin + size
        numbers[name] = _numbers(memoryview(content)[begin:place], storage.dtype, "little")
    return _arrays(path, tensors, numbers)


def _shown(value: Any) -> str:
    """Returns a short text for a value; that of lists in lists would recurse."""
    return repr(value)[:50] if isinstance(value, (str, int)) else f"a {type(value).__name__}"


def _unpickled(path: Path, content: bytes) -> Any:
    try:
        return pickles.load(content)[0]
    except ForeignError:
        raise
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}.") from error


def _check_total(path: Path, total: int) -> None:
    size = path.stat().st_size
    if total > size + _FREE:
        raise ValueError(
            f"{path}: its members claim {total} bytes, but the file has {size}. PyTorch packs "
            "nothing: save the weights again, or pack the archive again without compression."
        )


# From values to arrays ------------------------------------------------------------------------


def _tensors_of(value: Any, path: Path, key: str | None) -> dict[str, Tensor]:
    """Returns the dictionary of tensors in what a file holds, without what else is in it."""
    if not isinstance(value, dict):
        raise ForeignError(f"it holds a {type(value).__name__}, not a dictionary of tensors")
    inner = {
        name: tensors
        for name, part in value.items()
        if isinstance(name, str) and isinstance(part, dict) and (tensors := _only_tensors(part))
    }
    if key is not None:
        if key not in inner:
            raise ValueError(
                f"{path} has no dictionary of tensors {key!r}. Received: key={key!r}; it has "
                f"{sorted(inner)[:_SHOWN]}"
            )
        return inner[key]
    tensors = _only_tensors(value)
    if tensors:
        return tensors
    usual = [name for name in _WRAPPERS if name in inner]
    if len(inner) > 1 and not usual:
        raise ValueError(
            f"{path} has several dictionaries of tensors: {sorted(inner)[:_SHOWN]}. Name one by "
            "`key`."
        )
    if not inner:
        raise ForeignError(
            f"it has no tensors by name; its keys are {[str(k)[:50] for k in value][:_SHOWN]}"
        )
    return inner[usual[0]] if usual else next(iter(inner.values()))


def _only_tensors(value: dict[Any, Any]) -> dict[str, Tensor]:
    return {k: v for k, v in value.items() if isinstance(k, str) and isinstance(v, Tensor)}


def _storages_of(path: Path, tensors: dict[str, Tensor]) -> dict[str, Storage]:
    """Returns the storages of tensors by name; tensors may share them."""
    found: dict[str, Storage] = {}
    for tensor in tensors.values():
        _add(path, found, tensor.storage)
    return found


def _all_storages(path: Path, value: Any) -> dict[str, Storage]:
    """Returns the storages of all tensors in a value. Old files have them in one row."""
    found: dict[str, Storage] = {}
    seen: set[int] = set()
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, Tensor):
            _add(path, found, part.storage)
        elif isinstance(part, Storage):
            _add(path, found, part)
        elif isinstance(part, (dict, list, tuple)) and id(part) not in seen:
            seen.add(id(part))
            stack += part.values() if isinstance(part, dict) else part
    return found


def _add(path: Path, found: dict[str, Storage], storage: Storage) -> None:
    known = found.setdefault(storage.key, storage)
    if (known.dtype, known.count) != (storage.dtype, storage.count):
        raise ValueError(
            f"{path} is damaged: the storage {storage.key[:50]!r} is one of {known.count} numbers "
            f"of {known.dtype} and of {storage.count} of {storage.dtype}."
        )


def _numbers(data: bytes | memoryview, dtype: str, order: str) -> np.ndarray[Any, Any]:
    if dtype == "bool":
        return np.frombuffer(data, np.uint8) != 0
    size = dtypes.ITEMSIZE[dtype]
    if order == "big" and size > 1:
        data = np.frombuffer(data, f"u{size}").byteswap().data
    return np.frombuffer(data, dtypes.numpy_dtype(dtype))


def _arrays(
    path: Path, tensors: dict[str, Tensor], numbers: dict[str, np.ndarray[Any, Any]]
) -> Arrays:
    limit = max(path.stat().st_size, 1 << 20)
    found = {}
    for name, tensor in tensors.items():
        flat = numbers.get(tensor.storage.key)
        if flat is None:
            raise ValueError(f"{path} is damaged: the file has no numbers of {name[:100]!r}.")
        count = 1
        for n in tensor.shape:
            count *= n
        # Strides of 0 repeat numbers, which take no memory before somebody copies them.
        if count * flat.itemsize > limit:
            raise ValueError(
                f"{path}: the tensor {name[:100]!r} of shape {tensor.shape} repeats the "
                f"{flat.size} numbers of its storage; that is more than the file's size. Save a "
                "copy of it (x.clone()), or its numbers alone."
            )
        if count == 0:
            array = np.empty(tensor.shape, flat.dtype)
        else:
            strides = tuple(
                stride * flat.itemsize if n > 1 else 0
                for n, stride in zip(tensor.shape, tensor.strides, strict=True)
            )
            flat = flat[tensor.storage.begin + tensor.offset :]
            array = np.lib.stride_tricks.as_strided(flat, tensor.shape, strides)
        array.flags.writeable = False
        found[name] = array
    return found
