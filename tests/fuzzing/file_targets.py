"""What is fuzzed among files: for each kind good contents, a mutation, and the reader."""

from __future__ import annotations

import gzip
import inspect
import io
import json
import pickle
import tarfile
import wave
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from . import graph_files, image_files, mutators, onnx_files, tar_files


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


# Models -------------------------------------------------------------------------------------------


def _models() -> list[Any]:
    """Small models that have every part of a configuration somewhere."""
    import kerascnn as keras
    from kerascnn import layers

    images = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.Rescaling(0.5),
            layers.RandomFlip(seed=1),
            layers.Conv2D(2, 3, activation="relu", kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Dropout(0.2, seed=2),
            layers.Flatten(),
            layers.Dense(3, kernel_constraint="max_norm"),
        ]
    )
    images.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)),
        keras.losses.CategoricalCrossentropy(label_smoothing=0.1),
        metrics=["accuracy", keras.metrics.AUC(num_thresholds=5)],
    )
    left, right = keras.Input((4, 3), name="left"), keras.Input((4, 3), name="right")
    shared = layers.TimeDistributed(layers.Dense(3))
    x = layers.Concatenate()([shared(left), shared(right)])
    x = layers.Bidirectional(layers.LSTM(2, return_sequences=True))(x)
    x = layers.MultiHeadAttention(2, 2)(x, x)
    x = keras.ops.reshape(keras.ops.transpose(x, (0, 2, 1)), (-1, 16)) * 2.0
    x = layers.LayerNormalization()(x)
    graph = keras.Model({"left": left, "right": right}, [layers.Dense(2)(x), x])
    graph.compile("sgd", ["mse", None])
    words = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            layers.Embedding(7, 4, mask_zero=True),
            layers.Conv1D(3, 2, padding="causal"),
            layers.GlobalAveragePooling1D(),
            keras.Sequential([layers.Dense(4), layers.PReLU(), layers.Dense(2)]),
        ]
    )
    return [images, graph, words]


# These are tried one after the other for arguments without a default.
_ARGUMENTS: dict[str, list[Any]] = {
    "units": [3],
    "filters": [2],
    "kernel_size": [2],
    "pool_size": [2],
    "input_dim": [7],
    "output_dim": [3],
    "num_heads": [2],
    "key_dim": [2],
    "head_dim": [4],
    "num_query_heads": [2],
    "num_key_value_heads": [1],
    "output_size": [2],
    "n": [3],
    "target_shape": [(-1,)],
    "dims": [(1,), (2, 1), (2, 1, 3)],
    "num_bins": [3],
    "num_tokens": [4],
    "rate": [0.2],
    "stddev": [0.1],
    "factor": [0.2],
    "height": [3],
    "width": [3],
    "height_factor": [0.1],
    "width_factor": [0.1],
    "value_range": [(0, 1)],
    "scale": [2.0],
    "max_value": [1.0],
    "cell": [],
    "equation": ["ab,bc->ac", "abc,cd->abd"],
    "output_shape": [3],
    "groups": [1],
    "max_number": [3],
}
_INPUTS = (
    *(((4,), "float32"), ((6, 4), "float32"), ((6, 6, 4), "float32")),
    *(((4, 4, 4, 2), "float32"), ((5,), "int32"), ((4000,), "float32")),
)


