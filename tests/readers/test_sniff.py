# SPDX-License-Identifier: Apache-2.0
"""What an input is, and what is said of those that are none."""

import gzip
import json
import os
import socket
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.ingest.sniff import sniff
from graphtrace.model.errors import (
    GraphtraceError,
    InputCorrupt,
    InputEmpty,
    InputError,
    InputMissing,
    InputUnsupported,
)
from graphtrace.model.untrusted import visible

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:9a25\nsize 2752348\n"
TRACE = json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "X"}]}).encode()
CSV = b'"ID","Process ID","Process Name","Host Name"\n"0","1","x","y"\n'


def refused(place: Path) -> GraphtraceError:
    with pytest.raises(GraphtraceError) as caught:
        sniff(place)
    return caught.value


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"NVR\0\x02\0\0\0", "ncu_rep"),
        (b"NVR", "ncu_rep"),
        (b"SQLite format 3\0" + bytes(84), "nsys_sqlite"),
        (b"SQLite form", "nsys_sqlite"),
        (b"NVIDIA Tegra Profiler Report 1.", "nsys_rep"),
        (TRACE, "kineto"),
        (gzip.compress(TRACE, mtime=0), "kineto"),
        (b'[{"ph": "X", "ts": 1}]', "kineto"),
    ],
)
@pytest.mark.parametrize("name", ["x.ncu-rep", "x.sqlite", "x.txt", "x"])
def test_content_decides_and_not_the_name(
    tmp_path: Path, content: bytes, kind: str, name: str
) -> None:
    place = tmp_path / name
    place.write_bytes(content)
    assert sniff(place) == kind


@pytest.mark.parametrize(
    ("content", "what", "do"),
    [
        (LFS, "Git LFS pointer", "git lfs pull"),
        (b"<!DOCTYPE html>\n<html><body>404", "web page", "Download raw file"),
        (b"\n <HTML lang=en>", "web page", "Download raw file"),
        (b"<?xml version='1.0'?><!-- x --><html>", "web page", "Download raw file"),
        (b"hello\nworld\n", "text file", ".ncu-rep"),
        ("größe\n".encode() * 9999, "text file", ".ncu-rep"),
        (b"<svg></svg>", "text file", ".ncu-rep"),
        (b'{"message": "Not Found"}', "JSON, but no profiler's trace", ".ncu-rep"),
        (bytes(range(256)) * 4, "binary file of no known kind", ".ncu-rep"),
        (b"\x7fELF" + bytes(60), "binary file of no known kind", ".ncu-rep"),
        (b"PK\x03\x04" + bytes(30), "compressed (zip)", "unzip"),
        (b"\x28\xb5\x2f\xfd" + bytes(30), "compressed (zstd)", "zstd -d"),
        (gzip.compress(b"hello", mtime=0), "holds nothing that is known", ".ncu-rep"),
        (gzip.compress(b"NVR\0abcd", mtime=0), "holds an Nsight Compute report", "gunzip"),
        (gzip.compress(b"SQLite format 3\0", mtime=0), "holds an SQLite file", "gunzip"),
    ],
)
def test_everything_else_has_its_own_sentences(
    tmp_path: Path, content: bytes, what: str, do: str
) -> None:
    place = tmp_path / "x.ncu-rep"
    place.write_bytes(content)
    error = refused(place)
    assert isinstance(error, InputUnsupported)
    assert error.exit_code == 3
    assert what in error.what
    assert do in error.do
    assert str(place) in error.what


def test_damaged_gzip(tmp_path: Path) -> None:
    place = tmp_path / "x.json.gz"
    place.write_bytes(b"\x1f\x8b\x08\x00" + b"\xff" * 40)
    assert isinstance(refused(place), InputCorrupt)


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    place = tmp_path / "bomb.json.gz"
    place.write_bytes(gzip.compress(b" " * (1 << 26), mtime=0))
    assert "holds nothing that is known" in refused(place).what


def test_missing_empty_and_folder(tmp_path: Path) -> None:
    missing = refused(tmp_path / "nothing.ncu-rep")
    assert isinstance(missing, InputMissing)
    assert missing.exit_code == 2
    empty = tmp_path / "empty.ncu-rep"
    empty.touch()
    assert isinstance(refused(empty), InputEmpty)
    assert isinstance(refused(empty / "below"), InputMissing)
    folder = refused(tmp_path)
    assert isinstance(folder, InputMissing)
    assert "is a folder" in folder.what
    assert str(empty) in folder.do
    assert isinstance(refused(tmp_path / ("x" * 5000)), InputMissing)
    assert isinstance(refused(tmp_path / "a\0b"), InputMissing)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert isinstance(refused(loop), InputMissing)


