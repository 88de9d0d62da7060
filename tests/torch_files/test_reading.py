"""PyTorch's files, in all three forms, give the arrays that PyTorch would."""

import ml_dtypes
import numpy as np
import pytest

from kerascnn import saving
from kerascnn.models import weights_file

from . import writing

DTYPES = [*writing.STORAGES]


def arrays_of_all_dtypes(rng):
    found = {}
    for dtype in DTYPES:
        kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
        found[f"part.{dtype}"] = rng.integers(0, 2 if dtype == "bool" else 100, (3, 4)).astype(kind)
    return {**found, "scalar": np.float32(3.5), "empty": np.zeros((0, 5), "float32")}


def check_equal(found, expected):
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
        assert not found[name].flags.writeable


@pytest.mark.parametrize("form", ["zip", "old", "safetensors"])
def test_all_dtypes(form, tmp_path, rng):
    arrays = arrays_of_all_dtypes(rng)
    path = tmp_path / ("x.safetensors" if form == "safetensors" else "x.pth")
    if form == "safetensors":
        weights_file.write(path, {name: np.asarray(a) for name, a in arrays.items()})
        found = saving.read_torch_weights(path)
        assert {n: a.tolist() for n, a in found.items()} == {
            n: a.tolist() for n, a in arrays.items()
        }
        return
    path.write_bytes(writing.zip_of(arrays) if form == "zip" else writing.old_of(arrays))
    check_equal(saving.read_torch_weights(path), arrays)


def test_files_of_pytorch_itself(tmp_path, rng):
    torch = pytest.importorskip("torch")
    x = torch.arange(24.0).reshape(2, 3, 4)
    state = {
        "parameter": torch.nn.Parameter(x),
        "transposed": x.transpose(0, 2),
        "view": x[1, :, 1:3],
        "expanded": torch.ones(1).expand(5),
        "empty": torch.zeros(0, 3),
        **torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).state_dict(),
        **{d: torch.arange(6).to(getattr(torch, d)).reshape(2, 3) for d in DTYPES},
    }
    expected = {
        name: value.detach().to(torch.float64).numpy()  # bfloat16 has no form in NumPy
        for name, value in state.items()
    }
    other = {"epoch": 3, "rate": 0.5, "shape": torch.Size([2]), "kind": torch.float16, "list": [x]}
    for options in ({}, {"pickle_protocol": 5}, {"_use_new_zipfile_serialization": False}):
        for content in (state, {**other, "state_dict": state, "none": None}):
            torch.save(content, tmp_path / "x.pth", **options)
            found = saving.read_torch_weights(tmp_path / "x.pth")
            assert list(found) == list(state)
            for name, array in found.items():
                assert str(state[name].dtype) == f"torch.{array.dtype.name}"
                np.testing.assert_array_equal(array.astype("float64"), expected[name])


def test_big_endian_numbers(tmp_path, rng):
    arrays = arrays_of_all_dtypes(rng)
    pickle, data = writing.whole(arrays)
    swapped = {}
    for key, array in zip(data, arrays.values(), strict=True):
        units = np.frombuffer(data[key], f"u{np.asarray(array).itemsize}")
        swapped[key] = units.byteswap().tobytes()
    (tmp_path / "x.pth").write_bytes(writing.zipped(pickle, swapped, order=b"big"))
    check_equal(saving.read_torch_weights(tmp_path / "x.pth"), arrays)


def test_tensors_share_a_storage(tmp_path):
    """With offsets and strides of their own, as slices and transposes have them."""
    numbers = np.arange(20, dtype="float32")
    where = writing.storage("0", "float32", 20)
    entries = {
        "all": writing.tensor(where, 0, (4, 5), (5, 1)),
        "transposed": writing.tensor(where, 0, (5, 4), (1, 5)),
        "column": writing.tensor(where, 3, (4,), (5,)),
        "repeated": writing.tensor(where, 7, (3, 2), (0, 1)),
    }
    content = writing.zipped(writing.pickled(writing.state_dict(entries)), {"0": numbers.tobytes()})
    (tmp_path / "x.pth").write_bytes(content)
    table = numbers.reshape(4, 5)
    check_equal(
        saving.read_torch_weights(tmp_path / "x.pth"),
        {
            "all": table,
            "transposed": table.T,
            "column": table[:, 3],
            "repeated": np.array([[7, 8]] * 3, "float32"),
        },
    )


def test_views_of_old_files(tmp_path):
    """Before PyTorch 0.4 a storage could be a part of another one."""
    numbers = np.arange(10, dtype="float32")
    view = b"(" + writing.text("1") + writing.number(4) + writing.number(5) + b"t"
    part = writing.tensor(writing.storage("0", "float32", 10, view), 1, (3,), (1,))
    pickle = writing.pickled(writing.state_dict({"part": part}))
    (tmp_path / "x.pth").write_bytes(writing.old(pickle, {"0": numbers.tobytes()}, {"0": 4}))
    check_equal(saving.read_torch_weights(tmp_path / "x.pth"), {"part": numbers[5:8]})


def test_dictionaries_within_a_file(tmp_path):
    def file(**parts):
        entries = {
            name: writing.state_dict(
                {"w": writing.tensor(writing.storage(key, "float32", 1), 0, (1,), (1,))}
            )
            for name, key in parts.items()
        }
        data = {key: np.float32(key).tobytes() for key in parts.values()}
        path = tmp_path / "x.pth"
        path.write_bytes(writing.zipped(writing.pickled(writing.state_dict(entries)), data))
        return path

    assert saving.read_torch_weights(file(anything="3"))["w"] == 3
    assert saving.read_torch_weights(file(optimizer="1", state_dict="2"))["w"] == 2
    assert saving.read_torch_weights(file(ema="1", state_dict="2"), key="ema")["w"] == 1
    with pytest.raises(ValueError, match=r"several dictionaries of tensors: \['a', 'b'\]"):
        saving.read_torch_weights(file(a="1", b="2"))
    with pytest.raises(ValueError, match=r"no dictionary of tensors 'c'.*key='c'"):
        saving.read_torch_weights(file(a="1", b="2"), key="c")
