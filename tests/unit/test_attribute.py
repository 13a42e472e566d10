# SPDX-License-Identifier: Apache-2.0
"""Attribution of whole traces: what gets a stage, what does not, and what the tables say."""

import numpy as np
from attribute_builders import call, event, kernel, push, shuffled, stage_paths, trace
from hypothesis import given
from hypothesis import strategies as st

from graphtrace.attribute.attribute import attribute
from graphtrace.model.trace import Trace

EXEC = 5 << 32
GRAPH = 1 << 32


def node(key: int, begin: int, end: int, number: int, launch: int, **more: object) -> dict:
    return kernel(key, begin, end, correlation=launch, node_native_id=EXEC | number, **more)


def captured() -> dict:
    """One graph of two nodes in stages `a` and `a/b`, cloned once, replayed twice."""
    return {
        "ranges": [
            push(0, 100, "a", domain="graphtrace"),
            push(20, 40, "b", domain="graphtrace"),
            push(500, 900, "serving"),
        ],
        "graph_events": [
            event(GRAPH | 1, None, 10),
            event(GRAPH | 2, None, 30),
            event(EXEC | 1, GRAPH | 1, 200),
            event(EXEC | 2, GRAPH | 2, 201),
        ],
        "api_calls": [call(1, 600), call(2, 700), call(3, 800)],
        "activities": [
            node(0, 1_000, 1_100, 1, 1),
            node(1, 1_150, 1_200, 2, 1),
            node(2, 2_000, 2_100, 1, 2),
            node(3, 5_100, 5_200, 2, 2),
            kernel(4, 6_000, 6_010, correlation=3),
        ],
    }


def test_nodes_of_a_replay_belong_to_the_stage_of_their_capture() -> None:
    found = attribute(trace(**captured()))
    assert stage_paths(found.trace) == ["a", "a/b", "a", "a/b", None]
    rows = found.trace.activities.to_pylist()
    assert [row["method"] for row in rows] == ["origin"] * 4 + ["none"]
    assert [row["reason"] for row in rows] == [None] * 4 + ["no range open at launch"]
    assert [row["replay"] for row in rows] == [0, 0, 1, 1, None]
    assert found.replays is not None
    assert (found.replays.count, found.replays.wall_total_ns) == (2, 200 + 3_200)
    assert (found.replays.wall_median_ns, found.replays.wall_p99_ns) == (200, 3_200)
    assert found.coverage is not None
    assert found.coverage.activities.exact == 4
    assert found.coverage.activities.in_graphs == 4
    assert found.coverage.time_ns.unattributed == 10
    assert found.coverage.reasons == {"no range open at launch": 1}


def test_budget_of_replays() -> None:
    budget = attribute(trace(**captured())).budget
    assert budget is not None
    assert (budget.scope, budget.units) == ("replay", 2)
    assert (budget.wall_ns, budget.busy_ns, budget.idle_ns) == (3_400, 350, 3_050)
    # The gap belongs to the stage that ends it; 3 µs are more than scheduling explains.
    assert [(s.stage, s.busy_ns, s.idle_ns) for s in budget.by_stage] == [
        ("a/b", 150, 3_050),
        ("a", 200, 0),
    ]
    assert budget.idle_by_kind == {"launch_latency": 50, "unexplained": 3_000}
    assert (budget.eager.kernels, budget.eager.busy_ns) == (1, 10)
    wide = attribute(trace(**captured()), launch_gap_ns=4_000).budget
    assert wide is not None
    assert wide.idle_by_kind == {"launch_latency": 3_050, "unexplained": 0}


def test_tables_of_graphs_nodes_execs_and_replays() -> None:
    found = attribute(trace(**captured())).trace
    graphs, nodes = found.graphs.to_pylist(), found.nodes.to_pylist()
    assert [(g["graph"], g["process"], g["native_id"]) for g in graphs] == [(0, 0, 1)]
    assert [(n["node"], n["graph"], n["ordinal"], n["created_ns"]) for n in nodes] == [
        (0, 0, 0, 10),
        (1, 0, 1, 30),
    ]
    assert stage_paths(found, "nodes") == ["a", "a/b"]
    execs, replays = found.execs.to_pylist(), found.replays.to_pylist()
    assert [(e["exec"], e["graph"], e["native_id"]) for e in execs] == [(0, 0, 5)]
    assert [(r["exec"], r["graph"], r["stream"]) for r in replays] == [(0, 0, 7)] * 2
    assert [(r["launch_begin_ns"], r["launch_end_ns"]) for r in replays] == [(600, 605), (700, 705)]
    assert [row["node"] for row in found.activities.to_pylist()] == [0, 1, 0, 1, None]
    assert [row["graph"] for row in found.activities.to_pylist()] == [0, 0, 0, 0, None]
    assert stage_paths(found, "ranges") == ["a", "a/b", None]