def _zoo(rng: Random | None) -> list[Any]:
    """A small model around each layer, op and metric that can be made with few arguments."""
    import kerascnn as keras
    from kerascnn import layers

    def some(names: Any) -> list[str]:
        return [n for n in names if rng is None or rng.random() < 0.08]

    found = []
    for name in some(vars(layers)):
        cls = getattr(layers, name)
        if not inspect.isclass(cls) or not issubclass(cls, layers.Layer):
            continue
        required = [
            p.name
            for p in inspect.signature(cls.__init__).parameters.values()
            if p.default is inspect.Parameter.empty and p.kind == p.POSITIONAL_OR_KEYWORD
        ][1:]
        if any(n not in _ARGUMENTS for n in required):
            continue
        chosen: list[dict[str, Any]] = [{}]
        for n in required:
            chosen = [{**c, n: value} for c in chosen for value in _ARGUMENTS[n]]
        for arguments in chosen:
            for shape, dtype in _INPUTS:
                try:
                    model = keras.Sequential([keras.Input(shape, dtype=dtype), cls(**arguments)])
                    model.to_json()
                except Exception:
                    continue
                found.append(model)
    cells = [
        layers.GRUCell(2),
        layers.StackedRNNCells([layers.LSTMCell(2), layers.SimpleRNNCell(2)]),
    ]
    for layer in (
        *(layers.RNN(cell, return_sequences=True) for cell in cells),
        layers.Bidirectional(layers.GRU(2)),
        layers.TimeDistributed(layers.Dense(2)),
        layers.Dense(2, kernel_initializer="orthogonal"),
        layers.Dense(4, kernel_initializer="identity"),
    ):
        found.append(keras.Sequential([keras.Input((6, 4)), layer]))
    for name in some(keras.ops.__all__):
        function = getattr(keras.ops, name)
        for more in ((), (2,), (None,), ("x",), ([2, 2],), (0, 1), (3, 2)):
            inputs = keras.Input((4, 6))
            try:
                outputs = function(inputs, *(inputs if m == "x" else m for m in more))
                model = keras.Model(inputs, outputs)
                model.to_json()
            except Exception:
                continue
            found.append(model)
            break
    for name in some(vars(keras.metrics)):
        cls = getattr(keras.metrics, name)
        if inspect.isclass(cls):
            for arguments in ({}, {"num_classes": 3}, {"target_class_ids": [1], "num_classes": 3}):
                try:
                    metric = cls(**arguments)
                    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
                    model.compile("adam", "mse", metrics=[metric])
                    model.to_json()
                except Exception:
                    continue
                found.append(model)
                break
    return found


def _parts() -> list[Any]:
    """Configurations of every public class, with wild arguments where there is no default."""
    import kerascnn as keras

    rng = Random(1)
    found: list[Any] = []
    for place in ("layers", "initializers", "metrics", "losses", "optimizers", "regularizers"):
        for name, cls in vars(getattr(keras, place)).items():
            if not inspect.isclass(cls) or not hasattr(cls, "from_config"):
                continue
            try:
                parameters = inspect.signature(cls.__init__).parameters.values()
            except ValueError:
                continue
            for _ in range(3):
                config = {}
                for p in parameters:
                    if p.name in ("self", "kwargs", "args", "name"):
                        continue
                    plain = isinstance(p.default, (int, float, str, bool, type(None)))
                    if p.default is inspect.Parameter.empty:
                        choices: list[Any] = [1, 2, 3, [2, 2], 1000, 10**6, 10**9, "x"]
                        config[p.name] = rng.choice(choices)
                    elif type(p.default) in (int, float) and rng.random() < 0.2:
                        config[p.name] = rng.choice(mutators.WILD_NUMBERS)
                    elif plain:
                        config[p.name] = p.default
                found.append(
                    {
                        "module": f"keras.{place}",
                        "class_name": name,
                        "config": config,
                        "registered_name": None,
                        "build_config": {"input_shape": rng.choice([[None, 4], [None, 6, 6, 2]])},
                    }
                )
    return found


_PARTS: list[Any] = []


def parts() -> list[Any]:
    if not _PARTS:
        _PARTS.extend(_parts())
    return _PARTS


def _saved(ending: str, zoo: bool = False) -> Callable[[Path, Random | None], list[bytes]]:
    def seeds(folder: Path, rng: Random | None) -> list[bytes]:
        contents: list[bytes] = []
        known: dict[int, bytes] = {}
        # the models with every part of a configuration are as frequent as all others together
        models = _models()
        for model in [*models * 20, *_zoo(rng)] if zoo else models:
            path = folder / f"seed{ending}"
            if ending.endswith((".weights.h5", ".weights.safetensors")):
                model.save_weights(path)
            elif ending == ".safetensors":
                if id(model) not in known:
                    model.export(path)
            elif id(model) not in known:
                model.save(path)
            if path.exists():
                known[id(model)] = path.read_bytes()
                path.unlink()
            contents.append(known[id(model)])
        return contents

    return seeds


def _mutate_config(rng: Random, content: bytes) -> bytes:
    return mutators.dump_json(rng, mutators.mutate_json(rng, json.loads(content), parts()))


def _mutate_keras(rng: Random, content: bytes) -> bytes:
    kind = rng.randrange(10)
    if kind < 6:
        return mutators.within_zip(rng, content, "config.json", _mutate_config)
    if kind < 8:
        return mutators.within_zip(rng, content, "model.weights.h5", mutators.mutate_h5)
    return (mutators.mutate_zip if kind == 8 else mutators.mutate_bytes)(rng, content)


def _mutate_h5_model(rng: Random, content: bytes) -> bytes:
    if rng.random() < 0.6:
        return mutators.mutate_h5_config(rng, content, parts())
    return mutators.mutate_h5(rng, content)


