# SPDX-License-Identifier: Apache-2.0
"""The nsys reader on synthetic exports with graph nodes, in three dialects."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nsys_samples import NODES, STAGES, edit, kinds, refused, shuffled, small, sql

from graphtrace.ingest.nsys_sqlite import SYNTHETIC_MARK, read
from graphtrace.testing.nsys import MARK, Copy, Kernel, NsysExport, Stage
from graphtrace.testing.nsys_schema import DialectName

DIALECTS: tuple[DialectName, ...] = ("2022", "2025", "2026")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_replays_nodes_and_lineage(tmp_path: Path, dialect: DialectName) -> None:
    path = small(tmp_path / "s.sqlite", dialect=dialect)
    source = read(path)
    assert source.info.synthetic
    assert source.nothing is None
    assert source.warnings == ()
    assert source.tables.rows("quarantine") == 0
    assert kinds(source) == {"kernel": 1 + 3 * 7, "memcpy": 1 + 7 + 7, "memset": 7}
    events = source.tables.get("graph_events").to_pylist()
    origin = {e["node_native_id"]: e["origin_native_id"] for e in events}
    for row in source.tables.get("activities").to_pylist():
        if row["node_native_id"] is None:
            assert row["replay"] is None
            continue
        node, hops = row["node_native_id"], 0
        while origin[node] is not None:
            node, hops = origin[node], hops + 1
        assert hops == 2
        assert node >> 32 == 1
        assert row["node_native_id"] >> 32 == 3


@pytest.mark.parametrize("dialect", DIALECTS)
def test_replays_equal_those_of_sql(tmp_path: Path, dialect: DialectName) -> None:
    path = small(tmp_path / "s.sqlite", dialect=dialect)
    union = " UNION ALL ".join(
        f"SELECT start, end, correlationId c FROM CUPTI_ACTIVITY_KIND_{table} "
        "WHERE graphNodeId IS NOT NULL"
        for table in ("KERNEL", "MEMCPY", "MEMSET")
    )
    rows = sql(
        path,
        f"SELECT a.c, count(*), min(a.start), max(a.end), min(r.start), min(r.end) FROM ({union}) a"
        " JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = a.c GROUP BY a.c ORDER BY 3",
    )
    tables = read(path).tables
    of_activity = tables.get("activities").column("replay").to_pylist()
    ours = [
        (
            r["correlation"],
            of_activity.count(r["replay"]),
            r["begin_ns"],
            r["end_ns"],
            r["launch_begin_ns"],
            r["launch_end_ns"],
        )
        for r in tables.get("replays").to_pylist()
    ]
    assert ours == list(rows)
    assert {row[1] for row in ours} == {NODES}


def test_the_mark_of_builder_and_reader_is_one() -> None:
    assert MARK == SYNTHETIC_MARK


def test_ranges_of_all_kinds(tmp_path: Path) -> None:
    ranges = read(small(tmp_path / "s.sqlite")).tables.get("ranges").to_pylist()
    by_text = {r["text"]: r for r in ranges}
    assert by_text["warm-up"]["kind"] == "push_pop"
    assert by_text["job"]["kind"] == "start_end"
    ours = {r["text"] for r in ranges if r["domain"] == "graphtrace"}
    assert ours == {part for stage in STAGES for part in stage.path.split("/")}
    assert [r["text"] for r in ranges if r["text"] in "ab"] == ["a", "b", "a", "b", "a", "b", "a"]


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_the_order_of_rows_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("order")
    path = small(folder / "s.sqlite", dialect=DIALECTS[seed % 3])
    one = read(path)
    other = read(shuffled(path, folder / "t.sqlite", seed))
    assert one.tables.tables.keys() == other.tables.tables.keys()
    for name, table in one.tables.tables.items():
        assert table.equals(other.tables.get(name)), name


def test_the_order_of_rows_changes_nothing_where_rows_are_refused(tmp_path: Path) -> None:
    path = edit(
        small(tmp_path / "s.sqlite"),
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - rowid WHERE rowid % 5 = 0",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = 'x' || rowid WHERE rowid % 7 = 0",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 5000, end = 6000 WHERE rowid % 3 = 0",
        "UPDATE NVTX_EVENTS SET end = NULL WHERE rowid % 2 = 0",
    )
    one, other = read(path), read(shuffled(path, tmp_path / "t.sqlite", 3))
    assert refused(one)
    for name, table in one.tables.tables.items():
        assert table.equals(other.tables.get(name)), name


def test_equal_correlations_of_two_processes_stay_apart(tmp_path: Path) -> None:
    export = NsysExport()
    for pid, device, periods in ((10, 0, 3), (11, 1, 4)):
        process = export.process(pid, device=device)
        graph = process.graph([Stage(f"p{pid}", [Kernel("k", 1_000 * pid), Kernel("l", 500)])])
        graph.replays(periods, 40_000)
    export.write(tmp_path / "s.sqlite")
    tables = read(tmp_path / "s.sqlite").tables
    replays = tables.get("replays").to_pylist()
    assert len({r["correlation"] for r in replays}) < len(replays)
    assert [r["process"] for r in replays].count(0) == 3
    assert [r["process"] for r in replays].count(1) == 4
    assert all(r["device"] == r["process"] for r in replays)
    assert tables.rows("graphs") == tables.rows("execs") == 2
    calls = {
        (c["process"], c["correlation"], c["begin_ns"]) for c in tables.get("api_calls").to_pylist()
    }
    assert all((r["process"], r["correlation"], r["launch_begin_ns"]) in calls for r in replays)


def test_graph_granularity_is_busy_and_said(tmp_path: Path) -> None:
    export = NsysExport("2026")
    process = export.process(5)
    process.graph(STAGES).replays(4, 90_000, granularity="graph")
    export.write(tmp_path / "s.sqlite")
    source = read(tmp_path / "s.sqlite")
    assert kinds(source) == {"opaque_replay": 4}
    assert source.tables.rows("replays") == 4
    assert "--cuda-graph-trace=node" in source.warnings[0]


def test_graph_granularity_without_a_trace_of_it_is_not_idle(tmp_path: Path) -> None:
    export = NsysExport("2022")
    process = export.process(5)
    process.graph(STAGES).replays(4, 90_000, granularity="graph")
    export.write(tmp_path / "nothing.sqlite")
    nothing = read(tmp_path / "nothing.sqlite").nothing
    assert nothing is not None
    assert "4 CUDA graphs were launched" in nothing.why
    process.eager([Kernel("k", 900)])
    export.write(tmp_path / "s.sqlite")
    source = read(tmp_path / "s.sqlite")
    assert "4 CUDA graphs were launched" in source.warnings[0]


def test_a_capture_that_was_not_recorded_is_said(tmp_path: Path) -> None:
    export = NsysExport()
    process = export.process(5)
    graph = process.graph(STAGES, recorded=False)
    graph.replays(3, 90_000, upload=Copy(64, 800, kind=1))
    export.write(tmp_path / "s.sqlite")
    source = read(tmp_path / "s.sqlite")
    assert source.tables.rows("replays") == 3
    assert source.tables.rows("graph_events") == 0
    assert any("creation of the graph nodes" in sentence for sentence in source.warnings)


def test_marks_and_collectives_are_told_by_name(tmp_path: Path) -> None:
    export = NsysExport()
    process = export.process(5)
    names = ("gt_mark", "ncclDevKernel_AllReduce_Sum(ncclDevKernelArgs)", "gt_marked(int)")
    process.eager([Kernel(name, 1_000) for name in names])
    export.write(tmp_path / "s.sqlite")
    assert kinds(read(tmp_path / "s.sqlite")) == {"collective": 1, "kernel": 1, "mark": 1}
