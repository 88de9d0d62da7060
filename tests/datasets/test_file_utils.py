"""A download or a written file is complete, or it does not exist."""

import os
import subprocess
import sys

import pytest

from kerascnn.utils import file_utils
from kerascnn.utils.file_utils import RemoteFile, atomic_file, download, file_sha256, is_intact

from .helpers import files_below, sha256

BODY = bytes(range(256)) * 4000  # 1 MB comes in several chunks.


@pytest.fixture
def remote(server):
    server.content["/file.bin"] = BODY
    return RemoteFile("file.bin", sha256(BODY), len(BODY), (f"{server.address}/file.bin",))


def test_download(remote, tmp_path, capsys):
    target = tmp_path / "new" / "folder" / "file.bin"
    download(remote, target)
    assert target.read_bytes() == BODY
    assert files_below(tmp_path / "new") == ["folder/file.bin"]
    assert is_intact(target, remote)
    output = capsys.readouterr()
    assert output.out == ""
    # The output is no terminal, so it is one line of plain text without control characters.
    assert output.err == f"Downloading file.bin (1.0 MB) from {remote.urls[0]}\n"


def test_download_draws_a_bar_on_a_terminal(remote, tmp_path, capsys, monkeypatch):
    # With this variable rich takes the captured stream for a terminal.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    download(remote, tmp_path / "file.bin")
    error = capsys.readouterr().err
    assert "━" in error
    assert "1.0/1.0 MB" in error


def test_size_need_not_be_announced(remote, server, tmp_path):
    server.announce = False
    download(remote, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY


@pytest.mark.parametrize("before", [None, b"the old file"])
def test_broken_transfer_leaves_what_was(remote, server, tmp_path, before):
    server.cut_after = 600_000
    target = tmp_path / "data" / "file.bin"
    if before is not None:
        target.parent.mkdir()
        target.write_bytes(before)
    with pytest.raises(ConnectionError, match=f"broke off after 600000 of {len(BODY)} bytes"):
        download(remote, target)
    if before is None:
        assert files_below(tmp_path / "data") == []
    else:
        assert target.read_bytes() == before
        assert files_below(tmp_path / "data") == ["file.bin"]


def test_transfer_that_is_cut_without_announced_size(remote, server, tmp_path):
    server.announce = False
    server.cut_after = 600_000
    with pytest.raises(ValueError, match="received 600000 bytes with SHA-256"):
        download(remote, tmp_path / "file.bin")
    assert files_below(tmp_path) == []


def test_wrong_hash(remote, server, tmp_path):
    server.content["/file.bin"] = BODY[:-1] + b"x"
    with pytest.raises(ValueError, match=f"expected {len(BODY)} bytes with SHA-256 {sha256(BODY)}"):
        download(remote, tmp_path / "file.bin")
    assert files_below(tmp_path) == []


def test_more_than_expected_stops_early(remote, server, tmp_path):
    server.content["/file.bin"] = BODY * 20
    with pytest.raises(ValueError, match=f"expected {len(BODY)} bytes, received more"):
        download(remote, tmp_path / "file.bin")
    assert files_below(tmp_path) == []


def test_next_address_is_tried(remote, server, tmp_path):
    server.content["/wrong.bin"] = b"a page that says: sign in first"
    urls = (f"{server.address}/missing.bin", f"{server.address}/wrong.bin", *remote.urls)
    download(remote._replace(urls=urls), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert server.requests == ["/missing.bin", "/wrong.bin", "/file.bin"]


def test_every_failure_is_told(remote, server, tmp_path):
    # Nothing listens on port 1 of the loopback device.
    urls = (f"{server.address}/missing.bin", "http://127.0.0.1:1/file.bin")
    with pytest.raises(ConnectionError) as info:
        download(remote._replace(urls=urls), tmp_path / "file.bin")
    message = str(info.value)
    assert f"{urls[0]}: HTTP Error 404" in message
    assert f"{urls[1]}: " in message
    assert "refused" in message


def test_interrupt_leaves_nothing(remote, tmp_path, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        download(remote, tmp_path / "file.bin")
    assert files_below(tmp_path) == []


def test_atomic_file_shows_only_the_finished_file(tmp_path):
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with atomic_file(target) as stream:
        stream.write(b"new")
        stream.flush()
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    with pytest.raises(RuntimeError, match="disk on fire"), atomic_file(target) as stream:
        stream.write(b"newer")
        raise RuntimeError("disk on fire")
    assert target.read_bytes() == b"new"
    assert files_below(tmp_path) == ["file"]


def test_two_writers_do_not_mix(tmp_path):
    target = tmp_path / "file"
    with atomic_file(target) as first, atomic_file(target) as second:
        first.write(b"first")
        second.write(b"second")
    # The new file replaces the old one only when it is complete.
    assert target.read_bytes() == b"first"
    assert files_below(tmp_path) == ["file"]


def test_file_sha256(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(BODY)
    assert file_sha256(path) == sha256(BODY)
    assert not is_intact(tmp_path / "missing", RemoteFile("missing", sha256(b""), 0, ()))


def test_home_folder(monkeypatch, no_real_home_or_network):
    assert file_utils.home_folder() == no_real_home_or_network / "kerascnn"
    monkeypatch.setenv("KERASCNN_HOME", "~/elsewhere")
    assert file_utils.home_folder() == no_real_home_or_network / "elsewhere"
    monkeypatch.setenv("KERASCNN_HOME", "")
    assert file_utils.dataset_folder() == no_real_home_or_network / ".kerascnn" / "datasets"


def test_network_modules_are_imported_late():
    code = (
        "import sys, kerascnn.datasets\n"
        "late = {'rich', 'urllib.request', 'http.client', 'ssl'} & set(sys.modules)\n"
        "assert 'kerascnn.datasets.mnist' in sys.modules\n"
        "sys.exit(f'imported too early: {sorted(late)}' if late else 0)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