def _mutate_exported(rng: Random, content: bytes) -> bytes:
    return mutators.mutate_safetensors(rng, content, parts(), "config")


def _load_model(path: Path) -> Any:
    import kerascnn as keras

    return keras.saving.load_model(path)


def _read_onnx(path: Path) -> Any:
    import kerascnn as keras

    return keras.models.from_onnx(path)


class _IntoModels:
    """Loads weights into models, which stay what they were on an error."""

    def __init__(self) -> None:
        self._models: list[Any] = []
        self.__name__ = "load_weights"

    def __call__(self, path: Path) -> Any:
        self._models = self._models or _models()
        first_error: ValueError | None = None
        loaded = 0
        for model in self._models:
            before = [v.numpy() for v in model.weights]
            try:
                model.load_weights(path)
            except ValueError as error:
                first_error = first_error or error
                for value, variable in zip(before, model.weights, strict=True):
                    if not np.array_equal(value, variable.numpy(), equal_nan=True):
                        raise AssertionError(f"{variable.path} changed: {error}") from error
            else:
                loaded += 1
                for value, variable in zip(before, model.weights, strict=True):
                    variable.assign(value)
        if first_error is not None and loaded == 0:
            raise first_error


class _Configuration:
    """A configuration without a file: `model_from_json`."""

    @staticmethod
    def seeds(_: Path, rng: Random | None) -> list[bytes]:
        return [model.to_json().encode() for model in [*_models() * 20, *_zoo(rng)]]

    @staticmethod
    def read(path: Path) -> Any:
        import kerascnn as keras

        return keras.models.model_from_json(path.read_text("utf-8", "replace"))


# Data sets ----------------------------------------------------------------------------------------

_IDX = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


def _arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for split, count in (("train", 3), ("test", 2)):
        found[f"x_{split}"] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        found[f"y_{split}"] = rng.integers(0, 10, count, dtype=np.uint8)
    return found


def _npz_seeds(_: Path, __: Random | None) -> list[bytes]:
    contents = []
    for save in (np.savez, np.savez_compressed):
        target = io.BytesIO()
        save(target, **_arrays())
        contents.append(target.getvalue())
    return contents


def _read_npz(path: Path) -> Any:
    import kerascnn as keras

    return keras.datasets.mnist.load_data(path)


def _idx(array: Any) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def _idx_seeds(_: Path, __: Random | None) -> list[bytes]:
    images = _idx(_arrays()["x_train"])
    return [images, gzip.compress(images)]


def _read_idx(path: Path) -> Any:
    """Reads the file as the training images beside three good files."""
    import kerascnn as keras

    folder = path.with_name("idx")
    if not folder.exists():
        folder.mkdir()
        for key, name in _IDX.items():
            (folder / name).write_bytes(_idx(_arrays()[key]))
    path.replace(folder / _IDX["x_train"])
    return keras.datasets.mnist.load_data(folder)


def _batch(count: int = 2) -> dict[bytes, Any]:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3072), dtype=np.uint8)
    return {b"data": pixels, b"labels": list(range(count))}


def _cifar_seeds(_: Path, __: Random | None) -> list[bytes]:
    batch = _batch()
    labels = np.array(batch[b"labels"], np.uint8)[:, None]
    rows = np.concatenate([labels, batch[b"data"]], 1)
    return [pickle.dumps(batch, 2), pickle.dumps(batch, 4), rows.tobytes()]


def _mutate_cifar(rng: Random, content: bytes) -> bytes:
    if content[:1] == b"\x80":
        return mutators.mutate_pickle(rng, content)
    return mutators.mutate_bytes(rng, content)


def _read_cifar(path: Path) -> Any:
    import kerascnn as keras

    folder = path.with_name("cifar")
    if not folder.exists():
        folder.mkdir()
        for stem in (*(f"data_batch_{i}" for i in range(2, 6)), "test_batch"):
            (folder / stem).write_bytes(pickle.dumps(_batch(), 2))
    first = path.read_bytes()[:1]
    for name in ("data_batch_1", "data_batch_1.bin"):
        (folder / name).unlink(missing_ok=True)
    path.replace(folder / ("data_batch_1" if first == b"\x80" else "data_batch_1.bin"))
    return keras.datasets.cifar10.load_data(folder)


