"""Damaged and malicious files of PyTorch are errors, and nothing else happens."""

import os
import pickle
import struct
import zipfile

import numpy as np
import pytest

from kerascnn import saving
from kerascnn.models import weights_file
from kerascnn.torch_files import pickles

from . import writing

GOOD = {"w": np.arange(6, dtype="float32").reshape(2, 3), "b": np.ones(3, "float32")}


def refused(content, match, tmp_path):
    path = tmp_path / "x.pth"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=match) as caught:
        saving.read_torch_weights(path)
    assert str(path) in str(caught.value)


def in_zip(value, data=None):
    return writing.zipped(writing.pickled(value), data or {})


class Command:
    def __reduce__(self):
        return os.getcwd, ()


@pytest.mark.parametrize("form", ["zip", "old"])
def test_code_is_named_and_not_run(form, tmp_path, monkeypatch):
    content = pickle.dumps({"w": Command()}, 2)
    monkeypatch.setattr(os, "getcwd", lambda: pytest.fail("it ran"))
    file = writing.zipped(content, {}) if form == "zip" else writing.old(content, {}, {})
    refused(file, r"needs (posix|nt)\.getcwd.*torch\.save\(model\.state_dict\(\), path\)", tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("numpy._core.multiarray.scalar", b"cnumpy._core.multiarray\nscalar\n"),
        ("__main__.Net", b"c__main__\nNet\n"),
        ("builtins.eval", b"\x8c\x08builtins\x8c\x04eval\x93"),
        ("torch.storage._load_from_bytes", b"ctorch.storage\n_load_from_bytes\n"),
        ("torch.Size.__class__", b"\x8c\x05torch\x8c\x0eSize.__class__\x93"),
    ],
)
def test_other_names_are_refused(name, value, tmp_path):
    refused(in_zip(value), f"needs {name.replace('.', '[.]')}; only tensors", tmp_path)


def test_programs(tmp_path):
    target = writing.zipped(writing.pickled(b"}"), {})
    path = tmp_path / "script.pt"
    path.write_bytes(target)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("archive/constants.pkl", b"")
    with pytest.raises(ValueError, match="TorchScript archive, which holds code"):
        saving.read_torch_weights(path)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (b"i__main__\nX\n", "opcode INST"),
        (b"(I1\no", "opcode INT"),
        (b"P0\n", "opcode PERSID"),
        (b"\x8f", "opcode EMPTY_SET"),
        (b"B\xff\xff\xff\x7f", "opcode BINBYTES"),
        (b"\x8e" + b"\xff" * 8, "opcode BINBYTES8"),
        (b"\x96" + b"\xff" * 8, "opcode BYTEARRAY8"),
        (b"\xff", "damaged at byte"),
        (b"X\xff\xff\xff\x7f", "a text of 2147483647 bytes"),
        (b"X\x00\x01\x00\x00abc", "ends in the middle"),
        (b"h\x05", "no value 5"),
        (b"t", "damaged at byte"),
        (b"}}}s", "key of type dict"),
        (b"}\x8a\x09" + b"\x01" * 9 + b"Ns", "key of type int"),
        (b"})Ns", "key of type tuple"),
        (b"]NNs", "no dictionary"),
        (b"]}b", "attributes are set on"),
        (b"N)R", "can't be called"),
        (b"ccollections\nOrderedDict\n(NtR", "begins with values"),
        (b"ctorch\nSize\n(K\x01tR", "something else than whole numbers"),
        (b"NQ", "reference leads to something else"),
    ],
)
def test_opcodes(value, match, tmp_path):
    refused(in_zip(value), match, tmp_path)


@pytest.mark.parametrize(
    "bomb",
    [
        b"}" * 100_000,
        b"(" * 100_000,
        b"]" + b"".join(b"r" + struct.pack("<I", n) for n in range(100_000)),
        b"M\xff\xff" * 100_000,
        b"K\x01\x85" * 100_000,
    ],
)
def test_more_values_than_weights_need(bomb, tmp_path, monkeypatch):
    monkeypatch.setattr(pickles, "_FREE", 1 << 20)  # with 32 MB a file takes seconds to get there
    refused(in_zip(bomb), "far more values than weights need", tmp_path)


def test_deep_values_are_read(tmp_path):
    """Neither reading nor forgetting them recurses."""
    deep = b"}" + writing.text("x") + b"]" * 100_000 + b"a" * 99_999 + b"s"
    refused(in_zip(deep), "no tensors by name", tmp_path)
    refused(in_zip(b"]q\x00h\x00a"), "holds a list", tmp_path)


