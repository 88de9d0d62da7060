"""Headers of tar archives against Python's tarfile, and archives that are refused."""

import bz2
import gzip
import io
import lzma
import os
import struct
import tarfile

import pytest

from kerascnn.data import tar_files, tar_index
from kerascnn.data.tar_files import Member, TarError, TarFile

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def archive(path, members, form=tarfile.PAX_FORMAT, change=lambda info: info):
    with tarfile.open(path, "w", format=form) as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(change(info), io.BytesIO(content))
    return str(path)


def members(path):
    with TarFile(str(path)) as file:
        return list(file.members())


def by_tarfile(path):
    with tarfile.open(path) as file:
        return [Member(m.name, m.offset_data, m.size) for m in file if m.isfile()]


def contents(rng, count, name="{:04}.bin"):
    sizes = rng.integers(0, 2000, count)
    return {name.format(i): rng.bytes(int(size)) for i, size in enumerate(sizes)}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["{:04}.bin", "a/b.c/{:04}.x.y", "./{:04}.bin", "ü/{:04}.ß"])
def test_members_are_those_of_tarfile(form, name, tmp_path, rng):
    path = archive(tmp_path / "a.tar", contents(rng, 30, name), FORMATS[form])
    assert members(path) == by_tarfile(path)
    assert len(members(path)) == 30


@pytest.mark.parametrize("form", ["gnu", "pax"])
@pytest.mark.parametrize("length", [99, 100, 101, 155, 255, 256, 300, 5000, 70_000])
def test_long_names(form, length, tmp_path):
    name = ("d" * 90 + "/") * (length // 91) + "x" * (length % 91 or 1)
    path = archive(tmp_path / "a.tar", {name: b"one", "b": b"two"}, FORMATS[form])
    assert members(path) == by_tarfile(path)
    assert [member.name for member in members(path)] == [name, "b"]


def test_folders_labels_and_old_headers_are_passed_over(tmp_path):
    def change(info):
        info.type = {"folder": tarfile.DIRTYPE, "label": b"V", "old": b"\0", "whole": b"7"}.get(
            info.name, tarfile.REGTYPE
        )
        return info

    given = {"folder": b"", "label": b"", "old": b"1", "whole": b"22", "last": b"333"}
    path = archive(tmp_path / "a.tar", given, tarfile.GNU_FORMAT, change)
    assert [(m.name, m.size) for m in members(path)] == [("old", 1), ("whole", 2), ("last", 3)]


def header(name=b"a", size=b"00000000003\0", kind=b"0", magic=b"ustar\x0000"):
    block = bytearray(512)
    block[: len(name)] = name
    block[124:136] = size
    block[156:157] = kind
    block[257:265] = magic
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def written(path, *blocks):
    path.write_bytes(b"".join(blocks) + bytes(1024))
    return path


def in_base_256(number):
    return b"\x80" + number.to_bytes(11, "big")


def test_sizes_in_base_256(tmp_path):
    path = written(tmp_path / "a.tar", header(size=in_base_256(3)), b"abc".ljust(512, b"\0"))
    assert members(path) == [Member("a", 512, 3)] == by_tarfile(path)


def test_signed_checksums_of_old_programs(tmp_path):
    block = bytearray(header(name="ü".encode()))
    signed = sum(struct.unpack("512b", block[:148] + b" " * 8 + block[156:]))
    block[148:156] = b"%06o\0 " % signed
    path = written(tmp_path / "a.tar", bytes(block), b"abc".ljust(512, b"\0"))
    assert [member.name for member in members(path)] == ["ü"]


@pytest.mark.parametrize(
    "size",
    [
        *(in_base_256(n) for n in (10**6, 2**62, 2**63 - 512, 2**63, 2**64 - 1, 2**87)),
        *(b"\xff" * 12, b"\x81" + bytes(11), b"77777777777\0", b"-0000000001\0", b"0x00000000a\0"),
        *(b"0000000000 9", b"8888888888\0\0", b"1_000\0\0\0\0\0\0\0"),
    ],
)
def test_sizes_beyond_the_file(size, tmp_path):
    path = written(tmp_path / "a.tar", header(size=size), b"abc".ljust(512, b"\0"))
    with pytest.raises(TarError, match=r"a\.tar is (truncated: 'a' needs|damaged at byte 0)"):
        members(path)


def pax(*records):
    text = b"".join(records)
    padded = text.ljust(-(-len(text) // 512) * 512, b"\0")
    return header(b"pax", b"%011o\0" % len(text), b"x") + padded


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (b"18 size=999999999\n", "is truncated"),
        (b"19 size=-000000001\n", "a size is"),
        (b"29 size=9999999999999999999999\n", "a size is|pax is"),
        (b"99 path=x\n", "pax is"),
        (b"0 path=x\n", "pax is"),
        (b"path=x\n", "pax is"),
        (b"10 path=xx", "pax is"),
        (b"10 path=\0\0\n", "a zero byte|pax is"),
        (b"22 GNU.sparse.major=1\n", "is a sparse file"),
    ],
)
def test_broken_records_of_pax(record, words, tmp_path):
    path = written(tmp_path / "a.tar", pax(record), header(), b"abc".ljust(512, b"\0"))
    with pytest.raises(TarError, match=words):
        members(path)


def test_names_are_bounded(tmp_path):
    path = written(tmp_path / "a.tar", header(size=in_base_256(2**30), kind=b"L"))
    with open(path, "r+b") as file:
        file.truncate(2**30 + 2048)  # which takes no room on the disk
    with pytest.raises(TarError, match="a name takes 1073741824 bytes"):
        members(path)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (tarfile.LNKTYPE, "'b' is a hard link"),
        (tarfile.SYMTYPE, "'b' is a symbolic link"),
        (tarfile.CHRTYPE, "'b' is a device"),
        (tarfile.BLKTYPE, "'b' is a device"),
        (tarfile.FIFOTYPE, "'b' is a named pipe"),
        (tarfile.GNUTYPE_SPARSE, "'b' is a sparse file"),
        (b"M", "'b' is a part of a file"),
        (b"Q", "'b' is of a kind that is not known"),
    ],
)
def test_what_is_no_file_is_refused_by_name(kind, words, tmp_path):
    def change(info):
        info.type = kind if info.name == "b" else tarfile.REGTYPE
        return info

    path = archive(tmp_path / "a.tar", {"a": b"1", "b": b""}, tarfile.GNU_FORMAT, change)
    with pytest.raises(TarError, match=rf"a\.tar: {words}"):
        members(path)


