"""Weights in files: writing, reading, and files that are wrong, cut off or hostile."""

import json
import struct

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers
from kerascnn.models import weights_file


def make(units=3):
    return keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.Conv2D(2, 3),
            layers.BatchNormalization(),
            layers.Conv2D(2, 3),
            layers.Flatten(),
            layers.Dropout(0.5, seed=1),
            layers.Dense(units, name="scores"),
        ]
    )


def test_round_trip_across_names_and_devices(tmp_path, device):
    path = tmp_path / "w.weights.safetensors"
    with keras.device(device):
        model, other = make(), make()
    # This call advances the generator's counter.
    model.layers[4](np.ones((2, 2), "float32"), training=True)
    model.save_weights(path)
    other.load_weights(path)
    for a, b in zip(model.variables, other.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_dtype(tmp_path, dtype):
    path = tmp_path / "w.safetensors"
    layer_types = [layers.Dense(3, dtype=dtype) for _ in range(2)]
    model, other = (keras.Sequential([keras.Input((4,)), layer]) for layer in layer_types)
    model.save_weights(path)
    other.load_weights(path)
    assert other.layers[0].kernel.dtype == dtype
    np.testing.assert_array_equal(model.get_weights()[0], other.get_weights()[0])


def test_the_format_is_safetensors(tmp_path):
    path = tmp_path / "w.safetensors"
    model = make()
    model.save_weights(path)
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    entry = header["layers/conv2d/vars/0"]
    assert entry["dtype"] == "F32"
    assert entry["shape"] == [3, 3, 1, 2]
    begin, end = entry["data_offsets"]
    stored = np.frombuffer(data[8 + length :][begin:end], "<f4").reshape(3, 3, 1, 2)
    np.testing.assert_array_equal(stored, model.get_weights()[0])


def test_weights_that_do_not_fit_change_nothing(tmp_path):
    path = tmp_path / "w.safetensors"
    make(3).save_weights(path)
    model = make(4)
    before = model.get_weights()
    with pytest.raises(ValueError, match=r"'scores' \(Dense\).*\(8, 4\), found \(8, 3\)"):
        model.load_weights(path)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.warns(UserWarning, match="scores"):
        model.load_weights(path, skip_mismatch=True)
    assert (model.get_weights()[0] != before[0]).any()
    np.testing.assert_array_equal(model.get_weights()[-2], before[-2])


def test_other_layers_than_in_the_file(tmp_path):
    path = tmp_path / "w.safetensors"
    make().save_weights(path)
    with pytest.raises(ValueError, match="belongs to no layer"):
        keras.Sequential([keras.Input((6, 6, 1)), layers.Conv2D(2, 3)]).load_weights(path)
    with pytest.raises(ValueError, match="no weights yet"):
        keras.Sequential([layers.Dense(3)]).load_weights(path)


def test_names_and_existing_files(tmp_path):
    model = make()
    with pytest.raises(ValueError, match=r"name ends in '.weights.h5'"):
        model.save_weights(tmp_path / "w.txt")
    path = tmp_path / "w.safetensors"
    model.save_weights(path)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        model.save_weights(path, overwrite=False)
    with pytest.raises(FileNotFoundError):
        model.load_weights(tmp_path / "absent.safetensors")
    with pytest.raises(ValueError, match="without weights yet"):
        keras.Sequential([layers.Dense(2)]).save_weights(path)


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "w.safetensors"
    make().save_weights(path)
    old = path.read_bytes()

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(weights_file.os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        make().save_weights(path)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def damaged(data, rng):
    """Yields damaged files."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]

    def packed(changed):
        text = json.dumps(changed).encode()
        return struct.pack("<Q", len(text)) + text + body

    yield b""
    yield data[:5]
    yield data[: 8 + length // 2]
    yield data[:-1]
    yield struct.pack("<Q", 2**62) + data[8:]
    yield struct.pack("<Q", 4) + b"null" + body
    yield rng.bytes(len(data))
    for key, value in (
        ("dtype", "F99"),
        ("dtype", None),
        ("shape", [-1, 2]),
        ("shape", [2**40, 2**40]),
        ("shape", "wide"),
        ("shape", [float("inf"), 2]),
        ("shape", [3.0, 3, 1, 2]),
        ("shape", [1] * 100 + [18]),
        ("data_offsets", [-8, 64]),
        ("data_offsets", [0, 2**60]),
        ("data_offsets", [64]),
        ("data_offsets", [0, float("inf")]),
    ):
        changed = json.loads(json.dumps(header))
        changed["layers/conv2d/vars/0"][key] = value
        yield packed(changed)


def test_damaged_files_are_refused_and_change_nothing(tmp_path, rng):
    path = tmp_path / "w.safetensors"
    model = make()
    model.save_weights(path)
    before = model.get_weights()
    for data in damaged(path.read_bytes(), rng):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"w\.safetensors"):
            model.load_weights(path)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
