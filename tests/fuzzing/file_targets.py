"""What is fuzzed among files: for each kind good contents, a mutation, and the reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from . import (
    data_files,
    graph_files,
    image_files,
    model_files,
    mutators,
    onnx_files,
    pytorch_files,
    tar_files,
)


class Target(NamedTuple):
    """A kind of file.

    Attributes:
        ending: What the file's name ends in.
        seeds: Makes good contents. A folder to write in is its argument, and what chooses some of
            the contents, where all of them would take long.
        mutate: From a good content to another.
        read: Reads the file of a path, and returns what it read.
        errors: What the reader may raise.
        bounded: Whether what it takes is bounded. A configuration without a file makes the model
            that it describes, with all of its weights.
    """

    ending: str
    seeds: Callable[[Path, Random | None], list[bytes]]
    mutate: Callable[[Random, bytes], bytes]
    read: Callable[[Path], Any]
    errors: tuple[type[BaseException], ...] = (ValueError,)
    bounded: bool = True


def _read_onnx(path: Path) -> Any:
    import kerascnn as keras

    return keras.models.from_onnx(path)


TARGETS = {
    "keras": Target(
        ".keras",
        model_files.saved(".keras", zoo=True),
        model_files.mutate_keras,
        model_files.load_model,
    ),
    "h5_model": Target(
        ".h5",
        model_files.saved(".h5", zoo=True),
        model_files.mutate_h5_model,
        model_files.load_model,
    ),
    "exported": Target(
        ".safetensors",
        model_files.saved(".safetensors", zoo=True),
        model_files.mutate_exported,
        model_files.load_model,
    ),
    "configuration": Target(
        ".json",
        model_files.Configuration.seeds,
        model_files.mutate_config,
        model_files.Configuration.read,
        # What constructors raise for such arguments; as in Keras, what is no `fill_mode` or
        # `interpolation` is a NotImplementedError.
        (
            *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, MemoryError),
            NotImplementedError,
        ),
        bounded=False,
    ),
    "weights_h5": Target(
        ".weights.h5",
        model_files.saved(".weights.h5"),
        mutators.mutate_h5,
        model_files.IntoModels(),
    ),
    "h5_weights": Target(
        ".h5", model_files.saved(".h5"), mutators.mutate_h5, model_files.IntoModels()
    ),
    "safetensors": Target(
        ".weights.safetensors",
        model_files.saved(".weights.safetensors"),
        mutators.mutate_safetensors,
        model_files.IntoModels(),
    ),
    "onnx": Target(".onnx", onnx_files.seeds, onnx_files.mutate, _read_onnx),
    "graph": Target(".safetensors", graph_files.seeds(True), graph_files.mutate, graph_files.load),
    "graph_run": Target(
        ".safetensors",
        graph_files.seeds(False),
        graph_files.mutate,
        graph_files.predict,
        # Fourier transforms of other lengths, and what takes more memory than there is
        (ValueError, TypeError, MemoryError, RuntimeError),
        bounded=False,
    ),
    "torch_zip": Target(".pth", pytorch_files.seeds, pytorch_files.mutate, pytorch_files.read),
    "torch_old": Target(
        ".pth", pytorch_files.old_seeds, pytorch_files.mutate_old, pytorch_files.read
    ),
    "torch_safetensors": Target(
        ".safetensors",
        pytorch_files.safetensors_seeds,
        mutators.mutate_safetensors,
        pytorch_files.read,
    ),
    "npz": Target(".npz", data_files.npz_seeds, mutators.mutate_npz, data_files.read_npz),
    "idx": Target(".idx", data_files.idx_seeds, mutators.mutate_idx, data_files.read_idx),
    "cifar": Target(
        ".bin",
        data_files.cifar_seeds,
        data_files.mutate_cifar,
        data_files.read_cifar,
        (ValueError, FileNotFoundError),
    ),
    "cifar_archive": Target(
        ".tar.gz",
        data_files.archive_seeds,
        data_files.mutate_archive,
        data_files.read_archive,
        (ValueError, FileNotFoundError),
    ),
    "images": Target(".png", image_files.seeds, image_files.mutate, image_files.read),
    "tar": Target(".tar", tar_files.seeds, tar_files.mutate, tar_files.read),
    "sounds": Target(".wav", data_files.sound_seeds, mutators.mutate_wav, data_files.read_sound),
}


# What a reader must not do, and a part of what is said about it.
BROKEN = {
    b"import os; os.system('true')": "os.system",
    b"exec('1')": "exec",
    b"open('/none/written', 'a')": "open",
    b"open('/etc/hostname')": "open",
    b"import subprocess; subprocess.run(['true'])": "not for a reader",
    b"x = bytearray(100 << 20)": "bytes of memory",
    b"x = bytearray(1 << 40)": "MemoryError",
    b"from time import process_time as t; b = t(); any(t() > b + 6 for _ in iter(int, 1))": " s f",
    b"raise KeyError('x')": "KeyError",
    b"raise ValueError()": "without a message",
    b"import os; os.abort()": "the process ended",
}


def _broken_read(path: Path) -> None:
    # a code object that is at hand: `exec` of text would be noticed itself
    _BROKEN_CODE[path.read_bytes()]()


def _functions() -> dict[bytes, Any]:
    found = {}
    for text in BROKEN:
        space: dict[str, Any] = {}
        exec(f"def run(): {text.decode()}", space)
        found[text] = space["run"]
    return {**found, b"good": lambda: None}


_BROKEN_CODE = _functions()
TARGETS["broken"] = Target(
    ".txt", lambda _, __: [b"good"], lambda _, content: content, _broken_read
)


def mutated(name: str, seed: int, case: int, good: list[bytes]) -> bytes:
    """The content of a case, which depends on nothing but the arguments."""
    if name == "broken":
        return list(BROKEN)[case]
    rng = Random(f"{name} {seed} {case}")
    return TARGETS[name].mutate(rng, rng.choice(good))


def good_contents(name: str, folder: Path, rng: Random | None) -> list[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    return TARGETS[name].seeds(folder, rng)