def _archive_seeds(_: Path, __: Random | None) -> list[bytes]:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for stem in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
            data = pickle.dumps(_batch(1), 2)
            entry = tarfile.TarInfo(f"cifar/{stem}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return [stream.getvalue()]


def _mutate_archive(rng: Random, content: bytes) -> bytes:
    """Changes a header of the archive with a correct check sum, or bytes."""
    if rng.random() < 0.2:
        return mutators.mutate_bytes(rng, content)
    raw = bytearray(gzip.decompress(content))
    size = len(raw)
    place = rng.choice([p for p in range(0, size, 512) if raw[p : p + 6] == b"cifar/"])
    choice = rng.randrange(6)
    if choice == 0:
        number = rng.choice([0, 1, 512, 10**6, 2**30, 8**11 - 1])
        raw[place + 124 : place + 136] = b"%011o\0" % number
    elif choice == 1:
        raw[place + 124 : place + 136] = b"\x80" + b"\xff" * 11
    elif choice == 2:
        raw[place + 156] = rng.choice(b"012345678gxLKS\0")
    elif choice == 3:
        name = rng.choice([b"../data_batch_1", b"/data_batch_1", b"cifar/test_batch"])
        raw[place : place + 100] = name.ljust(100, b"\0")
    elif choice == 4:
        raw[place + 157 : place + 257] = mutators.CANARY.encode().ljust(100, b"\0")
        raw[place + 156] = rng.choice(b"12")
    else:
        raw = bytearray(mutators.mutate_bytes(rng, bytes(raw)))
    header = raw[place : place + 512]
    if len(header) == 512 and choice < 5:
        header[148:156] = b" " * 8
        raw[place + 148 : place + 156] = b"%06o\0 " % sum(header)
    if rng.random() < 0.05:
        raw += bytes(1 << 26)
    return gzip.compress(bytes(raw), 1)


def _read_archive(path: Path) -> Any:
    import kerascnn as keras

    return keras.datasets.cifar10.load_data(path)


# Sounds -------------------------------------------------------------------------------------------


def _sound_seeds(_: Path, __: Random | None) -> list[bytes]:
    contents = []
    for width in (1, 2, 3, 4):
        target = io.BytesIO()
        with wave.open(target, "wb") as file:
            file.setparams((2, width, 8000, 0, "NONE", ""))
            file.writeframes(bytes(range(24)) * width)
        contents.append(target.getvalue())
    return contents


def _read_sound(path: Path) -> Any:
    import kerascnn as keras

    folder = path.with_name("sounds") / "class"
    folder.mkdir(parents=True, exist_ok=True)
    path.replace(folder / "x.wav")
    data = keras.utils.audio_dataset_from_directory(
        folder.parent, batch_size=1, sampling_rate=8000, verbose=False
    )
    return [np.asarray(x) for x, _ in data]


TARGETS = {
    "keras": Target(".keras", _saved(".keras", zoo=True), _mutate_keras, _load_model),
    "h5_model": Target(".h5", _saved(".h5", zoo=True), _mutate_h5_model, _load_model),
    "exported": Target(
        ".safetensors", _saved(".safetensors", zoo=True), _mutate_exported, _load_model
    ),
    "configuration": Target(
        ".json",
        _Configuration.seeds,
        _mutate_config,
        _Configuration.read,
        # What constructors raise for such arguments; as in Keras, what is no `fill_mode` or
        # `interpolation` is a NotImplementedError.
        (
            *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, MemoryError),
            NotImplementedError,
        ),
        bounded=False,
    ),
    "weights_h5": Target(".weights.h5", _saved(".weights.h5"), mutators.mutate_h5, _IntoModels()),
    "h5_weights": Target(".h5", _saved(".h5"), mutators.mutate_h5, _IntoModels()),
    "safetensors": Target(
        ".weights.safetensors",
        _saved(".weights.safetensors"),
        mutators.mutate_safetensors,
        _IntoModels(),
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
    "npz": Target(".npz", _npz_seeds, mutators.mutate_npz, _read_npz),
    "idx": Target(".idx", _idx_seeds, mutators.mutate_idx, _read_idx),
    "cifar": Target(
        ".bin", _cifar_seeds, _mutate_cifar, _read_cifar, (ValueError, FileNotFoundError)
    ),
    "cifar_archive": Target(
        ".tar.gz", _archive_seeds, _mutate_archive, _read_archive, (ValueError, FileNotFoundError)
    ),
    "images": Target(".png", image_files.seeds, image_files.mutate, image_files.read),
    "tar": Target(".tar", tar_files.seeds, tar_files.mutate, tar_files.read),
    "sounds": Target(".wav", _sound_seeds, mutators.mutate_wav, _read_sound),
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
