# SPDX-License-Identifier: Apache-2.0
"""NVTX categories and payloads: as nsys records them here, planted ones, and none at all."""

import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.ingest.kineto import read as read_kineto
from graphtrace.ingest.load import load
from graphtrace.ingest.nsys_sqlite import read
from graphtrace.model.recording import Manifest, read_tables, write_recording
from graphtrace.model.trace import TableSet
from graphtrace.testing.kineto import KinetoTrace
from graphtrace.testing.nsys import Kernel, NsysExport, Payload

NEW = ("category", "payload_int", "payload_real")
HEADERS = (
    "/usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64/nvtx/include",
    "/usr/local/cuda/include",
)
PROGRAM = Path(__file__).with_name("nvtx_payloads.c")


def ranges(path, **options):
    return read(path, **options).tables.get("ranges").to_pylist()


@pytest.fixture
def recorded(tmp_path, nsys):
    """An export that the installed nsys makes of a small C program."""
    include = next((h for h in HEADERS if (Path(h) / "nvtx3" / "nvToolsExt.h").exists()), None)
    compiler = shutil.which("gcc") or shutil.which("cc")
    if include is None or compiler is None:
        pytest.skip("no C compiler or no headers of NVTX")
    program, report, out = (tmp_path / name for name in ("p", "r.nsys-rep", "r.sqlite"))
    build = [compiler, f"-I{include}", str(PROGRAM), "-ldl", "-o", str(program)]
    subprocess.run(build, check=True, timeout=120)
    profile = [nsys, "profile", "-t", "nvtx", "-s", "none", "--cpuctxsw=none", "-o", str(report)]
    export = [nsys, "export", "--type", "sqlite", "-o", str(out), str(report)]
    try:
        for command in ([*profile, str(program)], export):
            subprocess.run(command, timeout=90, check=True, capture_output=True, cwd=tmp_path)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        pytest.skip("nsys does not record here")
    with closing(sqlite3.connect(out)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    if "NVTX_EVENTS" not in tables:
        pytest.skip("nsys records no NVTX here")
    return out


@pytest.mark.parametrize("pages", [True, False])
def test_what_nsys_records_of_a_program(recorded, pages):
    """Each range is recorded as push and pop, start and end, and mark; in two domains."""
    source = read(recorded, pages=pages)
    found = {}
    for row in source.tables.get("ranges").to_pylist():
        found.setdefault((row["domain"], row["text"]), set()).add(tuple(row[name] for name in NEW))
    expected = {
        "none": (None, None, None),
        "u64": ("three", 5, None),
        "u64 max": ("#9", None, None),
        "i64": ("seven", -5, None),
        "double": ("three", None, 1.5),
        "whole": ("three", None, 2.0),
        "u32 max": ("#4294967295", 2**32 - 1, None),
        "i32": ("three", -1, None),
        "float": ("three", None, 0.10000000149011612),
        "inf": ("three", None, float("inf")),
    }
    for domain, three, seven in (("", "default three", "#7"), ("dom", "dom three", "renamed")):
        for text, (category, *payload) in expected.items():
            name = {"three": three, "seven": seven}.get(category, category)
            assert found[domain, text] == {(name, *payload)}, (domain, text)
    (refused,) = source.tables.get("quarantine").to_pylist()
    assert (refused["table"], refused["count"]) == ("ranges", 6)
    assert refused["sample"] == str(2**64 - 1)


LIMITS = {
    "int64": (-(2**63), 2**63 - 1),
    "uint64": (0, 2**64 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
}
payloads = st.one_of(
    st.none(),
    *(st.builds(Payload, st.integers(*limit), st.just(kind)) for kind, limit in LIMITS.items()),
    st.builds(Payload, st.floats(allow_nan=False), st.just("double")),
    st.builds(Payload, st.floats(allow_nan=False, width=32), st.just("float")),
)
rows = st.fixed_dictionaries(
    {
        "text": st.sampled_from(["a", "b", "c"]),
        "domain": st.sampled_from(["", "mine", "yours"]),
        "kind": st.sampled_from(["push_pop", "start_end"]),
        "registered": st.booleans(),
        "category": st.one_of(
            st.none(), st.sampled_from(["io", "compute"]), st.integers(0, 2**32 - 1)
        ),
        "payload": payloads,
    }
)


def planted(row):
    """Category and payloads as the model has them; a bare number may have been given a name."""
    category, payload = row["category"], row["payload"]
    if isinstance(category, int):
        category = f"#{category}" if category else None
    if payload is None or (payload.value > 2**63 - 1 and payload.kind == "uint64"):
        return category, None, None
    if payload.kind in LIMITS:
        return category, payload.value, None
    return category, None, payload.value


@given(
    processes=st.lists(st.lists(rows, max_size=8), min_size=1, max_size=2),
    dialect=st.sampled_from(["2022", "2025", "2026"]),
)
def test_planted_categories_and_payloads_are_read(tmp_path_factory, processes, dialect):
    path = tmp_path_factory.mktemp("nvtx") / "n.sqlite"
    export = NsysExport(dialect)
    expected = []
    for number, wanted in enumerate(processes):
        process = export.process(pid=100 + number)
        for row in map(dict, wanted):
            if isinstance(row["category"], int) and 0 < row["category"] < 10:
                # The builder gives the lowest numbers to names.
                row["category"] += 10
            with process.range(**row):
                process.idle(50)
            expected.append((number, row["text"], row["domain"], row["kind"], *planted(row)))
        process.eager([Kernel("k", 1_000)])
    export.write(path)
    source = read(path)
    assert [t.to_pylist() for t in source.tables.tables.values()] == [
        t.to_pylist() for t in read(path, pages=False).tables.tables.values()
    ]
    names = ("process", "text", "domain", "kind", *NEW)
    got = (
        [tuple(r[name] for name in names) for r in source.tables.get("ranges").to_pylist()]
        if (source.tables.has("ranges"))
        else []
    )
    key = repr
    assert sorted(got, key=key) == sorted(expected, key=key)
    over = [
        r
        for w in processes
        for r in w
        if r["payload"] and r["payload"].value > 2**63 - 1 and r["payload"].kind == "uint64"
    ]
    counted = sum(row["count"] for row in source.tables.get("quarantine").to_pylist())
    assert counted == len(over)


def written(tmp_path, change=None, count=3):
    export = NsysExport()
    process = export.process(pid=7)
    for number in range(count):
        with process.range(f"r{number}", category="io", payload=Payload(0.5, "double")):
            process.idle(10)
    process.eager([Kernel("k", 1_000)])
    path = tmp_path / "n.sqlite"
    export.write(path)
    if change is not None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(change)
            connection.commit()
    return path


@pytest.mark.parametrize("pages", [True, False])
@pytest.mark.parametrize(
    ("cell", "left", "reason"),
    [
        ("doubleValue = 'x'", 2, "doubleValue is text"),
        ("doubleValue = x'00'", 2, "doubleValue is text"),
        ("int64Value = 0.5", 2, "int64Value is a real number"),
        ("category = 'x'", 2, "category is text"),
        ("uint32Value = -1", 3, "uint32Value is above the largest integer"),
    ],
)
def test_odd_cells_are_counted(tmp_path, pages, cell, left, reason):
    change = f"UPDATE NVTX_EVENTS SET {cell} WHERE eventType = 59 AND rowid = 2"
    source = read(written(tmp_path, change), pages=pages)
    assert source.tables.rows("ranges") == left
    (refused,) = source.tables.get("quarantine").to_pylist()
    assert refused["reason"].startswith(reason)
    assert refused["count"] == 1


def test_integers_in_a_column_of_reals_are_reals(tmp_path):
    # SQLite stores 3.0 in such a column as the integer 3, and reads it as 3.0.
    path = written(tmp_path, "UPDATE NVTX_EVENTS SET doubleValue = 3 WHERE eventType = 59")
    for pages in (True, False):
        assert [row["payload_real"] for row in ranges(path, pages=pages)] == [3.0] * 3


def test_a_category_has_its_last_name(tmp_path):
    change = (
        "INSERT INTO NVTX_EVENTS (start, eventType, category, text, globalTid, domainId) SELECT "
        "start + 5, eventType, category, 'later', globalTid, domainId FROM NVTX_EVENTS "
        "WHERE eventType = 33"
    )
    assert {row["category"] for row in ranges(written(tmp_path, change))} == {"later"}


def test_exports_without_the_columns(tmp_path):
    path = written(tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        for name in ("category", "doubleValue", "uint64Value"):
            connection.execute(f"ALTER TABLE NVTX_EVENTS DROP COLUMN {name}")
        connection.commit()
    assert {tuple(row[name] for name in NEW) for row in ranges(path)} == {(None, None, None)}


def test_absent_columns_take_no_memory(tmp_path):
    count = 300_000
    export = NsysExport()
    process = export.process(pid=7)
    process.eager([Kernel("k", 1_000)])
    columns = {"start": 5_000, "end": 6_000, "eventType": 59, "globalTid": process.global_tid}
    export.rows.add("NVTX_EVENTS", count, columns | {"domainId": 0, "textId": 1})
    export.write(tmp_path / "n.sqlite")
    table = read(tmp_path / "n.sqlite").tables.get("ranges")
    assert table.num_rows == count
    for name in ("payload_int", "payload_real"):
        column = table.column(name)
        assert column.null_count == count
        assert len({chunk.buffers()[1].address for chunk in column.chunks}) == 1


def test_a_recording_made_before_the_columns_were(tmp_path):
    tables = read(written(tmp_path)).tables
    folder = tmp_path / "old.gtrace"
    folder.mkdir()
    write_recording(folder, Manifest(), TableSet({"ranges": tables.get("ranges")}))
    again, finished = read_tables(folder)
    assert finished
    assert again.get("ranges").equals(tables.get("ranges"))
    pq.write_table(tables.get("ranges").drop_columns(list(NEW)), folder / "ranges.parquet")
    old, _ = read_tables(folder)
    assert old.rows("ranges") == 3
    for name in NEW:
        assert old.get("ranges").column(name).null_count == 3
    kept = [name for name in old.get("ranges").column_names if name not in NEW]
    assert old.get("ranges").select(kept).equals(tables.get("ranges").select(kept))


def test_other_readers_have_no_categories(tmp_path):
    trace = KinetoTrace()
    with trace.range("step"):
        trace.eager([Kernel("k", 1_000)])
    trace.write(tmp_path / "k.json")
    table = read_kineto(tmp_path / "k.json").tables.get("ranges")
    assert table.num_rows == 1
    assert all(table.column(name).null_count == 1 for name in NEW)


def test_inputs_with_and_without_them_are_joined(tmp_path):
    trace = KinetoTrace()
    with trace.range("step"):
        trace.eager([Kernel("k", 1_000)])
    trace.write(tmp_path / "k.json")
    joined = load(written(tmp_path), tmp_path / "k.json").tables.get("ranges")
    assert sorted(joined.column("category").to_pylist(), key=str) == [None, "io", "io", "io"]