def test_recordings(tmp_path: Path) -> None:
    run = tmp_path / "renamed"
    run.mkdir()
    manifest = run / "manifest.json"
    manifest.write_text(json.dumps({"format": "graphtrace.recording", "format_version": 1}))
    assert sniff(run) == "gtrace"
    assert sniff(Path(str(run) + "/")) == "gtrace"
    manifest.write_text('{"name": "a web app"}')
    assert isinstance(refused(run), InputMissing)
    unfinished = tmp_path / "run.gtrace"
    unfinished.mkdir()
    assert sniff(unfinished) == "gtrace"


@pytest.mark.parametrize("name", ["StringIds.parquet", "nvtx_events_v2.parquet", "StringIds.arrow"])
def test_parquet_exports(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "pq"
    folder.mkdir()
    assert isinstance(refused(folder), InputEmpty)
    (folder / name).write_bytes(b"PAR1")
    assert sniff(folder) == "nsys_parquetdir"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/urandom"])
def test_devices_are_not_read(device: str) -> None:
    if not Path(device).exists():
        pytest.skip(f"no {device} here")
    assert "not a regular file" in refused(Path(device)).what


def test_pipes_and_sockets_do_not_hang(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.ncu-rep"
    os.mkfifo(pipe)
    assert "not a regular file" in refused(pipe).what
    with closing(socket.socket(socket.AF_UNIX)) as made, pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        made.bind("s")
        assert "not a regular file" in refused(tmp_path / "s").what


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything"
)
def test_no_permission(tmp_path: Path) -> None:
    place = tmp_path / "mine.ncu-rep"
    place.write_bytes(b"NVR\0")
    place.chmod(0)
    error = refused(place)
    assert isinstance(error, InputError)
    assert "Permission denied" in error.why


def test_a_refused_open_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    place = tmp_path / "mine.ncu-rep"
    place.write_bytes(b"NVR\0")
    monkeypatch.setattr(os, "open", denied)
    error = refused(place)
    assert error.exit_code == 3
    assert "Permission denied" in error.why


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes on Linux only")
@pytest.mark.parametrize("name", [b"a\nb", b"\x1b[31mred", b"bad\xff", "\u202egpj.exe".encode()])
def test_hostile_names_stay_sentences(tmp_path: Path, name: bytes) -> None:
    place = tmp_path / os.fsdecode(name)
    place.write_bytes(b"hello")
    error = refused(place)
    assert "text file" in error.what
    for sentence in (error.what, error.why, error.do):
        visible(sentence).encode()
    place.write_bytes(b"PK\x03\x04" + bytes(30))
    visible(refused(place).do).encode()
    assert isinstance(refused(tmp_path / os.fsdecode(name + b"2")), InputMissing)


def test_nothing_is_written(tmp_path: Path) -> None:
    place = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(place)) as made:
        made.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        made.commit()
    before = {p: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    assert sniff(place) == "nsys_sqlite"
    assert {p: p.stat().st_mtime_ns for p in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "content",
    [
        CSV,
        b"==PROF== Connected to process 1\nhello\n" + CSV,
        (b"==PROF== x\r\n" + CSV).decode().encode("utf-16"),
        b"\xef\xbb\xbf" + CSV,
        b"==ERROR== The application returned an error code (1).\n",
    ],
)
def test_what_ncu_printed(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "x.ncu-rep"
    place.write_bytes(content)
    assert sniff(place) == "ncu_csv"


def test_real_files(data_dir: Path) -> None:
    for place in sorted((data_dir / "ncu").iterdir()):
        if place.name == "lfs_pointer.ncu-rep":
            assert "LFS pointer" in refused(place).what
        else:
            assert sniff(place) == "ncu_rep"
    for place in sorted((data_dir / "nsys").iterdir()):
        assert sniff(place) == "nsys_sqlite"
    for place in sorted((data_dir / "kineto").iterdir()):
        assert sniff(place) == "kineto"
    for place in sorted((data_dir / "ncu_csv").iterdir()):
        assert sniff(place) == "ncu_csv"


STARTS = (b"", b"NVR\0", b"\x1f\x8b\x08", b"{", b"<!--", b"SQLite format 3\0", b"\xff\xfe")


@given(st.sampled_from(STARTS), st.binary(min_size=1, max_size=300))
def test_any_bytes_have_a_kind_or_sentences(
    tmp_path_factory: pytest.TempPathFactory, start: bytes, rest: bytes
) -> None:
    place = tmp_path_factory.getbasetemp() / "any"
    place.write_bytes(start + rest)
    try:
        assert sniff(place) in ("ncu_rep", "nsys_sqlite")
    except InputError as error:
        assert error.what and error.why and error.do