def test_attributing_twice_changes_nothing() -> None:
    once = attribute(trace(**captured()))
    twice = attribute(once.trace)
    assert twice.budget == once.budget
    assert twice.coverage == once.coverage
    for name, table in once.trace.tables.tables.items():
        assert twice.trace.table(name).to_pylist() == table.to_pylist(), name


@given(st.integers(0, 10**6))
def test_row_order_means_nothing(seed: int) -> None:
    plain, mixed = attribute(trace(**captured())), attribute(shuffled(trace(**captured()), seed))
    assert mixed.budget == plain.budget
    assert mixed.coverage == plain.coverage
    assert mixed.trace.stage_times.to_pylist() == plain.trace.stage_times.to_pylist()
    assert mixed.trace.stages.to_pylist() == plain.trace.stages.to_pylist()
    by_key = {row["activity"]: row for row in mixed.trace.activities.to_pylist()}
    assert [by_key[row["activity"]] for row in plain.trace.activities.to_pylist()] == (
        plain.trace.activities.to_pylist()
    )


def reasons_of(made: Trace) -> list[str | None]:
    return attribute(made).trace.activities.column("reason").to_pylist()


def test_a_node_twice_in_one_replay_is_nobodys() -> None:
    parts = captured()
    parts["activities"] += [node(9, 1_300, 1_310, 1, 1)]
    why = reasons_of(trace(**parts))
    assert why == [
        "node twice in one replay",
        None,
        None,
        None,
        "no range open at launch",
        "node twice in one replay",
    ]


def test_zero_coverage_of_graphs_is_the_first_warning() -> None:
    parts = captured()
    parts["graph_events"] = []
    made = trace(**parts)
    found = attribute(Trace(made.inputs, made.tables, ("an older warning",)))
    assert found.trace.warnings[0].startswith("None of the 4 activities inside CUDA graphs")
    assert "creation not recorded for 4" in found.trace.warnings[0]
    assert "before the graph is captured" in found.trace.warnings[0]
    assert found.trace.warnings[1] == "an older warning"
    # In graphs all the same: the replays are known by their launches.
    assert found.replays is not None
    assert found.replays.count == 2
    assert found.budget is not None
    assert found.budget.busy_ns == 350


def test_graphs_without_ranges_name_the_cure() -> None:
    parts = captured()
    parts["ranges"] = []
    found = attribute(trace(**parts))
    assert "graphtrace capture" in found.trace.warnings[0]


def test_opaque_replays_are_busy_in_graphs_and_unattributed() -> None:
    opaque = {"kind": "opaque_replay", "name": None}
    found = attribute(
        trace(
            api_calls=[call(1, 5), call(2, 300)],
            activities=[
                kernel(0, 100, 200, correlation=1, **opaque),
                kernel(1, 400, 450, correlation=2, **opaque),
            ],
            ranges=[push(0, 900, "a")],
        )
    )
    assert found.coverage is not None
    assert found.coverage.activities.in_graphs == found.coverage.activities.unattributed == 2
    assert found.coverage.reasons == {"opaque replay": 2}
    assert found.budget is not None
    assert (found.budget.wall_ns, found.budget.busy_ns, found.budget.idle_ns) == (150, 150, 0)
    assert [s.stage for s in found.budget.by_stage] == [None]
    assert "--cuda-graph-trace=node" in found.trace.warnings[0]


def test_eager_work_belongs_to_the_range_open_at_its_launch() -> None:
    found = attribute(
        trace(
            ranges=[
                push(0, 100, "step"),
                push(10, 20, "load"),
                push(0, 100, "other", thread=2),
                push(0, 100, "foreign", process=1),
            ],
            api_calls=[
                call(1, 15),
                call(2, 50),
                call(3, 60, thread=2),
                call(4, 50),
                call(4, 50, thread=2),
                call(6, 70, process=1),
                call(7, 500),
                call(8, 15),
                call(8, 17),
            ],
            activities=[
                kernel(1, 1_000, 1_010, kind="memcpy", bytes=4),
                kernel(2, 1_020, 1_030),
                kernel(3, 1_040, 1_050, kind="memset"),
                kernel(4, 1_060, 1_070),
                kernel(5, 1_080, 1_090),
                kernel(6, 1_080, 1_090),
                kernel(7, 1_200, 1_210),
                kernel(8, 1_300, 1_310),
                kernel(9, 1_400, 1_410, correlation=None),
            ],
        )
    )
    assert stage_paths(found.trace) == [
        "step/load",
        "step",
        "other",
        None,
        None,
        None,
        None,
        "step/load",
        None,
    ]
    assert found.trace.activities.column("reason").to_pylist() == [
        None,
        None,
        None,
        "launch recorded twice",
        "launch not recorded",
        "launch not recorded",
        "no range open at launch",
        None,
        "launch not recorded",
    ]
    assert found.coverage is not None
    assert found.coverage.activities.total == 9
    budget = found.budget
    assert budget is not None
    assert (budget.scope, budget.units, budget.eager.kernels) == ("range", 2, 5)
    assert budget.idle_by_kind == {"unexplained": budget.idle_ns}


