"""Files that failed once in tests/fuzzing, and what they are now."""

import io
import json

import h5py
import numpy as np
import pytest

import kerascnn as keras
from kerascnn.saving import h5_file

HEAP = b"GCOL\x01\0\0\0"


def model_in_h5(path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.save(path)
    return model


def heap_of(content):
    """Returns where the first heap and its last object, which is what is free, are."""
    begin = content.index(HEAP)
    place, end = begin + 16, begin + int.from_bytes(content[begin + 8 : begin + 16], "little")
    while int.from_bytes(content[place : place + 2], "little"):
        place += 16 + -(-int.from_bytes(content[place + 8 : place + 16], "little") // 8) * 8
    assert place < end
    return begin, place


@pytest.mark.parametrize("size", [0, 8, 2**63, 2**64 - 16, 2**64 - 1])
@pytest.mark.parametrize("of_what", ["free", "object"])
def test_heaps_of_hdf5_that_have_no_end(tmp_path, size, of_what):
    """HDF5 reads an object after the other, and stayed for ever at one without a size."""
    path = tmp_path / "model.h5"
    model_in_h5(path)
    content = bytearray(path.read_bytes())
    begin, free = heap_of(content)
    place = free if of_what == "free" else begin + 16
    content[place + 8 : place + 16] = size.to_bytes(8, "little")
    if of_what == "object" and size <= 8:
        content[place : place + 2] = b"\0\0"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="its heap at byte .* has an object of"):
        keras.saving.load_model(path)


@pytest.mark.parametrize("offset", range(0, 24, 5))
def test_heaps_are_found_where_pieces_meet(monkeypatch, offset):
    monkeypatch.setattr(h5_file, "_PIECE", 16)
    content = bytes(offset) + HEAP + bytes(30) + HEAP
    found = list(h5_file._places(io.BytesIO(content), HEAP))
    assert found == [offset, offset + len(HEAP) + 30]


def test_many_long_texts_are_read(tmp_path):
    """Heaps of all kinds that HDF5 itself writes are right."""
    path = tmp_path / "texts.h5"
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for n in range(200):
            file.attrs[f"text_{n}"] = "x" * int(rng.integers(0, 9000))
            if n % 3 == 0:
                del file.attrs[f"text_{n}"]
    assert path.read_bytes().count(HEAP) > 20
    with h5_file.opened_tree(str(path), "texts") as groups:
        assert list(groups) == [""]


def with_axis(model, path, length):
    """Saves a model of one op or layer, and then another length of its first axis in the file."""
    model.save(path)
    with h5py.File(path, "a") as file:
        text = file.attrs["model_config"]
        text = text if isinstance(text, str) else text.decode()
        config = json.loads(text.replace("1234", str(length)))
        file.attrs["model_config"] = json.dumps(config)


LISTS = {
    "flip": lambda x: keras.ops.flip(x, axis=1),
    "pad": lambda x: keras.ops.pad(x, [[0, 0], [1, 1], [0, 0]], "reflect"),
    "repeat": lambda x: keras.ops.repeat(x, 2, axis=1),
    "UpSampling1D": lambda x: keras.layers.UpSampling1D(2)(x),
    "tril": lambda x: keras.ops.tril(keras.layers.Permute((2, 1))(x)),
}


@pytest.mark.parametrize("name", LISTS)
def test_axes_that_would_be_listed_place_by_place(tmp_path, name):
    """A configuration of some kB asked for 16 GB of positions."""
    path = tmp_path / "model.h5"
    inputs = keras.Input((1234, 2))
    with_axis(keras.Model(inputs, LISTS[name](inputs)), path, 2_000)
    assert keras.saving.load_model(path).input_shape == (None, 2_000, 2)
    with_axis(keras.Model(inputs, LISTS[name](inputs)), path, 2**31 - 5)
    with pytest.raises(ValueError, match="would be listed one by one"):
        keras.saving.load_model(path)


@pytest.mark.parametrize("name", ["tril", "triu"])
def test_masks_of_large_matrices(tmp_path, name):
    path = tmp_path / "model.h5"
    inputs = keras.Input((1234, 1234))
    model = keras.Model(inputs, getattr(keras.ops, name)(inputs))
    with_axis(model, path, 1_000_000)
    with pytest.raises(ValueError, match="would be listed one by one"):
        keras.saving.load_model(path)


@pytest.mark.parametrize("name", ["det", "inv", "cholesky", "qr"])
def test_large_matrices_that_would_be_unrolled(tmp_path, name):
    path = tmp_path / "model.h5"
    inputs = keras.Input((4, 4))
    outputs = getattr(keras.ops, name)(inputs)
    model = keras.Model(inputs, outputs[0] if name == "qr" else outputs)
    model.save(path)
    with h5py.File(path, "a") as file:
        text = file.attrs["model_config"]
        text = (text if isinstance(text, str) else text.decode()).replace("4, 4]", "50000, 50000]")
        file.attrs["model_config"] = text
    with pytest.raises(ValueError, match=r"would be listed one by one|more than the file holds"):
        keras.saving.load_model(path)


@pytest.mark.parametrize("name", ["Initializer", "RandomInitializer"])
def test_initializers_that_give_no_values_are_refused(name):
    config = keras.layers.Dense(2).get_config()
    config["kernel_initializer"] |= {"class_name": name, "config": {}}
    with pytest.raises(TypeError, match=f"{name} is a base of initializers"):
        keras.layers.Dense.from_config(config)