def test_tensors_beyond_their_storage(tmp_path):
    def one(offset, shape, strides, count=4, size=4, dtype="float32", **options):
        entry = writing.tensor(
            writing.storage("0", dtype, count, **options), offset, shape, strides
        )
        return in_zip(writing.state_dict({"w": entry}), {"0": bytes(4 * size)})

    refused(one(0, (5,), (1,)), r"reaches the number 4 of a storage of 4", tmp_path)
    refused(one(1, (2, 2), (2, 1)), r"reaches the number 4", tmp_path)
    refused(one(0, (2,), (2**40,)), "reaches the number", tmp_path)
    refused(one(-1, (2,), (1,)), "the offset of a tensor has the numbers", tmp_path)
    refused(one(0, (2,), (-1,)), "the strides of a tensor has the numbers", tmp_path)
    refused(one(0, (2**62,), (0,)), "the shape of a tensor has", tmp_path)
    refused(one(0, (2**61, 2**61), (0, 0)), "a tensor has the shape", tmp_path)
    refused(one(0, (0, 2**61, 2**61), (1, 1, 1)), "a tensor has the shape", tmp_path)
    refused(one(0, (1,) * 65, (1,) * 65), "65 sizes", tmp_path)
    refused(one(0, (2,), (1, 1)), "1 sizes and 2 strides", tmp_path)
    refused(one(0, (10**9,), (0,)), "repeats the 4 numbers of its storage", tmp_path)
    refused(one(0, (4,), (1,), count=2**40), "reaches|should take", tmp_path)
    refused(one(0, (4,), (1,), count=5), "should take 20 bytes, but the file has 16", tmp_path)
    refused(one(0, (4,), (1,), dtype="float64"), "should take 32 bytes", tmp_path)
    view = b"(" + writing.text("1") + writing.number(3) + writing.number(2) + b"t"
    refused(one(0, (1,), (1,), view=view), "a view reaches the number 5", tmp_path)


def test_storages_that_contradict_each_other(tmp_path):
    entries = {
        "a": writing.tensor(writing.storage("0", "float32", 4), 0, (4,), (1,)),
        "b": writing.tensor(writing.storage("0", "int64", 2), 0, (2,), (1,)),
    }
    content = in_zip(writing.state_dict(entries), {"0": bytes(16)})
    refused(content, "one of 4 numbers of float32 and of 2 of int64", tmp_path)


def test_archives(tmp_path):
    pickled, data = writing.whole(GOOD)
    good = writing.zipped(pickled, data)
    refused(good[:-30], "no PyTorch file, or is damaged", tmp_path)
    refused(writing.zipped(pickled, {"0": data["0"]}), "0 members 'archive/data/1'", tmp_path)
    refused(writing.zipped(pickled, data, order=b"middle"), "its byte order is 'middle'", tmp_path)
    refused(writing.zipped(pickled, data, order=b"x" * 100), "100 bytes", tmp_path)
    place = good.index(data["0"])
    refused(good[:place] + b"\xff" + good[place + 1 :], "CRC", tmp_path)
    path = tmp_path / "twice.pth"
    path.write_bytes(good)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other/data.pkl", pickled)
    with pytest.raises(ValueError, match="2 members 'data.pkl'"):
        saving.read_torch_weights(path)


def test_archives_that_unpack_to_far_more(tmp_path):
    size = 20 << 20
    where = writing.storage("0", "uint8", size)
    value = writing.state_dict({"w": writing.tensor(where, 0, (size,), (1,))})
    content = writing.zipped(
        writing.pickled(value), {"0": bytes(size)}, method=zipfile.ZIP_DEFLATED
    )
    assert len(content) < 1 << 20
    refused(content, "claim|stores", tmp_path)
    bomb = writing.zipped(b"\x80\x02" + b"}" * size, {}, method=zipfile.ZIP_DEFLATED)
    refused(bomb, "claim|stores", tmp_path)


def test_old_files(tmp_path):
    good = writing.old_of(GOOD)
    refused(good[:-1], "damaged or cut off", tmp_path)
    refused(good[:100], "damaged", tmp_path)
    refused(b"hello", "no file of torch.save", tmp_path)
    refused(b"", "no file of torch.save", tmp_path)
    deep = good.replace(writing.number(1001), b"]" * 3000 + b"a" * 2999)
    refused(deep, "expected version 1001, found a list", tmp_path)
    refused(pickle.dumps({"w": 1}, 2), "a pickle, but no file of torch.save", tmp_path)


def test_arrays_of_safetensors_on_top_of_each_other(tmp_path):
    """A small file could fill the memory with copies of the same bytes."""
    path = tmp_path / "x.safetensors"
    weights_file.write(path, {"a": np.zeros(4, "float32")})
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = content[8 : 8 + length].rstrip().removesuffix(b"}")
    entry = header[header.index(b'"a"') :]
    more = b"".join(b"," + entry.replace(b'"a"', b'"a%d"' % n) for n in range(3)) + b"}"
    text = header + more
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    with pytest.raises(ValueError, match="some lie on top of others"):
        saving.read_torch_weights(path)