def test_marks_of_ours_are_busy_but_not_counted() -> None:
    parts = captured()
    parts["activities"] += [node(7, 1_110, 1_112, 9, 1, kind="mark", name="gt_mark")]
    found = attribute(trace(**parts))
    assert found.coverage is not None
    assert found.coverage.activities.total == 5
    row = found.trace.activities.to_pylist()[-1]
    assert (row["stage"], row["method"], row["reason"]) == (None, None, None)
    assert found.budget is not None
    assert found.budget.by_stage[-1].stage is None
    assert found.budget.by_stage[-1].busy_ns == 2


def test_crossing_ranges_are_named() -> None:
    parts = captured()
    parts["ranges"] += [push(25, 60, "x", domain="graphtrace")]
    found = attribute(trace(**parts))
    assert stage_paths(found.trace)[:4] == ["a", None, "a", None]
    assert found.coverage is not None
    assert found.coverage.reasons["ranges cross"] == 2
    assert any("1 NVTX ranges overlap an earlier range" in w for w in found.trace.warnings)


def test_a_reused_node_id_keeps_each_replay_with_its_own_capture() -> None:
    found = attribute(
        trace(
            ranges=[push(0, 50, "old"), push(500, 550, "new")],
            graph_events=[
                event(GRAPH | 1, None, 10),
                event(EXEC | 1, GRAPH | 1, 20),
                event(GRAPH | 1, None, 510),
                event((6 << 32) | 1, GRAPH | 1, 520),
            ],
            api_calls=[call(1, 100), call(2, 600)],
            activities=[
                node(0, 200, 210, 1, 1),
                kernel(1, 700, 710, correlation=2, node_native_id=(6 << 32) | 1),
            ],
        )
    )
    assert stage_paths(found.trace) == ["old", "new"]
    assert found.trace.nodes.num_rows == 2


def test_replays_belong_to_the_batch_that_launched_them() -> None:
    parts = captured()
    parts["batches"] = [
        {"batch": 4, "process": 0, "thread": 1, "begin_ns": 590, "end_ns": 650},
        {"batch": 5, "process": 0, "thread": 2, "begin_ns": 690, "end_ns": 750},
    ]
    replays = attribute(trace(**parts)).trace.replays.to_pylist()
    assert [row["batch"] for row in replays] == [4, None]
    parts["batches"][1] = {**parts["batches"][1], "thread": None}
    replays = attribute(trace(**parts)).trace.replays.to_pylist()
    assert [row["batch"] for row in replays] == [4, 5]


def test_a_trace_of_ncu_alone_has_no_timeline() -> None:
    made = trace(ncu_results=[], metrics=[])
    found = attribute(made)
    assert (found.coverage, found.replays, found.budget) == (None, None, None)
    assert found.trace == made


def test_a_stage_that_a_reader_set_stays_with_its_method() -> None:
    parts = captured()
    parts["stages"] = [{"stage": 8, "path": "kept", "name": "kept", "origin": "code"}]
    parts["activities"][0] |= {"stage": 8, "method": "tools-id"}
    found = attribute(trace(**parts))
    assert stage_paths(found.trace)[:2] == ["kept", "a/b"]
    assert found.trace.activities.column("method").to_pylist()[:2] == ["tools-id", "origin"]
    assert found.coverage is not None
    assert found.coverage.activities.exact == 4


def test_an_inferred_stage_counts_as_inferred() -> None:
    parts = captured()
    parts["stages"] = [{"stage": 0, "path": "x", "name": "x", "origin": "code"}]
    parts["activities"][0] |= {"stage": 0, "method": "capture-order"}
    found = attribute(trace(**parts))
    assert found.coverage is not None
    assert (found.coverage.activities.exact, found.coverage.activities.inferred) == (3, 1)


def test_times_since_the_epoch_and_large_ids() -> None:
    """Times since the epoch and large ids do not overflow."""
    far = 1_700_000_000_000_000_000
    found = attribute(
        trace(
            ranges=[push(far, far + 100, "a")],
            graph_events=[event(2**61 + 1, None, far + 1), event(2**62 + 7, 2**61 + 1, far + 2)],
            api_calls=[call(1, far + 200)],
            activities=[
                kernel(0, far + 300, far + 310, correlation=1, node_native_id=2**62 + 7),
                kernel(1, 5, 7, process=1, correlation=None),
            ],
        )
    )
    assert stage_paths(found.trace) == ["a", None]
    assert found.budget is not None
    assert np.isclose(sum(s.share for s in found.budget.by_stage), 1.0)