@pytest.mark.parametrize(
    ("pack", "name"), [(gzip.compress, "gzip"), (bz2.compress, "bzip2"), (lzma.compress, "xz")]
)
def test_packed_archives_are_refused(pack, name, tmp_path):
    archive(tmp_path / "a.tar", {"a": b"1"})
    packed = tmp_path / "a.tar.gz"
    packed.write_bytes(pack((tmp_path / "a.tar").read_bytes()))
    with pytest.raises(TarError, match=rf"a\.tar\.gz is packed by {name}\. .*gunzip"):
        members(packed)


@pytest.mark.parametrize("content", [b"", b"short", b"words " * 200])
def test_other_files_are_refused(content, tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(content)
    with pytest.raises(TarError, match=r"a\.tar is (empty|truncated|no tar archive)"):
        members(path)


def test_each_truncation_is_noticed(tmp_path, rng):
    path = tmp_path / "a.tar"
    archive(path, contents(rng, 5, "x" * 120 + "{}"))
    whole, found = path.read_bytes(), members(path)
    end = found[-1].offset + -(-found[-1].size // 512) * 512
    for size in range(0, end + 512, 97):
        path.write_bytes(whole[:size])
        read = []
        with TarFile(str(path)) as file, pytest.raises(TarError, match="truncated|empty"):
            for member in file.members():
                read.append(member)
        assert read == found[: len(read)]
    path.write_bytes(whole[: end + 512])
    assert members(path) == found


# Samples ------------------------------------------------------------------------------------------


def test_patterns(tmp_path):
    for name in ("a-08.tar", "a-09.tar", "a-10.tar", "b-1.tar", "c[1].tar", "d.txt"):
        archive(tmp_path / name, {"x": b""})

    def found(*patterns):
        given = [os.path.join(tmp_path, pattern) for pattern in patterns]
        paths = tar_index.shard_paths(given[0] if len(given) == 1 else given)
        return [os.path.basename(path) for path in paths]

    assert found("a-{08..10}.tar") == ["a-08.tar", "a-09.tar", "a-10.tar"]
    assert found("a-{10..09}.tar") == ["a-10.tar", "a-09.tar"]
    assert found("{b-1,a-08}.tar") == ["b-1.tar", "a-08.tar"]
    assert found("a-*.tar") == ["a-08.tar", "a-09.tar", "a-10.tar"]
    assert found("b-?.tar", "c[1].tar") == ["b-1.tar", "c[1].tar"]
    assert found("") == [f"{name}.tar" for name in ("a-08", "a-09", "a-10", "b-1", "c[1]")]
    for pattern in ("a-{08..11}.tar", "z*.tar", "z.tar"):
        with pytest.raises(FileNotFoundError, match=r"a-11\.tar|z"):
            found(pattern)
    with pytest.raises(ValueError, match="more than 1000000"):
        found("a-{0..100000000}.tar")
    with pytest.raises(ValueError, match="is empty"):
        tar_index.shard_paths([])
    with pytest.raises(TypeError, match="must be a path"):
        tar_index.shard_paths(3)


def test_files_of_samples_share_their_name_up_to_the_first_dot(tmp_path):
    names = ["d.1/a.jpg", "d.1/a.CLS", "b.seg.png", "README", ".b.jpg", "b.jpg", "d.1/b.jpg"]
    path = archive(tmp_path / "a.tar", dict.fromkeys(names, b""))
    (shard,) = tar_index.TarIndex(path).shards
    assert shard.samples() == {
        "d.1/a": {"jpg": 0, "cls": 1},
        "b": {"seg.png": 2, "jpg": 5},
        "d.1/b": {"jpg": 6},
    }


def test_two_files_of_one_name(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as file:
        for _ in range(2):
            file.addfile(tarfile.TarInfo("a.jpg"), io.BytesIO())
    with pytest.raises(TarError, match=r"two files 'a\.jpg'"):
        tar_index.TarIndex(str(path)).shards[0].samples()


def test_the_rest_of_a_damaged_shard_is_left_out(tmp_path, rng):
    paths = [archive(tmp_path / f"{i}.tar", contents(rng, 4)) for i in range(2)]
    os.truncate(paths[0], members(paths[0])[2].offset + 1)
    with pytest.raises(TarError, match=r"0\.tar is truncated"):
        tar_index.TarIndex(paths)
    with pytest.warns(UserWarning, match=r"The rest of .*0\.tar is left out"):
        index = tar_index.TarIndex(paths, skips=True)
    assert [len(shard.members) for shard in index.shards] == [2, 4]
    assert list(index.skipped) == [paths[0]]


def test_the_kept_index_saves_reading_headers(tmp_path, rng, monkeypatch):
    paths = [archive(tmp_path / f"{i}.tar", contents(rng, 4, "{}.cls")) for i in range(3)]
    kept = tmp_path / "index"
    first = tar_index.TarIndex(paths, kept)
    opened = []

    class Noted(TarFile):
        def __init__(self, path):
            opened.append(path)
            super().__init__(path)

    monkeypatch.setattr(tar_index, "TarFile", Noted)
    before = kept.read_bytes()
    assert tar_index.TarIndex(paths[::-1], kept).shards == first.shards[::-1]
    assert opened == []
    assert kept.read_bytes() == before
    archive(paths[1], contents(rng, 5))
    os.utime(paths[1], ns=(1, 1))
    assert len(tar_index.TarIndex(paths, kept).shards[1].members) == 5
    assert opened == [paths[1]]
    assert len(tar_index.TarIndex(paths, kept).shards[1].members) == 5
    assert opened == [paths[1]]
    with pytest.raises(ValueError, match="changed after its index"):
        first.shards[1].place(0).read()


def test_a_damaged_index_is_named(tmp_path, rng):
    path, kept = archive(tmp_path / "a.tar", contents(rng, 4)), tmp_path / "index"
    tar_index.TarIndex(path, kept)
    whole = kept.read_bytes()
    changed = bytes([whole[-1] ^ 1])
    for content in (b"", b"words", whole[:-1], whole[:-1] + changed, b"[]\n", b"null\n"):
        kept.write_bytes(content)
        with pytest.raises(ValueError, match="is no index of tar shards, or damaged"):
            tar_index.TarIndex(path, kept)
        assert kept.read_bytes() == content


def test_blocks_are_those_of_tar():
    assert tar_files.BLOCK == tarfile.BLOCKSIZE
