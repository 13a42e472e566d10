# SPDX-License-Identifier: Apache-2.0
"""Recordings read back: whole, unfinished, damaged, newer and hostile ones."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphtrace.capture.recorder import Recorder
from graphtrace.capture.writer import Writer
from graphtrace.ingest.gtrace import read
from graphtrace.model import records
from graphtrace.model.assembly import assemble
from graphtrace.model.errors import (
    GraphtraceError,
    InputCorrupt,
    InputError,
    InputMissing,
    InputTruncated,
    InputUnsupported,
)
from graphtrace.model.raw import read_raw
from graphtrace.model.recording import FORMAT, Manifest, write_recording


def hello(folder: Path, stem: str = "1-1", pid: int = 1) -> Writer:
    writer = Writer(str(folder), stem, 4)
    writer.line(type="hello", layout=1, pid=pid, parent=0, python="3.11.0", begin_ns=5)
    return writer


def small(home: Path) -> Path:
    """A recording in the making: raw records of one process, and the first manifest."""
    raw = home / "raw"
    raw.mkdir(parents=True)
    (home / "manifest.json").write_text(json.dumps({"format": FORMAT, "format_version": 1}))
    recorder = Recorder(hello(raw), 2, ())
    for _ in range(3):
        ident = recorder.open_batch({"valid": 5, "captured": 8, "sizes": [2, 3], "label": "x"})
        recorder.begin(1, "outer", "code")
        recorder.begin(2, "inner", "module")
        for owner in (2, 1):
            recorder.end(owner, 1 << 61, nested=False)
        recorder.close_batch(ident, 1 << 61)
    recorder.writer.line(
        type="access",
        id=1,
        stage=1,
        rows=[{"tensor": "input[0]", "pattern": "strided", "shape": [2, 3], "row_bytes": 12}],
    )
    recorder.writer.line(type="bye", borders=12, lost=0)
    recorder.writer.line(type="cost", border_ns=1000, skipped_ns=10)
    return home


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    return small(tmp_path / "run.gtrace")


@pytest.fixture
def whole(unfinished: Path) -> Path:
    assembled = assemble(unfinished / "raw", host="a processor")
    manifest = Manifest(tools={"graphtrace": "9.9"}, cost=assembled.cost, missing=("Said.",))
    write_recording(unfinished, manifest, assembled.tables)
    shutil.rmtree(unfinished / "raw")
    return unfinished


def rewrite(home: Path, **changes: object) -> None:
    path = home / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def replace_column(home: Path, name: str, column: str, values: pa.Array | None) -> None:
    path = home / f"{name}.parquet"
    table = pq.ParquetFile(path).read()
    at = table.column_names.index(column)
    table = table.remove_column(at)
    if values is not None:
        table = table.add_column(at, column, values)
    pq.write_table(table, path)


def test_a_whole_recording(whole: Path) -> None:
    source = read(whole)
    assert source.info.kind == "gtrace"
    assert source.info.tool_version == "9.9"
    assert source.warnings == ("Said.",)
    assert source.nothing is None
    assert source.cost is not None
    assert (source.cost.records, source.cost.overhead_ns) == (18, 12_000)
    assert source.tables.get("stages").column("path").to_pylist() == ["outer", "outer/inner"]
    assert source.tables.get("stages").column("parent").to_pylist() == [None, 0]
    assert source.tables.get("batches").column("sizes").to_pylist() == [[2, 3]] * 3
    access = source.tables.get("access").to_pylist()
    assert (access[0]["shape"], access[0]["row_bytes"], access[0]["read"]) == ([2, 3], 12, None)


def test_an_unfinished_recording_is_read_from_its_raw_records(unfinished: Path) -> None:
    source = read(unfinished)
    assert "unfinished" in source.warnings[0]
    assert source.tables.rows("batches") == 3
    assert source.tables.rows("ranges") == 6


def test_finished_and_unfinished_hold_the_same(unfinished: Path) -> None:
    before = read(unfinished).tables
    assembled = assemble(unfinished / "raw")
    write_recording(unfinished, Manifest(), assembled.tables)
    after = read(unfinished).tables
    for name, table in before.tables.items():
        assert after.get(name).to_pylist() == table.to_pylist(), name


def test_tables_without_done_are_read_and_said_to_be_unfinished(whole: Path) -> None:
    (whole / "done").unlink()
    (whole / "marks.parquet").unlink()
    source = read(whole)
    assert "unfinished" in source.warnings[0]
    assert source.tables.rows("ranges") == 6
    assert not source.tables.has("marks")


def test_a_recording_of_nothing_says_so(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "manifest.json").write_text(json.dumps({"format": FORMAT, "format_version": 1}))
    source = read(tmp_path)
    assert source.nothing is not None
    assert source.nothing.exit_code == 4


def test_what_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputMissing) as caught:
        read(tmp_path / "none.gtrace")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, InputTruncated),
        ("", InputCorrupt),
        ("{", InputCorrupt),
        ("[]", InputCorrupt),
        ("{}", InputCorrupt),
        ('{"format": "other", "format_version": 1}', InputCorrupt),
        ('{"format": "graphtrace.recording"}', InputCorrupt),
        ('{"format": "graphtrace.recording", "format_version": true}', InputCorrupt),
        ('{"format": "graphtrace.recording", "format_version": 0}', InputCorrupt),
        ('{"format": "graphtrace.recording", "format_version": "1"}', InputCorrupt),
        ('{"format": "graphtrace.recording", "format_version": 2}', InputUnsupported),
        ("[" * 100_000, InputCorrupt),
        ("\x00\xff", InputCorrupt),
    ],
)
def test_manifests(whole: Path, text: str | None, error: type[InputError]) -> None:
    path = whole / "manifest.json"
    path.unlink() if text is None else path.write_bytes(text.encode("latin-1"))
    with pytest.raises(error) as caught:
        read(whole)
    assert caught.value.exit_code == 3


def test_a_newer_version_says_what_to_do(whole: Path) -> None:
    rewrite(whole, format_version=7)
    with pytest.raises(InputUnsupported, match="version 7") as caught:
        read(whole)
    assert "pip install --upgrade graphtrace" in caught.value.do


def test_a_manifest_of_odd_values_is_read(whole: Path) -> None:
    odd = {"cost": [1], "missing": [3, "said"], "devices": "x", "how": 3, "tools": [1]}
    rewrite(whole, **odd, exit_code="zero", command=7, created_ns=1.5)
    source = read(whole)
    assert source.warnings == ("said",)
    assert source.cost is not None
    assert source.cost.records is None


@pytest.mark.parametrize("name", ["ranges", "stages", "batches", "marks"])
def test_a_missing_table(whole: Path, name: str) -> None:
    (whole / f"{name}.parquet").unlink()
    with pytest.raises(InputTruncated, match=name):
        read(whole)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.9999])
def test_cut_tables(whole: Path, share: float) -> None:
    for path in sorted(whole.glob("*.parquet")):
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(InputCorrupt, match=path.stem):
            read(whole)
        path.write_bytes(data)
    assert read(whole).tables.rows("ranges") == 6


def test_flipped_bytes_give_a_clear_error_or_a_table(whole: Path) -> None:
    outcomes = {True: 0, False: 0}
    for path in sorted(whole.iterdir()):
        data = path.read_bytes()
        for at in range(0, len(data), max(1, len(data) // 40)):
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x5A]) + data[at + 1 :])
            try:
                read(whole)
                outcomes[True] += 1
            except GraphtraceError as error:
                assert error.exit_code == 3
                outcomes[False] += 1
        path.write_bytes(data)
    assert outcomes[False] > 100


@pytest.mark.parametrize(
    ("name", "column", "values"),
    [
        ("ranges", "stage", pa.array([9] * 6, pa.int32())),
        ("ranges", "stage", pa.array([-1] * 6, pa.int32())),
        ("ranges", "process", pa.array([1] * 6, pa.int32())),
        ("ranges", "begin_ns", pa.array([None] * 6, pa.int64())),
        ("ranges", "begin_ns", pa.array(["x"] * 6)),
        ("ranges", "thread", pa.array([1.5] * 6)),
        ("ranges", "begin_ns", None),
        ("stages", "stage", pa.array([0, 0], pa.int32())),
        ("stages", "stage", pa.array([1, 2], pa.int32())),
        ("stages", "parent", pa.array([1, 0], pa.int32())),
        ("stages", "parent", pa.array([None, 1], pa.int32())),
        ("stages", "path", pa.array(["outer", "outer"])),
        ("stages", "path", pa.array(["", "/inner"])),
        ("batches", "sizes", pa.array([[1.5]] * 3)),
        ("access", "shape", pa.array(["2x3"])),
        ("processes", "source", pa.array([1], pa.int32())),
    ],
)
def test_tables_that_contradict_each_other(
    whole: Path, name: str, column: str, values: pa.Array | None
) -> None:
    replace_column(whole, name, column, values)
    with pytest.raises(InputCorrupt, match=name) as caught:
        read(whole)
    assert caught.value.exit_code == 3


def test_a_batch_that_ends_before_it_begins(whole: Path) -> None:
    replace_column(whole, "batches", "end_ns", pa.array([0, 0, 0], pa.int64()))
    source = read(whole)
    assert source.tables.rows("batches") == 0
    assert source.tables.get("quarantine").column("count").to_pylist() == [3]
    assert source.tables.get("marks").column("batch").null_count == 18


def test_a_range_that_ends_before_it_begins(whole: Path) -> None:
    replace_column(whole, "ranges", "end_ns", pa.array([0] * 5 + [None], pa.int64()))
    source = read(whole)
    assert source.tables.rows("ranges") == 1
    assert source.tables.get("quarantine").column("count").to_pylist() == [5]


def test_columns_of_other_versions(whole: Path) -> None:
    replace_column(whole, "batches", "label", None)
    path = whole / "stages.parquet"
    table = pq.ParquetFile(path).read()
    pq.write_table(table.append_column("later", pa.array([1, 2])), path)
    (whole / "later.parquet").write_bytes(b"a table of a later version")
    done = json.loads((whole / "done").read_text())
    (whole / "done").write_text(json.dumps({"rows": {**done["rows"], "later": 4}, "more": 1}))
    source = read(whole)
    assert source.tables.get("batches").column("label").null_count == 3


@pytest.mark.parametrize("text", ["", "{}", '{"rows": 3}', "x"])
def test_a_damaged_done(whole: Path, text: str) -> None:
    (whole / "done").write_text(text)
    with pytest.raises(InputCorrupt):
        read(whole)


def test_rows_that_were_promised(whole: Path) -> None:
    path = whole / "ranges.parquet"
    pq.write_table(pq.ParquetFile(path).read().slice(0, 2), path)
    with pytest.raises(InputTruncated, match="2 rows, not 6"):
        read(whole)


def test_invalid_text_is_corrupt(whole: Path) -> None:
    raw = pa.Array.from_buffers(
        pa.string(),
        2,
        [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")],
    )
    replace_column(whole, "stages", "name", raw)
    with pytest.raises(InputCorrupt, match="stages"):
        read(whole)


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


ODD_LINES = (
    '{"type":"stage","id":-3,"parent":0,"name":"x"}\n{"type":"stage"}\n[]\n"x"\n3\n'
    '{"type":"access","id":5,"stage":1,"rows":[3]}\n{"type":"batch","id":"x"}\n'
    '{"type":"batch","id":1,"valid":-4,"sizes":{},"label":[]}\n{"type":3}\n'
    '{"type":"stage","id":9,"parent":77,"name":"orphan","origin":"code"}\n'
    '{"type":"bye","lost":"many","borders":[]}\n{"type":"off"}\n{"type":"full","why":7}\n'
    + "["
    * 5000
)
RAW_DAMAGE = {
    "no hello": lambda raw: (raw / "1-1.jsonl").write_text(""),
    "foreign segment": lambda raw: (raw / "1-1.0001.rec").write_bytes(b"x" * 5000),
    "empty segment": lambda raw: (raw / "1-1.0001.rec").write_bytes(b""),
    "foreign lines": lambda raw: (raw / "2-2.jsonl").write_bytes(bytes(range(256)) * 9),
    "odd lines": lambda raw: append(raw / "1-1.jsonl", ODD_LINES),
    "no lines": lambda raw: (raw / "1-1.jsonl").unlink(),
    "cut segment": lambda raw: (raw / "1-1.0000.rec").write_bytes(
        (raw / "1-1.0000.rec").read_bytes()[:333]
    ),
    "noise": lambda raw: (raw / "1-1.0000.rec").write_bytes(
        (raw / "1-1.0000.rec").read_bytes()[: records.HEADER_BYTES] + bytes(range(256)) * 4000
    ),
}


@pytest.mark.parametrize("damage", sorted(RAW_DAMAGE))
def test_damaged_raw_records_are_read_as_far_as_they_go(unfinished: Path, damage: str) -> None:
    RAW_DAMAGE[damage](unfinished / "raw")
    source = read(unfinished)
    assert len(source.warnings) > 1 or damage in ("no hello", "no lines")


def test_lines_cut_anywhere(unfinished: Path) -> None:
    path = unfinished / "raw" / "1-1.jsonl"
    data = path.read_bytes()
    for length in range(0, len(data), 3):
        path.write_bytes(data[:length])
        source = read(unfinished)
        assert source.tables.rows("ranges") <= 6
    path.write_bytes(data)
    assert read(unfinished).tables.rows("ranges") == 6


def test_a_torn_record_is_counted(unfinished: Path) -> None:
    path = unfinished / "raw" / "1-1.0000.rec"
    data = bytearray(path.read_bytes())
    at = records.HEADER_BYTES + 4 * records.RECORD_BYTES
    data[at + 28 : at + 32] = bytes(4)
    path.write_bytes(bytes(data))
    processes, nameless = read_raw(unfinished / "raw")
    assert (processes[0].torn, len(processes[0].events), nameless) == (1, 17, 0)
    assert any("never completed" in warning for warning in read(unfinished).warnings)


def test_reading_needs_no_pandas(whole: Path) -> None:
    text = (
        "import sys, pathlib\n"
        "from graphtrace.ingest.gtrace import read\n"
        "source = read(pathlib.Path(sys.argv[1]))\n"
        "assert source.tables.rows('ranges') == 6\n"
        "print('pandas' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, str(whole)], capture_output=True, check=True, text=True
    )
    assert done.stdout == "False\n"
