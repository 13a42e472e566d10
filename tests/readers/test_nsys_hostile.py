# SPDX-License-Identifier: Apache-2.0
"""Damaged, foreign and lying exports."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nsys_samples import edit, kinds, loosen, refused, small, sql

from graphtrace.ingest.nsys_sqlite import read
from graphtrace.model.errors import (
    GraphtraceError,
    InputCorrupt,
    InputEmpty,
    InputError,
    InputMissing,
    InputTruncated,
    InputUnsupported,
)
from graphtrace.testing.nsys import Kernel, NsysExport

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return small(tmp_path_factory.mktemp("nsys") / "s.sqlite", replays=400).read_bytes()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.9999])
def test_truncated(tmp_path: Path, whole: bytes, share: float) -> None:
    path = tmp_path / "cut.sqlite"
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(InputTruncated) as caught:
        read(path)
    assert f"{len(whole):,}" in caught.value.why


@pytest.mark.parametrize("length", [1, 15, 16, 99])
def test_truncated_within_the_header(tmp_path: Path, whole: bytes, length: int) -> None:
    path = tmp_path / "cut.sqlite"
    path.write_bytes(whole[:length])
    with pytest.raises(InputTruncated):
        read(path)


def test_empty_missing_folder_and_other_files(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("not a database", encoding="utf-8")
    (tmp_path / "noise").write_bytes(random.Random(1).randbytes(8192))
    for name, error in {
        "empty": InputEmpty,
        "absent": InputMissing,
        "text": InputUnsupported,
        "noise": InputUnsupported,
        ".": InputMissing,
    }.items():
        with pytest.raises(error):
            read(tmp_path / name)


@pytest.mark.parametrize("seed", range(40))
def test_flipped_bytes_never_crash(tmp_path: Path, whole: bytes, seed: int) -> None:
    order = random.Random(seed)
    damaged = bytearray(whole)
    for _ in range(1 + seed * 5):
        damaged[order.randrange(100, len(damaged))] ^= order.randrange(1, 256)
    path = tmp_path / "flipped.sqlite"
    path.write_bytes(damaged)
    try:
        source = read(path)
    except InputError:
        return
    begin = source.tables.get("activities").column("begin_ns").to_pylist()
    assert begin == sorted(begin)


def test_a_damaged_schema_and_a_damaged_page(tmp_path: Path, whole: bytes) -> None:
    for place, length in ((100, 400), (4096, 4096 * 3)):
        damaged = bytearray(whole)
        damaged[place : place + length] = b"\xff" * length
        path = tmp_path / f"{place}.sqlite"
        path.write_bytes(damaged)
        with pytest.raises(InputCorrupt) as caught:
            read(path)
        assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    ("statements", "word"),
    [
        (["CREATE TABLE visits (url TEXT)"], "not an export of nsys"),
        (["CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (x)", "CREATE TABLE StringTable (x)"], "nvprof"),
        (["CREATE VIEW StringIds AS SELECT 1", "CREATE TABLE t (x)"], "not an export of nsys"),
        (["CREATE TABLE t (x)", "DROP TABLE t"], "without a single table"),
    ],
)
def test_foreign_databases(tmp_path: Path, statements: list[str], word: str) -> None:
    path = edit(tmp_path / "other.sqlite", *statements)
    with pytest.raises(InputUnsupported) as caught:
        read(path)
    assert word in str(caught.value)


def test_each_failure_has_its_own_sentence(tmp_path: Path, whole: bytes) -> None:
    torn = bytearray(whole)
    torn[100:400] = b"\xff" * 300
    path = tmp_path / "a.sqlite"
    sentences = set()
    for content in (b"", whole[:5000], bytes(torn), b"hello, this is text"):
        path.write_bytes(content)
        with pytest.raises(GraphtraceError) as caught:
            read(path)
        sentences.add(caught.value.what)
    assert len(sentences) == 4


def test_reading_leaves_no_trace(tmp_path: Path) -> None:
    path = small(tmp_path / "s.sqlite")
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    path.chmod(0o444)
    read(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.sqlite"]


def test_an_open_write_ahead_log_is_left_alone_and_said(tmp_path: Path) -> None:
    path = small(tmp_path / "s.sqlite")
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("DELETE FROM CUPTI_ACTIVITY_KIND_MEMSET")
        writer.commit()
        log = path.with_name("s.sqlite-wal")
        before = (sorted([entry.name for entry in tmp_path.iterdir()]), log.read_bytes())
        source = read(path)
        assert (sorted([entry.name for entry in tmp_path.iterdir()]), log.read_bytes()) == before
    assert "s.sqlite-wal" in source.warnings[0]
    assert kinds(source)["memset"] == 7


@pytest.mark.parametrize("name", ["a?b=c.sqlite", "a#b.sqlite", "a%20b.sqlite", "é'\".sqlite"])
def test_hostile_file_names(tmp_path: Path, name: str) -> None:
    assert read(small(tmp_path / name)).tables.rows("replays") == 7


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("'12'", "is text"),
        ("x'00ff'", "is text"),
        ("1.5", "is a real number"),
        ("9e999", "is a real number"),
        ("9223372036854775807", "does not fit 32 bits"),
    ],
)
def test_wrongly_typed_cells_are_refused(tmp_path: Path, value: str, reason: str) -> None:
    # CREATE TABLE ... AS drops declared constraints but not the affinity that casts '12'.
    path = small(tmp_path / "s.sqlite")
    rename = f"ALTER TABLE {KERNELS} RENAME COLUMN registersPerThread TO old"
    edit(
        path,
        rename,
        f"ALTER TABLE {KERNELS} ADD COLUMN registersPerThread",
        f"UPDATE {KERNELS} SET registersPerThread = old",
        f"UPDATE {KERNELS} SET registersPerThread = {value} WHERE rowid IN (2, 3)",
    )
    source = read(path)
    assert refused(source) == {("activities", f"registersPerThread {reason}"): 2}
    assert kinds(source)["kernel"] == 22 - 2
    assert "NaN" not in str(source.tables.get("activities").to_pylist())


@pytest.mark.parametrize("column", ["start", "end", "deviceId", "streamId", "globalPid"])
def test_missing_values_of_needed_columns_are_refused(tmp_path: Path, column: str) -> None:
    path = loosen(small(tmp_path / "s.sqlite"), KERNELS)
    edit(path, f"UPDATE {KERNELS} SET {column} = NULL WHERE rowid = 1")
    assert refused(read(path)) == {("activities", f"{column} is missing"): 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("end = start - 1", "ends before it starts"),
        ("start = 0", "time is zero: it was not collected"),
        ("end = 0", "time is zero: it was not collected"),
        ("end = start", "takes no time"),
        ("end = start + 1000000000000", "longer than the recording"),
        ("start = -9223372036854775808, end = 9223372036854775807", "longer than the recording"),
        ("gridX = 0", "gridX is not positive"),
        ("blockZ = -4", "blockZ is not positive"),
    ],
)
def test_what_cannot_be_true_is_refused(tmp_path: Path, change: str, reason: str) -> None:
    path = small(tmp_path / "s.sqlite")
    edit(path, f"UPDATE {KERNELS} SET {change} WHERE rowid = 4")
    source = read(path)
    assert refused(source) == {("activities", reason): 1}
    assert kinds(source)["kernel"] == 21


def test_a_node_that_ran_twice_in_a_replay_counts_once(tmp_path: Path) -> None:
    path = small(tmp_path / "s.sqlite")
    (node,) = sql(path, f"SELECT max(graphNodeId) FROM {KERNELS}")[0]
    edit(
        path,
        f"INSERT INTO {KERNELS} SELECT * FROM {KERNELS} WHERE graphNodeId = {node} LIMIT 2",
        f"UPDATE {KERNELS} SET start = start + 500, end = end + 500 "
        f"WHERE rowid > (SELECT count(*) - 2 FROM {KERNELS})",
    )
    source = read(path)
    assert refused(source) == {("activities", "its graph node already ran in this replay"): 2}
    assert kinds(source)["kernel"] == 22


def test_open_and_impossible_ranges(tmp_path: Path) -> None:
    path = small(tmp_path / "s.sqlite")
    edit(
        path,
        "UPDATE NVTX_EVENTS SET end = NULL WHERE text = 'warm-up'",
        "UPDATE NVTX_EVENTS SET end = start - 5 WHERE eventType = 60",
    )
    source = read(path)
    assert refused(source) == {("ranges", "ends before it starts"): 1}
    opened = [r for r in source.tables.get("ranges").to_pylist() if r["end_ns"] is None]
    assert [r["text"] for r in opened] == ["warm-up"]


def test_marks_moved_ends_and_unknown_domains(tmp_path: Path) -> None:
    path = small(tmp_path / "s.sqlite")
    tid = "(SELECT max(globalTid) FROM NVTX_EVENTS)"
    edit(
        path,
        "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) "
        f"VALUES (2000000000, 34, 'mark', {tid}, 9)",
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, endGlobalTid) "
        f"VALUES (2000000001, 2000000009, 60, 'moved', {tid}, {tid} + 1)",
        "INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, textId, domainId) "
        f"VALUES (2000000002, 2000000009, 59, {tid}, 987654, 0)",
    )
    ranges = {r["begin_ns"]: r for r in read(path).tables.get("ranges").to_pylist()}
    mark, moved, unnamed = (ranges[2_000_000_000 + n] for n in range(3))
    assert (mark["kind"], mark["end_ns"], mark["domain"]) == ("mark", mark["begin_ns"], "#9")
    assert (moved["kind"], moved["end_thread"]) == ("start_end", moved["thread"] + 1)
    assert unnamed["text"] == ""


@pytest.mark.parametrize(
    "table",
    [
        "NVTX_EVENTS",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "CUDA_GRAPH_NODE_EVENTS",
        "CUDA_GRAPH_EVENTS",
        "TARGET_INFO_GPU",
        "TARGET_INFO_CUDA_DEVICE",
        "ANALYSIS_DETAILS",
        "META_DATA_EXPORT",
        "PROCESSES",
        "TARGET_INFO_SESSION_START_TIME",
    ],
)
def test_any_optional_table_may_be_absent(tmp_path: Path, table: str) -> None:
    path = edit(small(tmp_path / "s.sqlite"), f"DROP TABLE IF EXISTS {table}")
    source = read(path)
    assert source.nothing is None
    assert source.tables.rows("replays") == 7


def test_optional_columns_may_be_absent_and_names_differ_in_case(tmp_path: Path) -> None:
    path = small(tmp_path / "s.sqlite")
    edit(
        path,
        f"ALTER TABLE {KERNELS} DROP COLUMN graphNodeId",
        f"ALTER TABLE {KERNELS} DROP COLUMN registersPerThread",
        f"ALTER TABLE {KERNELS} RENAME COLUMN start TO START",
        f"ALTER TABLE {KERNELS} RENAME TO cupti_activity_kind_kernel_V2",
        "ALTER TABLE NVTX_EVENTS DROP COLUMN textId",
        "ALTER TABLE META_DATA_EXPORT RENAME COLUMN name TO NAME",
    )
    source = read(path)
    assert source.info.synthetic
    assert kinds(source)["kernel"] == 22
    rows = [r for r in source.tables.get("activities").to_pylist() if r["kind"] == "kernel"]
    assert {r["registers"] for r in rows} == {r["node_native_id"] for r in rows} == {None}


def test_a_needed_column_that_is_absent_is_named(tmp_path: Path) -> None:
    path = edit(small(tmp_path / "s.sqlite"), f"ALTER TABLE {KERNELS} DROP COLUMN streamId")
    with pytest.raises(InputUnsupported) as caught:
        read(path)
    assert "streamId" in caught.value.why


def test_names_are_kept_as_they_are(tmp_path: Path) -> None:
    names = ["\x1b[31mred\x1b[0m", "<script>alert(1)</script>", "a\nb", "\u202eltr", "x" * 9000]
    export = NsysExport()
    export.process(3).eager([Kernel(name, 1_000) for name in names])
    export.write(tmp_path / "s.sqlite")
    found = read(tmp_path / "s.sqlite").tables.get("activities").column("name").to_pylist()
    assert found == names


def test_bad_utf8_and_missing_strings(tmp_path: Path) -> None:
    export = NsysExport()
    export.process(3).eager([Kernel("first(int)", 1_000), Kernel("second(int)", 1_000)])
    export.write(tmp_path / "s.sqlite")
    edit(
        tmp_path / "s.sqlite",
        "UPDATE StringIds SET value = CAST(x'61ff62' AS TEXT) WHERE value = 'first(int)'",
        "DELETE FROM StringIds WHERE value = 'second(int)'",
    )
    names = read(tmp_path / "s.sqlite").tables.get("activities").column("name").to_pylist()
    assert names == ["a\ufffdb", "second"]
    edit(tmp_path / "s.sqlite", "DELETE FROM StringIds WHERE value = 'second'")
    names = read(tmp_path / "s.sqlite").tables.get("activities").column("name").to_pylist()
    assert names == ["a\ufffdb", None]


def test_two_processes_with_one_ordinal(tmp_path: Path) -> None:
    export = NsysExport()
    for pid in (10, 11):
        export.process(pid, device=0).eager([Kernel("k", 1_000)])
    export.write(tmp_path / "s.sqlite")
    # Both processes call their GPU 0; the second one's is the machine's GPU 1.
    edit(
        tmp_path / "s.sqlite",
        "UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = 1 WHERE pid = 11",
        "INSERT INTO TARGET_INFO_GPU (vmId, id, name, smCount) "
        "SELECT vmId, 1, 'Other', 7 FROM TARGET_INFO_GPU",
    )
    source = read(tmp_path / "s.sqlite")
    devices = source.tables.get("devices").to_pylist()
    assert [(d["ordinal"], d["sm_count"]) for d in devices] == [(0, 132), (0, 7)]
    assert source.warnings == ("There is no table NVTX_EVENTS: NVTX was not recorded, or no range "
        "was opened. Stages come from ranges; record both: nsys profile --trace=cuda,nvtx "
        "--cuda-graph-trace=node -o run PROGRAM",)  # fmt: skip
    edit(tmp_path / "s.sqlite", "DROP TABLE TARGET_INFO_CUDA_DEVICE")
    source = read(tmp_path / "s.sqlite")
    assert source.tables.rows("devices") == 1
    assert "Several processes used a device 0" in source.warnings[0]


@given(
    cells=st.lists(
        st.one_of(
            st.none(),
            st.integers(-(2**63), 2**63 - 1),
            st.floats(allow_nan=False),
            st.text(max_size=5),
            st.binary(max_size=5),
        ),
        max_size=20,
    )
)
def test_cells_of_any_type_are_kept_or_counted(
    tmp_path_factory: pytest.TempPathFactory, cells: list[object]
) -> None:
    path = tmp_path_factory.mktemp("cells") / "s.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value)")
        columns = "start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes"
        connection.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY ({columns})")
        for number, cell in enumerate(cells):
            row = (1000 + number, 2000 + number, 0, 1, 7, number + 1, 1 << 48, cell)
            connection.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row
            )
        connection.commit()
    source = read(path)
    kept = source.tables.get("activities").column("bytes").to_pylist()
    assert kept == [cell for cell in cells if cell is None or type(cell) is int]
    assert sum(refused(source).values()) == len(cells) - len(kept)
